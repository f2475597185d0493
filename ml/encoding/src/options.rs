//! Options of `ridge_cv`, and those that all stages of this crate have, with the names of scikit-learn's `RidgeCV` where
//! it has them.

use crate::{delays::must_know_what_precedes, held_out};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use voxelflow_ridge::{
    CrossValidation, Folds, NullTest, Rearrangement, RidgeSettings, Score, leave_one_run_out, rearrangements,
};
use voxelflow_stage::{Error, Options, Result, SampleRun, Samples, parse_options};

/// Name of the stage.
pub(crate) const STAGE: &str = "ridge_cv";

/// Type of the numbers that products are made of; decompositions are in 64 bits for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits, as series have them.
    #[default]
    F32,
    /// 64 bits.
    F64,
}

/// Options of `ridge_cv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RidgeCvOptions {
    /// Those of every stage.
    #[serde(flatten)]
    pub encoding: EncodingOptions,
    /// `'mor'` or `'b_mor'`: every target, or every rank's batch of targets, is a model of its own, with penalties of its
    /// own and the features decomposed anew. The work of the ranks adds up to more, and nothing else is better: for
    /// comparison.
    pub baseline: Option<Baseline>,
}

/// Options of every stage of this crate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EncodingOptions {
    /// Penalties to choose from, each over 0.
    pub alphas: Vec<f64>,
    /// How they are compared: `'run'`, `'loo'`, or a number of folds.
    pub cv: Value,
    /// With `cv => 'run'`: samples beside a run that its fit does not see, where another run lies next to it.
    pub gap: usize,
    /// One penalty for each target; else one for all.
    pub alpha_per_target: bool,
    /// `'r2'`, `'pearson'` or `'neg_mean_squared_error'`. `score` is another name of it.
    pub scoring: Score,
    /// Samples by which features precede: `[1, 2, 3, 4]` explains a sample by those 1 to 4 before it in its run. `[]`:
    /// by its own.
    pub delays: Vec<usize>,
    /// Numbers that products are made of.
    pub precision: Precision,
    /// Targets that a rank holds at once.
    pub block: usize,
    /// Rearrangements of the predictions of the held-out samples that r is tested against; 0: none. The seed is that of
    /// `WITH`.
    pub permutations: usize,
    /// How they are rearranged, within runs.
    pub permutation: Permutation,
    /// Samples of a block, or the least of a shift.
    pub permutation_length: usize,
}

/// How targets are fitted where the work on the features is repeated: what others do, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// A model for every target, as scikit-learn's `MultiOutputRegressor`.
    Mor,
    /// A model for every rank's batch of targets: batch multi-output regression.
    BMor,
}

/// How samples are rearranged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permutation {
    /// Blocks of neighbouring samples change places within their run.
    #[default]
    Blocks,
    /// Every run is turned.
    CircularShift,
    /// All samples freely: p-values of series that are alike from volume to volume are too small.
    Shuffle,
}

impl Default for EncodingOptions {
    fn default() -> Self {
        Self {
            alphas: vec![0.1, 1.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 900.0, 1000.0, 1200.0],
            cv: Value::String("run".into()),
            gap: 0,
            alpha_per_target: false,
            scoring: Score::R2,
            delays: Vec::new(),
            precision: Precision::F32,
            block: 1024,
            permutations: 0,
            permutation: Permutation::default(),
            permutation_length: 10,
        }
    }
}

/// How penalties are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CvChoice {
    /// Every run is predicted by the others.
    Run,
    /// Every sample is predicted by all others.
    LeaveOneOut,
    /// So many folds of neighbouring samples.
    Folds(usize),
}

pub(crate) fn refused(option: &str, reason: impl Into<String>) -> Error {
    Error::OptionValue { what: STAGE.into(), option: option.into(), reason: reason.into() }
}

/// `options`, in which `score` is called `scoring`.
///
/// # Errors
/// Both are given.
pub(crate) fn with_scoring(options: &Options) -> Result<Options> {
    let mut options = options.clone();
    if let Some(score) = options.remove("score")
        && options.insert("scoring".into(), score).is_some()
    {
        return Err(refused("score", "is another name of scoring: give one of them"));
    }
    Ok(options)
}

/// Options as they are written.
pub(crate) fn written(options: &impl Serialize) -> Options {
    match serde_json::to_value(options) {
        Ok(Value::Object(options)) => options,
        _ => Options::new(),
    }
}

impl RidgeCvOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// An unknown name, a value out of range.
    pub fn from_options(options: &Options) -> Result<Self> {
        let own: Self = parse_options(STAGE, &with_scoring(options)?)?;
        own.encoding.check()?;
        Ok(own)
    }
}

impl EncodingOptions {
    /// # Errors
    /// A value out of range.
    pub(crate) fn check(&self) -> Result<()> {
        self.choice()?;
        if self.alphas.is_empty() {
            return Err(refused("alphas", "there are none; give for example [0.1, 1, 10]"));
        }
        if let Some(alpha) = self.alphas.iter().find(|alpha| !(alpha.is_finite() && **alpha > 0.0)) {
            return Err(refused("alphas", format!("{alpha} is not a finite number over 0")));
        }
        if self.permutations > 0 && self.permutation_length == 0 && self.permutation != Permutation::Shuffle {
            return Err(refused("permutation_length", "must be at least 1 sample, got 0"));
        }
        let usual = Self::default();
        let how = [
            ("permutation", self.permutation != usual.permutation),
            ("permutation_length", self.permutation_length != usual.permutation_length),
        ];
        if let Some((option, _)) = how.iter().find(|(_, given)| *given && self.permutations == 0) {
            return Err(refused(
                option,
                "is of use with permutations only: write for example permutations => 1000",
            ));
        }
        if self.permutation == Permutation::Shuffle && how[1].1 {
            let reason =
                "is of blocks and shifts: 'shuffle' rearranges samples one by one; leave one of both out";
            return Err(refused("permutation_length", reason));
        }
        if self.block == 0 {
            return Err(refused("block", "must be at least 1 target, got 0"));
        }
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        if let Some(twice) = delays.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(refused("delays", format!("{} is given twice", twice[0])));
        }
        if self.gap > 0 && self.choice()? != CvChoice::Run {
            return Err(refused("gap", "is of use with cv => 'run' only"));
        }
        Ok(())
    }

    /// What `cv` says.
    ///
    /// # Errors
    /// Another word, or another number than 2 and more.
    pub fn choice(&self) -> Result<CvChoice> {
        match &self.cv {
            Value::String(word) if word == "run" => Ok(CvChoice::Run),
            Value::String(word) if word == "loo" => Ok(CvChoice::LeaveOneOut),
            Value::Number(n) if n.as_u64().is_some_and(|n| n >= 2) => {
                Ok(CvChoice::Folds(n.as_u64().unwrap_or(2) as usize))
            }
            other => {
                Err(refused("cv", format!("is 'run', 'loo' or a number of folds from 2 on, not {other}")))
            }
        }
    }

    /// The test of r in `samples`, which no fit has seen; none where none is asked for.
    ///
    /// # Errors
    /// Runs that are too short for it.
    pub fn null_test(&self, samples: &Samples, seed: u64) -> Result<Option<NullTest>> {
        if self.permutations == 0 {
            return Ok(None);
        }
        let length = self.permutation_length;
        let how = match self.permutation {
            Permutation::Blocks => Rearrangement::Blocks { length },
            Permutation::CircularShift => Rearrangement::CircularShift { least: length },
            Permutation::Shuffle => Rearrangement::Shuffle,
        };
        let orders = rearrangements(&run_of_each(samples), how, self.permutations, seed);
        let orders = orders.map_err(|e| match e {
            voxelflow_ridge::Error::Setting { option: "rearrangements", reason } => {
                refused("permutations", reason)
            }
            voxelflow_ridge::Error::Setting { option: "length" | "least", reason } => {
                refused("permutation_length", reason)
            }
            other => of_ridge(other),
        })?;
        NullTest::new(orders).map(Some).map_err(of_ridge)
    }

    /// Names of the numbers of each target, in the order of the model's table.
    pub(crate) fn columns(&self) -> Vec<String> {
        let own = ["intercept", "alpha", "score"].map(str::to_owned);
        own.into_iter().chain(held_out::columns(&[], self.permutations > 0)).collect()
    }

    /// Without held-out runs there is nothing to test r in.
    ///
    /// # Errors
    /// A test is asked for.
    pub(crate) fn untested(&self) -> Result<()> {
        if self.permutations == 0 {
            return Ok(());
        }
        Err(refused("permutations", "test r in runs that no fit has seen: name them in VALIDATE ON (…)"))
    }

    /// Whether a fit of these samples can be.
    ///
    /// # Errors
    /// Folds that they do not allow, too few samples, delays as long as a run.
    pub(crate) fn check_samples(&self, samples: &Samples) -> Result<()> {
        self.settings(samples)?;
        let (n, p) = (samples.count(), self.n_features(samples.features.len()));
        if n < 3 || p == 0 {
            let reason = format!("{n} samples of {p} features; three samples of one are the least");
            return Err(Error::Data { what: STAGE.into(), reason });
        }
        if let CvChoice::Folds(k) = self.choice()?
            && self.scoring != Score::NegMeanSquaredError
            && n / k < 2
        {
            let reason = format!(
                "{k} folds of {n} samples: one sample has neither R² nor r; give at most {}, or 'loo', or scoring => \
                 'neg_mean_squared_error'",
                n / 2
            );
            return Err(refused("cv", reason));
        }
        let short = |run: &&SampleRun| self.delays.iter().any(|d| *d >= run.feature_rows());
        if let Some(run) = samples.runs.iter().find(short) {
            let reason = format!(
                "{} has {} samples: a delay as long as a run leaves no feature",
                run.name, run.samples
            );
            return Err(refused("delays", reason));
        }
        must_know_what_precedes(samples, &self.delays)
    }

    /// Features after delays, of so many.
    pub fn n_features(&self, features: usize) -> usize {
        features * self.delays.len().max(1)
    }

    /// The settings of the solver for these samples.
    ///
    /// # Errors
    /// Folds that the samples do not allow.
    pub fn settings(&self, samples: &Samples) -> Result<RidgeSettings> {
        let count = samples.count();
        let cv = match self.choice()? {
            CvChoice::LeaveOneOut => CrossValidation::LeaveOneOut,
            CvChoice::Folds(k) => CrossValidation::Folds(Folds::contiguous(count, k).map_err(of_ridge)?),
            CvChoice::Run => {
                let runs = run_of_each(samples);
                if let [only] = samples.runs.as_slice() {
                    let reason = format!(
                        "'run' needs two runs or more, and there is one, {}; give a number of folds, or 'loo'",
                        only.name
                    );
                    return Err(refused("cv", reason));
                }
                CrossValidation::Folds(leave_one_run_out(&runs, self.gap).map_err(of_ridge)?)
            }
        };
        Ok(RidgeSettings {
            alphas: self.alphas.clone(),
            cv,
            score: self.scoring,
            alpha_per_target: self.alpha_per_target,
            block: self.block,
            read_once: false,
            target_scores: true,
        })
    }
}

/// The run of each sample.
fn run_of_each(samples: &Samples) -> Vec<usize> {
    let runs = samples.runs.iter().enumerate();
    runs.flat_map(|(number, run)| std::iter::repeat_n(number, run.samples)).collect()
}

/// What the solver says, as this stage's error.
pub(crate) fn of_ridge(error: voxelflow_ridge::Error) -> Error {
    match error {
        voxelflow_ridge::Error::Setting { option, reason } => refused(option, reason),
        other if !other.is_input() => Error::Device { reason: other.to_string() },
        other => Error::Data { what: STAGE.into(), reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use voxelflow_stage::SampleRun;

    fn options(value: Value) -> Result<EncodingOptions> {
        RidgeCvOptions::from_options(value.as_object().unwrap()).map(|options| options.encoding)
    }

    fn samples(runs: &[usize]) -> Samples {
        let run = |(number, samples): (usize, &usize)| SampleRun {
            name: format!("run {number}"),
            samples: *samples,
            ..Default::default()
        };
        Samples { runs: runs.iter().enumerate().map(run).collect(), ..Default::default() }
    }

    #[test]
    fn names_and_values_are_read_or_named() {
        let read =
            options(json!({"alphas": [1, 10], "cv": 5, "score": "pearson", "delays": [1, 2]})).unwrap();
        assert_eq!((read.choice().unwrap(), read.scoring), (CvChoice::Folds(5), Score::Pearson));
        assert_eq!((read.n_features(3), options(json!({})).unwrap().n_features(3)), (6, 3));
        for (wrong, name) in [
            (json!({"alpha": [1]}), "did you mean `alphas`?"),
            (json!({"alphas": []}), "alphas"),
            (json!({"alphas": [1, 0]}), "0 is not"),
            (json!({"cv": "runs"}), "'run', 'loo'"),
            (json!({"cv": 1}), "not 1"),
            (json!({"delays": [1, 2, 1]}), "1 is given twice"),
            (json!({"cv": "loo", "gap": 3}), "gap"),
            (json!({"score": "r2", "scoring": "r2"}), "give one"),
            (json!({"scoring": "r"}), "scoring"),
            (json!({"block": 0}), "block"),
            (json!({"permutation": "shuffle"}), "permutations => 1000"),
            (json!({"permutation_length": 5}), "permutations => 1000"),
            (json!({"permutations": 9, "permutation": "shuffle", "permutation_length": 5}), "one by one"),
        ] {
            let error = options(wrong).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn folds_must_fit_the_samples() {
        let run = options(json!({})).unwrap();
        assert!(matches!(run.settings(&samples(&[4, 5])).unwrap().cv, CrossValidation::Folds(_)));
        let error = run.settings(&samples(&[9])).unwrap_err().to_string();
        assert!(error.contains("there is one, run 0"), "{error}");
        let five = options(json!({"cv": 5})).unwrap();
        assert!(five.settings(&samples(&[4])).unwrap_err().to_string().contains("5 folds of 4"));
        let of = |scoring: &str, count: usize| {
            let features = vec!["x".to_owned()];
            let options = options(json!({"cv": 5, "scoring": scoring})).unwrap();
            options.check_samples(&Samples { features, ..samples(&[count]) })
        };
        assert!(
            of("r2", 9).unwrap_err().to_string().contains("one sample has neither R² nor r; give at most 4")
        );
        assert!(of("r2", 10).is_ok() && of("neg_mean_squared_error", 9).is_ok());
    }
}
