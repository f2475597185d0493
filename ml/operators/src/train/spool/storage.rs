//! The folder that spooled rows lie in: a local one, or one of an object store that all executors see.

use crate::{Error, Result};
use datafusion::{datasource::listing::ListingTableUrl, execution::TaskContext};
use object_store::{ObjectStore, ObjectStoreExt, buffered::BufWriter, path::Path as ObjectPath};
use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    sync::Arc,
};
use tokio::io::AsyncWriteExt;

/// A folder by path or URL, opened in a session.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    /// A folder of this machine, or one that is mounted on all machines.
    Local(PathBuf),
    /// A folder of an object store.
    Remote { store: Arc<dyn ObjectStore>, folder: ObjectPath, url: String },
}

impl Storage {
    /// The folder `location`; it is not looked at yet.
    ///
    /// # Errors
    /// A URL that the session has no store for.
    pub fn open(location: &str, context: &TaskContext) -> Result<Self> {
        let unfit = |e: &dyn std::fmt::Display| unusable(&location, e);
        if !location.contains("://") {
            return Ok(Self::Local(PathBuf::from(location)));
        }
        if let Some(path) = location.strip_prefix("file://") {
            return Ok(Self::Local(PathBuf::from(path)));
        }
        let url = ListingTableUrl::parse(location).map_err(|e| unfit(&e))?;
        let store = context.runtime_env().object_store(url.object_store()).map_err(|e| unfit(&e))?;
        Ok(Self::Remote { store, folder: url.prefix().clone(), url: location.to_owned() })
    }

    /// The file `name` as messages show it.
    pub fn describe(&self, name: &str) -> String {
        match self {
            Self::Local(folder) => folder.join(name).display().to_string(),
            Self::Remote { url, .. } => format!("{}/{name}", url.trim_end_matches('/')),
        }
    }

    /// Begins the file `name`: nobody sees it before [`FileWriter::finish`].
    ///
    /// # Errors
    /// Storage that fails.
    pub fn create(&self, name: &str) -> Result<FileWriter> {
        match self {
            Self::Local(folder) => {
                let (place, partial) = (folder.join(name), folder.join(format!(".{name}.partial")));
                let file = File::create(&partial).map_err(|e| unusable(&partial.display(), &e))?;
                Ok(FileWriter::Local { file, partial, place })
            }
            Self::Remote { store, folder, .. } => {
                let writer = BufWriter::new(Arc::clone(store), folder.clone().join(name));
                Ok(FileWriter::Remote { writer, shown: self.describe(name) })
            }
        }
    }

    /// Removes the folder and all that is in it; what cannot be removed does no harm but to room.
    pub async fn remove(&self) {
        match self {
            Self::Local(folder) => drop(fs::remove_dir_all(folder)),
            Self::Remote { store, folder, .. } => {
                use futures::TryStreamExt;
                let listed: std::result::Result<Vec<_>, _> = store.list(Some(folder)).try_collect().await;
                for object in listed.unwrap_or_default() {
                    drop(store.delete(&object.location).await);
                }
            }
        }
    }
}

/// A file that is being written.
pub(super) enum FileWriter {
    Local { file: File, partial: PathBuf, place: PathBuf },
    Remote { writer: BufWriter, shown: String },
}

impl FileWriter {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// Storage that fails, a full disk for example.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Local { file, partial, .. } => {
                file.write_all(bytes).map_err(|e| unusable(&partial.display(), &e))
            }
            Self::Remote { writer, shown } => writer.write_all(bytes).await.map_err(|e| unusable(shown, &e)),
        }
    }

    /// Shows the file to everybody, whole.
    ///
    /// # Errors
    /// Storage that fails.
    pub async fn finish(self) -> Result<()> {
        match self {
            Self::Local { file, partial, place } => {
                drop(file);
                fs::rename(&partial, &place).map_err(|e| unusable(&place.display(), &e))
            }
            Self::Remote { mut writer, shown } => writer.shutdown().await.map_err(|e| unusable(&shown, &e)),
        }
    }
}

/// A file or folder for temporary rows that fails.
pub(super) fn unusable(path: &dyn std::fmt::Display, e: &dyn std::fmt::Display) -> Error {
    Error::Storage { path: path.to_string(), reason: e.to_string() }
}

/// The folder in which a training spools; gone when dropped.
#[derive(Debug)]
pub(in crate::train) struct SpoolFolder {
    location: String,
    storage: Storage,
}

impl SpoolFolder {
    /// A new folder in `parent`, a path or URL that all who train can see.
    ///
    /// # Errors
    /// A place that cannot be written to.
    pub fn create(parent: &str, name: &str, context: &TaskContext) -> Result<Self> {
        let storage = Storage::open(parent, context)?;
        match storage {
            Storage::Local(parent) => {
                let failed = |e: std::io::Error| unusable(&parent.display(), &e);
                fs::create_dir_all(&parent).map_err(failed)?;
                let folder =
                    tempfile::Builder::new().prefix(name).tempdir_in(&parent).map_err(failed)?.keep();
                let location = folder
                    .to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| unusable(&folder.display(), &"its name is no Unicode text"));
                let location = location.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
                Ok(Self { location, storage: Storage::Local(folder) })
            }
            Storage::Remote { store, folder, url } => {
                let unique = unique_name(name);
                let location = format!("{}/{unique}", url.trim_end_matches('/'));
                let folder = folder.join(unique);
                Ok(Self { storage: Storage::Remote { store, folder, url: location.clone() }, location })
            }
        }
    }

    /// Its path or URL.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Removes what a training that was cut off has left in `location`.
    pub async fn remove(location: &str, context: &TaskContext) {
        if let Ok(storage) = Storage::open(location, context) {
            storage.remove().await;
        }
    }
}

impl Drop for SpoolFolder {
    fn drop(&mut self) {
        match (&self.storage, tokio::runtime::Handle::try_current()) {
            (Storage::Local(folder), _) => drop(fs::remove_dir_all(folder)),
            (remote, Ok(runtime)) => {
                let remote = remote.clone();
                drop(runtime.spawn(async move { remote.remove().await }));
            }
            (Storage::Remote { url, .. }, Err(_)) => log::warn!("{url}: temporary files are left behind"),
        }
    }
}

/// A name that begins with `name` and that no other training has.
fn unique_name(name: &str) -> String {
    format!("{name}{:016x}", unique())
}

/// A number that nobody else has: this process and the times that it has asked, and the clock.
pub(in crate::train) fn unique() -> u64 {
    use std::{
        process,
        sync::atomic::{AtomicU64, Ordering},
        time::{SystemTime, UNIX_EPOCH},
    };
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    let host = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&host).update(&process::id().to_le_bytes()).update(&asked.to_le_bytes());
    hasher.update(&since.as_nanos().to_le_bytes());
    let hash = hasher.finalize();
    hash.as_bytes().first_chunk().map_or(asked, |bytes| u64::from_le_bytes(*bytes))
}
