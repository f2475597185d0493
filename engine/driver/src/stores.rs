//! The stores of a session: DataFusion finds them in the one registry of the process, as the session's settings
//! `s3.…` describe them. Keys are no settings: every process has its own, so they are in no plan.

use datafusion::{
    config::{ConfigEntry, ConfigExtension, ExtensionOptions},
    error::{DataFusionError, Result},
    execution::object_store::ObjectStoreRegistry,
    object_store::ObjectStore,
    prelude::SessionConfig,
};
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use url::Url;
use voxelflow_storage::{StoreOptions, StoreRegistry};

/// What a session says of its stores, as it stands now: `SET` changes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveOptions(Arc<Mutex<StoreOptions>>);

impl LiveOptions {
    pub fn new(options: StoreOptions) -> Self {
        Self(Arc::new(Mutex::new(options)))
    }

    fn lock(&self) -> MutexGuard<'_, StoreOptions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what is said now.
    pub fn now(&self) -> StoreOptions {
        self.lock().clone()
    }
}

/// The settings `s3.…`. They travel with a plan to executors, which describe their stores by them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreSettings {
    said: StoreOptions,
    live: LiveOptions,
}

impl StoreSettings {
    pub fn new(live: &LiveOptions) -> Self {
        Self { said: live.now(), live: live.clone() }
    }
}

impl ConfigExtension for StoreSettings {
    const PREFIX: &'static str = "s3";
}

impl ExtensionOptions for StoreSettings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let name = format!("{}.{key}", Self::PREFIX);
        self.said.set(&name, value).map_err(external)?;
        self.live.lock().set(&name, value).map_err(external)
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let said = self.said.said();
        let value = |name| said.iter().find(|(said, _)| *said == name).map(|(_, value)| value.clone());
        let entry = |(name, description): (&'static str, &'static str)| ConfigEntry {
            key: name.into(),
            value: value(name),
            description,
        };
        StoreOptions::NAMES.map(entry).into()
    }
}

/// The stores that executors use for a plan: described by the settings that came with it.
pub(crate) fn stores_of(config: &SessionConfig) -> Arc<dyn ObjectStoreRegistry> {
    let settings = config.options().extensions.get::<StoreSettings>();
    let said = settings.map(|settings| settings.said.clone()).unwrap_or_default();
    Arc::new(SessionStores::new(LiveOptions::new(said)))
}

/// Stores by URL: those that were given to this session, else those of the process.
#[derive(Debug)]
pub(crate) struct SessionStores {
    options: LiveOptions,
    given: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

impl SessionStores {
    pub fn new(options: LiveOptions) -> Self {
        Self { options, given: Mutex::default() }
    }

    fn given(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn ObjectStore>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectStoreRegistry for SessionStores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.given().insert(place(url), store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let removed = self.given().remove(&place(url));
        removed.ok_or_else(|| DataFusionError::Plan(format!("no store was given for {url}")))
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if let Some(store) = self.given().get(&place(url)) {
            return Ok(Arc::clone(store));
        }
        StoreRegistry::global().store(url, &self.options.now()).map_err(external)
    }
}

/// A location in a store that can be asked for: of a glob, the folder before its first special character.
pub(crate) fn before_glob(location: &str) -> &str {
    match location.split_once(['*', '?', '[']) {
        Some((named, _)) => named.rsplit_once('/').map_or(named, |(folder, _)| folder),
        None => location,
    }
}

fn place(url: &Url) -> String {
    format!("{}://{}", url.scheme(), url.authority())
}

fn external(e: voxelflow_storage::Error) -> DataFusionError {
    DataFusionError::External(Box::new(e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::{object_store::memory::InMemory, prelude::SessionContext};

    fn session() -> (SessionContext, LiveOptions) {
        let live = LiveOptions::default();
        let config = SessionConfig::new().with_option_extension(StoreSettings::new(&live));
        (SessionContext::new_with_config(config), live)
    }

    #[tokio::test]
    async fn set_describes_the_stores_from_now_on_and_refuses_keys() {
        let (context, live) = session();
        context.sql("SET s3.endpoint = 'http://127.0.0.1:1'").await.unwrap().collect().await.unwrap();
        context.sql("SET s3.anonymous = 'true'").await.unwrap().collect().await.unwrap();
        let options = live.now().s3;
        assert_eq!(
            (options.endpoint.as_deref(), options.anonymous),
            (Some("http://127.0.0.1:1"), Some(true))
        );
        let refused = match context.sql("SET s3.secret_access_key = 'hush'").await {
            Ok(frame) => frame.collect().await.unwrap_err(),
            Err(e) => e,
        };
        assert!(refused.to_string().contains("AWS_SECRET_ACCESS_KEY"), "{refused}");
        // What travels to executors are the settings alone.
        let config = context.copied_config();
        let travels = config.options().entries().into_iter().filter(|e| e.key.starts_with("s3."));
        assert_eq!(travels.filter(|e| e.value.is_some()).count(), 2);
        let stores = stores_of(&config);
        assert!(stores.get_store(&"s3://lab".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_store_that_was_given_goes_first() {
        let stores = SessionStores::new(LiveOptions::default());
        let url = Url::parse("memory://mine/x").unwrap();
        let mine: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        assert!(!Arc::ptr_eq(&stores.get_store(&url).unwrap(), &mine));
        stores.register_store(&url, Arc::clone(&mine));
        assert!(Arc::ptr_eq(&stores.get_store(&url).unwrap(), &mine));
        stores.deregister_store(&url).unwrap();
        let global = StoreRegistry::global().resolve("memory://mine/x").unwrap().store;
        assert!(Arc::ptr_eq(&stores.get_store(&url).unwrap(), &global));
    }
}
