//! Ridge with the penalty chosen by cross-validation.

use crate::folds::{Fold, Folds, cross};
use crate::leave_one_out::{LeaveOneOut, SharedErrors};
use crate::spectrum::{Spectrum, centred, product};
use crate::targets::{TargetBlock, blocks, check_samples};
use crate::{Error, Result, Scalar, Score, Targets};
use faer::{Mat, MatRef};

/// How penalties are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CrossValidation {
    /// Every sample is predicted by a fit of all others.
    #[default]
    LeaveOneOut,
    /// Every fold is predicted by a fit of the others; scores are averaged over folds.
    Folds(Folds),
}

/// What a fit is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct RidgeSettings {
    /// Penalties to choose from, each over 0.
    pub alphas: Vec<f64>,
    /// How they are compared.
    pub cv: CrossValidation,
    /// By what.
    pub score: Score,
    /// One penalty for each target; else one for all, which has the best mean score.
    pub alpha_per_target: bool,
    /// Targets that are held at once.
    pub block: usize,
}

impl Default for RidgeSettings {
    fn default() -> Self {
        Self {
            alphas: vec![0.1, 1.0, 10.0],
            cv: CrossValidation::default(),
            score: Score::default(),
            alpha_per_target: false,
            block: 1024,
        }
    }
}

/// Features, ready for targets.
pub struct RidgeCv<T> {
    settings: RidgeSettings,
    x: Mat<T>,
    means: Vec<f64>,
    spectrum: Spectrum<T>,
    folds: Vec<Fold<T>>,
}

/// The penalties that were chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct RidgeFit {
    /// Of each target; all equal where it is shared. NaN for a target that is constant or not finite.
    pub alphas: Vec<f64>,
    /// The mean score of each penalty over the targets that can be fitted, and, where penalties are chosen by
    /// target, the best score of each target.
    pub mean_scores: Vec<f64>,
    /// The best score of each target; empty where the penalty is shared and leave-one-out needed no predictions.
    pub best_scores: Vec<f64>,
    /// Targets that are constant, or have NaN or infinity: their coefficients are NaN.
    pub unfit: Vec<usize>,
}

/// Coefficients of a block of targets.
#[derive(Clone, Debug)]
pub struct Coefficients<T> {
    /// Which targets these are.
    pub range: std::ops::Range<usize>,
    /// `[n_features, n_targets]`.
    pub weights: Mat<T>,
    /// Of each target.
    pub intercepts: Vec<f64>,
}

impl<T: Scalar> RidgeCv<T> {
    /// Decomposes the features `x`, `[n_samples, n_features]`.
    ///
    /// # Errors
    /// Features that are not finite; settings out of range; penalties too small for these features.
    pub fn new(x: MatRef<'_, T>, settings: RidgeSettings) -> Result<Self> {
        validate(x, &settings)?;
        let (x, means) = centred(x)?;
        let spectrum = Spectrum::of(x.as_ref())?;
        spectrum.check(&settings.alphas)?;
        let folds = match &settings.cv {
            CrossValidation::LeaveOneOut => Vec::new(),
            CrossValidation::Folds(folds) => Fold::all(x.as_ref(), folds)?,
        };
        folds.iter().try_for_each(|fold| fold.check(&settings.alphas))?;
        Ok(Self { settings, x, means, spectrum, folds })
    }

    /// Chooses the penalties, reading all targets once.
    ///
    /// # Errors
    /// Targets that cannot be read or have another number of samples.
    pub fn choose(&self, targets: &mut dyn Targets<T>) -> Result<RidgeFit> {
        check_samples(targets, self.x.nrows())?;
        let settings = &self.settings;
        let one_for_all = !settings.alpha_per_target && settings.score != Score::Pearson;
        match settings.cv {
            CrossValidation::LeaveOneOut if one_for_all => self.choose_shared(targets),
            _ => self.choose_by_scores(targets),
        }
    }

    fn choose_shared(&self, targets: &mut dyn Targets<T>) -> Result<RidgeFit> {
        let z = self.spectrum.project(self.x.as_ref());
        let (n, count) = (self.x.nrows(), targets.count());
        let mut errors = SharedErrors::new(n, z.ncols());
        let mut unfit = Vec::new();
        for range in blocks(count, self.settings.block) {
            let block = TargetBlock::read(targets, range)?;
            unfit.extend(unfit_of(&block));
            let by_variance = self.settings.score == Score::R2;
            let scale = |square: &f64| if by_variance && *square > 0.0 { 1.0 / square.sqrt() } else { 1.0 };
            errors.add(&z, &block, &block.squares.iter().map(scale).collect::<Vec<_>>());
        }
        let fitted = (count - unfit.len()).max(1) as f64;
        let squared = LeaveOneOut::new(&self.spectrum, &z, &self.settings.alphas).shared(&errors);
        let score = |sum: f64| match self.settings.score {
            Score::R2 => 1.0 - sum / fitted,
            Score::NegMeanSquaredError | Score::Pearson => -sum / fitted / n as f64,
        };
        let mean_scores: Vec<f64> = squared.into_iter().map(score).collect();
        let alpha = self.settings.alphas[best(&mean_scores)];
        Ok(RidgeFit {
            alphas: with_nan(vec![alpha; count], &unfit),
            mean_scores,
            best_scores: Vec::new(),
            unfit,
        })
    }

    fn choose_by_scores(&self, targets: &mut dyn Targets<T>) -> Result<RidgeFit> {
        let (alphas, score) = (&self.settings.alphas, self.settings.score);
        let z = match self.settings.cv {
            CrossValidation::LeaveOneOut => self.spectrum.project(self.x.as_ref()),
            CrossValidation::Folds(_) => Mat::zeros(0, 0),
        };
        let alone = LeaveOneOut::new(&self.spectrum, &z, alphas);
        let (mut sums, mut unfit) = (vec![0.0; alphas.len()], Vec::new());
        let (mut chosen, mut best_scores, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for range in blocks(targets.count(), self.settings.block) {
            let block = TargetBlock::read(targets, range)?;
            let scores = match self.settings.cv {
                CrossValidation::LeaveOneOut => alone.per_target(&block, score),
                CrossValidation::Folds(_) => self.fold_scores(&block),
            };
            unfit.extend(unfit_of(&block));
            for target in 0..block.values.ncols() {
                let own: Vec<f64> = scores.iter().map(|scores| scores[target]).collect();
                if block.squares[target] > 0.0 {
                    sums.iter_mut().zip(&own).for_each(|(sum, score)| *sum += score);
                }
                let at = best(&own);
                chosen.push(alphas[at]);
                best_scores.push(own[at]);
                all.push(own);
            }
        }
        let fitted = (chosen.len() - unfit.len()).max(1) as f64;
        let mean_scores: Vec<f64> = sums.into_iter().map(|sum| sum / fitted).collect();
        if !self.settings.alpha_per_target {
            let at = best(&mean_scores);
            chosen.fill(alphas[at]);
            best_scores = all.iter().map(|own| own[at]).collect();
        }
        let (alphas, best_scores) = (with_nan(chosen, &unfit), with_nan(best_scores, &unfit));
        Ok(RidgeFit { alphas, mean_scores, best_scores, unfit })
    }

    /// Mean scores over folds.
    fn fold_scores(&self, block: &TargetBlock<T>) -> Vec<Vec<f64>> {
        let xy = cross(self.x.as_ref(), block);
        let mut mean = vec![vec![0.0; block.values.ncols()]; self.settings.alphas.len()];
        for fold in &self.folds {
            let scores = fold.scores(block, &xy, &self.settings.alphas, self.settings.score);
            for (mean, scores) in mean.iter_mut().zip(scores) {
                mean.iter_mut().zip(scores).for_each(|(mean, s)| *mean += s / self.folds.len() as f64);
            }
        }
        mean
    }

    /// Fits all samples with the penalties of `fit`, block by block; `take` gets the coefficients of each.
    ///
    /// # Errors
    /// Targets that cannot be read; what `take` says.
    pub fn fit(
        &self,
        fit: &RidgeFit,
        targets: &mut dyn Targets<T>,
        mut take: impl FnMut(Coefficients<T>) -> Result<()>,
    ) -> Result<()> {
        check_samples(targets, self.x.nrows())?;
        for range in blocks(targets.count(), self.settings.block) {
            let block = TargetBlock::read(targets, range.clone())?;
            let m = product(self.spectrum.basis.transpose(), cross(self.x.as_ref(), &block).as_ref());
            let shrunk = Mat::from_fn(m.nrows(), m.ncols(), |i, j| {
                T::of(m[(i, j)].wide() / (self.spectrum.values[i] + fit.alphas[range.start + j]))
            });
            let weights = product(self.spectrum.basis.as_ref(), shrunk.as_ref());
            let intercept = |j: usize| {
                let offset: f64 = weights.col(j).iter().zip(&self.means).map(|(w, m)| w.wide() * m).sum();
                block.means[j] - offset
            };
            let intercepts = (0..weights.ncols()).map(intercept).collect();
            take(Coefficients { range, weights, intercepts })?;
        }
        Ok(())
    }
}

fn validate<T>(x: MatRef<'_, T>, settings: &RidgeSettings) -> Result<()> {
    if x.nrows() < 3 || x.ncols() == 0 {
        let reason =
            format!("{} samples of {} features; three samples of one are the least", x.nrows(), x.ncols());
        return Err(Error::Setting { option: "features", reason });
    }
    if settings.alphas.is_empty() {
        return Err(Error::Setting {
            option: "alphas",
            reason: "there are none; give for example [0.1, 1, 10]".into(),
        });
    }
    if let Some(alpha) = settings.alphas.iter().find(|alpha| !(alpha.is_finite() && **alpha > 0.0)) {
        return Err(Error::Setting {
            option: "alphas",
            reason: format!("{alpha} is not a finite number over 0"),
        });
    }
    Ok(())
}

/// Position of the largest score, the first of equal ones; NaN is none.
fn best(scores: &[f64]) -> usize {
    let mut at = 0;
    for (i, score) in scores.iter().enumerate() {
        if *score > scores[at] || (scores[at].is_nan() && !score.is_nan()) {
            at = i;
        }
    }
    at
}

fn unfit_of<T>(block: &TargetBlock<T>) -> impl Iterator<Item = usize> + '_ {
    let start = block.range.start;
    block.squares.iter().enumerate().filter(|(_, square)| **square == 0.0).map(move |(j, _)| start + j)
}

fn with_nan(mut values: Vec<f64>, unfit: &[usize]) -> Vec<f64> {
    unfit.iter().for_each(|target| values[*target] = f64::NAN);
    values
}
