//! Banded ridge: features in bands (motion energy, words, …), each with a weight of its own.
//!
//! ```text
//!   bands of X ─► Gram matrix of every fold, once (or the kernel of every band, where features outnumber samples)
//!                      │
//!   γ, some at a time ─┴─► D·G·D = VΛVᵀ of every fold, D = diag(√γ of the feature's band)
//!                                      │
//!   Y, block by block ─► XᵀY of folds ─┴─► sums of Ŷ of the held samples, all α at once ─► scores ─► γ and α
//! ```
//! A ridge fit of features scaled by √γ is a fit with a penalty α/γ for each band (Dupré la Tour et al. 2022, "Feature-space
//! selection with banded ridge regression"). The weights γ are drawn from Dirichlet distributions and all are tried, as in
//! himalaya's `GroupRidgeCV(solver="random_search")`, whose numbers these are for equal γ.
//!
//! No γ passes over the samples of X: scaling a Gram matrix costs p². What dominates is, for each γ, an
//! eigendecomposition a fold (about 10 p³) and, for each target, two products of p² a fold, whatever the number of α. Y is read once for
//! [`BandedSettings::gammas_at_once`] weights and once to fit.

mod dirichlet;
mod fit;
mod fold;
mod search;
mod split;
mod together;

pub use dirichlet::dirichlet;
pub use fit::BandedCoefficients;
pub use search::{BandedFit, BandedRidgeCv};
pub use split::{SplitScores, pearson_split, r2_split, split_scores};
use together::Alone;
pub use together::{Part, Together};

use crate::{Error, Folds, Result, Score};

/// What a banded fit is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct BandedSettings {
    /// Features of each band, in the order of the columns: `[300, 20]` are two bands, of 320 columns.
    pub bands: Vec<usize>,
    /// Weights to choose from, `[n_gammas][n_bands]`, each from 0; see [`dirichlet`].
    pub gammas: Vec<Vec<f64>>,
    /// Penalties to choose from, each over 0.
    pub alphas: Vec<f64>,
    /// How they are compared.
    pub folds: Folds,
    /// By what.
    pub score: Score,
    /// A penalty for each target; else, for each γ, the one with the best mean score.
    pub alpha_per_target: bool,
    /// Targets that are held at once.
    pub block: usize,
    /// Weights whose decompositions are held at once: as many times fewer is Y read.
    pub gammas_at_once: usize,
}

impl BandedSettings {
    /// `bands` and `folds` with scikit-learn's and himalaya's usual choices for the rest.
    pub fn new(bands: Vec<usize>, gammas: Vec<Vec<f64>>, folds: Folds) -> Self {
        Self {
            bands,
            gammas,
            alphas: vec![0.1, 1.0, 10.0],
            folds,
            score: Score::default(),
            alpha_per_target: true,
            block: 1024,
            gammas_at_once: 4,
        }
    }

    /// What can be said before the features are looked at.
    fn validate(&self, n_features: usize) -> Result<()> {
        let wrong = |option, reason| Err(Error::Setting { option, reason });
        let columns: usize = self.bands.iter().sum();
        if columns != n_features || self.bands.contains(&0) {
            let reason = format!(
                "{:?} are {columns} features in {} bands, and there are {n_features}; give the number of columns of each \
                 band, each over 0",
                self.bands,
                self.bands.len()
            );
            return wrong("bands", reason);
        }
        if self.alphas.is_empty() {
            return wrong("alphas", "there are none; give for example [0.1, 1, 10]".into());
        }
        if let Some(alpha) = self.alphas.iter().find(|alpha| !(alpha.is_finite() && **alpha > 0.0)) {
            return wrong("alphas", format!("{alpha} is not a finite number over 0"));
        }
        if self.gammas.is_empty() {
            return wrong("gammas", "there are none; draw some with `dirichlet`".into());
        }
        for (at, gamma) in self.gammas.iter().enumerate() {
            let sound = gamma.iter().all(|g| g.is_finite() && *g >= 0.0) && gamma.iter().sum::<f64>() > 0.0;
            if gamma.len() != self.bands.len() || !sound {
                let reason = format!(
                    "number {at} is {gamma:?}; it must have a weight for each of the {} bands, none below 0, one over 0",
                    self.bands.len()
                );
                return wrong("gammas", reason);
            }
        }
        Ok(())
    }

    /// `√γ` of every feature.
    fn scales(&self, gamma: &[f64]) -> Vec<f64> {
        let band = self.bands.iter().zip(gamma);
        band.flat_map(|(size, g)| std::iter::repeat_n(g.sqrt(), *size)).collect()
    }
}
