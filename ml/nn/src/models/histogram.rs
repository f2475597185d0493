//! `histogram`: a diagnostic of training itself, whose result can be checked to the last digit.
//!
//! It sums the one-hot of each series' first value, floored to a bin. The loss of a series is the parameter of its
//! bin, so its gradient is the one-hot vector, and
//! ```text
//!   TRAIN MODEL h USING histogram (bins => 64) ON (…)
//!   WITH (optimizer => 'sgd', learning_rate => 1, reduction => 'sum', epochs => 1)
//! ```
//! leaves in every parameter the negative number of series of that bin that were trained on: each once an epoch, or
//! training has lost or repeated some. Numbers below 2²⁴ are exact in 32 bits. With a warm-up the leader's extra
//! steps are counted too; with other settings the parameters are no counts.

use super::folder;
use crate::{objective::Objective, parameters::ParameterLayout, trainer::train};
use serde::{Deserialize, Serialize};
use std::path::Path;
use voxelflow_stage::{
    Error, Estimator, Fitted, Gang, LayerFilters, Model, ModelFunction, Options, Result, SeriesFeed,
    StageKind, TrainSettings, parse_options,
};

/// Name of the stage.
const STAGE: &str = "histogram";
const FUNCTIONS: [&str; 1] = ["bin_count"];

/// Options of the stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistogramConfig {
    /// Bins; the first value of a series is in `0..bins`. Default 256.
    pub bins: usize,
}

impl Default for HistogramConfig {
    fn default() -> Self {
        Self { bins: 256 }
    }
}

impl HistogramConfig {
    /// Reads the options.
    ///
    /// # Errors
    /// An unknown name, or no bins at all.
    pub fn from_options(options: &Options) -> Result<Self> {
        let config: Self = parse_options(STAGE, options)?;
        if config.bins == 0 {
            let reason = "must be at least 1".into();
            return Err(Error::OptionValue { what: STAGE.into(), option: "bins".into(), reason });
        }
        Ok(config)
    }

    fn layout(&self) -> ParameterLayout {
        ParameterLayout::new([("counts".to_owned(), vec![self.bins])])
    }

    /// The bin of a series.
    fn bin(&self, series: &[f32]) -> Result<usize> {
        let value = series.first().copied().unwrap_or(f32::NAN);
        let bin = value.floor();
        if bin >= 0.0 && (bin as usize) < self.bins {
            return Ok(bin as usize);
        }
        let last = self.bins - 1;
        let reason =
            format!("a series begins with {value}, which is in none of the bins 0 to {last}; give more bins");
        Err(Error::Data { what: STAGE.into(), reason })
    }
}

/// The loss `Σ w[bin]`, whose gradient counts.
#[derive(Clone, Debug)]
pub struct CountObjective {
    config: HistogramConfig,
    layout: ParameterLayout,
    time_points: usize,
}

impl CountObjective {
    /// Counts series of `time_points`.
    pub fn new(config: &HistogramConfig, time_points: usize) -> Self {
        Self { config: config.clone(), layout: config.layout(), time_points }
    }
}

impl Objective for CountObjective {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn initial(&self, _seed: u64) -> Vec<f32> {
        vec![0.0; self.config.bins]
    }

    fn time_points(&self) -> usize {
        self.time_points
    }

    fn gradient(&mut self, parameters: &[f32], series: &[f32], gradient: &mut [f32]) -> Result<f64> {
        self.layout.check(gradient.len(), "gradient")?;
        gradient.fill(0.0);
        for series in series.chunks_exact(self.time_points) {
            gradient[self.config.bin(series)?] += 1.0;
        }
        self.loss(parameters, series)
    }

    fn loss(&mut self, parameters: &[f32], series: &[f32]) -> Result<f64> {
        self.layout.check(parameters.len(), "parameters")?;
        let losses =
            series.chunks_exact(self.time_points).map(|series| Ok(parameters[self.config.bin(series)?]));
        losses.map(|loss: Result<f32>| loss.map(f64::from)).sum()
    }
}

/// A configured histogram.
#[derive(Clone, Debug)]
pub struct HistogramEstimator {
    /// The options.
    pub config: HistogramConfig,
}

fn functions(time_points: usize) -> Vec<ModelFunction> {
    FUNCTIONS.map(|name| ModelFunction { name, input_length: time_points, output_length: 1 }).to_vec()
}

impl Estimator for HistogramEstimator {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn check(&self, time_points: usize, settings: &TrainSettings) -> Result<()> {
        if time_points > 0 {
            return settings.validate();
        }
        Err(Error::Data { what: STAGE.into(), reason: "series without values have no first one".into() })
    }

    fn parameters(&self, _time_points: usize) -> usize {
        self.config.bins
    }

    fn functions(&self, time_points: usize) -> Vec<ModelFunction> {
        functions(time_points)
    }

    fn fit(
        &self,
        feed: &mut dyn SeriesFeed,
        validation: Option<&mut dyn SeriesFeed>,
        gang: &mut Gang,
    ) -> Result<Fitted> {
        let time_points = feed.time_points();
        self.check(time_points, &gang.settings)?;
        let mut objective = CountObjective::new(&self.config, time_points);
        let identity = serde_json::json!({ "stage": STAGE, "options": self.config });
        let trained = train(&mut objective, &identity, feed, validation, gang)?;
        let model = Histogram { config: self.config.clone(), time_points, counts: trained.parameters };
        Ok(Fitted { model: Box::new(model), history: trained.history })
    }
}

/// A fitted histogram. `bin_count`: series → how often series of its bin were trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    config: HistogramConfig,
    time_points: usize,
    /// The parameters: negative counts, `[bins]`.
    counts: Vec<f32>,
}

impl Model for Histogram {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn config(&self) -> Options {
        [("bins".to_owned(), self.config.bins.into())].into_iter().collect()
    }

    fn parameters(&self) -> usize {
        self.config.bins
    }

    fn functions(&self) -> Vec<ModelFunction> {
        functions(self.time_points)
    }

    fn apply(&self, function: &str, series: &[f32]) -> Result<Vec<f32>> {
        let wrong = |reason: String| Error::Data { what: format!("{function}({STAGE}, …)"), reason };
        if !FUNCTIONS.contains(&function) {
            return Err(wrong(format!("no such function; the functions are: {}", FUNCTIONS.join(", "))));
        }
        if self.time_points == 0 || !series.len().is_multiple_of(self.time_points) {
            let reason = format!("{} values are not whole series of {}", series.len(), self.time_points);
            return Err(wrong(reason));
        }
        series.chunks_exact(self.time_points).map(|s| Ok(0.0 - self.counts[self.config.bin(s)?])).collect()
    }

    fn filters(&self) -> Vec<LayerFilters> {
        Vec::new()
    }

    fn save_weights(&self, folder: &Path) -> Result<()> {
        folder::write_weights(folder, &self.config.layout(), &self.counts)
    }
}

/// Makes histograms and reads them back.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistogramKind;

impl StageKind for HistogramKind {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn functions(&self) -> &'static [&'static str] {
        &FUNCTIONS
    }

    fn estimator(&self, options: &Options) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(HistogramEstimator { config: HistogramConfig::from_options(options)? }))
    }

    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        let file = folder::read_config(folder, STAGE)?;
        let config = HistogramConfig::from_options(&file.options)?;
        let counts = folder::read_weights(folder, &config.layout())?;
        Ok(Box::new(Histogram { config, time_points: file.time_points, counts }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_gradient_counts() {
        let mut objective = CountObjective::new(&HistogramConfig { bins: 3 }, 2);
        let (parameters, mut gradient) = (objective.initial(7), vec![9.0; 3]);
        let series = [0.0, 5.0, 2.9, 5.0, 2.0, 5.0];
        assert_eq!(objective.gradient(&parameters, &series, &mut gradient).unwrap(), 0.0);
        assert_eq!(gradient, [1.0, 0.0, 2.0]);
        assert_eq!(objective.loss(&[-1.0, 0.0, -2.0], &series).unwrap(), -5.0);
        for odd in [-0.5, 3.0, f32::NAN, f32::INFINITY] {
            let e = objective.loss(&parameters, &[odd, 0.0]).unwrap_err();
            assert!(e.is_input() && e.to_string().contains("bins 0 to 2"), "{e}");
        }
    }

    #[test]
    fn a_folder_gives_the_same_model_back() {
        let folder = tempfile::tempdir().unwrap();
        let model =
            Histogram { config: HistogramConfig { bins: 2 }, time_points: 2, counts: vec![-4.0, -1.0] };
        model.save_weights(folder.path()).unwrap();
        let config = serde_json::json!({ "stage": STAGE, "options": model.config(), "time_points": 2 });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let read = HistogramKind.load(folder.path()).unwrap();
        assert_eq!(read.apply("bin_count", &[1.0, 0.0, 0.0, 0.0]).unwrap(), [1.0, 4.0]);
        assert!(read.apply("bin_count", &[1.0]).is_err() && read.apply("count", &[]).is_err());
        assert!(HistogramConfig::from_options(&[("bins".into(), 0.into())].into_iter().collect()).is_err());
    }
}
