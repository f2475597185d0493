//! Scores of all penalties in a fold under one γ, from sums that a product gives for all penalties together.

use super::fold::FoldTargets;
use crate::quadratic::{Quadratic, Shrinkage};
use crate::score::Sums;
use crate::spectrum::{gram, product};
use crate::{Decomposition, Scalar, Score};
use faer::Mat;

/// A fold under one γ.
pub(super) struct WeightedFold<T> {
    of: Decomposition<T>,
    shrinkage: Shrinkage,
    /// Of predictions of the held samples.
    squares: Quadratic<T>,
    /// The held samples summed, in the basis.
    z: Vec<f64>,
}

impl<T: Scalar> WeightedFold<T> {
    pub fn new(of: Decomposition<T>, alphas: &[f64]) -> Self {
        let values = &of.spectrum.values;
        let z = of.z.col_iter().map(|column| column.iter().map(|z| z.wide()).sum()).collect();
        let squares = Quadratic::new(gram(of.z.as_ref()).as_ref(), values);
        Self { shrinkage: Shrinkage::new(values, alphas), squares, z, of }
    }

    /// Scores of the targets of `part`, `[n_targets, n_alphas]`; `scratch` may have any size.
    pub fn scores(&self, part: &FoldTargets<T>, score: Score, scratch: &mut Mat<f64>) -> Mat<f64> {
        let Self { of, shrinkage, squares, z } = self;
        let m = product(part.statistic.transpose(), of.spectrum.basis.as_ref());
        let yz = product(part.held.transpose(), of.z.as_ref());
        let yp = shrinkage.linear(m.as_ref(), yz.as_ref());
        drop(yz);
        let mut wide = Mat::new();
        let m = T::widened(m.as_ref(), &mut wide);
        let pp = squares.squares(m, shrinkage, scratch);
        let p = shrinkage.weighted(m, z);
        let n = part.held.nrows() as f64;
        Mat::from_fn(pp.nrows(), pp.ncols(), |target, alpha| {
            let ((y, yy), at) = (part.sums[target], (target, alpha));
            Sums { n, y, p: p[at], yy, pp: pp[at], yp: yp[at] }.score(score)
        })
    }
}
