//! The place that a dataset is written to: taken or free, staged, then published as a whole.

use crate::{
    Engine, WriteOptions,
    error::{Error, Result},
    nodes::ParquetFiles,
};
use datafusion::execution::object_store::ObjectStoreUrl;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use std::{
    io,
    path::{Path, PathBuf},
    process,
    sync::Arc,
};
use tokio::fs;
use url::{Position, Url};

/// Where files are written until they are whole, and where they go then.
pub(crate) struct Target {
    location: String,
    url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
    /// Folder in the store that files are written to.
    folder: ObjectPath,
    /// Local folders that are renamed; object stores have no rename, but show no object before it is whole.
    local: Option<Staging>,
    /// Objects to be replaced, removed once the new ones are there.
    replaced: Vec<ObjectPath>,
    /// Names of this write's files begin with it: on object stores they must not meet those being replaced.
    prefix: String,
}

struct Staging {
    partial: PathBuf,
    target: PathBuf,
}

impl Target {
    /// Checks that the target is free (or may be replaced) and can be written.
    pub(crate) async fn open(engine: &Engine, location: &str, overwrite: bool) -> Result<Self> {
        let unfit = |e: &dyn ToString| Error::target(location, e.to_string());
        if location.contains("://") && !location.starts_with("file://") {
            let url = Url::parse(location).map_err(|e| unfit(&e))?;
            return Self::open_remote(engine, location, &url, overwrite).await;
        }
        let path = match Url::parse(location).ok().filter(|u| u.scheme() == "file") {
            Some(url) => url.to_file_path().map_err(|()| unfit(&"not the URL of a local folder"))?,
            None => PathBuf::from(location),
        };
        let target = std::path::absolute(&path).map_err(|e| unfit(&e))?;
        let name = target.file_name().ok_or_else(|| unfit(&"not a folder's name"))?.to_string_lossy();
        if !overwrite && is_taken(&target).await.map_err(|e| unfit(&e))? {
            return Err(taken(location));
        }
        let partial = format!(".{name}.partial-{}-{}", process::id(), engine.next_number());
        let partial = target.with_file_name(partial);
        let create = fs::create_dir_all(&partial).await;
        create
            .map_err(|e| unfit(&format!("cannot be written ({e}): choose a folder that you may write to")))?;
        let folder = Url::from_directory_path(&partial).map_err(|()| unfit(&"not a path of a folder"))?;
        let url = store_of(&folder)?;
        let store = engine.context().runtime_env().object_store(&url).map_err(|e| unfit(&e))?;
        let folder = ObjectPath::from_url_path(folder.path()).map_err(|e| unfit(&e))?;
        let local = Some(Staging { partial, target });
        Ok(Self {
            location: location.to_owned(),
            url,
            store,
            folder,
            local,
            replaced: Vec::new(),
            prefix: "part".into(),
        })
    }

    async fn open_remote(engine: &Engine, location: &str, url: &Url, overwrite: bool) -> Result<Self> {
        let unfit = |e: &dyn ToString| Error::target(location, e.to_string());
        let store_url = store_of(url)?;
        let store = engine.context().runtime_env().object_store(&store_url).map_err(|e| unfit(&e))?;
        let folder = ObjectPath::from_url_path(url.path()).map_err(|e| unfit(&e))?;
        let there: Vec<ObjectPath> =
            store.list(Some(&folder)).map_ok(|o| o.location).try_collect().await.map_err(|e| unfit(&e))?;
        if !there.is_empty() && !overwrite {
            return Err(taken(location));
        }
        let prefix = if there.is_empty() { "part".to_owned() } else { format!("part-{}", uuid(engine)) };
        Ok(Self {
            location: location.to_owned(),
            url: store_url,
            store,
            folder,
            local: None,
            replaced: there,
            prefix,
        })
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The files to write, with the default options.
    pub(crate) fn files(&self) -> ParquetFiles {
        let WriteOptions { row_group_bytes, compression_level, .. } = WriteOptions::default();
        ParquetFiles {
            store: self.url.as_str().to_owned(),
            folder: self.folder.to_string(),
            prefix: self.prefix.clone(),
            row_group_bytes,
            compression_level,
        }
    }

    /// Makes the files visible in the place of what was there.
    pub(crate) async fn publish(self) -> Result<()> {
        let unfit = |e: &dyn ToString| Error::target(&self.location, e.to_string());
        let Some(Staging { partial, target }) = &self.local else {
            let old = futures::stream::iter(self.replaced.clone().into_iter().map(Ok)).boxed();
            let removed: Result<Vec<_>, _> = self.store.delete_stream(old).try_collect().await;
            return removed.map(drop).map_err(|e| unfit(&e));
        };
        let old = partial.with_extension("replaced");
        let had = fs::rename(target, &old).await;
        if let Err(e) = fs::rename(partial, target).await {
            if had.is_ok() {
                // What was there stays there.
                fs::rename(&old, target).await.map_err(|e| unfit(&e))?;
            }
            return Err(unfit(&e));
        }
        if had.is_ok() { remove(&old).await.map_err(|e| unfit(&e)) } else { Ok(()) }
    }

    /// Removes what was written.
    pub(crate) async fn abandon(self) {
        // The failure that led here is the one to tell; a file that cannot be removed hides behind it.
        match &self.local {
            Some(staging) => drop(fs::remove_dir_all(&staging.partial).await),
            None => {
                let mine = format!("{}-", self.prefix);
                let written: Vec<ObjectPath> = self
                    .store
                    .list(Some(&self.folder))
                    .filter_map(|o| async { o.ok().map(|o| o.location) })
                    .collect()
                    .await;
                for path in written {
                    if path.filename().is_some_and(|name| name.starts_with(&mine))
                        && !self.replaced.contains(&path)
                    {
                        drop(self.store.delete(&path).await);
                    }
                }
            }
        }
    }
}

fn taken(location: &str) -> Error {
    Error::target(location, "there is something already: choose another place, or overwrite it")
}

async fn is_taken(target: &Path) -> io::Result<bool> {
    match fs::read_dir(target).await {
        Ok(mut entries) => Ok(entries.next_entry().await?.is_some()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(e) => Err(e),
    }
}

async fn remove(path: &Path) -> io::Result<()> {
    if fs::metadata(path).await?.is_dir() {
        fs::remove_dir_all(path).await
    } else {
        fs::remove_file(path).await
    }
}

/// A name that no other write has: of this engine's session and its count.
fn uuid(engine: &Engine) -> String {
    format!("{}-{}", engine.context().session_id(), engine.next_number())
}

/// The store that a URL lies in: the URL without its path.
fn store_of(url: &Url) -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse(&url[..Position::BeforePath]).map_err(Error::from)
}
