//! One store for each `scheme://authority`, made on first use.

use crate::{Error, Location, Place, Result};
use object_store::{ObjectStore, local::LocalFileSystem, memory::InMemory, path::Path as ObjectPath};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use url::Url;

/// Stores by `scheme://authority`. Cheap to share; [`StoreRegistry::global`] is the process's own, so
/// that `memory://name/…` means the same rows everywhere in it.
#[derive(Debug, Default)]
pub struct StoreRegistry {
    stores: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

impl StoreRegistry {
    /// The registry of this process.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<StoreRegistry> = LazyLock::new(StoreRegistry::default);
        &GLOBAL
    }

    /// Uses `store` for every location under `url`'s scheme and authority; answers the store it replaces.
    pub fn register(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).insert(key(url), store)
    }

    /// The store and path of a location as written.
    ///
    /// # Errors
    /// [`Error::Location`] for a text that is no location, [`Error::Unsupported`] for a scheme whose
    /// store is not built in (and was not registered).
    pub fn resolve(&self, text: &str) -> Result<Location> {
        let invalid = |reason: String| Error::Location { text: text.into(), reason };
        let (url, path) = match Place::parse(text)? {
            Place::Local(local) => {
                let url = Url::parse("file:///").map_err(|e| invalid(e.to_string()))?;
                (url, Location::object_path(&local)?)
            }
            Place::Remote(url) => {
                let path = ObjectPath::from_url_path(url.path()).map_err(|e| invalid(e.to_string()))?;
                (url, path)
            }
        };
        let store = self.store(text, &url)?;
        let store_url = Url::parse(&key(&url)).map_err(|e| invalid(e.to_string()))?;
        Ok(Location { store, path, store_url })
    }

    fn store(&self, text: &str, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(&key(url)) {
            return Ok(Arc::clone(store));
        }
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            "file" => Arc::new(LocalFileSystem::new().with_automatic_cleanup(false)),
            "memory" => Arc::new(InMemory::new()),
            scheme @ ("s3" | "s3a" | "hdfs" | "http" | "https") => {
                return Err(Error::Unsupported { text: text.into(), scheme: scheme.into() });
            }
            scheme => {
                let reason = format!("unknown scheme `{scheme}`; known: file, memory, s3, hdfs, http, https");
                return Err(Error::Location { text: text.into(), reason });
            }
        };
        stores.insert(key(url), Arc::clone(&store));
        Ok(store)
    }
}

fn key(url: &Url) -> String {
    format!("{}://{}/", url.scheme(), url.authority())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_store_is_made_once_for_each_authority() {
        let registry = StoreRegistry::default();
        let a = registry.resolve("memory://one/x").unwrap();
        let b = registry.resolve("memory://one/y/z").unwrap();
        let c = registry.resolve("memory://two/x").unwrap();
        assert!(Arc::ptr_eq(&a.store, &b.store));
        assert!(!Arc::ptr_eq(&a.store, &c.store));
        assert_eq!(b.path.as_ref(), "y/z");
        assert_eq!(b.store_url.as_str(), "memory://one/");
    }

    #[test]
    fn a_path_and_its_file_url_are_the_same_object() {
        let registry = StoreRegistry::default();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a b.txt");
        let plain = registry.resolve(file.to_str().unwrap()).unwrap();
        let url = registry.resolve(Url::from_file_path(&file).unwrap().as_str()).unwrap();
        assert_eq!(plain.path, url.path);
        assert!(Arc::ptr_eq(&plain.store, &url.store));
        assert_eq!(plain.store_url.as_str(), "file:///");
    }

    #[test]
    fn stores_that_come_later_are_refused_by_name() {
        for text in ["s3://lab/x", "hdfs://host:9000/x", "https://host/x"] {
            let e = StoreRegistry::default().resolve(text).unwrap_err();
            assert!(e.to_string().contains("not supported yet"), "{e}");
            assert!(e.is_input());
        }
        let e = StoreRegistry::default().resolve("ftp://host/x").unwrap_err();
        assert!(e.to_string().contains("unknown scheme `ftp`"), "{e}");
    }

    #[test]
    fn a_registered_store_answers_for_its_url() {
        let registry = StoreRegistry::default();
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        assert!(registry.register(&Url::parse("s3://lab").unwrap(), Arc::clone(&store)).is_none());
        assert!(Arc::ptr_eq(&registry.resolve("s3://lab/rows/1").unwrap().store, &store));
    }
}
