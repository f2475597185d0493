//! What surrounds a call of a named function: where its accumulators add up and its broadcasts lie.

use super::{Broadcasts, Totals};
use crate::log_tail::{in_task, task_of};
use datafusion::execution::TaskContext;
use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
};

/// Surrounds the calls for one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionContext {
    /// What this partition has added so far.
    pub(crate) totals: Arc<Mutex<Totals>>,
    /// Values sent to all partitions.
    pub(crate) broadcasts: Option<Arc<Broadcasts>>,
    /// The task that the calls are part of; none outside of clusters.
    task: Option<Arc<str>>,
}

thread_local! {
    static CURRENT: RefCell<Option<FunctionContext>> = const { RefCell::new(None) };
}

impl FunctionContext {
    pub(crate) fn new(broadcasts: Option<Arc<Broadcasts>>) -> Self {
        Self { totals: Arc::default(), broadcasts, task: None }
    }

    /// As part of the task that `context` is of: what the function logs is the task's.
    pub(crate) fn of_task(self, context: &TaskContext) -> Self {
        Self { task: task_of(context), ..self }
    }

    /// Runs `call` with this context as the current one.
    pub(crate) fn enter<T>(&self, call: impl FnOnce() -> T) -> T {
        let previous = CURRENT.with(|c| c.replace(Some(self.clone())));
        let _restore = Restore(previous);
        match &self.task {
            Some(task) => in_task(task, call),
            None => call(),
        }
    }

    /// The context of the call that runs on this thread, if one does.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.with(|c| c.borrow().clone())
    }
}

/// Puts the outer context back, also when the call unwinds.
struct Restore(Option<FunctionContext>);

impl Drop for Restore {
    fn drop(&mut self) {
        let previous = self.0.take();
        CURRENT.with(|c| *c.borrow_mut() = previous);
    }
}
