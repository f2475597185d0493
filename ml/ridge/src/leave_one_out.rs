//! Leave-one-out errors of every penalty, without refits.

use crate::score::Sums;
use crate::spectrum::{Spectrum, add_square, product, threads};
use crate::targets::TargetBlock;
use crate::{Scalar, Score};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat};
use std::ops::Range;

/// The decomposition and the penalties, and what is the same for all blocks of targets.
pub(crate) struct LeaveOneOut<'a, T> {
    alphas: &'a [f64],
    spectrum: &'a Spectrum<T>,
    z: &'a Mat<T>,
    /// `1 − hᵢ` of each penalty, where targets are predicted.
    kept: Vec<Vec<f64>>,
}

impl<'a, T: Scalar> LeaveOneOut<'a, T> {
    /// `z`: the centred features in the spectrum's basis.
    pub fn new(spectrum: &'a Spectrum<T>, z: &'a Mat<T>, alphas: &'a [f64]) -> Self {
        Self { alphas, spectrum, z, kept: Vec::new() }
    }

    /// The same, ready to predict.
    pub fn with_leverages(self) -> Self {
        let kept = self.alphas.iter().map(|alpha| self.kept(*alpha)).collect();
        Self { kept, ..self }
    }

    /// `1 − hᵢ` of a penalty.
    fn kept(&self, alpha: f64) -> Vec<f64> {
        let n = self.z.nrows();
        // The intercept takes 1/n.
        let mut kept = vec![1.0 - 1.0 / n as f64; n];
        for (column, shrink) in self.z.col_iter().zip(self.spectrum.shrink(alpha)) {
            kept.iter_mut().zip(column.iter()).for_each(|(k, z)| *k -= z.wide() * z.wide() * shrink);
        }
        kept
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
        let (cross, rows) = rest.split_at_mut(self.alphas.len() * of.samples);
        for (cross, alpha) in cross.chunks_exact_mut(of.samples.max(1)).zip(self.alphas) {
            for (j, shrink) in self.spectrum.shrink(*alpha).into_iter().enumerate() {
                let columns = self.z.col(j).iter().zip(errors.cross.col(j).iter());
                cross.iter_mut().zip(columns).for_each(|(sum, (z, yz))| *sum += z.wide() * shrink * yz);
            }
        }
        rows.copy_from_slice(&errors.rows);
        sums
    }

    /// Squared errors summed over all samples and targets, of the penalties `which`, from what [`Self::sums`] gave for
    /// all shares of the targets together. Each costs a product.
    pub fn shared(&self, sums: &[f64], which: Range<usize>) -> Vec<f64> {
        let of = SharedSums { values: self.z.ncols(), samples: self.z.nrows() };
        let (square, rest) = sums.split_at(of.values * of.values);
        let (cross, rows) = rest.split_at(self.alphas.len() * of.samples);
        let each = which.map(|number| {
            let (kept, cross) = (self.kept(self.alphas[number]), &cross[number * of.samples..]);
            let shrink = self.spectrum.shrink(self.alphas[number]);
            // D·MMᵀ·D, then zᵢ of it by zᵢ.
            let inner: Mat<T> = Mat::from_fn(of.values, of.values, |i, j| {
                T::of(square[i * of.values + j] * shrink[i] * shrink[j])
            });
            let outer = product(self.z.as_ref(), inner.as_ref());
            let mut fitted = vec![0.0; of.samples];
            for j in 0..of.values {
                let columns = self.z.col(j).iter().zip(outer.col(j).iter());
                fitted.iter_mut().zip(columns).for_each(|(sum, (z, o))| *sum += z.wide() * o.wide());
            }
            (0..of.samples).map(|i| (rows[i] - 2.0 * cross[i] + fitted[i]) / (kept[i] * kept[i])).sum()
        });
        each.collect()
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
