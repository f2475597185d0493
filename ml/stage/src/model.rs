//! A fitted model: named functions over series, and a folder that it can be saved to.

use crate::{Options, Result};
use std::{ops::Range, path::Path};

/// A function of a fitted model, as a pipeline calls it: `encode(model, series)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFunction {
    /// Name in the pipeline language.
    pub name: &'static str,
    /// Length of the input series.
    pub input_length: usize,
    /// Length of the output list.
    pub output_length: usize,
}

/// The filters of one layer, for pictures: `[n_filters, n_channels, length]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerFilters {
    /// The layer's path in the model, for example `encoder.0`.
    pub layer: String,
    /// `[n_filters, n_channels, length]`.
    pub shape: [usize; 3],
    /// Row-major values.
    pub values: Vec<f32>,
}

/// What a model chose among by cross-validation, for pictures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// By what it was chosen: `r2`, `pearson`, `neg_mean_squared_error`. Greater is better.
    pub scoring: String,
    /// Of each candidate, over the targets that can be fitted.
    pub mean_scores: Vec<f64>,
    /// The candidates, where these are penalties; empty where they are drawn.
    pub penalties: Vec<f64>,
    /// The candidate that all targets have; none where each has its own.
    pub chosen: Option<usize>,
}

/// Predicts the series of a model's targets from features. Coefficients stay where the model has them, and are read for
/// the targets that are asked for.
pub trait Predictor: Send + std::fmt::Debug {
    /// Names of the features, each once, in the order in which [`Self::predict`] takes them.
    fn features(&self) -> &[String];
    /// Samples from a feature to the last that it explains.
    fn longest_delay(&self) -> usize;
    /// Samples of each run that the model was fitted to; none: not known.
    fn run_samples(&self) -> Option<usize>;
    /// How many targets there are.
    fn targets(&self) -> usize;
    /// Bytes of the coefficients of one target.
    fn bytes_per_target(&self) -> usize;
    /// Series of `targets` in each of `runs`, whose features are `[n_samples, n_features]` row-major: of each run
    /// `[n_targets, n_samples]` row-major, in the units of the series that were fitted; NaN for a target that could not be.
    ///
    /// # Errors
    /// Features that are not whole samples, targets that the model has not, files that cannot be read any more.
    fn predict(&self, runs: &[&[f64]], targets: Range<usize>) -> Result<Vec<Vec<f32>>>;
}

/// A fitted model. Immutable and shared by threads.
pub trait Model: Send + Sync + std::fmt::Debug {
    /// The stage that made it, for example `dist_dca`.
    fn stage(&self) -> &'static str;
    /// Its configuration, with the names that `USING stage (…)` takes.
    fn config(&self) -> Options;
    /// Number of parameters.
    fn parameters(&self) -> usize;
    /// The functions that can be applied.
    fn functions(&self) -> Vec<ModelFunction>;
    /// Applies `function` to `series`, `[n, input_length]` row-major; gives `[n, output_length]`.
    ///
    /// # Errors
    /// An unknown function, or a length that does not fit.
    fn apply(&self, function: &str, series: &[f32]) -> Result<Vec<f32>>;
    /// Filters of the layers that have any.
    fn filters(&self) -> Vec<LayerFilters>;
    /// Numbers of each target, by name, in the order of the targets; NaN where a target has none. Empty for a model that
    /// is of no targets.
    ///
    /// # Errors
    /// A model whose files cannot be read any more.
    fn targets(&self) -> Result<Vec<(String, Vec<f64>)>> {
        Ok(Vec::new())
    }
    /// What it chose among by cross-validation; none for a model that was not made so.
    ///
    /// # Errors
    /// A model whose files cannot be read any more.
    fn choice(&self) -> Result<Option<Choice>> {
        Ok(None)
    }
    /// What predicts the series of its targets from features; none for a model that explains no series.
    ///
    /// # Errors
    /// A model whose files cannot be read any more.
    fn predictor(&self) -> Result<Option<Box<dyn Predictor>>> {
        Ok(None)
    }
    /// Writes `model.safetensors` (and nothing else) into `folder`, which exists.
    ///
    /// # Errors
    /// Storage that fails.
    fn save_weights(&self, folder: &Path) -> Result<()>;
}
