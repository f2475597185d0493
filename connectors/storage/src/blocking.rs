//! Stores for code that is not async: parsers read on threads of their own, and wait there.

use crate::{Error, Result};
use futures::executor::block_on;
use std::future::Future;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Threads that move bytes for those who wait; who waits may be a thread of another runtime.
static MOVERS: LazyLock<std::io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).thread_name("store").enable_all().build());

/// Starts `work`.
pub(crate) fn start<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<JoinHandle<T>> {
    match MOVERS.as_ref() {
        Ok(movers) => Ok(movers.spawn(work)),
        Err(e) => Err(failed(e)),
    }
}

/// Waits for work that was started.
pub(crate) fn wait<T>(work: JoinHandle<T>) -> Result<T> {
    block_on(work).map_err(|e| failed(&e))
}

fn failed(e: &dyn std::fmt::Display) -> Error {
    Error::Read { what: "a store".into(), source: std::io::Error::other(e.to_string()) }
}
