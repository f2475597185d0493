//! Options of `banded_ridge_cv`: those of every stage, and how weights of bands are searched, with the names of
//! himalaya's `GroupRidgeCV` and its random search.

use super::{STAGE, bands::Bands, bands::Patterns, named};
use crate::needs::FitPlan;
use crate::options::{CvChoice, EncodingOptions, of_ridge, with_scoring};
use serde::{Deserialize, Serialize};
use voxelflow_ridge::{BandedSettings, CrossValidation, dirichlet};
use voxelflow_stage::{Error, Options, Result, Room, Samples, TrainSettings, parse_options};

/// Options of the stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BandedOptions {
    /// Features of each band, by its name: `{'motion': 'motion_*', 'words': ['embedding', 'length']}`.
    pub bands: Patterns,
    /// Weights of bands that are tried: the first are equal for all bands.
    pub n_iter: usize,
    /// Of the Dirichlet distributions that the others are drawn from in turn: 1 is uniform, less leans to few bands.
    pub concentration: Vec<f64>,
    /// The weights themselves, instead of such that are drawn: `[n_gammas][n_bands]`, bands in the order of their names.
    pub gammas: Vec<Vec<f64>>,
    /// Those of every stage; `alpha_per_target` is on here, and `cv => 'loo'` is not had.
    #[serde(flatten)]
    pub encoding: EncodingOptions,
}

impl Default for BandedOptions {
    fn default() -> Self {
        Self {
            bands: Patterns::new(),
            n_iter: 100,
            concentration: vec![0.1, 1.0],
            gammas: Vec::new(),
            encoding: EncodingOptions { alpha_per_target: true, ..EncodingOptions::default() },
        }
    }
}

pub(super) fn refused(option: &str, reason: impl Into<String>) -> Error {
    Error::OptionValue { what: STAGE.into(), option: option.into(), reason: reason.into() }
}

impl BandedOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// An unknown name, a value out of range.
    pub fn from_options(options: &Options) -> Result<Self> {
        let own: Self = parse_options(STAGE, &with_scoring(options).map_err(named)?)?;
        own.encoding.check().map_err(named)?;
        if own.encoding.choice().map_err(named)? == CvChoice::LeaveOneOut {
            return Err(refused("cv", "is 'run' or a number of folds from 2 on, not 'loo'"));
        }
        if own.bands.is_empty() {
            let reason =
                "there are none; name them, for example {'motion': 'motion_*', 'words': 'embedding'}";
            return Err(refused("bands", reason));
        }
        let odd = |name: &&String| name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if let Some(name) = own.bands.keys().find(odd) {
            let reason =
                format!("`{name}` becomes part of a column's name: write it with letters, digits and _");
            return Err(refused("bands", reason));
        }
        let mut columns = own.columns();
        columns.sort_unstable();
        if let Some(twice) = columns.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(refused(
                "bands",
                format!("another column is called {}: name the band otherwise", twice[0]),
            ));
        }
        let usual = Self::default();
        let drawn = [
            ("n_iter", own.n_iter != usual.n_iter),
            ("concentration", own.concentration != usual.concentration),
        ];
        if let Some((option, _)) = drawn.iter().find(|(_, given)| *given && !own.gammas.is_empty()) {
            return Err(refused(
                option,
                "is of weights that are drawn, and gammas gives them: leave one of both out",
            ));
        }
        if own.n_iter == 0 {
            return Err(refused("n_iter", "must be at least 1, got 0"));
        }
        if let Some(gamma) = own.gammas.iter().find(|gamma| gamma.len() != own.bands.len()) {
            let (weights, bands) = (gamma.len(), own.bands.len());
            return Err(refused(
                "gammas",
                format!("{gamma:?} are {weights} weights, and there are {bands} bands"),
            ));
        }
        // Said before anything runs.
        own.drawn(0)?;
        Ok(own)
    }

    /// The bands of the features of `samples`.
    ///
    /// # Errors
    /// Features of no band or of two.
    pub(crate) fn bands(&self, samples: &Samples) -> Result<Bands> {
        Bands::of(&self.bands, &samples.features).map_err(|reason| refused("bands", reason))
    }

    /// Names of the numbers of each target, in the order of the model's table.
    pub fn columns(&self) -> Vec<String> {
        let names: Vec<String> = self.bands.keys().cloned().collect();
        let own = ["intercept", "alpha", "gamma", "score"].map(str::to_owned);
        own.into_iter().chain(crate::held_out::columns(&names, self.encoding.permutations > 0)).collect()
    }

    fn drawn(&self, seed: u64) -> Result<Vec<Vec<f64>>> {
        if !self.gammas.is_empty() {
            return Ok(self.gammas.clone());
        }
        dirichlet(self.n_iter, self.bands.len(), &self.concentration, seed).map_err(|e| named(of_ridge(e)))
    }

    /// The settings of the solver for these samples.
    ///
    /// # Errors
    /// Folds that the samples do not allow, features of no band or of two.
    pub fn settings(&self, samples: &Samples, seed: u64) -> Result<BandedSettings> {
        let ridge = self.encoding.settings(samples).map_err(named)?;
        let CrossValidation::Folds(folds) = ridge.cv else {
            return Err(refused("cv", "is 'run' or a number of folds"));
        };
        let bands = self.bands(samples)?.sizes(self.encoding.delays.len());
        Ok(BandedSettings {
            alphas: ridge.alphas,
            score: ridge.score,
            alpha_per_target: ridge.alpha_per_target,
            block: ridge.block,
            ..BandedSettings::new(bands, self.drawn(seed)?, folds)
        })
    }
}

impl BandedOptions {
    /// What a fit of these samples will need.
    ///
    /// # Errors
    /// As [`Self::settings`].
    pub(crate) fn plan(
        &self,
        samples: &Samples,
        held_out: Option<&Samples>,
        settings: &TrainSettings,
        room: Room,
    ) -> Result<FitPlan<BandedSettings>> {
        let solver = self.settings(samples, settings.seed)?;
        Ok(FitPlan::new(&self.encoding, solver, samples, held_out, settings.ranks, room))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::written;
    use serde_json::{Value, json};

    fn options(value: Value) -> Result<BandedOptions> {
        BandedOptions::from_options(value.as_object().unwrap())
    }

    #[test]
    fn names_and_values_are_read_or_named() {
        let given = json!({"bands": {"a": "x", "b": ["y", "z"]}, "n_iter": 7, "alphas": [1, 10], "cv": 5, "score": "pearson"});
        let read = options(given).unwrap();
        assert_eq!((read.n_iter, read.encoding.alphas.as_slice()), (7, &[1.0, 10.0][..]));
        assert!(read.encoding.alpha_per_target);
        assert_eq!(read.drawn(3).unwrap().len(), 7);
        let two = json!({"a": "x", "b": "y"});
        for (wrong, says) in [
            (json!({}), "there are none; name them"),
            (json!({"bands": two, "n_itr": 3}), "did you mean `n_iter`?"),
            (json!({"bands": two, "alpha_per_traget": true}), "did you mean `alpha_per_target`?"),
            (json!({"bands": two, "cv": "loo"}), "not 'loo'"),
            (json!({"bands": two, "cv": 1}), "cv"),
            (json!({"bands": two, "n_iter": 0}), "n_iter"),
            (json!({"bands": two, "concentration": [0]}), "concentration"),
            (json!({"bands": two, "gammas": [[1, 0, 0]]}), "3 weights, and there are 2 bands"),
            (json!({"bands": two, "gammas": [[1, 0]], "n_iter": 7}), "gammas gives them"),
            (json!({"bands": two, "gammas": [[1, 0]], "concentration": [1]}), "gammas gives them"),
            (json!({"bands": {"a b": "x"}}), "letters, digits and _"),
            (json!({"bands": {"normalized": "x"}}), "another column is called r_normalized"),
            (json!({"bands": "x"}), "bands"),
            (json!({"bands": two, "baseline": "mor"}), "unknown option `baseline`"),
        ] {
            let error = options(wrong).unwrap_err();
            let text = error.to_string();
            assert!(error.is_input() && text.contains(says) && text.contains(STAGE), "{text}");
            assert!(!text.contains("options are") || !text.contains("baseline,"), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let read = options(json!({"bands": {"a": "x", "b": "y"}, "delays": [1, 2]})).unwrap();
        assert_eq!(BandedOptions::from_options(&written(&read)).unwrap(), read);
    }
}
