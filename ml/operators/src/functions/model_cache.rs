//! Models by their folder: read once, and again when the folder was replaced. A folder in a store is fetched first.

use crate::{Error, Result};
use std::{
    collections::HashMap,
    error::Error as StdError,
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use voxelflow_stage::{Model, StageKind, nearest};

/// Where models lie that are not in a folder of this machine.
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// The local folder of a copy of the model at `location`, a URL. Another model there is in another folder.
    ///
    /// # Errors
    /// Nothing that was published as a model, a store that fails.
    fn fetch(&self, location: &str) -> Result<PathBuf, Box<dyn StdError + Send + Sync>>;
}

/// Models that have been read.
#[derive(Debug)]
pub(crate) struct ModelCache {
    kinds: Arc<Vec<Arc<dyn StageKind>>>,
    source: Option<Arc<dyn ModelSource>>,
    models: Mutex<HashMap<PathBuf, Read>>,
}

/// A model and the files that it was read from.
type Read = (Version, Arc<dyn Model>);

/// Inode, time of change and size of the files of a model: a folder that is replaced has others.
pub(crate) type Version = [(u64, i64, i64, u64); 2];

/// A model, and where it was found.
#[derive(Clone, Debug)]
pub(crate) struct FoundModel {
    pub model: Arc<dyn Model>,
    /// On this machine.
    pub folder: PathBuf,
    /// Another one when the folder is replaced.
    pub version: Version,
}

/// Models that are kept; with more, those that are read again cost a little time.
const KEPT: usize = 32;

impl ModelCache {
    pub fn new(kinds: Arc<Vec<Arc<dyn StageKind>>>, source: Option<Arc<dyn ModelSource>>) -> Self {
        Self { kinds, source, models: Mutex::default() }
    }

    /// The local folder of `folder`, which may be a URL.
    fn local(&self, folder: &str) -> Result<PathBuf> {
        let Some(source) = self.source.as_ref().filter(|_| folder.contains("://")) else {
            return Ok(PathBuf::from(folder));
        };
        let failed = |e: Box<dyn StdError + Send + Sync>| Error::ModelFolder {
            path: folder.to_owned(),
            reason: format!("it cannot be fetched: {e}"),
        };
        source.fetch(folder).map_err(failed)
    }

    /// The model in `folder`.
    ///
    /// # Errors
    /// A folder without a model, one that cannot be read, or one of a stage that is not known.
    pub fn get(&self, folder: &str) -> Result<Arc<dyn Model>> {
        Ok(self.find(folder)?.model)
    }

    /// The same, and where it was found.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn find(&self, folder: &str) -> Result<FoundModel> {
        let folder = self.local(folder)?;
        let version = version_of(&folder)?;
        // The lock is held while a model is read: several partitions that start at once read it once.
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, model)) = models.get(&folder).filter(|(known, _)| *known == version) {
            return Ok(FoundModel { model: Arc::clone(model), folder, version });
        }
        let model: Arc<dyn Model> = Arc::from(self.load(&folder)?);
        if models.len() >= KEPT {
            models.clear();
        }
        models.insert(folder.clone(), (version, Arc::clone(&model)));
        Ok(FoundModel { model, folder, version })
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
