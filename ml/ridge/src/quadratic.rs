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
//!
//! Digits are lost as the distance of two values is smaller than the values are. Of numbers in 32 bits the pairs that are
//! far from each other ([`FAR`]) are summed in 32 bits, and only the others, which lie in a band about the
//! diagonal, in 64.

use crate::Scalar;
use crate::columns::{column_of, made};
use crate::penalties::sums_by_penalty;
use crate::spectrum::{product, threads};
use crate::targets::blocks;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef};
use std::ops::Range;

/// Values are close if they differ by less than this part of the larger one: their difference leaves too few digits.
const CLOSE: f64 = 1e-5;
/// Values are far from each other if they differ by this part of the larger one, in units of the distance between numbers: a
/// quarter for 32 bits. All that are not close are far for 64.
const FAR: f64 = (1 << 21) as f64;
/// Columns of a piece of the band.
const COLUMNS: usize = 64;

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
    pub fn weighted<A: Scalar>(&self, a: MatRef<'_, A>, w: &[f64]) -> Mat<f64> {
        sums_by_penalty(a.nrows(), self.once.as_ref(), |j, first, into| {
            into.iter_mut().zip(&column_of(a, j)[first..]).for_each(|(term, a)| *term = w[j] * a.wide());
        })
    }
}

/// B, divided by the differences of values: some columns of it, whose sums add up to those of all.
pub(crate) struct Quadratic<T> {
    columns: Range<usize>,
    /// `Bⱼₖ / (λₖ − λⱼ)` in row k and column j, where these are far from each other.
    far: Mat<T>,
    /// The same where they are neither far nor close.
    between: Vec<Piece>,
    close: Close<T>,
}

/// Neighbouring columns of a matrix that is zero but about its diagonal.
struct Piece {
    columns: Range<usize>,
    /// The rows that are not zero.
    rows: Range<usize>,
    /// `[rows.len(), columns.len()]`.
    values: Mat<f64>,
}

/// B where values are close.
enum Close<T> {
    /// `(k, j, Bₖⱼ)` in the order of columns.
    Few(Vec<(usize, usize, f64)>),
    /// As a matrix, with zeros where values are apart.
    Many(Mat<T>),
}

/// Values, ascending, and how they lie to each other.
struct Distances<'a> {
    values: &'a [f64],
    noise: f64,
    /// The least part of the larger value by which two differ that are far from each other.
    far: f64,
}

impl<'a> Distances<'a> {
    fn new<T: Scalar>(values: &'a [f64]) -> Self {
        let noise = noise(values.last().copied().unwrap_or(0.0), T::EPSILON);
        Self { values, noise, far: FAR * T::EPSILON }
    }

    fn are_close(&self, j: usize, k: usize) -> bool {
        are_close(self.values[j], self.values[k], self.noise)
    }

    fn are_far(&self, j: usize, k: usize) -> bool {
        let (a, b) = (self.values[j], self.values[k]);
        !self.are_close(j, k) && (b - a).abs() >= self.far * a.max(b)
    }

    /// `of`, and the neighbours on both sides that are `near` its first and its last: as values ascend, all that are near
    /// any of them.
    fn about(&self, of: Range<usize>, near: impl Fn(usize, usize) -> bool) -> Range<usize> {
        let below = (0..of.start).rev().take_while(|k| near(of.start, *k)).count();
        let above = (of.end..self.values.len()).take_while(|k| near(of.end - 1, *k)).count();
        of.start - below..of.end + above
    }
}

impl<T: Scalar> Quadratic<T> {
    /// The columns `columns` of `b`, symmetric, by row and column; `values`: not negative, ascending.
    pub fn new(b: impl Fn(usize, usize) -> f64 + Sync, values: &[f64], columns: Range<usize>) -> Self {
        let of = Distances::new::<T>(values);
        let divided = |k: usize, j: usize| b(k, j) / (values[k] - values[j]);
        let (first, size) = (columns.start, [values.len(), columns.len()]);
        let picked = |from: &(dyn Fn(usize, usize) -> f64 + Sync),
                      which: &(dyn Fn(usize, usize) -> bool + Sync)| {
            let value = |k, j| if which(first + j, k) { from(k, first + j) } else { 0.0 };
            made(size[0], size[1], |k, j| T::of(value(k, j)))
        };
        let between = |columns: Range<usize>| {
            let rows = of.about(columns.clone(), |j, k| !of.are_far(j, k));
            let value = |row: usize, column: usize| {
                let (k, j) = (rows.start + row, columns.start + column);
                if of.are_far(j, k) || of.are_close(j, k) { 0.0 } else { divided(k, j) }
            };
            let values = made(rows.len(), columns.len(), value);
            Piece { columns, rows, values }
        };
        let any = |piece: &Piece| piece.values.col_iter().any(|column| column.iter().any(|v| *v != 0.0));
        let pieces = blocks(columns.len(), COLUMNS).map(|own| first + own.start..first + own.end);
        let few = columns.clone().flat_map(|j| {
            let rows = of.about(j..j + 1, |j, k| of.are_close(j, k));
            rows.map(move |k| (k, j))
        });
        let few: Vec<_> = few.map(|(k, j)| (k, j, b(k, j))).collect();
        Self {
            far: picked(&divided, &|j, k| of.are_far(j, k)),
            between: pieces.map(between).filter(any).collect(),
            close: if few.len() <= 16 * columns.len() {
                Close::Few(few)
            } else {
                Close::Many(picked(&b, &|j, k| of.are_close(j, k)))
            },
            columns,
        }
    }

    /// `Σⱼₖ dⱼ dₖ vⱼ vₖ Bⱼₖ` of each row v of `vectors`, `[n, n_values]`, and penalty, over the columns j: `[n, n_alphas]`;
    /// `scratch` may have any size.
    pub fn squares(&self, vectors: MatRef<'_, T>, shrinkage: &Shrinkage, scratch: &mut Mat<f64>) -> Mat<f64> {
        let Shrinkage { twice, differing, .. } = shrinkage;
        let far = product(vectors, self.far.as_ref());
        let apart = if self.between.is_empty() {
            self.sums(vectors, differing, |j, first, into| put(&far, j, first, into))
        } else {
            let between = self.between(T::widened(vectors, scratch));
            self.sums(vectors, differing, |j, first, into| {
                put(&far, j, first, into);
                let more = &column_of(between.as_ref(), j)[first..];
                into.iter_mut().zip(more).for_each(|(term, more)| *term += more);
            })
        };
        drop(far);
        let close = match &self.close {
            Close::Few(few) => {
                let close = self.sparse(few, vectors);
                self.sums(vectors, twice, |j, first, into| put(&close, j, first, into))
            }
            Close::Many(b) => {
                let close = product(vectors, b.as_ref());
                self.sums(vectors, twice, |j, first, into| put(&close, j, first, into))
            }
        };
        Mat::from_fn(close.nrows(), close.ncols(), |i, alpha| 2.0 * apart[(i, alpha)] + close[(i, alpha)])
    }

    /// `Σⱼ dⱼ vⱼ oⱼ` of each row v of `vectors` and penalty, over the columns j; `other` puts o, as `fill` of
    /// [`sums_by_penalty`].
    #[inline(always)]
    fn sums(
        &self,
        vectors: MatRef<'_, T>,
        d: &Mat<f64>,
        other: impl Fn(usize, usize, &mut [f64]) + Sync,
    ) -> Mat<f64> {
        let (start, count) = (self.columns.start, self.columns.len());
        let vectors = vectors.subcols(start, count);
        sums_by_penalty(vectors.nrows(), d.subrows(start, count), |j, first, into| {
            other(j, first, into);
            into.iter_mut().zip(&column_of(vectors, j)[first..]).for_each(|(term, v)| *term *= v.wide());
        })
    }

    fn between(&self, vectors: MatRef<'_, f64>) -> Mat<f64> {
        let mut found = Mat::zeros(vectors.nrows(), self.columns.len());
        for Piece { columns, rows, values } in &self.between {
            let vectors = vectors.subcols(rows.start, rows.len());
            let into = found.as_mut().subcols_mut(columns.start - self.columns.start, columns.len());
            matmul(into, Accum::Replace, vectors, values.as_ref(), 1.0, threads());
        }
        found
    }

    /// `vectors · B` of the few numbers of B that are not zero.
    fn sparse(&self, few: &[(usize, usize, f64)], vectors: MatRef<'_, T>) -> Mat<f64> {
        let mut found = Mat::zeros(vectors.nrows(), self.columns.len());
        for (k, j, b) in few {
            let into = found.col_mut(j - self.columns.start);
            into.iter_mut().zip(vectors.col(*k).iter()).for_each(|(q, v)| *q += b * v.wide());
        }
        found
    }
}

/// Rows of column `j` from `first` on.
#[inline(always)]
fn put<T: Scalar>(of: &Mat<T>, j: usize, first: usize, into: &mut [f64]) {
    into.iter_mut().zip(&column_of(of.as_ref(), j)[first..]).for_each(|(to, value)| *to = value.wide());
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
        let vectors = Mat::from_fn(5, k, |i, j| T::of(noise(7 * i + 501 * j) * values[j].sqrt()));
        let shrinkage = Shrinkage::new(values, alphas);
        let of = |columns: Range<usize>| {
            let own = Quadratic::<T>::new(|j, k| b[(j, k)], values, columns);
            own.squares(vectors.as_ref(), &shrinkage, &mut Mat::new())
        };
        // In three parts, of which one has a column, and all at once.
        let found = of(0..1) + of(1..k / 2) + of(k / 2..k);
        assert!((&found - of(0..k)).norm_max() <= tolerance * found.norm_max());
        for (a, alpha) in alphas.iter().enumerate() {
            for i in 0..5 {
                let weights = Mat::from_fn(k, 1, |j, _| vectors[(i, j)].wide() / (values[j] + alpha));
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
