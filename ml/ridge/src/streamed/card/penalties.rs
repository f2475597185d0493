//! What serves all penalties at once on a card: see [`crate::quadratic`].

use crate::quadratic::{are_close, differing, noise};
use std::ops::Range;

/// `1 / (λ + α)` of all penalties, then what serves in its place where differences of it are multiplied with what is
/// antisymmetric: for a penalty over all values these are `−λ / (λ + α) / α`, which is `1 / α` less. Zero up to `useless`.
pub(super) fn shrink(values: &[f64], useless: usize, alphas: &[f64]) -> Vec<f64> {
    let largest = values.last().copied().unwrap_or(0.0);
    let once = |value: f64, alpha: f64| 1.0 / (value + alpha);
    let differing = |value: f64, alpha: f64| differing(value, alpha, largest);
    let of = |each: &dyn Fn(f64, f64) -> f64, alpha: f64| -> Vec<f64> {
        let useful = values[useless..].iter().map(|value| each(*value, alpha));
        std::iter::repeat_n(0.0, useless).chain(useful).collect()
    };
    let all =
        |each: &dyn Fn(f64, f64) -> f64| alphas.iter().flat_map(|alpha| of(each, *alpha)).collect::<Vec<_>>();
    [all(&once), all(&differing)].concat()
}

/// To each of the ascending `values` from `useless` on those that are close, itself among them; the first have none.
pub(super) fn close(values: &[f64], useless: usize) -> Vec<Range<usize>> {
    let noise = noise(values.last().copied().unwrap_or(0.0), f64::EPSILON);
    let near = |low: f64, high: f64| are_close(low, high, noise);
    let (mut start, mut end) = (useless, useless);
    let range = |at: usize| {
        if at < useless {
            return 0..0;
        }
        while !near(values[start], values[at]) {
            start += 1;
        }
        end = end.max(at);
        while end < values.len() && near(values[at], values[end]) {
            end += 1;
        }
        start..end
    };
    (0..values.len()).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::{close, shrink};

    #[test]
    fn values_are_close_to_their_neighbours() {
        let values = [0.0, 1e-20, 1.0, 1.0, 1.000_001, 2.0, 2.000_01, 2.000_03, 5.0];
        let expected = [0..0, 0..0, 2..5, 2..5, 2..5, 5..7, 5..8, 6..8, 8..9];
        assert_eq!(close(&values, 2), expected);
        assert_eq!(close(&[3.0; 4], 0), [0..4, 0..4, 0..4, 0..4]);
        assert!(close(&[], 0).is_empty());
    }

    #[test]
    fn huge_penalties_leave_differences() {
        assert_eq!(shrink(&[0.0, 1.0, 4.0], 1, &[1.0]), [0.0, 0.5, 0.2, 0.0, 0.5, 0.2]);
        let found = shrink(&[1.0, 4.0], 0, &[1e20]);
        assert_eq!(found[0], found[1]);
        assert!(((found[2] - found[3]) / 3e-40 - 1.0).abs() < 1e-12);
    }
}
