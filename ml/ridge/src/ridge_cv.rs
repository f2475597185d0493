//! Ridge with the penalty chosen by cross-validation.

use crate::columns::{each_column, made, of_columns};
use crate::decomposition::{Decomposition, Prepared};
use crate::evidence::{Projected, decided, projected, unfit_of};
use crate::fold_sums::{FoldMeans, FoldSums, Statistic};
use crate::folds::{FoldRows, cross};
use crate::leave_one_out::{LeaveOneOut, SharedErrors, scores_alone};
use crate::spectrum::product;
use crate::targets::{TargetBlock, blocks, check_samples};
use crate::{CrossValidation, Error, Evidence, Result, RidgeFit, RidgeSettings, Scalar, Score, Targets};
use faer::Mat;
use std::ops::Range;

/// Features, ready for targets.
pub struct RidgeCv<T> {
    settings: RidgeSettings,
    n_samples: usize,
    /// Centred features; none for leave-one-out, which has them in the basis.
    x: Mat<T>,
    means: Vec<f64>,
    whole: Decomposition<T>,
    folds: Vec<(FoldRows, Decomposition<T>)>,
}

/// Coefficients of a block of targets.
#[derive(Clone, Debug)]
pub struct Coefficients<T> {
    /// Which targets these are.
    pub range: Range<usize>,
    /// `[n_features, n_targets]`.
    pub weights: Mat<T>,
    /// Of each target.
    pub intercepts: Vec<f64>,
    /// Of each target, where [`RidgeSettings::target_scores`] asks for it: its score by leave-one-out. Else empty.
    pub scores: Vec<f64>,
}

impl<T: Scalar> RidgeCv<T> {
    /// Decomposes the features `x`, `[n_samples, n_features]`, which are centred where they are. [`Prepared`] does the same
    /// in pieces.
    ///
    /// # Errors
    /// Features that are not finite; settings out of range; penalties too small for these features.
    pub fn new(x: Mat<T>, settings: RidgeSettings) -> Result<Self> {
        let prepared = Prepared::new(x, settings)?;
        let gram = prepared.needs_gram().then(|| prepared.gram(0..prepared.shape()[0]));
        let all: Result<Vec<_>> =
            (0..prepared.decompositions()).map(|number| prepared.decompose(number, gram.as_ref())).collect();
        prepared.with(all?)
    }

    pub(crate) fn from_parts(
        prepared: Prepared<T>,
        whole: Decomposition<T>,
        folds: Vec<Decomposition<T>>,
    ) -> Self {
        let [n_samples, _] = prepared.shape();
        let Prepared { settings, x, means, folds: rows, .. } = prepared;
        let x = if settings.cv == CrossValidation::LeaveOneOut { Mat::new() } else { x };
        Self { settings, n_samples, x, means, whole, folds: rows.into_iter().zip(folds).collect() }
    }

    /// Chooses the penalties, reading all targets once.
    ///
    /// # Errors
    /// Targets that cannot be read or have another number of samples.
    pub fn choose(&self, targets: &mut dyn Targets<T>) -> Result<RidgeFit<T>> {
        let evidence = self.evidence(targets)?;
        let mean_scores = self.mean_scores(evidence.sums(), 0..self.n_samples, |_| Ok::<_, Error>(()))?;
        Ok(self.decide(evidence, mean_scores))
    }

    /// What `targets`, all or a share of them, say about the penalties; they are read once.
    ///
    /// # Errors
    /// Targets that cannot be read or have another number of samples.
    pub fn evidence(&self, targets: &mut dyn Targets<T>) -> Result<Evidence<T>> {
        check_samples(targets, self.n_samples)?;
        if self.settings.without_predictions() {
            self.shared_evidence(targets)
        } else {
            self.scored_evidence(targets)
        }
    }

    fn leave_one_out(&self) -> LeaveOneOut<'_, T> {
        LeaveOneOut::new(&self.whole.spectrum, &self.whole.z, &self.settings.alphas)
    }

    fn shared_evidence(&self, targets: &mut dyn Targets<T>) -> Result<Evidence<T>> {
        let z = &self.whole.z;
        let count = targets.count();
        let alone = self.leave_one_out();
        let mut errors = SharedErrors::new(self.n_samples, z.ncols(), self.settings.alphas.len());
        let (mut unfit, mut kept) = (Vec::new(), Vec::new());
        let by_variance = self.settings.score == Score::R2;
        let mut block = TargetBlock::empty();
        for range in blocks(count, self.settings.block) {
            block.refill(targets, &[range])?;
            unfit.extend(unfit_of(&block));
            if by_variance {
                block.standardize();
            }
            let mut m = self.in_basis(&block);
            alone.add(&mut errors, &block.values, &m);
            if self.settings.read_once {
                if by_variance {
                    let scale = |target: usize| {
                        if block.squares[target] > 0.0 { block.squares[target].sqrt() } else { 1.0 }
                    };
                    let scales: Vec<f64> = (0..m.nrows()).map(scale).collect();
                    each_column(&mut m, |_, column| {
                        column.iter_mut().zip(&scales).for_each(|(m, scale)| *m = T::of(m.wide() * scale));
                    });
                }
                kept.push(projected(&block, m));
            }
        }
        drop(block);
        let mut sums = alone.sums(&errors);
        sums.push((count - unfit.len()) as f64);
        Ok(Evidence { sums, scores: Vec::new(), count, unfit, kept })
    }

    fn scored_evidence(&self, targets: &mut dyn Targets<T>) -> Result<Evidence<T>> {
        let (alphas, score) = (&self.settings.alphas, self.settings.score);
        let alone = (self.settings.cv == CrossValidation::LeaveOneOut).then(|| self.leave_one_out());
        let leverages = alone.as_ref().map(LeaveOneOut::all_kept);
        let of_fold = |(fold, of): &(FoldRows, Decomposition<T>)| FoldSums::new(of, fold.n_held(), alphas);
        let folds: Vec<FoldSums<T>> = self.folds.iter().map(of_fold).collect();
        let (mut sums, mut fitted) = (vec![0.0; alphas.len()], 0.0);
        let (mut unfit, mut all, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let (mut block, mut scratch) = (TargetBlock::empty(), Mat::new());
        for range in blocks(targets.count(), self.settings.block) {
            block.refill(targets, &[range])?;
            let (FoldMeans { scores, folds }, m) = match (&alone, &leverages) {
                (Some(alone), Some(leverages)) => {
                    let m = self.in_basis(&block);
                    let folds = vec![1.0; block.values.ncols()];
                    (FoldMeans { scores: alone.per_target(&block, &m, leverages, score), folds }, Some(m))
                }
                _ => {
                    let xy = cross(self.x.as_ref(), &block);
                    let m = self.settings.read_once.then(|| self.rotated(&xy));
                    (self.fold_scores(&block, &xy, &folds, &mut scratch), m)
                }
            };
            unfit.extend(unfit_of(&block));
            for target in 0..block.values.ncols() {
                let own: Vec<f64> = scores.iter().map(|scores| scores[target]).collect();
                // Every fold that a target has a score in has a say, as in a mean over folds and targets.
                if block.squares[target] > 0.0 && own.iter().all(|score| score.is_finite()) {
                    sums.iter_mut().zip(&own).for_each(|(sum, score)| *sum += folds[target] * score);
                    fitted += folds[target];
                }
                all.push(own);
            }
            kept.extend(m.filter(|_| self.settings.read_once).map(|m| projected(&block, m)));
        }
        sums.push(fitted);
        Ok(Evidence { sums, count: all.len(), scores: all, unfit, kept })
    }

    /// Targets in the basis of all samples, `[n_targets, n_values]`.
    fn in_basis(&self, block: &TargetBlock<T>) -> Mat<T> {
        match self.settings.cv {
            CrossValidation::LeaveOneOut => product(block.values.transpose(), self.whole.z.as_ref()),
            CrossValidation::Folds(_) => self.rotated(&cross(self.x.as_ref(), block)),
        }
    }

    /// The same from their `XᵀY`.
    fn rotated(&self, xy: &Mat<T>) -> Mat<T> {
        product(xy.transpose(), self.whole.spectrum.basis.as_ref())
    }

    /// The mean score of each penalty over all targets, from the total of [`Evidence::sums`].
    ///
    /// Whoever has the same total looks at a share of the samples, `which`, and `add_up` replaces numbers by their sums over
    /// all shares; it is called once or, on all shares alike, not at all.
    ///
    /// # Errors
    /// What `add_up` says.
    pub fn mean_scores<E>(
        &self,
        sums: &[f64],
        which: Range<usize>,
        add_up: impl FnOnce(&mut [f64]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<f64>, E> {
        let Some((fitted, sums)) = sums.split_last() else { return Ok(Vec::new()) };
        if !self.settings.without_predictions() {
            return Ok(sums.iter().map(|sum| sum / fitted).collect());
        }
        let n = self.n_samples as f64;
        let mut squared = self.leave_one_out().shared(sums, which);
        add_up(&mut squared)?;
        let score = |sum: f64| match self.settings.score {
            Score::R2 => 1.0 - sum / fitted,
            Score::NegMeanSquaredError | Score::Pearson => -sum / fitted / n,
        };
        Ok(squared.into_iter().map(score).collect())
    }

    /// The penalties of the targets of a share, by the mean scores of all targets.
    pub fn decide(&self, evidence: Evidence<T>, mean_scores: Vec<f64>) -> RidgeFit<T> {
        decided(&self.settings, evidence, mean_scores)
    }

    fn fold_scores(
        &self,
        block: &TargetBlock<T>,
        xy: &Mat<T>,
        sums: &[FoldSums<T>],
        scratch: &mut Mat<f64>,
    ) -> FoldMeans {
        let statistic = Statistic::Features(xy);
        FoldMeans::of(self.folds.iter().zip(sums).map(|((fold, of), sums)| {
            sums.scores(of, &fold.targets(block), &statistic, self.settings.score, scratch)
        }))
    }

    /// Fits all samples with the penalties of `fit`, block by block; `take` gets the coefficients of each. `targets` are
    /// read unless `fit` has kept them and no scores are asked for.
    ///
    /// # Errors
    /// Targets that cannot be read; what `take` says.
    pub fn fit(
        &self,
        fit: &RidgeFit<T>,
        targets: &mut dyn Targets<T>,
        mut take: impl FnMut(Coefficients<T>) -> Result<()>,
    ) -> Result<()> {
        // All that can be fitted share it.
        let shared =
            fit.alphas.iter().copied().find(|alpha| self.settings.scores_alone() && alpha.is_finite());
        let leverages =
            shared.map(|alpha| LeaveOneOut::new(&self.whole.spectrum, &self.whole.z, &[alpha]).all_kept());
        let mut block = TargetBlock::empty();
        let mut one = |block: &TargetBlock<T>, found: &Projected<T>| {
            let shrunk = self.shrunk(found, &fit.alphas);
            let mut coefficients = self.coefficients(found, &shrunk);
            if let Some(leverages) = &leverages {
                let z = self.whole.z.as_ref();
                coefficients.scores =
                    scores_alone(block, (z, &shrunk), leverages.col(0), self.settings.score);
            }
            take(coefficients)
        };
        if !fit.kept.is_empty() {
            return fit.kept.iter().try_for_each(|found| {
                if leverages.is_some() {
                    block.refill(targets, std::slice::from_ref(&found.range))?;
                }
                one(&block, found)
            });
        }
        check_samples(targets, self.n_samples)?;
        for range in blocks(targets.count(), self.settings.block) {
            block.refill(targets, &[range])?;
            one(&block, &projected(&block, self.in_basis(&block)))?;
        }
        Ok(())
    }

    /// A block in the basis under its penalties, `[n_targets, n_values]`.
    fn shrunk(&self, block: &Projected<T>, alphas: &[f64]) -> Mat<T> {
        let (m, values) = (&block.values, &self.whole.spectrum.values);
        let alphas = &alphas[block.range.clone()];
        made(m.nrows(), m.ncols(), |i, j| T::of(m[(i, j)].wide() / (values[j] + alphas[i])))
    }

    fn coefficients(&self, block: &Projected<T>, shrunk: &Mat<T>) -> Coefficients<T> {
        let weights = product(self.whole.spectrum.basis.as_ref(), shrunk.transpose());
        let intercepts = of_columns(weights.as_ref(), |j, weights| {
            block.means[j] - weights.iter().zip(&self.means).map(|(w, m)| w.wide() * m).sum::<f64>()
        });
        Coefficients { range: block.range.clone(), weights, intercepts, scores: Vec::new() }
    }
}
