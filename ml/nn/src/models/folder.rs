//! What every model of this crate reads from its folder, and writes into it.

use crate::parameters::{ParameterLayout, to_safetensors};
use safetensors::SafeTensors;
use std::{fs, path::Path};
use voxelflow_stage::{Error, Options, Result};

/// Name of the file with the parameters.
pub(crate) const WEIGHTS: &str = "model.safetensors";

/// The part of `config.json` that a stage reads.
#[derive(serde::Deserialize)]
pub(crate) struct ModelFile {
    stage: String,
    pub options: Options,
    pub time_points: usize,
}

/// Reads `config.json` of a model of `stage`.
///
/// # Errors
/// A file that is missing, damaged, or of another stage.
pub(crate) fn read_config(folder: &Path, stage: &str) -> Result<ModelFile> {
    let file = "config.json";
    let text = fs::read(folder.join(file)).map_err(|e| unreadable(folder, file, &e))?;
    let config: ModelFile = serde_json::from_slice(&text).map_err(|e| unreadable(folder, file, &e))?;
    if config.stage != stage {
        let reason = format!("is of stage `{}`, not `{stage}`", config.stage);
        return Err(unreadable(folder, file, &reason));
    }
    Ok(config)
}

/// Reads the flat parameter vector.
///
/// # Errors
/// A file that is missing, damaged, or of another shape.
pub(crate) fn read_weights(folder: &Path, layout: &ParameterLayout) -> Result<Vec<f32>> {
    let bytes = fs::read(folder.join(WEIGHTS)).map_err(|e| unreadable(folder, WEIGHTS, &e))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| unreadable(folder, WEIGHTS, &e))?;
    layout.read("", &file).map_err(|e| unreadable(folder, WEIGHTS, &e))
}

/// Writes the flat parameter vector.
///
/// # Errors
/// Storage that fails.
pub(crate) fn write_weights(folder: &Path, layout: &ParameterLayout, values: &[f32]) -> Result<()> {
    // One entry only: the header writes a hash map, whose order would change the bytes from run to run.
    let metadata = [("format".to_owned(), "pt".to_owned())];
    let bytes = to_safetensors(layout.views("", values)?, Some(metadata.into()))?;
    let path = folder.join(WEIGHTS);
    fs::write(&path, bytes)
        .map_err(|e| Error::Folder { path: path.display().to_string(), reason: e.to_string() })
}

fn unreadable(folder: &Path, file: &str, reason: &dyn std::fmt::Display) -> Error {
    Error::Folder {
        path: folder.join(file).display().to_string(),
        reason: format!("{reason}; a model folder is written whole by TRAIN MODEL, train it again"),
    }
}
