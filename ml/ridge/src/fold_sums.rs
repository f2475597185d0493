//! Scores of all penalties in a fold, from sums that a product gives for all penalties together.

use crate::columns::of_columns;
use crate::quadratic::{Quadratic, Shrinkage};
use crate::score::Sums;
use crate::spectrum::{gram, product};
use crate::{Decomposition, Scalar, Score};
use faer::Mat;

/// A fold's part of a block of targets.
pub(crate) struct FoldTargets<T> {
    /// `XᵀY` of the training samples, or their Y, about their means.
    statistic: Mat<T>,
    /// Held targets about the means of the training samples, beside which predictions of a huge penalty are lost.
    held: Mat<T>,
    /// Of each of these, what its values and their squares sum to.
    sums: Vec<(f64, f64)>,
}

impl<T: Scalar> FoldTargets<T> {
    /// `statistic`: `XᵀY` of the training samples, or their Y, about their means; `held`, `[n_samples, n_targets]`: what is
    /// to be predicted, about the same means.
    pub fn new(statistic: Mat<T>, held: Mat<T>) -> Self {
        let add = |(y, yy): (f64, f64), value: &T| (y + value.wide(), yy + value.wide() * value.wide());
        let sums = of_columns(held.as_ref(), |_, column| column.iter().fold((0.0, 0.0), add));
        Self { statistic, held, sums }
    }
}

/// What sums over the samples that a decomposed fold predicts follow from.
pub(crate) struct FoldSums<T> {
    shrinkage: Shrinkage,
    /// Of predictions.
    squares: Quadratic<T>,
    /// The samples summed, in the basis.
    z: Vec<f64>,
}

impl<T: Scalar> FoldSums<T> {
    /// Of the fold that is decomposed in `of`.
    pub fn new(of: &Decomposition<T>, alphas: &[f64]) -> Self {
        let values = &of.spectrum.values;
        let z = of_columns(of.z.as_ref(), |_, column| column.iter().map(|z| z.wide()).sum());
        let squares = Quadratic::new(gram(of.z.as_ref()).as_ref(), values);
        Self { shrinkage: Shrinkage::new(values, alphas), squares, z }
    }

    /// Scores of the targets of `part`, `[n_targets, n_alphas]`, in the fold `of`; `scratch` may have any size.
    pub fn scores(
        &self,
        of: &Decomposition<T>,
        part: &FoldTargets<T>,
        score: Score,
        scratch: &mut Mat<f64>,
    ) -> Mat<f64> {
        let m = product(part.statistic.transpose(), of.spectrum.basis.as_ref());
        let yz = product(part.held.transpose(), of.z.as_ref());
        let yp = self.shrinkage.linear(m.as_ref(), yz.as_ref());
        drop(yz);
        let mut wide = Mat::new();
        let m = T::widened(m.as_ref(), &mut wide);
        let pp = self.squares.squares(m, &self.shrinkage, scratch);
        let p = self.shrinkage.weighted(m, &self.z);
        let n = part.held.nrows() as f64;
        Mat::from_fn(pp.nrows(), pp.ncols(), |target, alpha| {
            let ((y, yy), at) = (part.sums[target], (target, alpha));
            Sums { n, y, p: p[at], yy, pp: pp[at], yp: yp[at] }.score(score)
        })
    }
}

/// The mean over folds of their scores, `[n_targets, n_alphas]`, by penalty.
pub(crate) fn mean_of_folds(scores: impl ExactSizeIterator<Item = Mat<f64>>) -> Vec<Vec<f64>> {
    let count = scores.len() as f64;
    let Some(sum) = scores.reduce(|sum, own| sum + own) else { return Vec::new() };
    (0..sum.ncols()).map(|alpha| sum.col(alpha).iter().map(|sum| sum / count).collect()).collect()
}
