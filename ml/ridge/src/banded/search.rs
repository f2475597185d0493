//! All weights and penalties against all targets.

use super::fold::BandedFold;
use super::{Alone, BandedSettings, Part, Together};
use crate::columns::made;
use crate::fold_sums::{FoldMeans, FoldSums, FoldTargets, Statistic};
use crate::folds::cross;
use crate::spectrum::{Spectrum, add_square, centred, gram, mirror, widened};
use crate::targets::{TargetBlock, blocks, check_samples};
use crate::{Decomposition, Error, Result, Scalar, Targets};
use faer::{Mat, MatRef};

/// Features in bands, ready for targets.
pub struct BandedRidgeCv<T> {
    pub(super) settings: BandedSettings,
    pub(super) x: Mat<T>,
    pub(super) means: Vec<f64>,
    /// `XᵀX`, where there are at least as many training samples as features.
    pub(super) gram: Option<Mat<f64>>,
    /// `XXᵀ` of every band, where features outnumber samples.
    kernels: Vec<Mat<f64>>,
    folds: Vec<BandedFold<T>>,
}

/// The weights and penalties that were chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct BandedFit {
    /// Position in [`BandedSettings::gammas`] of each target's weights; `None` for a target that cannot be fitted.
    pub gammas: Vec<Option<usize>>,
    /// Of each target. NaN for one that cannot be fitted. himalaya's `deltas_` are `ln(γ / α)`.
    pub alphas: Vec<f64>,
    /// The mean score of what was chosen for each target, over the folds that it has one in: by R² and Pearson's r those in which
    /// it is not constant. NaN where there is none.
    pub scores: Vec<f64>,
    /// For each γ the mean, over targets that have a score, of the best one.
    pub mean_scores: Vec<f64>,
    /// Targets that are constant, or have NaN or infinity.
    pub unfit: Vec<usize>,
}

/// The best so far of every target.
struct Best {
    gammas: Vec<Option<usize>>,
    alphas: Vec<f64>,
    scores: Vec<f64>,
}

impl<T: Scalar> BandedRidgeCv<T> {
    /// Makes what all weights share of the features `x`, `[n_samples, n_features]`, which are centred where they are.
    ///
    /// # Errors
    /// Features that are not finite; settings out of range; penalties too small for these features.
    pub fn new(x: Mat<T>, settings: BandedSettings) -> Result<Self> {
        if x.nrows() < 3 || x.ncols() == 0 {
            let reason = format!(
                "{} samples of {} features; three samples of one are the least",
                x.nrows(),
                x.ncols()
            );
            return Err(Error::Setting { option: "features", reason });
        }
        settings.validate(x.ncols())?;
        settings.folds.check(x.nrows())?;
        let (x, means) = centred(x)?;
        let n_train =
            settings.folds.each().map(|(held, besides)| x.nrows() - held.len() - besides.len()).min();
        let (mut whole, mut kernels) = (None, Vec::new());
        if n_train.unwrap_or(0) < x.ncols() {
            // The kernel of samples amplifies no rounding of targets, so that every penalty over 0 is sound.
            kernels = band_kernels(x.as_ref(), &settings.bands);
        } else {
            let gram = gram(x.as_ref());
            // No weight over 1 makes a penalty of a band smaller than this one.
            Spectrum::<T>::of_gram(&gram)?.check(&settings.alphas)?;
            whole = Some(gram);
        }
        let folds = BandedFold::all(x.as_ref(), whole.as_ref(), &settings.folds)?;
        Ok(Self { settings, x, means, gram: whole, kernels, folds })
    }

    /// Chooses weights and penalties, reading all targets once for every [`BandedSettings::gammas_at_once`] weights.
    ///
    /// # Errors
    /// Targets that cannot be read or have another number of samples.
    pub fn choose(&self, targets: &mut dyn Targets<T>) -> Result<BandedFit> {
        self.choose_together(targets, &mut Alone)
    }

    /// As [`Self::choose`] of a share of the targets, where `together` shares decompositions and adds up scores.
    ///
    /// # Errors
    /// As [`Self::choose`]; what `together` says.
    pub fn choose_together(
        &self,
        targets: &mut dyn Targets<T>,
        together: &mut dyn Together<T>,
    ) -> Result<BandedFit> {
        check_samples(targets, self.x.nrows())?;
        let (count, settings) = (targets.count(), &self.settings);
        let mut best = Best {
            gammas: vec![None; count],
            alphas: vec![f64::NAN; count],
            scores: vec![f64::NEG_INFINITY; count],
        };
        let (mut unfit, mut mean_scores) = (Vec::<usize>::new(), Vec::new());
        let (mut block, mut scratch) = (TargetBlock::empty(), Mat::new());
        for gammas in blocks(settings.gammas.len(), settings.gammas_at_once) {
            let folds = |gamma| (0..self.folds.len()).map(move |fold| Part { gamma, fold: Some(fold) });
            let found = together.decompose(self, &gammas.clone().flat_map(folds).collect::<Vec<_>>())?;
            let n_held = self.folds.iter().map(BandedFold::n_held).cycle();
            let sums =
                |(of, n_held): (Decomposition<T>, usize)| (FoldSums::new(&of, n_held, &settings.alphas), of);
            let weighted: Vec<_> = found.into_iter().zip(n_held).map(sums).collect();
            unfit.clear();
            // One penalty for all is known once all targets have been seen: scores are kept until then.
            let mut scores: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); settings.alphas.len()]; gammas.len()];
            let mut n_scored: Vec<f64> = Vec::new();
            let mut sums = vec![0.0; gammas.len()];
            for range in blocks(count, settings.block) {
                block.refill(targets, std::slice::from_ref(&range))?;
                unfit.extend(
                    range.clone().zip(&block.squares).filter(|(_, s)| **s == 0.0).map(|(target, _)| target),
                );
                let xy = self.gram.as_ref().map(|_| cross(self.x.as_ref(), &block));
                let part = |fold: &BandedFold<T>| fold.targets(&block, xy.as_ref());
                let parts: Vec<_> = self.folds.iter().map(part).collect();
                for (at, folds) in weighted.chunks(self.folds.len()).enumerate() {
                    let FoldMeans { scores: own, folds } = self.scores(folds, &parts, &mut scratch);
                    if settings.alpha_per_target {
                        sums[at] +=
                            best.update(gammas.start + at, range.start, &own, settings, None, &block.squares);
                    } else {
                        scores[at].iter_mut().zip(own).for_each(|(all, own)| all.extend(own));
                        // Weights change nothing in how many folds have a score.
                        n_scored.extend(folds.into_iter().filter(|_| at == 0));
                    }
                }
            }
            if !settings.alpha_per_target {
                let mut fit = vec![1.0; count];
                unfit.iter().for_each(|target| (fit[*target], n_scored[*target]) = (0.0, 0.0));
                // Every fold that a target has a score in has a say.
                let of = |own: &Vec<f64>| {
                    let scored = own.iter().zip(&n_scored).filter(|(_, folds)| **folds > 0.0);
                    scored.map(|(score, folds)| score * folds).sum()
                };
                let mut all: Vec<f64> = scores.iter().flatten().map(of).collect();
                together.add_up(&mut all)?;
                for (at, (own, all)) in scores.iter().zip(all.chunks(settings.alphas.len())).enumerate() {
                    let shared = largest(all, &settings.alphas);
                    sums[at] = best.update(gammas.start + at, 0, own, settings, Some(shared), &fit);
                }
            }
            mean_scores.extend(sums);
        }
        best.scores.iter_mut().filter(|score| !score.is_finite()).for_each(|score| *score = f64::NAN);
        mean_scores.push(best.scores.iter().filter(|score| score.is_finite()).count() as f64);
        together.add_up(&mut mean_scores)?;
        let scored = mean_scores.pop().unwrap_or_default();
        mean_scores.iter_mut().for_each(|sum| *sum /= scored);
        Ok(BandedFit { gammas: best.gammas, alphas: best.alphas, scores: best.scores, mean_scores, unfit })
    }

    /// `Σ γ K` over bands.
    pub(super) fn kernel(&self, gamma: &[f64]) -> Option<Mat<f64>> {
        let first = self.kernels.first()?;
        let weighted =
            |i, j| self.kernels.iter().zip(gamma).map(|(k, g): (&Mat<f64>, _)| k[(i, j)] * g).sum();
        Some(made(first.nrows(), first.ncols(), weighted))
    }

    /// One decomposition: what can be computed once for all shares of the targets.
    ///
    /// # Errors
    /// A matrix that does not converge; [`Error::Samples`] for a fold that there is not.
    pub fn decompose(&self, part: Part) -> Result<Decomposition<T>> {
        let gamma = &self.settings.gammas[part.gamma];
        let Some(fold) = part.fold else { return self.whole(gamma) };
        let (found, expected) = (fold, self.folds.len());
        let fold = self.folds.get(fold).ok_or(Error::Samples { what: "cv", found, expected })?;
        fold.weighted(&self.settings.scales(gamma), self.kernel(gamma).as_ref())
    }

    /// Scores under one γ.
    fn scores(
        &self,
        folds: &[(FoldSums<T>, Decomposition<T>)],
        parts: &[(FoldTargets<T>, Statistic<'_, T>)],
        scratch: &mut Mat<f64>,
    ) -> FoldMeans {
        let own = folds.iter().zip(parts);
        FoldMeans::of(own.map(|((sums, of), (part, statistic))| {
            sums.scores(of, part, statistic, self.settings.score, scratch)
        }))
    }
}

impl Best {
    /// Takes what is better under `gamma`; gives the sum of the scores of targets that can be fitted (`squares` over 0) and have
    /// one.
    fn update(
        &mut self,
        gamma: usize,
        start: usize,
        scores: &[Vec<f64>],
        settings: &BandedSettings,
        shared: Option<usize>,
        squares: &[f64],
    ) -> f64 {
        let mut sum = 0.0;
        for (j, _) in squares.iter().enumerate().filter(|(_, square)| **square > 0.0) {
            let own: Vec<f64> = scores.iter().map(|alpha| alpha[j]).collect();
            let alpha = shared.unwrap_or_else(|| largest(&own, &settings.alphas));
            let (score, target) = (own[alpha], start + j);
            if score.is_finite() {
                sum += score;
            }
            // One without a score in any fold has the first weights.
            if self.gammas[target].is_none() || score > self.scores[target] + f64::EPSILON {
                self.scores[target] = if score.is_finite() { score } else { f64::NEG_INFINITY };
                self.gammas[target] = Some(gamma);
                self.alphas[target] = settings.alphas[alpha];
            }
        }
        sum
    }
}

/// Position of the largest score; of equal ones that of the largest penalty. NaN is none.
fn largest(scores: &[f64], alphas: &[f64]) -> usize {
    let mut at = 0;
    for i in 1..scores.len() {
        let tie = scores[i] == scores[at] && alphas[i] > alphas[at];
        if scores[i] > scores[at] || tie || (scores[at].is_nan() && !scores[i].is_nan()) {
            at = i;
        }
    }
    at
}

fn band_kernels<T: Scalar>(x: MatRef<'_, T>, bands: &[usize]) -> Vec<Mat<f64>> {
    let mut start = 0;
    let kernel = |size: &usize| {
        let mut kernel = Mat::zeros(x.nrows(), x.nrows());
        add_square(&mut kernel, widened(x.subcols(start, *size)).as_ref());
        mirror(&mut kernel);
        start += size;
        kernel
    };
    bands.iter().map(kernel).collect()
}
