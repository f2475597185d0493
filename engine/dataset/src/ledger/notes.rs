//! How entries leave a node: by its metrics, which come back from every process.

use super::{Ledger, LedgerEntry};
use datafusion::physical_plan::{
    ExecutionPlan,
    metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricValue},
};
use futures::{Stream, StreamExt, stream};
use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

const PREFIX: &str = "ledger ";

/// The name of a plan node that has entries for the ledger: a runner that cannot learn what such a node has met says so
/// in the ledger.
#[derive(Debug)]
pub struct LedgerNode(pub &'static str);

inventory::collect!(LedgerNode);

/// Whether a node of `plan` may have entries.
pub(crate) fn is_expected(plan: &dyn ExecutionPlan) -> bool {
    inventory::iter::<LedgerNode>().any(|node| node.0 == plan.name())
        || plan.children().into_iter().any(|child| is_expected(child.as_ref()))
}

/// What one partition of a node has met. It is told when the partition's rows end (see [`LedgerNotes::until_end`]), or
/// when it is dropped before.
pub struct LedgerNotes {
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
    noted: Mutex<Ledger>,
}

impl LedgerNotes {
    /// Nothing yet, of `partition` of the node with these `metrics`.
    pub fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Arc<Self> {
        Arc::new(Self { metrics: metrics.clone(), partition, noted: Mutex::default() })
    }

    /// Adds an entry.
    pub fn note(&self, entry: LedgerEntry) {
        self.noted().add(entry);
    }

    /// Adds all entries of `ledger`.
    pub fn note_all(&self, ledger: Ledger) {
        self.noted().extend(ledger);
    }

    /// `rows`, at the end of which all that was noted is told.
    pub fn until_end<S: Stream>(self: &Arc<Self>, rows: S) -> impl Stream<Item = S::Item> + use<S> {
        let notes = Arc::clone(self);
        // Before the end is seen: whoever sees it may ask for the metrics.
        rows.chain(stream::poll_fn(move |_| {
            notes.tell();
            Poll::Ready(None)
        }))
    }

    /// Hands over what was noted since the last time.
    pub fn tell(&self) {
        for entry in mem::take(&mut *self.noted()) {
            // Numbers and texts: JSON has them all.
            if let Ok(text) = serde_json::to_string(&entry) {
                let counter = format!("{PREFIX}{text}");
                MetricBuilder::new(&self.metrics).counter(counter, self.partition).add(1);
            }
        }
    }

    fn noted(&self) -> MutexGuard<'_, Ledger> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LedgerNotes {
    fn drop(&mut self) {
        self.tell();
    }
}

impl fmt::Debug for LedgerNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerNotes").field("partition", &self.partition).finish_non_exhaustive()
    }
}

/// What the metric `name` says for the ledger: nothing if it is none of the ledger's, or is of another build.
pub(crate) fn entry_in(name: &str) -> Option<Option<LedgerEntry>> {
    Some(serde_json::from_str(name.strip_prefix(PREFIX)?).ok())
}

/// Adds what the nodes of `plan` have told, of all partitions or of one.
pub(super) fn gather(plan: &dyn ExecutionPlan, partition: Option<usize>, ledger: &mut Ledger) {
    let metrics = plan.metrics();
    let metrics = metrics.iter().flat_map(|all| all.iter());
    for metric in metrics.filter(|m| partition.is_none() || m.partition() == partition) {
        if let MetricValue::Count { name, .. } = metric.value() {
            ledger.extend(entry_in(name).flatten());
        }
    }
    plan.children().into_iter().for_each(|child| gather(child.as_ref(), partition, ledger));
}
