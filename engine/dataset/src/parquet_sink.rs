//! Writing Parquet: one file per partition, row groups bounded in bytes, nothing half-written to be seen.
//!
//! ```text
//!   partition 0 ─► part-00000.parquet ─┐
//!   partition 1 ─► part-00001.parquet ─┤  <parent>/.<name>.partial-…   ── rename ─►  <target>
//!       …                              ┘  (local; object stores show an object when it is whole)
//! ```

use crate::{
    Dataset,
    error::{Error, Result},
    partitions::Run,
    target::Target,
};
use arrow::{
    array::Array,
    datatypes::{Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{error::DataFusionError, physical_plan::SendableRecordBatchStream};
use futures::StreamExt;
use object_store::{ObjectStore, buffered::BufWriter};
use parquet::{
    arrow::{ArrowSchemaConverter, AsyncArrowWriter},
    basic::{Compression, Type, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
};
use std::{collections::BTreeMap, sync::Arc};

/// How Parquet is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Replace what is there; otherwise a target with something in it is refused.
    pub overwrite: bool,
    /// Bytes that a row group may take in memory before it is written out. Bounds the memory of a writer.
    pub row_group_bytes: usize,
    /// Level of zstd, 1 to 22; 0: not compressed.
    pub compression_level: i32,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { overwrite: false, row_group_bytes: 64 << 20, compression_level: 1 }
    }
}

impl WriteOptions {
    /// These options, replacing what is there.
    #[must_use]
    pub fn overwrite(self) -> Self {
        Self { overwrite: true, ..self }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSummary {
    /// Rows.
    pub rows: usize,
    /// Files; partitions without rows have none.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Where they are, as it was given.
    pub location: String,
    /// What the plan's nodes counted for the data-quality ledger: `counter: reason`, and how often. Zeros are
    /// left out.
    pub counts: BTreeMap<String, u64>,
}

impl Dataset {
    /// Writes a folder of Parquet files, by path or URL. Schema metadata are kept.
    ///
    /// # Errors
    /// A target that is taken or cannot be written, a fault in the chain, a partition that fails; then nothing
    /// is left behind.
    pub async fn write_parquet(&self, location: &str) -> Result<WriteSummary> {
        self.write_parquet_with(location, &WriteOptions::default()).await
    }

    /// As [`Dataset::write_parquet`], with options.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub async fn write_parquet_with(&self, location: &str, options: &WriteOptions) -> Result<WriteSummary> {
        // The plan is checked before the target is touched.
        let run = Run::of(self).await?;
        let target = Target::open(self.engine(), location, options.overwrite).await?;
        match write_partitions(&run, &target, options).await {
            Ok(summary) => {
                target.publish().await?;
                let counts = run.counts();
                Ok(WriteSummary { location: location.to_owned(), counts, ..summary })
            }
            Err(e) => {
                target.abandon().await;
                Err(e)
            }
        }
    }
}

async fn write_partitions(run: &Run, target: &Target, options: &WriteOptions) -> Result<WriteSummary> {
    let properties = properties(&run.schema(), options)?;
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let write = |partition, rows: SendableRecordBatchStream| {
        let file = File {
            store: Arc::clone(target.store()),
            path: target.part(partition),
            schema: rows.schema(),
            properties: properties.clone(),
            row_group_bytes: options.row_group_bytes.max(1),
        };
        async move { file.write_all(rows).await }
    };
    let mut written = run.for_each(at_once, write).await?;
    if written.iter().all(Option::is_none) {
        // A table without rows is still a table: its columns can be read.
        let file = File {
            store: Arc::clone(target.store()),
            path: target.part(0),
            schema: run.schema(),
            properties,
            row_group_bytes: options.row_group_bytes.max(1),
        };
        written.push(Some(file.write_empty().await?));
    }
    let whole = written.into_iter().flatten().fold(WriteSummary::default(), |sum, (rows, bytes)| {
        WriteSummary { rows: sum.rows + rows, files: sum.files + 1, bytes: sum.bytes + bytes, ..sum }
    });
    Ok(whole)
}

/// One file to be.
struct File {
    store: Arc<dyn ObjectStore>,
    path: object_store::path::Path,
    schema: SchemaRef,
    properties: WriterProperties,
    row_group_bytes: usize,
}

type Writer = AsyncArrowWriter<BufWriter>;

impl File {
    fn open(&self) -> Result<Writer> {
        let sink = BufWriter::new(Arc::clone(&self.store), self.path.clone());
        AsyncArrowWriter::try_new(sink, Arc::clone(&self.schema), Some(self.properties.clone()))
            .map_err(|e| self.failure(&e))
    }

    /// Rows and bytes, or nothing where there are no rows.
    async fn write_all(self, mut rows: SendableRecordBatchStream) -> Result<Option<(usize, u64)>> {
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

    async fn write_empty(&self) -> Result<(usize, u64)> {
        Ok((0, self.finish(self.open()?).await?))
    }

    async fn finish(&self, mut writer: Writer) -> Result<u64> {
        writer.finish().await.map_err(|e| self.failure(&e))?;
        Ok(writer.bytes_written() as u64)
    }

    fn failure(&self, error: &ParquetError) -> Error {
        DataFusionError::Execution(format!("writing {}: {error}", self.path)).into()
    }
}

/// Floats are all different: a dictionary of them only costs time, as statistics of list items do.
fn properties(schema: &Schema, options: &WriteOptions) -> Result<WriterProperties> {
    let compression = match options.compression_level {
        0 => Compression::UNCOMPRESSED,
        level => Compression::ZSTD(ZstdLevel::try_new(level).map_err(|e| Error::plan("write_parquet", e))?),
    };
    let mut properties = WriterProperties::builder().set_compression(compression);
    let parquet = ArrowSchemaConverter::new().convert(schema).map_err(|e| Error::plan("write_parquet", e))?;
    for column in parquet.columns() {
        if matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE) {
            properties = properties.set_column_dictionary_enabled(column.path().clone(), false);
            if column.max_rep_level() > 0 {
                let none = EnabledStatistics::None;
                properties = properties.set_column_statistics_enabled(column.path().clone(), none);
            }
        }
    }
    Ok(properties.build())
}
