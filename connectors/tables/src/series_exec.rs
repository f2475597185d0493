//! Reads files of series that lie on no grid: one partition a file, rows in the file's order.
//!
//! A blocking thread reads. Rows that come one by one are sent as they come; frames are kept (in memory within
//! `memory_limit`, else in a temporary file) until the rows can be cut from them.

use crate::files_exec::{FileRows, FilesExec, batch_rows};
use crate::number::Number;
use crate::series_columns::{Column, SeriesRowBuilder};
use crate::series_format::{OpenSeries, Order};
use crate::series_room::SeriesRoom;
use crate::series_smoothing::FrameSmoother;
use crate::series_table::SeriesSource;
use crate::travel::received;
use crate::{Error, Result, SeriesOptions, Stores, series_file::SeriesFile};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, stream::RecordBatchReceiverStreamBuilder};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::mpsc::Sender;
use voxelflow_dataset::LedgerNotes;

/// Reads the files of a table of surfaces, grayordinates or arrays.
pub type SeriesExec = FilesExec<SeriesRows>;

/// What is read of which files.
#[derive(Clone, Debug)]
pub struct SeriesRows {
    source: Arc<SeriesSource>,
    /// Positions in the table's schema.
    columns: Vec<usize>,
    schema: SchemaRef,
    limit: Option<usize>,
}

impl SeriesRows {
    pub(crate) fn try_new(
        source: Arc<SeriesSource>,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> PlanResult<Self> {
        let columns = projection.cloned().unwrap_or_else(|| (0..source.schema.fields().len()).collect());
        let schema = Arc::new(source.schema.project(&columns)?);
        Ok(Self { source, columns, schema, limit })
    }
}

impl FileRows for SeriesRows {
    const NODE: &'static str = "SeriesExec";

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn files(&self) -> usize {
        self.source.files.len()
    }

    fn sorted_by(&self) -> Option<usize> {
        let all = Column::of(self.source.format());
        self.columns.iter().position(|at| matches!(all.get(*at), Some(Column::Number(_))))
    }

    fn rows(&self, file: usize) -> Option<usize> {
        Some(self.source.files.get(file)?.rows.min(self.limit.unwrap_or(usize::MAX)))
    }

    fn limit(&self) -> Option<usize> {
        self.limit
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format={}, ", self.source.format())
    }

    fn read(
        &self,
        number: usize,
        context: Arc<TaskContext>,
        _: &Arc<LedgerNotes>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let Some(file) = self.source.files.get(number) else {
            return plan_err!("the table has {} files, none with number {number}", self.source.files.len());
        };
        let mut stream = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let limit = self.source.options.memory_limit;
        let task = ReadTask {
            reader: self.clone(),
            number,
            rows: file.rows.min(self.limit.unwrap_or(usize::MAX)),
            batch_rows: batch_rows(file.points * if self.source.double { 2 } else { 1 }, &context),
            room: SeriesRoom::new(&format!("SeriesExec[{number}]"), limit, context),
            to: stream.tx(),
        };
        stream.spawn_blocking(move || Ok(task.run()?));
        Ok(stream.build())
    }
}

/// Reads one file, on a thread of its own.
struct ReadTask {
    reader: SeriesRows,
    number: usize,
    /// Rows that are asked for.
    rows: usize,
    batch_rows: usize,
    room: SeriesRoom,
    to: Sender<PlanResult<RecordBatch>>,
}

impl ReadTask {
    fn run(mut self) -> Result<()> {
        let source = Arc::clone(&self.reader.source);
        let file = &source.files[self.number];
        let mut open = file.open(&source.stores)?;
        let models = std::mem::take(&mut open.models);
        let schema = Arc::clone(&self.reader.schema);
        let rows = SeriesRowBuilder::new(file, models, schema, &self.reader.columns);
        match (open.order, source.double) {
            _ if !rows.needs_series() => self.send_keys(&rows),
            (Order::Rows, false) => self.send_rows::<f32>(&rows, open),
            (Order::Rows, true) => self.send_rows::<f64>(&rows, open),
            (Order::Frames, false) => self.send_frames::<f32>(&rows, file, open),
            (Order::Frames, true) => self.send_frames::<f64>(&rows, file, open),
        }
    }

    fn send_keys(&self, rows: &SeriesRowBuilder) -> Result<()> {
        let most = self.room.batch_size();
        (0..self.rows)
            .step_by(most)
            .try_for_each(|first| self.send(rows.batch(first..self.rows.min(first + most), None)?))
    }

    /// The file gives row after row. It is read to its end, so that its checksum is checked, unless rows are limited.
    fn send_rows<T: Number>(&self, rows: &SeriesRowBuilder, mut open: OpenSeries) -> Result<()> {
        let (mut series, mut row) = (Vec::<T>::new(), Vec::new());
        let mut first = 0;
        for number in 0..self.rows {
            if !open.reader.next(&mut row)? {
                break;
            }
            series.extend_from_slice(&row);
            if number + 1 - first == self.batch_rows || number + 1 == self.rows {
                let values = T::column(std::mem::take(&mut series));
                self.send(rows.batch(first..number + 1, Some(values))?)?;
                first = number + 1;
            }
        }
        Ok(())
    }

    /// The file gives all vertices of one time point after the other.
    fn send_frames<T: Number>(
        &mut self,
        rows: &SeriesRowBuilder,
        file: &SeriesFile,
        mut open: OpenSeries,
    ) -> Result<()> {
        let kept: Option<Vec<u32>> = (self.rows < file.rows).then(|| (0..self.rows as u32).collect());
        let source = Arc::clone(&self.reader.source);
        let mut smoother = FrameSmoother::of(file, &source.options, &source.stores)?;
        let mut store = self.room.store::<T>(&file.location, self.rows, file.points)?;
        let (mut frame, mut frames) = (Vec::new(), 0);
        while open.reader.next(&mut frame)? {
            if self.to.is_closed() {
                return Err(Error::Cancelled);
            }
            if let Some(smoother) = &mut smoother {
                smoother.smooth(&mut frame, file)?;
            }
            store.push(&frame, kept.as_deref())?;
            frames += 1;
        }
        if frames != file.points {
            let reason = format!("it has {frames} time points, its header says {}", file.points);
            return Err(Error::Image { path: file.location.clone(), reason });
        }
        self.room.for_each_batch(&mut store, self.rows, file.points, self.batch_rows, |here, series| {
            self.send(rows.batch(here, Some(T::column(series)))?)
        })
    }

    fn send(&self, batch: RecordBatch) -> Result<()> {
        self.to.blocking_send(Ok(batch)).map_err(|_| Error::Cancelled)
    }
}

/// All that another process needs to read the same rows.
#[derive(Serialize, Deserialize)]
struct Sent {
    files: Vec<SeriesFile>,
    options: SeriesOptions,
    /// Origin and runs as the schema has them, to the letter.
    metadata: BTreeMap<String, String>,
    columns: Vec<usize>,
    limit: Option<usize>,
}

impl SeriesExec {
    /// The node as bytes, to be read by [`SeriesExec::from_bytes`]. Files are named by their whole paths or URLs:
    /// another process must find them there.
    ///
    /// # Errors
    /// Never for finite numbers.
    pub fn to_bytes(&self) -> PlanResult<Vec<u8>> {
        let SeriesRows { source, columns, limit, .. } = self.reader();
        let sent = Sent {
            files: source.files.clone(),
            options: source.options.clone(),
            metadata: source.schema.metadata().clone().into_iter().collect(),
            columns: columns.clone(),
            limit: *limit,
        };
        serde_json::to_vec(&sent).map_err(|e| DataFusionError::Plan(format!("series cannot be sent: {e}")))
    }

    /// The node again, which finds files in `stores`.
    ///
    /// # Errors
    /// Bytes that [`SeriesExec::to_bytes`] has not written.
    pub fn from_bytes(
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        stores: Stores,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let damaged =
            |e: &dyn fmt::Display| DataFusionError::Plan(format!("series were received damaged: {e}"));
        let Sent { files, options, metadata, columns, limit } =
            serde_json::from_slice(bytes).map_err(|e| damaged(&e))?;
        if let Some(file) = files.iter().find(|file| !file.is_sound()) {
            return Err(damaged(&format!("{} has a size that no file has", file.location)));
        }
        let source = SeriesSource::new(files, options, metadata.into_iter().collect(), stores)
            .ok_or_else(|| damaged(&"there is no file"))?;
        let schema = Arc::new(source.schema.project(&columns)?);
        received(SeriesRows { source: Arc::new(source), columns, schema, limit }, inputs)
    }
}
