//! Leave-one-out errors of every penalty, without refits.

use crate::columns::{made, of_columns};
use crate::quadratic::{Quadratic, Shrinkage};
use crate::score::Sums;
use crate::spectrum::{Spectrum, add_square, product, threads};
use crate::targets::{TargetBlock, blocks};
use crate::{Scalar, Score};
use faer::linalg::matmul::matmul;
use faer::{Accum, ColRef, Mat, MatRef};
use rayon::prelude::*;
use std::ops::Range;

/// Samples that are looked at together: what is made of their products finds them in a cache.
pub(crate) const ROWS: usize = 1024;
/// Columns of the square that are looked at together.
pub(crate) const COLUMNS: usize = 512;

/// The decomposition and the penalties, and what is the same for all blocks of targets.
pub(crate) struct LeaveOneOut<'a, T> {
    alphas: &'a [f64],
    spectrum: &'a Spectrum<T>,
    z: &'a Mat<T>,
    shrinkage: Shrinkage,
}

impl<'a, T: Scalar> LeaveOneOut<'a, T> {
    /// `z`: the centred features in the spectrum's basis.
    pub fn new(spectrum: &'a Spectrum<T>, z: &'a Mat<T>, alphas: &'a [f64]) -> Self {
        Self { alphas, spectrum, z, shrinkage: Shrinkage::new(&spectrum.values, alphas) }
    }

    /// `1 − hᵢ` of the samples `rows`, by penalty: `[rows.len(), n_alphas]`.
    fn kept(&self, rows: &Range<usize>) -> Mat<f64> {
        let z = self.rows(rows);
        let leverages = self.shrinkage.linear(z, z);
        // The intercept takes 1/n.
        let of_mean = 1.0 / self.z.nrows() as f64;
        Mat::from_fn(rows.len(), self.alphas.len(), |i, alpha| 1.0 - of_mean - leverages[(i, alpha)])
    }

    fn rows(&self, rows: &Range<usize>) -> MatRef<'_, T> {
        self.z.subrows(rows.start, rows.len())
    }

    /// `1 − hᵢ` of all samples, `[n_samples, n_alphas]`: what [`Self::per_target`] needs.
    pub fn all_kept(&self) -> Mat<f64> {
        let mut kept = Mat::zeros(self.z.nrows(), self.alphas.len());
        for rows in blocks(self.z.nrows(), ROWS) {
            kept.subrows_mut(rows.start, rows.len()).copy_from(self.kept(&rows));
        }
        kept
    }

    /// Scores of every target of a block, by penalty, from its targets in the basis, `m`, `[n_targets, n_values]`: each
    /// penalty costs a product.
    pub fn per_target(
        &self,
        block: &TargetBlock<T>,
        m: &Mat<T>,
        kept: &Mat<f64>,
        score: Score,
    ) -> Vec<Vec<f64>> {
        let scores = self.alphas.iter().zip(kept.col_iter()).map(|(alpha, kept)| {
            let shrink = self.spectrum.shrink(*alpha);
            let weights = made(m.nrows(), m.ncols(), |i, j| T::of(m[(i, j)].wide() * shrink[j]));
            scores_alone(block, (self.z.as_ref(), &weights), kept, score)
        });
        scores.collect()
    }

    /// Adds a block of targets `y`, `[n_samples, n_targets]`, and the same in the basis, `m`, `[n_targets, n_values]`, to
    /// `errors`.
    pub fn add(&self, errors: &mut SharedErrors<T>, y: &Mat<T>, m: &Mat<T>) {
        let SharedErrors { square, cross, rows, scratch } = errors;
        rows.par_chunks_mut(ROWS).enumerate().for_each(|(chunk, sums)| {
            let rows = y.as_ref().subrows(chunk * ROWS, sums.len());
            for column in rows.col_iter() {
                sums.iter_mut().zip(column.iter()).for_each(|(sum, v)| *sum += v.wide() * v.wide());
            }
        });
        add_square(square, m.transpose());
        // Y·Mᵀ of all samples is as large as Z, and only sums over its values are of use.
        for rows in blocks(self.z.nrows(), scratch.nrows()) {
            let mut own = scratch.subrows_mut(0, rows.len());
            let y = y.subrows(rows.start, rows.len());
            matmul(own.as_mut(), Accum::Replace, y, m.as_ref(), T::of(1.0), threads());
            let found = self.shrinkage.linear(self.rows(&rows), own.as_ref());
            let mut cross = cross.subrows_mut(rows.start, rows.len());
            cross += found;
        }
    }

    /// What blocks that were [`Self::add`]ed say, as numbers that add up over shares of the targets: see [`SharedSums`].
    pub fn sums(&self, errors: &SharedErrors<T>) -> Vec<f64> {
        let of = SharedSums { values: self.z.ncols(), samples: self.z.nrows() };
        let mut sums = Vec::with_capacity(of.len(self.alphas.len()));
        for (j, column) in errors.square.col_iter().enumerate() {
            sums.extend(column.iter().skip(j).map(|value| value.wide()));
        }
        errors.cross.col_iter().for_each(|column| sums.extend(column.iter()));
        sums.extend(&errors.rows);
        sums
    }

    /// Squared errors of each penalty, summed over the samples `which` and all targets, from what [`Self::sums`] gave for
    /// all shares of the targets together.
    pub fn shared(&self, sums: &[f64], which: Range<usize>) -> Vec<f64> {
        let of = SharedSums { values: self.z.ncols(), samples: self.z.nrows() };
        let (square, rest) = sums.split_at(of.triangle());
        let (cross, squares) = rest.split_at(self.alphas.len() * of.samples);
        let mut fitted = Mat::<f64>::zeros(which.len(), self.alphas.len());
        let (mut wide, mut scratch) = (Mat::new(), Mat::new());
        for columns in blocks(of.values, COLUMNS) {
            let square = |i: usize, j: usize| square[of.place(i, j)];
            let quadratic = Quadratic::<f64>::new(square, &self.spectrum.values, columns);
            for rows in blocks(which.len(), ROWS) {
                let own = which.start + rows.start..which.start + rows.end;
                let z = T::widened(self.rows(&own), &mut wide);
                let found = quadratic.squares(z, &self.shrinkage, &mut scratch);
                let mut fitted = fitted.subrows_mut(rows.start, rows.len());
                fitted += found;
            }
        }
        let kept = self.kept(&which);
        let error = |alpha: usize| {
            let cross = &cross[alpha * of.samples..];
            let each = which.clone().enumerate().map(|(at, i)| {
                (squares[i] - 2.0 * cross[i] + fitted[(at, alpha)]) / kept[(at, alpha)].powi(2)
            });
            each.sum()
        };
        (0..self.alphas.len()).map(error).collect()
    }
}

/// Scores of the targets of a block whose weights in the basis are `weights`, `[n_targets, n_values]`, over samples `z` that are
/// predicted without them; `kept`: `1 − hᵢ`. NaN for a target that is constant.
pub(crate) fn scores_alone<T: Scalar>(
    block: &TargetBlock<T>,
    (z, weights): (MatRef<'_, T>, &Mat<T>),
    kept: ColRef<'_, f64>,
    score: Score,
) -> Vec<f64> {
    let predicted = product(z, weights.transpose());
    of_columns(block.values.as_ref(), |target, y: ColRef<'_, T>| {
        if block.squares[target] == 0.0 {
            return f64::NAN;
        }
        let mut sums = Sums::default();
        for ((y, p), kept) in y.iter().zip(predicted.col(target).iter()).zip(kept.iter()) {
            let error = (y.wide() - p.wide()) / kept;
            sums.add(y.wide(), y.wide() - error);
        }
        sums.score(score)
    })
}

/// How the sums of a share are laid out: the lower triangle of `Σ M·Mᵀ` `[n_values, n_values]`, of each penalty
/// `Σⱼ zᵢⱼ (Y·Mᵀ)ᵢⱼ / (λⱼ + α)` `[n_alphas, n_samples]`, and `Σ y²` of each sample.
struct SharedSums {
    values: usize,
    samples: usize,
}

impl SharedSums {
    fn len(&self, alphas: usize) -> usize {
        self.triangle() + (alphas + 1) * self.samples
    }

    fn triangle(&self) -> usize {
        self.values * (self.values + 1) / 2
    }

    /// Of the number in row `i` and column `j` of the square.
    fn place(&self, i: usize, j: usize) -> usize {
        let (row, column) = (i.max(j), i.min(j));
        // Columns before this one, less what they lack above the diagonal.
        column * self.values - column * (column + 1) / 2 + row
    }
}

/// What the squared errors of all penalties for all targets follow from.
pub(crate) struct SharedErrors<T> {
    /// `Σ M·Mᵀ`, the lower triangle.
    square: Mat<T>,
    /// Of each penalty `Σⱼ zᵢⱼ (Y·Mᵀ)ᵢⱼ / (λⱼ + α)`, `[n_samples, n_alphas]`.
    cross: Mat<f64>,
    /// `Σ y²` of each sample.
    rows: Vec<f64>,
    /// `Y·Mᵀ` of some samples.
    scratch: Mat<T>,
}

impl<T: Scalar> SharedErrors<T> {
    pub fn new(n_samples: usize, n_values: usize, n_alphas: usize) -> Self {
        Self {
            square: Mat::zeros(n_values, n_values),
            cross: Mat::zeros(n_samples, n_alphas),
            rows: vec![0.0; n_samples],
            scratch: Mat::zeros(n_samples.min(ROWS), n_values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triangle_has_a_place_for_every_pair() {
        let of = SharedSums { values: 5, samples: 0 };
        let mut next = 0;
        for j in 0..5 {
            for i in j..5 {
                assert_eq!((of.place(i, j), of.place(j, i)), (next, next));
                next += 1;
            }
        }
        assert_eq!(of.triangle(), next);
    }
}
