//! The functions that this build knows, by name.

use super::{BoxError, FunctionContext, Outcome};
use crate::error::{Error, Result, similar};
use arrow::record_batch::RecordBatch;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    any::Any,
    collections::HashMap,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

/// A function whose arguments are bound.
pub type Prepared = Box<dyn Fn(RecordBatch) -> Result<Vec<RecordBatch>, BoxError> + Send + Sync>;

/// A function as [`function!`](crate::function) registers it.
#[derive(Debug)]
pub struct Registration {
    /// Its name, the same in every process of one build.
    pub name: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Source line.
    pub line: u32,
    /// Reads the arguments and binds them.
    pub prepare: fn(&Value) -> Result<Prepared, serde_json::Error>,
}

inventory::collect!(Registration);

impl Registration {
    /// The name as messages show it: without the place, which they show beside it.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('@').map_or(self.name, |(module, _)| module)
    }

    /// `file:line`.
    pub fn location(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// Reads `arguments` and binds them.
    ///
    /// # Errors
    /// [`Error::Arguments`] when they are not what the function takes.
    pub fn bind(&self, arguments: &str) -> Result<Prepared> {
        let invalid =
            |e: serde_json::Error| Error::Arguments { function: self.name.into(), reason: e.to_string() };
        let arguments = serde_json::from_str(arguments).map_err(invalid)?;
        (self.prepare)(&arguments).map_err(invalid)
    }
}

/// Binds `arguments` to `body`. Called by [`function!`](crate::function).
///
/// # Errors
/// Arguments that are not an `A`.
pub fn prepare<A, O, F>(arguments: &Value, body: F) -> Result<Prepared, serde_json::Error>
where
    A: DeserializeOwned + Send + Sync + 'static,
    O: Outcome,
    F: Fn(RecordBatch, &A) -> O + Send + Sync + 'static,
{
    let arguments: A = serde_json::from_value(arguments.clone())?;
    Ok(Box::new(move |batch| body(batch, &arguments).into_batches()))
}

/// A function that a plan can name; made by [`function!`](crate::function).
pub struct Function<A> {
    name: &'static str,
    arguments: PhantomData<fn(&A)>,
}

impl<A> Clone for Function<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Function<A> {}

impl<A> fmt::Debug for Function<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.name).finish()
    }
}

impl<A: Serialize> Function<A> {
    #[doc(hidden)]
    pub fn registered(name: &'static str) -> Self {
        Self { name, arguments: PhantomData }
    }

    /// The name under which it is registered.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The name and the arguments as a plan holds them.
    pub(crate) fn call(&self, arguments: &A) -> Result<FunctionCall> {
        let arguments = serde_json::to_string(arguments)
            .map_err(|e| Error::Arguments { function: self.name.into(), reason: e.to_string() })?;
        drop(lookup(self.name)?.bind(&arguments)?);
        Ok(FunctionCall { name: self.name.to_owned(), arguments })
    }
}

/// A function's name and its arguments in JSON: all that a plan holds of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub(crate) struct FunctionCall {
    /// Registered name.
    pub name: String,
    /// Arguments in JSON.
    pub arguments: String,
}

impl FunctionCall {
    /// Looks the name up and binds the arguments.
    pub(crate) fn resolve(&self) -> Result<BoundFunction> {
        let registration = lookup(&self.name)?;
        Ok(BoundFunction { registration, prepared: registration.bind(&self.arguments)? })
    }

    /// The name as plans show it.
    pub(crate) fn display_name(&self) -> &str {
        self.name.split_once('@').map_or(&self.name, |(_, place)| place)
    }
}

/// A function ready to be called on batches.
pub(crate) struct BoundFunction {
    pub(crate) registration: &'static Registration,
    prepared: Prepared,
}

impl BoundFunction {
    /// Calls the function within `context`; a panic is caught and becomes the error's reason.
    pub(crate) fn call(
        &self,
        batch: RecordBatch,
        context: &FunctionContext,
    ) -> Result<Vec<RecordBatch>, String> {
        match context.enter(|| catch_unwind(AssertUnwindSafe(|| (self.prepared)(batch)))) {
            Ok(outcome) => outcome.map_err(|e| e.to_string()),
            Err(panic) => Err(format!("it panicked: {}", panic_message(panic.as_ref()))),
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

static BY_NAME: LazyLock<HashMap<&'static str, &'static Registration>> =
    LazyLock::new(|| inventory::iter::<Registration>().map(|r| (r.name, r)).collect());

/// The function called `name`.
///
/// # Errors
/// [`Error::UnknownFunction`] with similar names.
pub fn lookup(name: &str) -> Result<&'static Registration> {
    BY_NAME.get(name).copied().ok_or_else(|| Error::UnknownFunction {
        name: name.to_owned(),
        nearest: similar(name, BY_NAME.keys().copied()),
        known: BY_NAME.len(),
    })
}

/// All functions of this build, by name.
pub fn known() -> Vec<&'static Registration> {
    let mut all: Vec<_> = BY_NAME.values().copied().collect();
    all.sort_by_key(|r| r.name);
    all
}
