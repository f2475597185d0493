//! Leave-one-out errors of every penalty, without refits.

use crate::score::Sums;
use crate::spectrum::{Spectrum, add_square, mirror, product, threads, widened};
use crate::targets::TargetBlock;
use crate::{Scalar, Score};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat};

/// The penalties' leverages, and what was summed over blocks of targets.
pub(crate) struct LeaveOneOut<'a, T> {
    alphas: &'a [f64],
    spectrum: &'a Spectrum<T>,
    z: &'a Mat<T>,
    /// `1 − hᵢ` of each penalty.
    kept: Vec<Vec<f64>>,
}

impl<'a, T: Scalar> LeaveOneOut<'a, T> {
    /// `z`: the centred features in the spectrum's basis.
    pub fn new(spectrum: &'a Spectrum<T>, z: &'a Mat<T>, alphas: &'a [f64]) -> Self {
        let n = z.nrows();
        let kept = alphas.iter().map(|alpha| {
            // The intercept takes 1/n.
            let mut kept = vec![1.0 - 1.0 / n as f64; n];
            for (column, shrink) in z.col_iter().zip(spectrum.shrink(*alpha)) {
                kept.iter_mut().zip(column.iter()).for_each(|(k, z)| *k -= z.wide() * z.wide() * shrink);
            }
            kept
        });
        Self { alphas, spectrum, z, kept: kept.collect() }
    }

    /// Scores of every target of a block, by penalty: each penalty costs a product.
    pub fn per_target(&self, block: &TargetBlock<T>, score: Score) -> Vec<Vec<f64>> {
        let m = product(self.z.transpose(), block.values.as_ref());
        let scores = self.alphas.iter().zip(&self.kept).map(|(alpha, kept)| {
            let shrink = self.spectrum.shrink(*alpha);
            let weights = Mat::from_fn(m.nrows(), m.ncols(), |i, j| T::of(m[(i, j)].wide() * shrink[i]));
            let predicted = product(self.z.as_ref(), weights.as_ref());
            let of = |target: usize| {
                let mut sums = Sums::default();
                let (y, p) = (block.values.col(target), predicted.col(target));
                for ((y, p), kept) in y.iter().zip(p.iter()).zip(kept) {
                    let error = (y.wide() - p.wide()) / kept;
                    sums.add(y.wide(), y.wide() - error);
                }
                sums.score(score)
            };
            (0..block.values.ncols()).map(of).collect()
        });
        scores.collect()
    }

    /// Squared errors summed over all samples and targets, by penalty, of the blocks that were [`SharedErrors::add`]ed.
    pub fn shared(&self, errors: &SharedErrors<T>) -> Vec<f64> {
        let n = self.z.nrows();
        let mut square = widened(errors.square.as_ref());
        mirror(&mut square);
        let each = self.alphas.iter().zip(&self.kept).map(|(alpha, kept)| {
            let shrink = self.spectrum.shrink(*alpha);
            // D·MMᵀ·D, then zᵢ of it by zᵢ.
            let inner: Mat<T> = Mat::from_fn(square.nrows(), square.ncols(), |i, j| {
                T::of(square[(i, j)] * shrink[i] * shrink[j])
            });
            let outer = product(self.z.as_ref(), inner.as_ref());
            let mut fitted = vec![0.0; n];
            let mut cross = vec![0.0; n];
            for (j, shrink) in shrink.iter().enumerate() {
                let columns = self.z.col(j).iter().zip(outer.col(j).iter()).zip(errors.cross.col(j).iter());
                for (i, ((z, outer), yz)) in columns.enumerate() {
                    fitted[i] += z.wide() * outer.wide();
                    cross[i] += z.wide() * shrink * yz;
                }
            }
            (0..n).map(|i| (errors.rows[i] - 2.0 * cross[i] + fitted[i]) / (kept[i] * kept[i])).sum()
        });
        each.collect()
    }
}

/// What the squared errors of one penalty for all targets follow from.
pub(crate) struct SharedErrors<T> {
    /// `Σ M·Mᵀ`, the lower triangle.
    square: Mat<T>,
    /// `Σ Y·Mᵀ`.
    cross: Mat<f64>,
    /// `Σ y²` of each sample.
    rows: Vec<f64>,
}

impl<T: Scalar> SharedErrors<T> {
    pub fn new(n_samples: usize, n_values: usize) -> Self {
        Self {
            square: Mat::zeros(n_values, n_values),
            cross: Mat::zeros(n_samples, n_values),
            rows: vec![0.0; n_samples],
        }
    }

    /// Adds a block of targets; `scales` are 1, or what makes their sums of squares equal.
    pub fn add(&mut self, z: &Mat<T>, block: &TargetBlock<T>, scales: &[f64]) {
        let mut y = block.values.clone();
        for (column, scale) in y.col_iter_mut().zip(scales) {
            column.iter_mut().for_each(|v| *v = T::of(v.wide() * scale));
        }
        for column in y.col_iter() {
            self.rows.iter_mut().zip(column.iter()).for_each(|(sum, v)| *sum += v.wide() * v.wide());
        }
        let m = product(z.transpose(), y.as_ref());
        add_square(&mut self.square, m.as_ref());
        let mut cross = Mat::<T>::zeros(y.nrows(), m.nrows());
        matmul(cross.as_mut(), Accum::Replace, y.as_ref(), m.transpose(), T::of(1.0), threads());
        for (sum, add) in self.cross.col_iter_mut().zip(cross.col_iter()) {
            sum.iter_mut().zip(add.iter()).for_each(|(sum, add)| *sum += add.wide());
        }
    }
}
