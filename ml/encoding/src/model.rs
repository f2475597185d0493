//! A fitted model: what is known of each target, and where its coefficients lie.

use crate::options::{EncodingOptions, STAGE};
use crate::tensor_file::{TensorFile, WEIGHTS, target_columns};
use serde::Deserialize;
use std::{fs, path::Path};
use voxelflow_stage::{Error, LayerFilters, Model, ModelFunction, Options, Result};

/// Coefficients stay in their file.
#[derive(Clone, Debug)]
pub struct FittedRidgeCv {
    pub(crate) options: EncodingOptions,
    pub(crate) file: TensorFile,
}

/// The part of `config.json` that is read.
#[derive(Deserialize)]
struct Config {
    stage: String,
    options: Options,
}

impl FittedRidgeCv {
    /// Reads a model's folder.
    ///
    /// # Errors
    /// A folder that is missing, damaged, or of another stage.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let unreadable = |reason: &dyn std::fmt::Display| Error::Folder {
            path: path.display().to_string(),
            reason: format!("{reason}; a model folder is written whole by TRAIN MODEL, train it again"),
        };
        let text = fs::read(&path).map_err(|e| unreadable(&e))?;
        let config: Config = serde_json::from_slice(&text).map_err(|e| unreadable(&e))?;
        if config.stage != STAGE {
            return Err(unreadable(&format!("is of stage `{}`, not `{STAGE}`", config.stage)));
        }
        Ok(Self { options: EncodingOptions::from_options(&config.options)?, file: TensorFile::read(folder)? })
    }
}

impl Model for FittedRidgeCv {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn config(&self) -> Options {
        match serde_json::to_value(&self.options) {
            Ok(serde_json::Value::Object(options)) => options,
            _ => Options::new(),
        }
    }

    fn parameters(&self) -> usize {
        self.file.targets * (self.file.features + 1)
    }

    fn functions(&self) -> Vec<ModelFunction> {
        Vec::new()
    }

    fn apply(&self, function: &str, _series: &[f32]) -> Result<Vec<f32>> {
        let reason = format!(
            "there is no function `{function}`: what a model of {STAGE} knows of its targets is the table of its name"
        );
        Err(Error::Data { what: STAGE.into(), reason })
    }

    fn filters(&self) -> Vec<LayerFilters> {
        Vec::new()
    }

    /// The ranks have written the file.
    fn save_weights(&self, folder: &Path) -> Result<()> {
        let path = folder.join(WEIGHTS);
        let written = fs::File::open(&path).and_then(|file| file.sync_all());
        written.map_err(|e| Error::Rows { path: path.display().to_string(), reason: e.to_string() })
    }

    fn targets(&self) -> Result<Vec<(&'static str, Vec<f64>)>> {
        let named = |(number, name): (usize, &&'static str)| Ok((*name, self.file.column(number)?));
        target_columns(self.file.tested()).iter().enumerate().map(named).collect()
    }
}
