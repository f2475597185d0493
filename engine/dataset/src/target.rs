//! The place that a dataset is written to: taken or free, staged, then published as a whole.

use crate::{
    Engine, WriteOptions,
    error::{Error, Result},
    nodes::{ParquetFiles, published},
    staging::Staging,
};
use datafusion::execution::object_store::ObjectStoreUrl;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Component, Path, PathBuf},
    process,
    sync::Arc,
};
use tokio::task::spawn_blocking;
use url::{Position, Url};

/// Where files are written until they are whole, and where they go then.
pub(crate) struct Target {
    location: String,
    url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
    /// Folder in the store that files are written to.
    folder: ObjectPath,
    /// A local folder is renamed; object stores have no rename, but show no object before it is whole.
    local: Option<Staging>,
    /// Objects to be replaced, removed once the new ones are there.
    replaced: Vec<ObjectPath>,
    /// Names of this write's files begin with it: on object stores they must not meet those being replaced.
    prefix: String,
}

impl Target {
    /// Checks that the target is free (or may be replaced) and can be written. In a local folder, partitions that a
    /// write with the same `key` has finished, which was killed, are there still.
    pub(crate) async fn open(
        engine: &Engine,
        location: &str,
        overwrite: bool,
        key: Option<String>,
    ) -> Result<Self> {
        let unfit = |e: &dyn ToString| Error::target(location, e.to_string());
        if location.contains("://") && !location.starts_with("file://") {
            let url = Url::parse(location).map_err(|e| unfit(&e))?;
            return Self::open_remote(engine, location, &url, overwrite).await;
        }
        let path = match Url::parse(location).ok().filter(|u| u.scheme() == "file") {
            Some(url) => url.to_file_path().map_err(|()| unfit(&"not the URL of a local folder"))?,
            None => PathBuf::from(location),
        };
        let target = absolute(&path).map_err(|e| unfit(&e))?;
        target.file_name().ok_or_else(|| unfit(&"not a folder's name"))?;
        if target.is_file() {
            return Err(unfit(
                &"a file is there, and rows are written as a folder; give another name, or remove it",
            ));
        }
        let unique = format!("{}-{}", process::id(), engine.next_number());
        let open = move || Staging::open(&target, overwrite, key.as_deref(), &unique);
        let staging = spawn_blocking(open).await.map_err(|e| unfit(&e))?.map_err(|e| unfit(&e))?;
        let folder =
            Url::from_directory_path(staging.rows()).map_err(|()| unfit(&"not a path of a folder"))?;
        let url = store_of(&folder)?;
        let store = engine.context().runtime_env().object_store(&url).map_err(|e| unfit(&e))?;
        let folder = ObjectPath::from_url_path(folder.path()).map_err(|e| unfit(&e))?;
        let local = Some(staging);
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
            finished: self.local.as_ref().and_then(Staging::finished),
            metadata: BTreeMap::new(),
        }
    }

    /// Makes `files` visible in the place of what was there. What else was written, by tasks that count as lost, goes.
    pub(crate) async fn publish(self, files: BTreeSet<String>) -> Result<()> {
        let unfit = |e: &dyn ToString| Error::target(&self.location, e.to_string());
        let Some(staging) = self.local else {
            let stray = self.written().await.into_iter();
            let stray = stray.filter(|path| path.filename().is_none_or(|name| !files.contains(name)));
            let old = self.replaced.iter().cloned().chain(stray).collect::<BTreeSet<_>>();
            let old = futures::stream::iter(old.into_iter().map(Ok)).boxed();
            let removed: Result<Vec<_>, _> = self.store.delete_stream(old).try_collect().await;
            return removed.map(drop).map_err(|e| unfit(&e));
        };
        // Objects keep the names that they were written under: they have no rename.
        let files = files.into_iter().map(|name| (name.clone(), published(&name))).collect();
        let published: io::Result<()> =
            spawn_blocking(move || staging.publish(&files)).await.map_err(|e| unfit(&e))?;
        published.map_err(|e| unfit(&e))
    }

    /// Removes what was written.
    pub(crate) async fn abandon(self) {
        match self.local {
            Some(staging) => drop(spawn_blocking(|| staging.abandon()).await),
            None => {
                for path in self.written().await {
                    drop(self.store.delete(&path).await);
                }
            }
        }
    }

    /// Objects of this write.
    async fn written(&self) -> Vec<ObjectPath> {
        let mine = format!("{}-", self.prefix);
        let objects =
            self.store.list(Some(&self.folder)).filter_map(|o| async { o.ok().map(|o| o.location) });
        let written = objects.collect::<Vec<_>>().await.into_iter();
        let is_mine = |path: &ObjectPath| path.filename().is_some_and(|name| name.starts_with(&mine));
        written.filter(|path| is_mine(path) && !self.replaced.contains(path)).collect()
    }
}

/// `path` from the root, without `..`, which no URL of a store has. As for the kernel, `link/..` is where the link leads
/// to, and up from there.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            Component::ParentDir => {
                if let Ok(real) = resolved.canonicalize() {
                    resolved = real;
                }
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    Ok(resolved)
}

fn taken(location: &str) -> Error {
    Error::target(location, "there is something already: choose another place, or overwrite it")
}

/// A name that no other write has: of this engine's session and its count.
fn uuid(engine: &Engine) -> String {
    format!("{}-{}", engine.context().session_id(), engine.next_number())
}

/// The store that a URL lies in: the URL without its path.
fn store_of(url: &Url) -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse(&url[..Position::BeforePath]).map_err(Error::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parents_are_resolved_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("deep/inside")).unwrap();
        std::os::unix::fs::symlink(root.join("deep/inside"), root.join("link")).unwrap();
        let resolved = |text: &str| absolute(&root.join(text)).unwrap();
        assert_eq!(resolved("deep/../new/rows"), root.join("new/rows"));
        assert_eq!(resolved("link/../rows"), root.join("deep/rows"));
        assert_eq!(resolved("new/../rows"), root.join("rows"));
        assert_eq!(absolute(Path::new("/../../rows")).unwrap(), Path::new("/rows"));
        assert_eq!(absolute(Path::new("rows")).unwrap(), std::path::absolute("rows").unwrap());
    }
}
