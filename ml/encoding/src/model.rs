//! A fitted model: what is known of each target, and where its coefficients lie.

use crate::{
    predict::Prediction,
    report::REPORT,
    tensor_file::{TensorFile, WEIGHTS},
};
use serde::Deserialize;
use std::{fs, path::Path};
use voxelflow_stage::{Choice, Error, LayerFilters, Model, ModelFunction, Options, Predictor, Result};

/// A model of any stage of this crate. Coefficients stay in their file.
#[derive(Clone, Debug)]
pub struct FittedEncoding {
    pub(crate) stage: &'static str,
    /// All of them, as the stage takes them.
    pub(crate) options: Options,
    pub(crate) file: TensorFile,
}

/// The part of `config.json` that is read.
#[derive(Deserialize)]
struct Config {
    stage: String,
    options: Options,
}

/// The part of `ridge.json` that says what was chosen.
#[derive(Deserialize)]
struct Chosen {
    alphas: Vec<f64>,
    mean_scores: Vec<Option<f64>>,
    #[serde(default)]
    alpha: Option<f64>,
    /// Of a model of bands, whose scores are of these.
    #[serde(default)]
    gammas: Vec<Vec<f64>>,
}

impl FittedEncoding {
    /// Reads the folder of a model of `stage`.
    ///
    /// # Errors
    /// A folder that is missing, damaged, or of another stage.
    pub fn read(folder: &Path, stage: &'static str) -> Result<Self> {
        let path = folder.join("config.json");
        let unreadable = |reason: &dyn std::fmt::Display| Error::Folder {
            path: path.display().to_string(),
            reason: format!("{reason}; a model folder is written whole by TRAIN MODEL, train it again"),
        };
        let text = fs::read(&path).map_err(|e| unreadable(&e))?;
        let config: Config = serde_json::from_slice(&text).map_err(|e| unreadable(&e))?;
        if config.stage != stage {
            return Err(unreadable(&format!("is of stage `{}`, not `{stage}`", config.stage)));
        }
        Ok(Self { stage, options: config.options, file: TensorFile::read(folder, stage)? })
    }
}

impl Model for FittedEncoding {
    fn stage(&self) -> &'static str {
        self.stage
    }

    fn config(&self) -> Options {
        self.options.clone()
    }

    fn parameters(&self) -> usize {
        self.file.targets * (self.file.features + 1)
    }

    fn functions(&self) -> Vec<ModelFunction> {
        Vec::new()
    }

    fn apply(&self, function: &str, _series: &[f32]) -> Result<Vec<f32>> {
        let stage = self.stage;
        let reason = format!(
            "there is no function `{function}`: what a model of {stage} knows of its targets is the table of its name"
        );
        Err(Error::Data { what: stage.into(), reason })
    }

    fn filters(&self) -> Vec<LayerFilters> {
        Vec::new()
    }

    fn choice(&self) -> Result<Option<Choice>> {
        let path = self.file.folder().join(REPORT);
        let unreadable = |reason: &dyn std::fmt::Display| Error::Folder {
            path: path.display().to_string(),
            reason: format!("{reason}; it says what was chosen, train the model again"),
        };
        let text = fs::read(&path).map_err(|e| unreadable(&e))?;
        let report: Chosen = serde_json::from_slice(&text).map_err(|e| unreadable(&e))?;
        let scoring = self.options.get("scoring").and_then(|scoring| scoring.as_str()).unwrap_or_default();
        let penalties = if report.gammas.is_empty() { report.alphas } else { Vec::new() };
        let chosen = report.alpha.and_then(|alpha| penalties.iter().position(|other| *other == alpha));
        // One that is no number is null in JSON.
        let mean_scores = report.mean_scores.into_iter().map(|score| score.unwrap_or(f64::NAN)).collect();
        Ok(Some(Choice { scoring: scoring.to_owned(), mean_scores, penalties, chosen }))
    }

    fn predictor(&self) -> Result<Option<Box<dyn Predictor>>> {
        Ok(Some(Box::new(Prediction::of(self)?)))
    }

    /// The ranks have written the file.
    fn save_weights(&self, folder: &Path) -> Result<()> {
        let path = folder.join(WEIGHTS);
        let written = fs::File::open(&path).and_then(|file| file.sync_all());
        written.map_err(|e| Error::Rows { path: path.display().to_string(), reason: e.to_string() })
    }

    fn targets(&self) -> Result<Vec<(String, Vec<f64>)>> {
        self.file.columns.iter().map(|name| Ok((name.clone(), self.file.column(name)?))).collect()
    }
}
