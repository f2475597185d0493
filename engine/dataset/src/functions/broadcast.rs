//! Broadcast values: one copy per process, however many partitions and plans name it.

use super::FunctionContext;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    any::Any,
    collections::HashMap,
    fmt,
    marker::PhantomData,
    sync::{Arc, PoisonError, RwLock},
};

/// A value that all partitions read. Its handle is serialisable, the value itself is not in the plan.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Broadcast<T> {
    id: String,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Broadcast<T> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Broadcast<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broadcast").field(&self.id).finish()
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Broadcast<T> {
    /// The value; within a named function.
    ///
    /// # Errors
    /// [`Error::UnknownName`] outside of functions, or when the value is not of this process.
    pub fn value(&self) -> Result<Arc<T>> {
        FunctionContext::current().and_then(|c| c.broadcasts).and_then(|b| b.get::<T>(&self.id)).ok_or_else(
            || Error::UnknownName { kind: "broadcast value", name: self.id.clone(), nearest: Vec::new() },
        )
    }
}

/// The values of one engine. Lives in the session's configuration, where plans find it.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts(RwLock<HashMap<String, Arc<dyn Any + Send + Sync>>>);

impl Broadcasts {
    /// Keeps `value` under the hash of its JSON, so that equal values are kept once.
    pub(crate) fn put<T: Serialize + Send + Sync + 'static>(&self, value: T) -> Result<Broadcast<T>> {
        let json = serde_json::to_vec(&value).map_err(|e| Error::plan("broadcast", e))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(std::any::type_name::<T>().as_bytes()).update(&json);
        let id = hasher.finalize().to_hex()[..32].to_owned();
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        values.entry(id.clone()).or_insert_with(|| Arc::new(value));
        Ok(Broadcast { id, of: PhantomData })
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn get<T: Send + Sync + 'static>(&self, id: &str) -> Option<Arc<T>> {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.get(id).cloned().and_then(|v| v.downcast().ok())
    }
}

impl<T> Broadcast<T> {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}
