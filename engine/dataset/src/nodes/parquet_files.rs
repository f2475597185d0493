//! Writing Parquet where the rows are: a file for every partition that has rows, row groups bounded in bytes.
//!
//! The operator gives one row a partition: what it wrote. Whoever asked for the files checks the target before
//! and publishes it afterwards, no other files than these rows name. A partition that an earlier run has finished is not
//! run again.
//!
//! On a cluster every try of a task writes a file of its own name: one that was taken for lost, and goes on, does not
//! write into what another has written.

use super::{
    UnaryOperator,
    unary::{self, UnaryTask},
};
use crate::{
    ledger::{Ledger, LedgerNotes},
    log_tail::task_of,
    node_codec::NodeCodec,
    runner::pool_bytes,
    staging::{Finished, FinishedPart},
};
use arrow::{
    array::{Array, ArrayRef, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    error::{DataFusionError, Result},
    execution::object_store::ObjectStoreUrl,
    physical_plan::{SendableRecordBatchStream, common::spawn_buffered, stream::RecordBatchStreamAdapter},
};
use futures::{StreamExt, stream};
use object_store::{ObjectStore, buffered::BufWriter, path::Path as ObjectPath};
use parquet::{
    arrow::{ArrowSchemaConverter, AsyncArrowWriter},
    basic::{Compression, LogicalType, Type, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::task::spawn_blocking;

/// Settings of `ParquetSinkExec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ParquetFiles {
    /// The store: a URL without its path.
    pub store: String,
    /// Folder in the store.
    pub folder: String,
    /// What the files' names begin with.
    pub prefix: String,
    /// Bytes that a row group may take in memory before it is written out.
    pub row_group_bytes: usize,
    /// Level of zstd, 1 to 22; 0: not compressed.
    pub compression_level: i32,
    /// Where partitions are noted that are whole; none where nobody may go on with them.
    pub finished: Option<Finished>,
    /// What the schema gets besides the metadata of its rows.
    pub metadata: BTreeMap<String, String>,
}

inventory::submit! {
    NodeCodec {
        name: ParquetFiles::NAME,
        encode: unary::encode::<ParquetFiles>,
        decode: unary::decode::<ParquetFiles>,
    }
}

impl ParquetFiles {
    /// The name of a partition's file, which `task` writes on a cluster; names sort as partitions do.
    fn name(&self, partition: usize, task: Option<&str>) -> String {
        let by = task.map(|task| format!("-{}", &blake3::hash(task.as_bytes()).to_hex()[..TASK_DIGITS]));
        format!("{}-{partition:05}{}.parquet", self.prefix, by.unwrap_or_default())
    }

    /// Files of rows with the columns of `schema`.
    fn schema_of(&self, schema: &SchemaRef) -> SchemaRef {
        if self.metadata.is_empty() {
            return Arc::clone(schema);
        }
        let mut metadata = schema.metadata().clone();
        metadata.extend(self.metadata.clone());
        Arc::new(schema.as_ref().clone().with_metadata(metadata))
    }

    /// A file that is to be written in a process whose operators share `pool` bytes.
    fn file(
        &self,
        store: &Arc<dyn ObjectStore>,
        name: String,
        schema: &SchemaRef,
        pool: usize,
    ) -> Result<File> {
        let schema = &self.schema_of(schema);
        Ok(File {
            store: Arc::clone(store),
            path: ObjectPath::from(self.folder.as_str()).join(name.as_str()),
            name,
            schema: Arc::clone(schema),
            properties: properties(schema, self.compression_level)?,
            row_group_bytes: self
                .row_group_bytes
                .min(pool / PART_OF_POOL)
                .max(LEAST_ROW_GROUP.min(self.row_group_bytes)),
            uploads: (pool / PART_OF_POOL / UPLOAD_BYTES).clamp(1, UPLOADS),
        })
    }
}

impl UnaryOperator for ParquetFiles {
    const NAME: &'static str = "ParquetSinkExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        ObjectStoreUrl::parse(&self.store)?;
        properties(input, self.compression_level).map(drop)
    }
    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        let number = |name: &str| Field::new(name, DataType::UInt64, false);
        let [rows, bytes, taken_over] = ["rows", "bytes", "taken_over"].map(number);
        Arc::new(Schema::new(vec![Field::new("file", DataType::Utf8, true), rows, bytes, taken_over]))
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}-*.parquet", self.store, self.folder, self.prefix)
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let store = task.context.runtime_env().object_store(ObjectStoreUrl::parse(&self.store)?)?;
        let name = self.name(task.place.partition, task_of(&task.context).as_deref());
        let file = self.file(&store, name, &task.input.schema(), pool_bytes(&task.context.runtime_env()))?;
        let (files, schema) = (self.clone(), Arc::clone(&task.schema));
        let written = stream::once(async move {
            let schema = Arc::clone(&task.schema);
            let (file, numbers) = files.write(file, task).await?;
            let numbers = numbers.map(|n| Arc::new(UInt64Array::from(vec![n])) as ArrayRef);
            let file: ArrayRef = Arc::new(StringArray::from(vec![file]));
            Ok(RecordBatch::try_new(schema, [file].into_iter().chain(numbers).collect())?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, written)))
    }
}

impl ParquetFiles {
    /// Writes a partition, or takes it over. Gives the file's name, rows, bytes, and 1 if it was taken over.
    async fn write(&self, file: File, task: UnaryTask) -> Result<(Option<String>, [u64; 3])> {
        let UnaryTask { rows, input, place, metrics_partition, metrics, .. } = task;
        if let Some(part) = self.finished.as_ref().and_then(|finished| finished.find(place)) {
            let notes = LedgerNotes::new(&metrics, metrics_partition);
            notes.note_all(part.ledger);
            notes.tell();
            return Ok((part.file, [part.rows, part.bytes, 1]));
        }
        let name = file.name.clone();
        let written = file.write_all(rows).await?;
        let name = written.map(|_| name);
        let (rows, bytes) = written.unwrap_or_default();
        if let Some(finished) = self.finished.clone() {
            let part = FinishedPart {
                key: finished.key.clone(),
                partition: place.partition,
                partitions: place.partitions,
                file: name.clone(),
                rows: rows as u64,
                bytes,
                ledger: Ledger::of_partition(input.as_ref(), metrics_partition),
            };
            let noted = spawn_blocking(move || finished.add(&part)).await;
            noted.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
        }
        Ok((name, [rows as u64, bytes, 0]))
    }
}

/// Digits of the task that has written a file, in its name.
const TASK_DIGITS: usize = 12;

/// The name of the file `name` without the task that has written it, as it is published.
pub(crate) fn published(name: &str) -> String {
    let task = name.strip_suffix(".parquet").and_then(|stem| stem.rsplit_once('-'));
    match task {
        Some((file, task)) if task.len() == TASK_DIGITS => format!("{file}.parquet"),
        _ => name.to_owned(),
    }
}

/// A file without rows, for a table that has none: its columns can be read. Gives its name and its bytes.
pub(crate) async fn write_empty(
    files: &ParquetFiles,
    store: &Arc<dyn ObjectStore>,
    schema: &SchemaRef,
) -> Result<(String, u64)> {
    let file = files.file(store, files.name(0, None), schema, usize::MAX)?;
    let bytes = file.finish(file.open()?).await?;
    Ok((file.name, bytes))
}

/// Parts of a file that may be on their way to the store at once, and bytes of each.
const UPLOADS: usize = 4;
const UPLOAD_BYTES: usize = 10 << 20;
/// What a row group, or the parts on their way, may take of the memory that operators share.
const PART_OF_POOL: usize = 16;
/// Smaller row groups cost more than they save.
const LEAST_ROW_GROUP: usize = 4 << 20;

/// One file to be.
struct File {
    store: Arc<dyn ObjectStore>,
    name: String,
    path: ObjectPath,
    schema: SchemaRef,
    properties: WriterProperties,
    row_group_bytes: usize,
    uploads: usize,
}

type Writer = AsyncArrowWriter<BufWriter>;

impl File {
    fn open(&self) -> Result<Writer> {
        let sink = BufWriter::with_capacity(Arc::clone(&self.store), self.path.clone(), UPLOAD_BYTES)
            .with_max_concurrency(self.uploads);
        AsyncArrowWriter::try_new(sink, Arc::clone(&self.schema), Some(self.properties.clone()))
            .map_err(|e| self.failure(&e))
    }

    /// Rows and bytes, or nothing where there are no rows.
    async fn write_all(self, rows: SendableRecordBatchStream) -> Result<Option<(usize, u64)>> {
        // The next batch is computed while one is encoded.
        let mut rows = spawn_buffered(rows, 1);
        let mut open: Option<(Writer, usize)> = None;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let (writer, written) = match &mut open {
                Some(open) => open,
                closed => closed.insert((self.open()?, 0)),
            };
            *written += batch.num_rows();
            self.append(writer, &batch).await.map_err(|e| self.failure(&e))?;
        }
        match open {
            Some((writer, rows)) => Ok(Some((rows, self.finish(writer).await?))),
            None => Ok(None),
        }
    }

    /// A batch is handed over in pieces, so that the bound holds for large batches too.
    async fn append(&self, writer: &mut Writer, batch: &RecordBatch) -> Result<(), ParquetError> {
        let bytes = batch.columns().iter().map(|c| c.get_array_memory_size()).sum::<usize>().max(1);
        let pieces = bytes.div_ceil((self.row_group_bytes / 4).max(1)).min(batch.num_rows());
        for piece in 0..pieces {
            let (from, to) = (batch.num_rows() * piece / pieces, batch.num_rows() * (piece + 1) / pieces);
            writer.write(&batch.slice(from, to - from)).await?;
            if writer.memory_size() >= self.row_group_bytes {
                writer.flush().await?;
            }
        }
        Ok(())
    }

    async fn finish(&self, mut writer: Writer) -> Result<u64> {
        writer.finish().await.map_err(|e| self.failure(&e))?;
        Ok(writer.bytes_written() as u64)
    }

    fn failure(&self, error: &ParquetError) -> DataFusionError {
        DataFusionError::Execution(format!("writing {}: {error}", self.path))
    }
}

/// Floats are all different: a dictionary of them only costs time. They have no statistics: these leave NaN out, and
/// readers take a column of NaN and 1 for the constant 1.
fn properties(schema: &Schema, compression_level: i32) -> Result<WriterProperties> {
    let unfit = |e: ParquetError| DataFusionError::Plan(format!("write_parquet: {e}"));
    let compression = match compression_level {
        0 => Compression::UNCOMPRESSED,
        level => Compression::ZSTD(ZstdLevel::try_new(level).map_err(unfit)?),
    };
    let mut properties = WriterProperties::builder().set_compression(compression);
    let parquet = ArrowSchemaConverter::new().convert(schema).map_err(unfit)?;
    for column in parquet.columns() {
        let half = column.logical_type_ref() == Some(&LogicalType::Float16);
        if half || matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE) {
            properties = properties
                .set_column_dictionary_enabled(column.path().clone(), false)
                .set_column_statistics_enabled(column.path().clone(), EnabledStatistics::None);
        }
    }
    Ok(properties.build())
}
