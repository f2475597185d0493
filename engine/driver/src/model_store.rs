//! Models in object stores: published whole after training, fetched once by every process that applies them.

use crate::{Error, Result, stores::LiveOptions};
use std::{
    collections::HashMap,
    error::Error as StdError,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use voxelflow_operators::ModelSource;
use voxelflow_storage::{Purpose, StoreOptions, StoreRegistry, check, fetch_folder, publish_folder};

/// True for the places that are not folders of this machine.
pub(crate) fn is_remote(location: &str) -> bool {
    location.contains("://") && !location.starts_with("file://")
}

/// Publishes the model in the local `folder`, whole, as `location`, instead of one that is there.
///
/// # Errors
/// A location that is none, a store that fails: then what was there is still there.
pub(crate) async fn publish_model(folder: &Path, location: &str, options: &StoreOptions) -> Result<()> {
    let target = StoreRegistry::global().resolve_with(location, options)?;
    Ok(publish_folder(folder, target.store.as_ref(), &target.path).await?)
}

/// Fetches models from stores for the functions that apply them.
#[derive(Debug)]
pub(crate) struct StoredModels {
    options: LiveOptions,
    fetched: Mutex<Fetched>,
}

/// Local copies, until this process ends.
#[derive(Debug, Default)]
struct Fetched {
    folder: Option<TempDir>,
    models: HashMap<String, (Instant, PathBuf)>,
}

/// A model may have been published anew since it was fetched: after this time one looks.
const FRESH: Duration = Duration::from_secs(30);

impl StoredModels {
    pub fn new(options: LiveOptions) -> Self {
        Self { options, fetched: Mutex::default() }
    }
}

impl ModelSource for StoredModels {
    /// Waits for the store: functions of models are not async. The lock makes all who need a model fetch it once.
    fn fetch(&self, location: &str) -> Result<PathBuf, Box<dyn StdError + Send + Sync>> {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, folder)) = fetched.models.get(location)
            && when.elapsed() < FRESH
        {
            return Ok(folder.clone());
        }
        if fetched.folder.is_none() {
            fetched.folder = Some(tempfile::Builder::new().prefix("voxelflow-models-").tempdir()?);
        }
        let parent = fetched.folder.as_ref().map(TempDir::path).unwrap_or(Path::new("."));
        let folder = fetch(location, &self.options.now(), parent)?;
        fetched.models.insert(location.to_owned(), (Instant::now(), folder.clone()));
        Ok(folder)
    }
}

/// On a thread of its own, which may wait whatever runtime the caller belongs to, and with a store of its own, whose
/// connections end with the thread.
fn fetch(location: &str, options: &StoreOptions, parent: &Path) -> Result<PathBuf> {
    let work = || -> Result<PathBuf> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::io(parent, e))?;
        let registry = StoreRegistry::default();
        let source = registry.resolve_with(location, options)?;
        runtime.block_on(async {
            // What is wrong with the store's description is named within seconds, not after many trials.
            check(location, options, Purpose::Read).await?;
            Ok(fetch_folder(source.store.as_ref(), &source.path, parent).await?)
        })
    };
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| {
        Err(Error::io(parent, std::io::Error::other("the thread that fetched has failed")))
    })
}
