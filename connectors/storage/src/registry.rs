//! One store for each `scheme://authority` and options, made on first use.

use crate::{
    Error, Field, Location, Result, S3Options, StoreOptions, fault::Fault, hdfs, http, patience::Patience,
    s3, steady::Steady,
};
use object_store::{ObjectStore, local::LocalFileSystem, memory::InMemory};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use url::Url;

/// Stores by `scheme://authority` and options. Cheap to share; [`StoreRegistry::global`] is the process's own,
/// so that `memory://name/…` means the same rows everywhere in it.
#[derive(Debug, Default)]
pub struct StoreRegistry {
    stores: Mutex<HashMap<Key, Arc<dyn ObjectStore>>>,
}

/// What makes two locations lie in one store.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    url: String,
    /// Where the scheme has any.
    options: Option<S3Options>,
}

impl StoreRegistry {
    /// The registry of this process.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<StoreRegistry> = LazyLock::new(StoreRegistry::default);
        &GLOBAL
    }

    /// Uses `store` for every location under `url`'s scheme and authority, whatever the options; answers the
    /// store it replaces.
    pub fn register(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.lock().insert(Key { url: authority(url), options: None }, store)
    }

    /// The store and path of a location as written, by what the environment says of its store.
    ///
    /// # Errors
    /// As [`Self::resolve_with`].
    pub fn resolve(&self, text: &str) -> Result<Location> {
        self.resolve_with(text, &StoreOptions::default())
    }

    /// The store and path of a location as written. Nothing is asked of the store: see [`crate::check`].
    ///
    /// # Errors
    /// [`Error::Location`] for a text that is no location; [`Error::Setting`] for a store whose description
    /// lacks something.
    pub fn resolve_with(&self, text: &str, options: &StoreOptions) -> Result<Location> {
        Location::in_store(text, &|url| self.store(url, options))
    }

    /// The store of a URL, of which scheme and authority count.
    ///
    /// # Errors
    /// As [`Self::resolve_with`].
    pub fn store(&self, url: &Url, options: &StoreOptions) -> Result<Arc<dyn ObjectStore>> {
        // Opening asks no server, so who waits for the lock does not wait for long, and a store is opened once.
        let mut stores = self.lock();
        let registered = Key { url: authority(url), options: None };
        if let Some(store) = stores.get(&registered) {
            return Ok(Arc::clone(store));
        }
        let key = match url.scheme() {
            "s3" | "s3a" => Key { options: Some(options.s3.clone()), ..registered },
            _ => registered,
        };
        if let Some(store) = stores.get(&key) {
            return Ok(Arc::clone(store));
        }
        let store = open(url, options, Patience::Work)?;
        stores.insert(key, Arc::clone(&store));
        Ok(store)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<dyn ObjectStore>>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the store of a URL; no server is asked.
pub(crate) fn open(url: &Url, options: &StoreOptions, patience: Patience) -> Result<Arc<dyn ObjectStore>> {
    let text = authority(url);
    let unusable = |field: Field| {
        let text = text.clone();
        move |e: object_store::Error| Fault::new(field, e.to_string()).at(&text)
    };
    Ok(match url.scheme() {
        "file" => Arc::new(LocalFileSystem::new().with_automatic_cleanup(false)),
        "memory" => Arc::new(InMemory::new()),
        "s3" | "s3a" => {
            let bucket = s3::bucket(url).map_err(|fault| fault.at(&text))?;
            let settings = s3::S3Settings::resolve(&options.s3).map_err(|fault| fault.at(&text))?;
            Arc::new(Steady::new(s3::open(bucket, &settings, patience).map_err(unusable(Field::Bucket))?))
        }
        "hdfs" => Arc::new(Steady::new(hdfs::open(url).map_err(|e| hdfs::unusable(url, &e).at(&text))?)),
        "http" | "https" => {
            Arc::new(Steady::new(http::open(url, patience).map_err(unusable(Field::Endpoint))?))
        }
        scheme => {
            let reason = format!("unknown scheme `{scheme}`; known: file, memory, s3, hdfs, http, https");
            return Err(Error::Location { text, reason });
        }
    })
}

pub(crate) fn authority(url: &Url) -> String {
    format!("{}://{}/", url.scheme(), url.authority())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::S3Keys;

    /// Options that need nothing of the environment.
    fn public() -> StoreOptions {
        let s3 = S3Options {
            endpoint: Some("http://127.0.0.1:1".into()),
            anonymous: Some(true),
            ..Default::default()
        };
        StoreOptions { s3 }
    }

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
        assert_eq!(b.to_string(), "memory://one/y/z");
    }

    #[test]
    fn who_comes_at_the_same_time_gets_the_same_store() {
        let registry = StoreRegistry::default();
        let options = public();
        let stores: Vec<Arc<dyn ObjectStore>> = std::thread::scope(|scope| {
            let first_use = || registry.resolve_with("s3://lab/x", &options).unwrap().store;
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(first_use)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(stores.iter().all(|store| Arc::ptr_eq(store, &stores[0])));
    }

    #[test]
    fn other_options_are_another_store() {
        let registry = StoreRegistry::default();
        let public = public();
        let mut signed = public.clone();
        signed.s3.anonymous = None;
        signed.s3.keys = Some(S3Keys {
            access_key_id: "A".into(),
            secret_access_key: "hush".to_owned().into(),
            session_token: None,
        });
        let by = |options: &StoreOptions| registry.resolve_with("s3://lab/x", options).unwrap().store;
        assert!(Arc::ptr_eq(&by(&signed), &by(&signed)));
        assert!(!Arc::ptr_eq(&by(&signed), &by(&public)));
        let shown = format!("{registry:?}");
        assert!(shown.contains("lab") && !shown.contains("hush"), "{shown}");
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
    fn an_unknown_scheme_says_which_are_known() {
        let e = StoreRegistry::default().resolve("ftp://host/x").unwrap_err();
        assert!(e.to_string().contains("unknown scheme `ftp`"), "{e}");
        assert!(e.is_input());
    }

    #[test]
    fn a_name_service_that_nobody_knows_says_how_one_node_is_written() {
        let e = StoreRegistry::default().resolve("hdfs://nobody/x").unwrap_err();
        assert_eq!(e.field(), Some(Field::NameService));
        assert!(e.to_string().contains("hdfs://nobody:8020/"), "{e}");
    }

    #[test]
    fn a_registered_store_answers_for_its_url() {
        let registry = StoreRegistry::default();
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        assert!(registry.register(&Url::parse("s3://lab").unwrap(), Arc::clone(&store)).is_none());
        assert!(Arc::ptr_eq(&registry.resolve("s3://lab/rows/1").unwrap().store, &store));
    }
}
