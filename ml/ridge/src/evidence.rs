//! What targets say about the penalties, and which are chosen by that.

use crate::RidgeSettings;
use crate::targets::TargetBlock;
use faer::Mat;
use std::ops::Range;

/// What a share of the targets says about the penalties.
///
/// Whoever has a share of the targets adds up [`Evidence::sums`] with the others (they are as many for every share),
/// and [`RidgeCv::mean_scores`] of the total are those of all targets.
#[derive(Clone, Debug)]
pub struct Evidence<T> {
    pub(crate) sums: Vec<f64>,
    /// Of each target of the share the score of each penalty, NaN where it has none; none where leave-one-out needs no
    /// predictions.
    pub(crate) scores: Vec<Vec<f64>>,
    pub(crate) count: usize,
    pub(crate) unfit: Vec<usize>,
    pub(crate) kept: Vec<Projected<T>>,
}

impl<T> Default for Evidence<T> {
    fn default() -> Self {
        Self { sums: Vec::new(), scores: Vec::new(), count: 0, unfit: Vec::new(), kept: Vec::new() }
    }
}

/// A block of targets in the basis of the features.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Projected<T> {
    /// Which targets these are.
    pub range: Range<usize>,
    /// Their means; NaN where a target has NaN or infinity.
    pub means: Vec<f64>,
    /// `YᵀZ` of centred targets, `[n_targets, n_values]`.
    pub values: Mat<T>,
}

impl<T> Evidence<T> {
    /// Takes what the targets behind these say, which count from 0 there; they are read again.
    pub(crate) fn append(&mut self, next: Self) {
        self.sums.resize(next.sums.len(), 0.0);
        self.sums.iter_mut().zip(&next.sums).for_each(|(sum, more)| *sum += more);
        self.unfit.extend(next.unfit.into_iter().map(|target| self.count + target));
        self.scores.extend(next.scores);
        self.count += next.count;
    }

    /// Numbers that add up over shares.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// The same, to be replaced by the total.
    pub fn sums_mut(&mut self) -> &mut [f64] {
        &mut self.sums
    }
}

/// The penalties that were chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct RidgeFit<T> {
    /// Of each target; all equal where it is shared. NaN for a target that is constant or not finite.
    pub alphas: Vec<f64>,
    /// The mean score of each penalty over all folds of all targets that have a score there; NaN where there is none.
    pub mean_scores: Vec<f64>,
    /// The score of each target under its penalty, over the folds that it has one in: by R² and Pearson's r those in which it is
    /// not constant. NaN where there is none. Empty where the penalty is shared and leave-one-out needed no predictions.
    pub best_scores: Vec<f64>,
    /// Targets that are constant, or have NaN or infinity: their coefficients are NaN.
    pub unfit: Vec<usize>,
    /// All blocks of targets, or none where they are read again.
    pub(crate) kept: Vec<Projected<T>>,
}

impl<T> RidgeFit<T> {
    /// These penalties, for targets that are read again.
    pub(crate) fn of_alphas(alphas: Vec<f64>) -> Self {
        let (mean_scores, best_scores, unfit) = (Vec::new(), Vec::new(), Vec::new());
        Self { alphas, mean_scores, best_scores, unfit, kept: Vec::new() }
    }
}

pub(crate) fn projected<T>(block: &TargetBlock<T>, values: Mat<T>) -> Projected<T> {
    Projected { range: block.range.clone(), means: block.means.clone(), values }
}

/// The penalties of the targets that the evidence is of, by the mean scores of all targets.
pub(crate) fn decided<T>(
    settings: &RidgeSettings,
    evidence: Evidence<T>,
    mean_scores: Vec<f64>,
) -> RidgeFit<T> {
    let Evidence { scores, count, unfit, kept, .. } = evidence;
    let shared = best(&mean_scores);
    let chosen = |own: &Vec<f64>| if settings.alpha_per_target { best(own) } else { shared };
    let at: Vec<usize> =
        if scores.is_empty() { vec![shared; count] } else { scores.iter().map(chosen).collect() };
    let best_scores = scores.iter().zip(&at).map(|(own, at)| own[*at]).collect::<Vec<_>>();
    let best_scores = if scores.is_empty() { best_scores } else { with_nan(best_scores, &unfit) };
    let chosen = at.iter().map(|at| settings.alphas[*at]).collect();
    RidgeFit { alphas: with_nan(chosen, &unfit), mean_scores, best_scores, unfit, kept }
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

pub(crate) fn unfit_of<T>(block: &TargetBlock<T>) -> impl Iterator<Item = usize> + '_ {
    let start = block.range.start;
    block.squares.iter().enumerate().filter(|(_, square)| **square == 0.0).map(move |(j, _)| start + j)
}

fn with_nan(mut values: Vec<f64>, unfit: &[usize]) -> Vec<f64> {
    unfit.iter().for_each(|target| values[*target] = f64::NAN);
    values
}
