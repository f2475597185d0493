//! Rows of a plan in a file of their own, `[rows, time_points]` 32-bit numbers, so that ranks can read them in
//! any order and as often as they like with memory for a minibatch only.
//!
//! The file is private to the process and gone when the training ends; its bytes are in the machine's order.

use super::row_order::{Keys, Origin, Rows};
use crate::{
    Error, Result,
    series_column::{SeriesColumn, series_of, values_of},
};
use arrow::{array::Array, record_batch::RecordBatch};
use datafusion::{
    common::runtime::JoinSet,
    error::DataFusionError,
    execution::{SpillFile, TaskContext},
    physical_plan::{ExecutionPlan, ExecutionPlanProperties},
};
use futures::TryStreamExt;
use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Semaphore;
use voxelflow_stage::SeriesFeed;

/// Rows that have been spooled, in the order of [`Rows::in_order`].
pub(super) struct Spool {
    sink: Arc<Sink>,
    /// Row to its number in the file.
    places: Vec<u64>,
    origins: Vec<Origin>,
}

/// The file while it is written.
struct Sink {
    file: File,
    path: String,
    /// Deletes the file at the end.
    _named: Arc<dyn SpillFile>,
    column: SeriesColumn,
    next: AtomicU64,
}

impl Spool {
    /// Reads all partitions of `input`, as many at a time as the session has target partitions.
    ///
    /// # Errors
    /// An input that fails, series with null or values that are not finite, storage that fails.
    pub async fn fill(
        input: &Arc<dyn ExecutionPlan>,
        operator: &'static str,
        context: &Arc<TaskContext>,
    ) -> Result<Self, DataFusionError> {
        let column = SeriesColumn::find(operator, &input.schema())?;
        let named = context.runtime_env().disk_manager.create_tmp_file(operator)?;
        // A session that spills elsewhere than to files gets one in the system's folder.
        let (file, path) = match named.path() {
            Some(path) => (OpenOptions::new().read(true).write(true).open(path), path.display().to_string()),
            None => (tempfile::tempfile(), std::env::temp_dir().display().to_string()),
        };
        let file = file.map_err(|e| storage(&path, &e))?;
        let sink = Arc::new(Sink { file, path, _named: named, column, next: AtomicU64::new(0) });
        let permits = Arc::new(Semaphore::new(context.session_config().target_partitions().max(1)));
        let partitions = input.output_partitioning().partition_count();
        let mut tasks = JoinSet::new();
        for partition in 0..partitions {
            let (sink, permits) = (Arc::clone(&sink), Arc::clone(&permits));
            let (input, context) = (Arc::clone(input), Arc::clone(context));
            tasks.spawn(async move {
                let _permit = permits.acquire().await.map_err(|e| DataFusionError::External(e.into()))?;
                let mut rows = Rows::default();
                let mut batches = input.execute(partition, context)?;
                while let Some(batch) = batches.try_next().await? {
                    sink.write(&batch, &mut rows)?;
                }
                Ok::<_, DataFusionError>((partition, rows))
            });
        }
        let mut filled = Vec::with_capacity(partitions);
        while let Some(done) = tasks.join_next().await {
            filled.push(done.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??);
        }
        filled.sort_unstable_by_key(|(partition, _)| *partition);
        let (places, origins) = Rows::in_order(filled.into_iter().map(|(_, rows)| rows).collect());
        Ok(Self { sink, places, origins })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.places.len()
    }

    /// Points of every series.
    pub fn time_points(&self) -> usize {
        self.sink.column.time_points
    }

    /// Distinct subjects, sorted.
    pub fn subjects(&self) -> BTreeSet<&str> {
        self.origins.iter().filter_map(Origin::subject).collect()
    }

    /// Bytes of one series.
    fn row_bytes(&self) -> usize {
        4 * self.time_points()
    }

    /// A feed over all rows.
    pub fn feed(self: &Arc<Self>) -> SpoolFeed {
        SpoolFeed { spool: Arc::clone(self), bytes: Vec::new() }
    }

    /// Copies the bytes of the rows in `places` into `into`, neighbours in the file at once.
    fn read(&self, places: &[u64], into: &mut [u8]) -> std::io::Result<()> {
        let row_bytes = self.row_bytes();
        let mut start = 0;
        while start < places.len() {
            let run = (start + 1..places.len()).find(|i| places[*i] != places[start] + (i - start) as u64);
            let end = run.unwrap_or(places.len());
            let bytes = &mut into[start * row_bytes..end * row_bytes];
            self.sink.file.read_exact_at(bytes, places[start] * row_bytes as u64)?;
            start = end;
        }
        Ok(())
    }
}

impl Sink {
    fn write(&self, batch: &RecordBatch, rows: &mut Rows) -> Result<(), DataFusionError> {
        let n = batch.num_rows();
        let SeriesColumn { name, time_points } = &self.column;
        let Some(array) = batch.column_by_name(name).filter(|_| n > 0) else { return Ok(()) };
        let lists = series_of(array, *time_points)?;
        let keys = Keys::of(batch)?;
        let place = self.next.fetch_add(n as u64, Ordering::Relaxed);
        if let Some((row, reason)) = first_unusable(&lists, *time_points) {
            let row = keys.describe(row, &format!("row {}", place + row as u64));
            return Err(Error::Series { column: name.clone(), row, reason }.into());
        }
        let values = lists.values().as_primitive_values();
        let written = self.file.write_all_at(values, place * 4 * *time_points as u64);
        written.map_err(|e| storage(&self.path, &e))?;
        rows.extend(&keys, n, place);
        Ok(())
    }
}

/// Bytes of 32-bit numbers without a copy.
trait PrimitiveBytes {
    fn as_primitive_values(&self) -> &[u8];
}

impl PrimitiveBytes for arrow::array::ArrayRef {
    fn as_primitive_values(&self) -> &[u8] {
        use arrow::array::AsArray;
        self.as_primitive::<arrow::datatypes::Float32Type>().values().inner().as_slice()
    }
}

/// The first row that cannot be learned from, and why.
fn first_unusable(lists: &arrow::array::FixedSizeListArray, time_points: usize) -> Option<(usize, String)> {
    if lists.null_count() > 0 {
        let row = (0..lists.len()).find(|row| lists.is_null(*row))?;
        return Some((row, "is null".to_owned()));
    }
    if lists.values().null_count() > 0 {
        let value = (0..lists.values().len()).find(|value| lists.values().is_null(*value))?;
        return Some((value / time_points, format!("has no value at time point {}", value % time_points)));
    }
    let value = values_of(lists).iter().position(|value| !value.is_finite())?;
    let found = values_of(lists)[value];
    Some((value / time_points, format!("holds {found} at time point {}", value % time_points)))
}

fn storage(path: &str, e: &std::io::Error) -> Error {
    Error::Storage { path: path.to_owned(), reason: e.to_string() }
}

/// The rows of a [`Spool`].
pub(super) struct SpoolFeed {
    spool: Arc<Spool>,
    bytes: Vec<u8>,
}

impl SeriesFeed for SpoolFeed {
    fn rows(&self) -> usize {
        self.spool.rows()
    }

    fn time_points(&self) -> usize {
        self.spool.time_points()
    }

    fn read(&mut self, rows: &[usize], into: &mut [f32]) -> voxelflow_stage::Result<()> {
        let wrong = |reason: String| voxelflow_stage::Error::Data { what: "feed".into(), reason };
        let available = &self.spool.places;
        let places: Option<Vec<u64>> = rows.iter().map(|row| available.get(*row).copied()).collect();
        let places = places.ok_or_else(|| wrong(format!("a row beyond the {}", available.len())))?;
        if into.len() != rows.len() * self.time_points() {
            return Err(wrong(format!(
                "{} values for {} series of {}",
                into.len(),
                rows.len(),
                self.time_points()
            )));
        }
        self.bytes.resize(4 * into.len(), 0);
        self.spool.read(&places, &mut self.bytes).map_err(|e| voxelflow_stage::Error::Folder {
            path: self.spool.sink.path.clone(),
            reason: e.to_string(),
        })?;
        for (value, bytes) in into.iter_mut().zip(self.bytes.as_chunks::<4>().0) {
            *value = f32::from_ne_bytes(*bytes);
        }
        Ok(())
    }
}
