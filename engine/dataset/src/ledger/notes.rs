//! How entries leave a node: by its metrics, which come back from every process.

use super::{Finding, Ledger, LedgerEntry, Level, RUN_KEYS, RunKey};
use crate::runner::DriverNode;
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, UInt64Type},
    error::ArrowError,
    util::display::array_value_to_string,
};
use datafusion::physical_plan::{
    ExecutionPlan,
    metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricValue},
};
use futures::{Stream, StreamExt, stream};
use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

const PREFIX: &str = "ledger ";
/// Columns that number the rows of a run; the first that a table has gives the places.
const NUMBERS: [&str; 5] = ["voxel", "grayordinate", "vertex", "row", "parcel"];

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

    /// Notes `rows` of `batch`, run by run as its key columns say, with their voxels where it has them.
    ///
    /// # Errors
    /// Key columns that cannot be read as text or numbers.
    pub fn note_rows(
        &self,
        batch: &RecordBatch,
        rows: &[usize],
        what: Finding,
        reason: &str,
    ) -> Result<(), ArrowError> {
        if rows.is_empty() {
            return Ok(());
        }
        let keys = RUN_KEYS.map(|name| batch.column_by_name(name));
        let numbers = NUMBERS.iter().find_map(|name| batch.column_by_name(name));
        let numbers = numbers.map(|column| cast(column, &DataType::UInt64)).transpose()?;
        let numbers = numbers.as_ref().and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let mut found = BTreeMap::<RunKey, Vec<usize>>::new();
        for row in rows {
            let mut run = RunKey::default();
            for (key, column) in run.iter_mut().zip(keys) {
                *key = column.map(|column| text(column, *row)).transpose()?.flatten();
            }
            found.entry(run).or_default().push(*row);
        }
        for (run, rows) in found {
            let entry = LedgerEntry::of_rows(run, Level::Voxel, what, reason, rows.len() as u64);
            let known = |row: &usize| numbers.filter(|n| n.is_valid(*row)).map(|n| n.value(*row));
            self.note(entry.at(rows.iter().filter_map(known)));
        }
        Ok(())
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

/// An absent key is null or empty.
fn text(column: &ArrayRef, row: usize) -> Result<Option<String>, ArrowError> {
    let text = column.is_valid(row).then(|| array_value_to_string(column, row)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// What the metric `name` says for the ledger: nothing if it is none of the ledger's, or is of another build.
pub(crate) fn entry_in(name: &str) -> Option<Option<LedgerEntry>> {
    Some(serde_json::from_str(name.strip_prefix(PREFIX)?).ok())
}

/// Adds what the nodes of `plan` have told, of all partitions or of one. What the inputs of a driver's node have told is
/// told by the node itself: it has had them run, here or elsewhere.
pub(super) fn gather(plan: &dyn ExecutionPlan, partition: Option<usize>, ledger: &mut Ledger) {
    let metrics = plan.metrics();
    let metrics = metrics.iter().flat_map(|all| all.iter());
    for metric in metrics.filter(|m| partition.is_none() || m.partition() == partition) {
        if let MetricValue::Count { name, .. } = metric.value() {
            ledger.extend(entry_in(name).flatten());
        }
    }
    if inventory::iter::<DriverNode>().all(|node| node.0 != plan.name()) {
        plan.children().into_iter().for_each(|child| gather(child.as_ref(), partition, ledger));
    }
}
