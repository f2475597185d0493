//! Broadcast values: one copy per process, however many partitions and plans name it.
//!
//! In the driver's process the value itself is found by its name. To other processes it travels as JSON inside the
//! plan nodes whose functions name it, and is read there once.

use super::{FunctionCall, FunctionContext};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    marker::PhantomData,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock, Weak},
};

/// Bytes of JSON that may travel in a plan; a plan is one message, sent with every few tasks.
const MOST_CARRIED: usize = 64 << 20;

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
    /// [`Error::UnknownName`] outside of functions, or when the value is not of this engine.
    pub fn value(&self) -> Result<Arc<T>> {
        FunctionContext::current().and_then(|c| c.broadcasts).and_then(|b| b.get::<T>(&self.id)).ok_or_else(
            || Error::UnknownName { kind: "broadcast value", name: self.id.clone(), nearest: Vec::new() },
        )
    }
}

impl<T> Broadcast<T> {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

type Shared = Arc<dyn Any + Send + Sync>;

/// A value, as the driver or another process has it.
#[derive(Clone)]
enum Kept {
    Here { value: Shared, write: fn(&Shared) -> Result<String> },
    Received(Arc<Received>),
}

/// JSON, and what was read from it when it was first asked for.
struct Received {
    json: String,
    value: OnceLock<Option<Shared>>,
}

/// The values of one engine. Lives in the session's configuration, where plans find it.
#[derive(Default)]
pub(crate) struct Broadcasts(RwLock<HashMap<String, Kept>>);

impl fmt::Debug for Broadcasts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(values.keys()).finish()
    }
}

impl Broadcasts {
    /// Keeps `value` under the hash of its JSON, so that equal values are kept once.
    pub(crate) fn put<T: Serialize + Send + Sync + 'static>(&self, value: T) -> Result<Broadcast<T>> {
        let json = serde_json::to_vec(&value).map_err(|e| Error::plan("broadcast", e))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(std::any::type_name::<T>().as_bytes()).update(&json);
        let id = hasher.finalize().to_hex()[..32].to_owned();
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        values.entry(id.clone()).or_insert_with(|| Kept::Here { value: Arc::new(value), write: write::<T> });
        Ok(Broadcast { id, of: PhantomData })
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn kept(&self, id: &str) -> Option<Kept> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn get<T: DeserializeOwned + Send + Sync + 'static>(&self, id: &str) -> Option<Arc<T>> {
        let value = match self.kept(id)? {
            Kept::Here { value, .. } => value,
            Kept::Received(received) => {
                let read = || serde_json::from_str::<T>(&received.json).ok().map(|v| Arc::new(v) as Shared);
                received.value.get_or_init(read).clone()?
            }
        };
        value.downcast().ok()
    }
}

fn write<T: Serialize + 'static>(value: &Shared) -> Result<String> {
    match value.downcast_ref::<T>() {
        Some(value) => serde_json::to_string(value).map_err(|e| Error::plan("broadcast", e)),
        None => Err(Error::plan("broadcast", "the value is of another type")),
    }
}

/// Values that this process has received and that some plan still holds.
static RECEIVED: LazyLock<Mutex<HashMap<String, Weak<Received>>>> = LazyLock::new(Mutex::default);

fn received(id: &str, json: &str) -> Arc<Received> {
    let mut all = RECEIVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(id).and_then(Weak::upgrade) {
        return known;
    }
    all.retain(|_, value| value.strong_count() > 0);
    let new = Arc::new(Received { json: json.to_owned(), value: OnceLock::new() });
    all.insert(id.to_owned(), Arc::downgrade(&new));
    new
}

/// The broadcast values that a function in a plan can reach: in this process, or carried with the plan.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CarriedBroadcasts {
    /// JSON by the values' names.
    values: BTreeMap<String, String>,
    #[serde(skip)]
    here: Option<Arc<Broadcasts>>,
    #[serde(skip)]
    opened: Arc<OnceLock<Arc<Broadcasts>>>,
}

impl fmt::Debug for CarriedBroadcasts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl CarriedBroadcasts {
    /// Those of a session.
    pub(crate) fn of(here: Option<Arc<Broadcasts>>) -> Self {
        Self { here, ..Self::default() }
    }

    /// With the values that `call` names in its arguments.
    pub(crate) fn filled(&self, call: &FunctionCall) -> Result<Self> {
        let Some(here) = &self.here else { return Ok(self.clone()) };
        let unreadable =
            |e: serde_json::Error| Error::Arguments { function: call.name.clone(), reason: e.to_string() };
        let mut names = BTreeSet::new();
        texts(&serde_json::from_str(&call.arguments).map_err(unreadable)?, &mut names);
        let mut values = BTreeMap::new();
        for name in names {
            match here.kept(&name) {
                Some(Kept::Here { value, write }) => drop(values.insert(name, write(&value)?)),
                Some(Kept::Received(received)) => drop(values.insert(name, received.json.clone())),
                None => {}
            }
        }
        let bytes: usize = values.values().map(String::len).sum();
        if bytes > MOST_CARRIED {
            let (mib, most) = (bytes >> 20, MOST_CARRIED >> 20);
            let reason = format!(
                "the values that `{}` reads have {mib} MiB as JSON, more than the {most} MiB that travel with a \
                 plan: write them as Parquet and read or join that",
                call.display_name()
            );
            return Err(Error::plan("broadcast", reason));
        }
        Ok(Self { values, ..Self::default() })
    }

    /// Where functions find the values.
    pub(crate) fn open(&self) -> Option<Arc<Broadcasts>> {
        if self.here.is_some() {
            return self.here.clone();
        }
        let open = || {
            let kept = |(id, json): (&String, &String)| (id.clone(), Kept::Received(received(id, json)));
            Arc::new(Broadcasts(RwLock::new(self.values.iter().map(kept).collect())))
        };
        Some(Arc::clone(self.opened.get_or_init(open)))
    }
}

/// All texts within `value`: a handle is one of them, wherever the arguments hold it.
fn texts(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(found.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
