//! Scores of all penalties in a fold, from sums that a product gives for all penalties together.
//!
//! With X and Y about the means of all samples, x̄ those of the training samples and V the basis of the fold,
//!
//! ```text
//!   Z = (X − x̄)·V        M = Σ_train (y − ȳ)·zᵀ = Σ_train y·zᵀ = (XᵀY)ᵀ·V − Y_outᵀ·Z_out
//! ```
//! because Y sums to zero over all samples, and Z over the training samples. The second product is also what sums of
//! `y·ŷ` over the samples that are predicted follow from, so that M costs no product of the features that are held out.

use crate::columns::{each_column, made, of_columns};
use crate::folds::{mean_of_train, rows};
use crate::quadratic::{Quadratic, Shrinkage};
use crate::score::Sums;
use crate::spectrum::{gram, product, threads};
use crate::targets::TargetBlock;
use crate::{Decomposition, Scalar, Score};
use faer::linalg::matmul::matmul;
use faer::{Accum, ColRef, Mat, MatRef};

/// Y of a block in the samples that a fold holds out.
pub(crate) struct FoldTargets<T> {
    /// About the mean of all samples; those that are predicted come first.
    out: Mat<T>,
    /// How many are predicted.
    n_held: usize,
    /// Means of the training samples.
    means: Vec<f64>,
    held: Vec<Held>,
}

/// A target in the samples that a fold predicts.
#[derive(Clone, Copy)]
struct Held {
    /// What these and their squares sum to, about the mean of the training samples: beside them predictions of a huge penalty
    /// are lost.
    y: f64,
    yy: f64,
    /// Whether they vary, and whether the training samples do.
    varies: bool,
    learned: bool,
}

impl Held {
    /// R² asks how much of what varies is explained, r too, of predictions that vary.
    fn has(&self, score: Score) -> bool {
        match score {
            Score::NegMeanSquaredError => true,
            Score::R2 => self.varies,
            Score::Pearson => self.varies && self.learned,
        }
    }
}

impl<T: Scalar> FoldTargets<T> {
    /// Of `block`: `out` is held out, of which the first `n_held` are predicted.
    pub fn new(block: &TargetBlock<T>, out: &[usize], n_held: usize) -> Self {
        let (n, n_train) = (block.values.nrows() as f64, (block.values.nrows() - out.len()) as f64);
        let out = rows(block.values.as_ref(), out);
        let of = |target: usize, column: ColRef<'_, T>| {
            let mean = mean_of_train(column, n_train);
            let add = |(y, yy): (f64, f64), value: &T| {
                let about = value.wide() - mean;
                (y + about, yy + about * about)
            };
            let (y, yy) = column.iter().take(n_held).fold((0.0, 0.0), add);
            let (_, besides) = column.iter().skip(n_held).fold((0.0, 0.0), add);
            let (flat, n_held) = (block.flat[target], n_held as f64);
            let varies = yy - y * y / n_held > n_held * flat;
            // All samples, less those that are out. Little is left of a difference that rounding may have made.
            let all = block.squares[target] + n * mean * mean;
            let left = all - yy - besides;
            let learned = left > n_train * flat.max(all / n * T::EPSILON);
            (mean, Held { y, yy, varies, learned })
        };
        let (means, held) = of_columns(out.as_ref(), of).into_iter().unzip();
        Self { out, n_held, means, held }
    }

    /// `m − Y_outᵀ·Z_out` of the fold `of`; `yz`: the part of the product that the samples make that are predicted.
    fn less_what_is_out(&self, mut m: Mat<T>, yz: &Mat<T>, of: &Decomposition<T>) -> Mat<T> {
        each_column(&mut m, |j, m| m.iter_mut().zip(yz.col(j).iter()).for_each(|(m, yz)| *m -= *yz));
        let besides = self.out.nrows() - self.n_held;
        if besides > 0 {
            let [y, z] = [&self.out, &of.z].map(|all| all.subrows(self.n_held, besides));
            matmul(m.as_mut(), Accum::Add, y.transpose(), z, T::of(-1.0), threads());
        }
        m
    }

    /// The rows `train` of `y` about their means.
    pub fn about_train(&self, y: MatRef<'_, T>, train: &[usize]) -> Mat<T> {
        made(train.len(), y.ncols(), |i, j| T::of(y[(train[i], j)].wide() - self.means[j]))
    }
}

/// What a block of targets in the basis of a fold follows from.
pub(crate) enum Statistic<'a, T> {
    /// `XᵀY` of all samples.
    Features(&'a Mat<T>),
    /// Y of the training samples, about their means.
    Samples(Mat<T>),
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
    /// Of the fold that is decomposed in `of`, which predicts the first `n_held` samples of those in its basis.
    pub fn new(of: &Decomposition<T>, n_held: usize, alphas: &[f64]) -> Self {
        let (values, held) = (&of.spectrum.values, of.z.subrows(0, n_held));
        let z = of_columns(held, |_, column| column.iter().map(|z| z.wide()).sum());
        let square = gram(held);
        let squares = Quadratic::new(|j, k| square[(j, k)], values, 0..values.len());
        Self { shrinkage: Shrinkage::new(values, alphas), squares, z }
    }

    /// Scores of the targets of `part`, `[n_targets, n_alphas]`, in the fold `of`; NaN where it can have none. `scratch` may have
    /// any size.
    pub fn scores(
        &self,
        of: &Decomposition<T>,
        part: &FoldTargets<T>,
        statistic: &Statistic<'_, T>,
        score: Score,
        scratch: &mut Mat<f64>,
    ) -> Mat<f64> {
        let FoldTargets { n_held, means, held, .. } = part;
        let mut yz = product(part.out.subrows(0, *n_held).transpose(), of.z.subrows(0, *n_held));
        let m = match statistic {
            Statistic::Features(xy) => {
                part.less_what_is_out(product(xy.transpose(), of.spectrum.basis.as_ref()), &yz, of)
            }
            Statistic::Samples(train) => product(train.transpose(), of.spectrum.basis.as_ref()),
        };
        // From here on about the means of the training samples.
        each_column(&mut yz, |j, yz| {
            let less = |(yz, mean): (&mut T, &f64)| *yz = T::of(yz.wide() - mean * self.z[j]);
            yz.iter_mut().zip(means).for_each(less);
        });
        let yp = self.shrinkage.linear(m.as_ref(), yz.as_ref());
        drop(yz);
        let pp = self.squares.squares(m.as_ref(), &self.shrinkage, scratch);
        let p = self.shrinkage.weighted(m.as_ref(), &self.z);
        let n = *n_held as f64;
        Mat::from_fn(pp.nrows(), pp.ncols(), |target, alpha| {
            let (Held { y, yy, .. }, at) = (held[target], (target, alpha));
            let sums = Sums { n, y, p: p[at], yy, pp: pp[at], yp: yp[at] };
            if held[target].has(score) { sums.score(score) } else { f64::NAN }
        })
    }
}

/// Scores of targets, each over the folds that it has a score in.
pub(crate) struct FoldMeans {
    /// By penalty and target; NaN where there is no such fold.
    pub scores: Vec<Vec<f64>>,
    /// Of each target how many there are.
    pub folds: Vec<f64>,
}

impl FoldMeans {
    /// Of the scores of each fold, `[n_targets, n_alphas]`.
    pub fn of(each: impl Iterator<Item = Mat<f64>>) -> Self {
        let (mut sum, mut folds) = (Mat::<f64>::new(), Vec::new());
        for own in each {
            if sum.nrows() == 0 {
                (sum, folds) = (Mat::zeros(own.nrows(), own.ncols()), vec![0.0; own.nrows()]);
            }
            for (target, folds) in folds.iter_mut().enumerate() {
                if own.row(target).iter().all(|score| score.is_finite()) {
                    sum.row_mut(target)
                        .iter_mut()
                        .zip(own.row(target).iter())
                        .for_each(|(sum, own)| *sum += own);
                    *folds += 1.0;
                }
            }
        }
        let means =
            |alpha: usize| sum.col(alpha).iter().zip(&folds).map(|(sum, folds)| sum / folds).collect();
        let scores = (0..sum.ncols()).map(means).collect();
        Self { scores, folds }
    }
}
