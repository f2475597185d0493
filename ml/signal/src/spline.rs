//! Filling of censored volumes by a cubic spline through the kept ones, as `scipy.interpolate.CubicSpline` with
//! its not-a-knot ends (de Boor, A Practical Guide to Splines, ch. IV).
//!
//! The spline is built from the slopes `s` at the kept volumes, which solve a tridiagonal system that depends on
//! the mask alone: it is eliminated once, and every block of series costs two sweeps.

use crate::{
    SampleMask,
    lanes::{LANES, Lanes},
};

/// Fills the censored volumes between the first and the last kept one; it never extrapolates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SplineFill {
    /// Kept volumes, counted from the first one.
    knots: Vec<usize>,
    /// Distances between them.
    steps: Vec<f64>,
    /// The system after elimination: what is subtracted of the row before, the diagonal's inverse, the row's rest.
    below: Vec<f64>,
    inverse: Vec<f64>,
    above: Vec<f64>,
}

/// What a thread needs to fill a block.
#[derive(Default)]
pub(crate) struct SplineScratch {
    secants: Vec<Lanes>,
    slopes: Vec<Lanes>,
}

impl SplineFill {
    /// `None` where nothing lies between kept volumes.
    pub fn of(mask: &SampleMask) -> Option<Self> {
        let span = mask.span();
        if mask.kept() == span.len() {
            return None;
        }
        let knots: Vec<usize> = mask.indices().iter().map(|v| v - span.start).collect();
        let steps: Vec<f64> = knots.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mut fill = Self { knots, steps, below: Vec::new(), inverse: Vec::new(), above: Vec::new() };
        if fill.knots.len() > 3 {
            fill.eliminate();
        }
        Some(fill)
    }

    /// Gaussian elimination of the rows `h₁s₀ + (h₀+h₁)s₁`, `hᵢsᵢ₋₁ + 2(hᵢ₋₁+hᵢ)sᵢ + hᵢ₋₁sᵢ₊₁` and the last one,
    /// which mirrors the first. No pivoting: all pivots stay positive.
    fn eliminate(&mut self) {
        let (h, n) = (&self.steps, self.knots.len());
        let row = |i: usize| match i {
            0 => (0.0, h[1], h[0] + h[1]),
            i if i == n - 1 => (h[n - 2] + h[n - 3], h[n - 3], 0.0),
            i => (h[i], 2.0 * (h[i - 1] + h[i]), h[i - 1]),
        };
        for i in 0..n {
            let (before, diagonal, after) = row(i);
            let below = if i == 0 { 0.0 } else { before * self.inverse[i - 1] };
            let above_before = if i == 0 { 0.0 } else { self.above[i - 1] };
            self.below.push(below);
            self.inverse.push((diagonal - below * above_before).recip());
            self.above.push(after);
        }
    }

    /// Fills a block of series, `[span][LANES]`, from the first kept volume to the last.
    pub fn apply(&self, block: &mut [Lanes], scratch: &mut SplineScratch) {
        let knots = &self.knots;
        scratch.secants.clear();
        scratch.secants.extend(
            knots.windows(2).zip(&self.steps).map(|(pair, h)| {
                std::array::from_fn(|lane| (block[pair[1]][lane] - block[pair[0]][lane]) / h)
            }),
        );
        self.slopes(&scratch.secants, &mut scratch.slopes);
        let (secants, slopes) = (&scratch.secants, &scratch.slopes);
        for (i, pair) in knots.windows(2).enumerate() {
            let (h, start) = (self.steps[i], block[pair[0]]);
            for (x, filled) in (1..).zip(&mut block[pair[0] + 1..pair[1]]) {
                let x = f64::from(x);
                *filled = std::array::from_fn(|lane| {
                    let (secant, s, t) = (secants[i][lane], slopes[i][lane], slopes[i + 1][lane]);
                    let bend = (s + t - 2.0 * secant) / h;
                    start[lane] + x * (s + x * ((secant - s) / h - bend + x * bend / h))
                });
            }
        }
    }

    /// The spline's slope at each kept volume.
    fn slopes(&self, secants: &[Lanes], slopes: &mut Vec<Lanes>) {
        let (h, n) = (&self.steps, self.knots.len());
        slopes.clear();
        let mix = |a: f64, x: &Lanes, b: f64, y: &Lanes| -> Lanes {
            std::array::from_fn(|lane| a * x[lane] + b * y[lane])
        };
        match n {
            0 | 1 => {}
            2 => slopes.extend([secants[0]; 2]),
            3 => {
                // A parabola through three points.
                let bend = mix(1.0 / (h[0] + h[1]), &secants[1], -1.0 / (h[0] + h[1]), &secants[0]);
                slopes.push(mix(1.0, &secants[0], -h[0], &bend));
                slopes.push(mix(1.0, &secants[0], h[0], &bend));
                slopes.push(mix(1.0, &secants[1], h[1], &bend));
            }
            _ => {
                let end = |h0: f64, h1: f64, near: &Lanes, far: &Lanes| {
                    let d = h0 + h1;
                    mix((h0 + 2.0 * d) * h1 / d, near, h0 * h0 / d, far)
                };
                for i in 0..n {
                    let mut right = match i {
                        0 => end(h[0], h[1], &secants[0], &secants[1]),
                        i if i == n - 1 => end(h[n - 2], h[n - 3], &secants[n - 2], &secants[n - 3]),
                        i => mix(3.0 * h[i], &secants[i - 1], 3.0 * h[i - 1], &secants[i]),
                    };
                    if i > 0 {
                        right = mix(1.0, &right, -self.below[i], &slopes[i - 1]);
                    }
                    slopes.push(right);
                }
                let mut next = [0.0; LANES];
                for i in (0..n).rev() {
                    next = std::array::from_fn(|lane| {
                        (slopes[i][lane] - self.above[i] * next[lane]) * self.inverse[i]
                    });
                    slopes[i] = next;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn filled(mask: &SampleMask, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let dropped = |t: &usize| !mask.indices().contains(t);
        let mut block: Vec<Lanes> =
            mask.span().map(|t| [if dropped(&t) { f64::NAN } else { of(t as f64) }; LANES]).collect();
        SplineFill::of(mask).unwrap().apply(&mut block, &mut SplineScratch::default());
        block.iter().map(|lanes| lanes[LANES - 1]).collect()
    }

    #[test]
    fn polynomials_up_to_the_third_degree_are_met() {
        for (kept, degree) in
            [(vec![1, 4], 1), (vec![0, 3, 5], 2), (vec![2, 3, 7, 8], 3), (vec![0, 2, 5, 9, 10, 14], 3)]
        {
            let of = |t: f64| (0..=degree).map(|p| (t / 5.0 - 0.7).powi(p)).sum::<f64>();
            let mask = SampleMask::from_indices(&kept, 20).unwrap();
            for (t, x) in mask.span().zip(filled(&mask, of)) {
                assert!((x - of(t as f64)).abs() < 1e-12, "{kept:?} at {t}: {x}");
            }
        }
    }

    #[test]
    fn the_values_are_scipys() {
        let index: serde_json::Value =
            serde_json::from_str(include_str!("../tests/fixtures/confounds/index.json")).unwrap();
        let cases = index["splines"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let numbers = |name: &str| serde_json::from_value::<Vec<f64>>(case[name].clone()).unwrap();
            let kept: Vec<usize> = serde_json::from_value(case["kept"].clone()).unwrap();
            let (values, theirs) = (numbers("values"), numbers("filled"));
            let mask = SampleMask::from_indices(&kept, values.len()).unwrap();
            // The first case has no gaps: only its edge is censored, and nothing is to be filled.
            let ours = match SplineFill::of(&mask) {
                Some(_) => filled(&mask, |t| values[t as usize]),
                None => values[mask.span()].to_vec(),
            };
            assert_eq!(ours.len(), theirs.len());
            for (a, b) in ours.iter().zip(&theirs) {
                assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{kept:?}: {a} instead of {b}");
            }
        }
    }

    #[test]
    fn a_mask_without_gaps_needs_no_filling() {
        assert!(SplineFill::of(&SampleMask::from_indices(&[3, 4, 5], 9).unwrap()).is_none());
        assert!(SplineFill::of(&SampleMask::from_indices(&[3], 9).unwrap()).is_none());
    }
}
