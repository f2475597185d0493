//! Models by their folder: read once, and again when the folder was replaced.

use crate::{Error, Result};
use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use voxelflow_stage::{Model, StageKind, nearest};

/// Models that have been read.
#[derive(Debug)]
pub(crate) struct ModelCache {
    kinds: Arc<Vec<Arc<dyn StageKind>>>,
    models: Mutex<HashMap<PathBuf, Read>>,
}

/// A model and the files that it was read from.
type Read = (Version, Arc<dyn Model>);

/// Inode, time of change and size of the files of a model: a folder that is replaced has others.
type Version = [(u64, i64, i64, u64); 2];

/// Models that are kept; with more, those that are read again cost a little time.
const KEPT: usize = 32;

impl ModelCache {
    pub fn new(kinds: Arc<Vec<Arc<dyn StageKind>>>) -> Self {
        Self { kinds, models: Mutex::default() }
    }

    /// The model in `folder`.
    ///
    /// # Errors
    /// A folder without a model, one that cannot be read, or one of a stage that is not known.
    pub fn get(&self, folder: &str) -> Result<Arc<dyn Model>> {
        let path = PathBuf::from(folder);
        let version = version_of(&path)?;
        // The lock is held while a model is read: several partitions that start at once read it once.
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, model)) = models.get(&path).filter(|(known, _)| *known == version) {
            return Ok(Arc::clone(model));
        }
        let model: Arc<dyn Model> = Arc::from(self.load(&path)?);
        if models.len() >= KEPT {
            models.clear();
        }
        models.insert(path, (version, Arc::clone(&model)));
        Ok(model)
    }

    fn load(&self, folder: &Path) -> Result<Box<dyn Model>> {
        let wrong = |reason: String| Error::ModelFolder { path: folder.display().to_string(), reason };
        let config = fs::read(folder.join("config.json")).map_err(|e| wrong(format!("config.json: {e}")))?;
        let config: serde_json::Value =
            serde_json::from_slice(&config).map_err(|e| wrong(format!("config.json is not JSON: {e}")))?;
        let stage = config.get("stage").and_then(|s| s.as_str());
        let stage = stage.ok_or_else(|| wrong("config.json names no stage".into()))?;
        let kind = self.kinds.iter().find(|kind| kind.name() == stage).ok_or_else(|| {
            let valid: Vec<String> = self.kinds.iter().map(|k| k.name().to_owned()).collect();
            Error::UnknownStage { stage: stage.to_owned(), nearest: nearest(stage, &valid), valid }
        })?;
        Ok(kind.load(folder)?)
    }
}

fn version_of(folder: &Path) -> Result<Version> {
    let file = |name: &str| -> Result<_> {
        let path = folder.join(name);
        let metadata = fs::metadata(&path).map_err(|e| Error::ModelFolder {
            path: path.display().to_string(),
            reason: format!("{e}; the first argument is the folder of a model that TRAIN MODEL has written"),
        })?;
        Ok((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len()))
    };
    Ok([file("config.json")?, file("model.safetensors")?])
}
