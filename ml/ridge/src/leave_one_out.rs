//! Leave-one-out errors of every penalty, without refits.

use crate::columns::{made, of_columns};
use crate::quadratic::{Quadratic, Shrinkage};
use crate::score::Sums;
use crate::spectrum::{Spectrum, add_square, product};
use crate::targets::{TargetBlock, blocks};
use crate::{Scalar, Score};
use faer::{ColRef, Mat, MatRef};
use rayon::prelude::*;
use std::ops::Range;

/// Samples that are looked at together.
const ROWS: usize = 1024;

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
            let predicted = product(self.z.as_ref(), weights.transpose());
            let of = |target: usize, y: ColRef<'_, T>| {
                let mut sums = Sums::default();
                let p = predicted.col(target);
                for ((y, p), kept) in y.iter().zip(p.iter()).zip(kept.iter()) {
                    let error = (y.wide() - p.wide()) / kept;
                    sums.add(y.wide(), y.wide() - error);
                }
                sums.score(score)
            };
            of_columns(block.values.as_ref(), of)
        });
        scores.collect()
    }

    /// What blocks that were [`SharedErrors::add`]ed say, as numbers that add up over shares of the targets: see
    /// [`SharedSums`].
    pub fn sums(&self, errors: &SharedErrors<T>) -> Vec<f64> {
        let of = SharedSums { values: self.z.ncols(), samples: self.z.nrows() };
        let mut sums = vec![0.0; of.len(self.alphas.len())];
        let (square, rest) = sums.split_at_mut(of.values * of.values);
        for (j, column) in errors.square.col_iter().enumerate() {
            for (i, value) in column.iter().enumerate().skip(j) {
                square[i * of.values + j] = value.wide();
                square[j * of.values + i] = value.wide();
            }
        }
        let (cross, squares) = rest.split_at_mut(self.alphas.len() * of.samples);
        for rows in blocks(of.samples, ROWS) {
            let found = self.shrinkage.linear(self.rows(&rows), errors.cross.subrows(rows.start, rows.len()));
            for (cross, found) in cross.chunks_exact_mut(of.samples.max(1)).zip(found.col_iter()) {
                cross[rows.clone()].iter_mut().zip(found.iter()).for_each(|(to, from)| *to = *from);
            }
        }
        squares.copy_from_slice(&errors.rows);
        sums
    }

    /// Squared errors of each penalty, summed over the samples `which` and all targets, from what [`Self::sums`] gave for
    /// all shares of the targets together.
    pub fn shared(&self, sums: &[f64], which: Range<usize>) -> Vec<f64> {
        let of = SharedSums { values: self.z.ncols(), samples: self.z.nrows() };
        let (square, rest) = sums.split_at(of.values * of.values);
        let (cross, squares) = rest.split_at(self.alphas.len() * of.samples);
        let square = MatRef::from_column_major_slice(square, of.values, of.values);
        let quadratic = Quadratic::<f64>::new(square, &self.spectrum.values);
        let mut errors = vec![0.0; self.alphas.len()];
        let (mut wide, mut scratch) = (Mat::new(), Mat::new());
        for rows in blocks(which.len(), ROWS) {
            let rows = which.start + rows.start..which.start + rows.end;
            let kept = self.kept(&rows);
            let z = T::widened(self.rows(&rows), &mut wide);
            let fitted = quadratic.squares(z, &self.shrinkage, &mut scratch);
            for (alpha, error) in errors.iter_mut().enumerate() {
                let cross = &cross[alpha * of.samples..];
                let each = rows.clone().enumerate().map(|(at, i)| {
                    (squares[i] - 2.0 * cross[i] + fitted[(at, alpha)]) / kept[(at, alpha)].powi(2)
                });
                *error += each.sum::<f64>();
            }
        }
        errors
    }
}

/// How the sums of a share are laid out: `Σ M·Mᵀ` `[n_values, n_values]`, of each penalty `Σⱼ zᵢⱼ (Y·Mᵀ)ᵢⱼ / (λⱼ + α)`
/// `[n_alphas, n_samples]`, and `Σ y²` of each sample.
struct SharedSums {
    values: usize,
    samples: usize,
}

impl SharedSums {
    fn len(&self, alphas: usize) -> usize {
        self.values * self.values + (alphas + 1) * self.samples
    }
}

/// What the squared errors of all penalties for all targets follow from.
pub(crate) struct SharedErrors<T> {
    /// `Σ M·Mᵀ`, the lower triangle.
    square: Mat<T>,
    /// `Σ Y·Mᵀ`.
    cross: Mat<f64>,
    /// `Σ y²` of each sample.
    rows: Vec<f64>,
    scratch: Mat<T>,
}

impl<T: Scalar> SharedErrors<T> {
    pub fn new(n_samples: usize, n_values: usize) -> Self {
        Self {
            square: Mat::zeros(n_values, n_values),
            cross: Mat::zeros(n_samples, n_values),
            rows: vec![0.0; n_samples],
            scratch: Mat::new(),
        }
    }

    /// Adds a block of targets `y`, `[n_samples, n_targets]`, and the same in the basis, `m`, `[n_targets, n_values]`.
    pub fn add(&mut self, y: &Mat<T>, m: &Mat<T>) {
        self.rows.par_chunks_mut(ROWS).enumerate().for_each(|(chunk, sums)| {
            let rows = y.as_ref().subrows(chunk * ROWS, sums.len());
            for column in rows.col_iter() {
                sums.iter_mut().zip(column.iter()).for_each(|(sum, v)| *sum += v.wide() * v.wide());
            }
        });
        add_square(&mut self.square, m.transpose());
        T::add_product(&mut self.cross, y.as_ref(), m.as_ref(), &mut self.scratch);
    }
}
