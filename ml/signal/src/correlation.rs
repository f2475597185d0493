//! Pearson's correlation of series, row by row.

use crate::{Error, Result};
use rayon::prelude::*;

/// `r` of each row of `a` with the same row of `b`, both `[n, time_points]` row-major.
///
/// NaN where one of the two has no variance or holds values that are not finite, as in scipy.
///
/// # Errors
/// Different sizes, or a length that is no multiple of `time_points`.
pub fn pearson_r<T: Copy + Into<f64> + PartialEq + Sync>(
    a: &[T],
    b: &[T],
    time_points: usize,
) -> Result<Vec<f32>> {
    if time_points == 0 || !a.len().is_multiple_of(time_points) {
        let expected = format!("whole series of {time_points} time points");
        return Err(Error::Shape { what: "first series", found: a.len(), expected });
    }
    if a.len() != b.len() {
        return Err(Error::Shape { what: "second series", found: b.len(), expected: a.len().to_string() });
    }
    let rows = a.par_chunks_exact(time_points).zip(b.par_chunks_exact(time_points));
    Ok(rows.with_min_len(256).map(|(a, b)| row(a, b)).collect())
}

fn row<T: Copy + Into<f64> + PartialEq>(a: &[T], b: &[T]) -> f32 {
    let mean = |x: &[T]| x.iter().map(|v| (*v).into()).sum::<f64>() / x.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = ((*x).into() - mean_a, (*y).into() - mean_b);
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    let constant = |x: &[T]| x.iter().all(|v| *v == x[0]);
    if constant(a) || constant(b) {
        return f32::NAN;
    }
    (ab / (aa.sqrt() * bb.sqrt())).clamp(-1.0, 1.0) as f32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn known_correlations() {
        let a = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0, 1.0, 2.0, 3.0, f32::NAN];
        let b = [3.0, 5.0, 7.0, 9.0, 1.0, 3.0, 2.0, 5.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0];
        let r = pearson_r(&a, &b, 4).unwrap();
        assert_eq!(r[0], 1.0);
        // Σxy = 5.5, Σx² = 5, Σy² = 8.75
        assert!((f64::from(r[1]) - 5.5 / (5.0f64 * 8.75).sqrt()).abs() < 1e-7);
        assert!(r[2].is_nan() && r[3].is_nan());
    }

    #[test]
    fn sizes_must_fit() {
        assert!(pearson_r(&[1.0; 6], &[1.0; 6], 4).is_err());
        assert!(pearson_r(&[1.0; 4], &[1.0; 8], 4).is_err());
        assert!(pearson_r::<f32>(&[], &[], 0).is_err());
    }
}
