//! What predictions of every penalty sum to, without a product for each of them.
//!
//! In the basis of its features a ridge fit of penalty α has weights `v·d`, `dⱼ = 1 / (λⱼ + α)`. Sums of `y·ŷ` are linear in
//! d, and those of `ŷ²` are `Σⱼₖ dⱼ dₖ vⱼ vₖ Bⱼₖ` with a B that no penalty changes. For two values that are apart,
//!
//! ```text
//!   dⱼ·dₖ = (dⱼ − dₖ) / (λₖ − λⱼ)        so        Σⱼₖ dⱼ dₖ vⱼ vₖ Bⱼₖ = 2 Σⱼ dⱼ vⱼ Pⱼ ,   Pⱼ = Σₖ vₖ Bⱼₖ / (λₖ − λⱼ)
//! ```
//! and P is one product for all penalties. Where two values are close (a value to itself among them) the difference would
//! leave no digits; there `dⱼ·dₖ` is `(dⱼ² + dₖ²) / 2` to the square of their distance, and the sum `Σⱼ dⱼ² vⱼ Qⱼ`,
//! `Qⱼ = Σₖ vₖ Bⱼₖ`. A penalty over all values makes all d nearly `1 / α`; what they differ from it by,
//! `dⱼ − 1/α = −λⱼ dⱼ / α`, serves as well in the first sum, since `Bⱼₖ / (λₖ − λⱼ)` is antisymmetric, and keeps
//! its digits. With [`CLOSE`] both are right to some 1e-10 of `Σy²`, if sums are in 64 bits: B and v themselves
//! may be in 32, since every pair keeps its own value.

use crate::Scalar;
use crate::columns::{column_of, made};
use crate::penalties::sums_by_penalty;
use crate::spectrum::product;
use faer::{Mat, MatRef};

/// Values are close if they differ by less than this part of the larger one: their difference leaves too few digits.
const CLOSE: f64 = 1e-5;

/// Differences that are noise of a decomposition in 64 bits, or of vectors in numbers that are `epsilon` apart.
pub(crate) fn noise(largest: f64, epsilon: f64) -> f64 {
    largest * (64.0 * f64::EPSILON).max(8.0 * epsilon.powi(2))
}

/// Whether `a` and `b` are close, or differ by no more than `noise`.
pub(crate) fn are_close(a: f64, b: f64, noise: f64) -> bool {
    (b - a).abs() <= (CLOSE * a.max(b)).max(noise)
}

/// `1 / (λ + α)`, up to a number for each penalty α, with digits that are left when two of it are subtracted.
pub(crate) fn differing(value: f64, alpha: f64, largest: f64) -> f64 {
    let once = 1.0 / (value + alpha);
    if alpha > largest { -value * once / alpha } else { once }
}

/// `1 / (λ + α)` of every value and penalty.
pub(crate) struct Shrinkage {
    /// `[n_values, n_alphas]`.
    once: Mat<f64>,
    /// Squared.
    twice: Mat<f64>,
    /// The same as `once`, up to a number for each penalty, with digits that are left when they are subtracted.
    differing: Mat<f64>,
}

impl Shrinkage {
    pub fn new(values: &[f64], alphas: &[f64]) -> Self {
        let once = Mat::from_fn(values.len(), alphas.len(), |j, a| 1.0 / (values[j] + alphas[a]));
        let twice = Mat::from_fn(values.len(), alphas.len(), |j, a| once[(j, a)] * once[(j, a)]);
        let largest = values.last().copied().unwrap_or(0.0);
        let differing =
            Mat::from_fn(values.len(), alphas.len(), |j, a| differing(values[j], alphas[a], largest));
        Self { once, twice, differing }
    }

    /// `Σⱼ dⱼ aⱼ bⱼ` of each row of `a` and `b`, `[n, n_values]`, and penalty: `[n, n_alphas]`.
    pub fn linear<A: Scalar, B: Scalar>(&self, a: MatRef<'_, A>, b: MatRef<'_, B>) -> Mat<f64> {
        sums_by_penalty(a.nrows(), self.once.as_ref(), |j, first, into| {
            let both = column_of(a, j)[first..].iter().zip(&column_of(b, j)[first..]);
            into.iter_mut().zip(both).for_each(|(term, (a, b))| *term = a.wide() * b.wide());
        })
    }

    /// `Σⱼ dⱼ wⱼ aⱼ` of each row of `a`, `[n, n_values]`, and penalty, with one w for all rows: `[n, n_alphas]`.
    pub fn weighted(&self, a: MatRef<'_, f64>, w: &[f64]) -> Mat<f64> {
        sums_by_penalty(a.nrows(), self.once.as_ref(), |j, first, into| {
            into.iter_mut().zip(&column_of(a, j)[first..]).for_each(|(term, a)| *term = w[j] * a);
        })
    }
}

/// B, divided by the differences of values.
pub(crate) struct Quadratic<T> {
    /// `Bⱼₖ / (λₖ − λⱼ)` in row k and column j, where these are apart.
    apart: Mat<T>,
    close: Close<T>,
}

/// B where values are close.
enum Close<T> {
    /// `(j, k, Bⱼₖ)`, `j <= k`.
    Few(Vec<(usize, usize, f64)>),
    /// As a matrix, with zeros where values are apart.
    Many(Mat<T>),
}

impl<T: Scalar> Quadratic<T> {
    /// `b`: symmetric, `[n_values, n_values]`; `values`: not negative, ascending.
    pub fn new(b: MatRef<'_, f64>, values: &[f64]) -> Self {
        let k = values.len();
        let noise = noise(values.last().copied().unwrap_or(0.0), T::EPSILON);
        let close = |j: usize, k: usize| are_close(values[j], values[k], noise);
        let apart =
            made(k, k, |k, j| T::of(if close(j, k) { 0.0 } else { b[(j, k)] / (values[k] - values[j]) }));
        let mut few = Vec::new();
        for j in 0..k {
            // Ascending: those close to one value lie together.
            let ahead = (j..k).take_while(|other| close(j, *other));
            few.extend(ahead.map(|other| (j, other, b[(j, other)])));
        }
        let close = if few.len() <= 8 * k {
            Close::Few(few)
        } else {
            Close::Many(made(k, k, |j, k| T::of(if close(j, k) { b[(j, k)] } else { 0.0 })))
        };
        Self { apart, close }
    }

    /// `Σⱼₖ dⱼ dₖ vⱼ vₖ Bⱼₖ` of each row v of `vectors`, `[n, n_values]`, and penalty: `[n, n_alphas]`.
    pub fn squares(
        &self,
        vectors: MatRef<'_, f64>,
        shrinkage: &Shrinkage,
        scratch: &mut Mat<f64>,
    ) -> Mat<f64> {
        let apart = product(vectors, T::widened(self.apart.as_ref(), scratch));
        let close = match &self.close {
            Close::Few(few) => sparse(few, vectors),
            Close::Many(b) => product(vectors, T::widened(b.as_ref(), scratch)),
        };
        let of = |other: &Mat<f64>, factor: f64, d: &Mat<f64>| {
            sums_by_penalty(vectors.nrows(), d.as_ref(), |j, first, into| {
                let both = column_of(vectors, j)[first..].iter().zip(&column_of(other.as_ref(), j)[first..]);
                into.iter_mut().zip(both).for_each(|(term, (v, other))| *term = factor * v * other);
            })
        };
        of(&apart, 2.0, &shrinkage.differing) + of(&close, 1.0, &shrinkage.twice)
    }
}

/// `vectors · B`, B symmetric and given by the few of its numbers that are not zero.
fn sparse(few: &[(usize, usize, f64)], vectors: MatRef<'_, f64>) -> Mat<f64> {
    let mut found = Mat::zeros(vectors.nrows(), vectors.ncols());
    let mut add = |to: usize, from: usize, b: f64| {
        found.col_mut(to).iter_mut().zip(vectors.col(from).iter()).for_each(|(q, v)| *q += b * v);
    };
    for (j, k, b) in few {
        add(*j, *k, *b);
        if j != k {
            add(*k, *j, *b);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1 without a pattern.
    fn noise(n: usize) -> f64 {
        ((n as f64 + 1.0) * 12.9898).sin() * 43_758.545_3 % 1.0
    }

    fn check<T: Scalar>(values: &[f64], alphas: &[f64], tolerance: f64) {
        let k = values.len();
        // Columns of z are as long as the roots of their values, as in a fit.
        let z = Mat::from_fn(2 * k, k, |i, j| noise(31 * i + 1009 * j) * values[j].sqrt());
        let b = product(z.transpose(), z.as_ref());
        let vectors = Mat::from_fn(5, k, |i, j| T::of(noise(7 * i + 501 * j) * values[j].sqrt()).wide());
        let shrinkage = Shrinkage::new(values, alphas);
        let found =
            Quadratic::<T>::new(b.as_ref(), values).squares(vectors.as_ref(), &shrinkage, &mut Mat::new());
        for (a, alpha) in alphas.iter().enumerate() {
            for i in 0..5 {
                let weights = Mat::from_fn(k, 1, |j, _| vectors[(i, j)] / (values[j] + alpha));
                let expected = product(z.as_ref(), weights.as_ref()).squared_norm_l2();
                assert!(
                    (found[(i, a)] - expected).abs() <= tolerance * expected,
                    "alpha {alpha}, row {i}: {} instead of {expected}",
                    found[(i, a)]
                );
            }
        }
    }

    #[test]
    fn one_product_serves_all_penalties() {
        let alphas = [0.1, 1.0, 100.0, 1e6, 1e20];
        let spread: Vec<f64> = (0..60).map(|j| 1.1_f64.powi(j)).collect();
        check::<f64>(&spread, &alphas, 1e-10);
        check::<f32>(&spread, &alphas, 1e-6);
    }

    #[test]
    fn equal_and_nearly_equal_values_are_served_too() {
        let alphas = [0.1, 3.0, 1000.0];
        let whitened = vec![50.0; 40];
        check::<f64>(&whitened, &alphas, 1e-12);
        let near: Vec<f64> = (0..40).map(|j| 50.0 * (1.0 + 4e-6 * f64::from(j))).collect();
        check::<f64>(&near, &alphas, 1e-9);
        let pairs: Vec<f64> =
            (0..40).map(|j| f64::from(j / 2 + 1) * (1.0 + f64::from(j % 2) * 1e-9)).collect();
        check::<f64>(&pairs, &alphas, 1e-9);
        let mut rank_deficient = vec![0.0; 20];
        rank_deficient.extend((1..20).map(f64::from));
        check::<f64>(&rank_deficient, &alphas, 1e-10);
    }
}
