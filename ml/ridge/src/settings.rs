//! What a fit is asked for.

use crate::{Error, Folds, Result, Score};
use faer::MatRef;

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
    /// Keeps all targets in the basis of the features from when penalties are chosen, `[n_targets, min(n_samples,
    /// n_features)]` numbers: they are read once then, and fitted by one product. Else they are read again.
    pub read_once: bool,
    /// Also with leave-one-out and one penalty for all targets, which needs no predictions to be chosen, a fit gives the score of
    /// each target under it: a product more, of targets that are read again.
    pub target_scores: bool,
}

impl RidgeSettings {
    /// One penalty for all targets by leave-one-out: no target needs to be predicted for it.
    pub(crate) fn without_predictions(&self) -> bool {
        let one_for_all = !self.alpha_per_target && self.score != Score::Pearson;
        one_for_all && self.cv == CrossValidation::LeaveOneOut
    }

    /// Whether a fit predicts each sample without it, under the penalty that was chosen.
    pub(crate) fn scores_alone(&self) -> bool {
        self.target_scores && self.without_predictions()
    }
}

impl Default for RidgeSettings {
    fn default() -> Self {
        Self {
            alphas: vec![0.1, 1.0, 10.0],
            cv: CrossValidation::default(),
            score: Score::default(),
            alpha_per_target: false,
            block: 1024,
            read_once: false,
            target_scores: false,
        }
    }
}

pub(crate) fn validate<T>(x: MatRef<'_, T>, settings: &RidgeSettings) -> Result<()> {
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
