//! Writing Parquet: one file per partition, row groups bounded in bytes, nothing half-written to be seen.
//!
//! ```text
//!   partition 0 ─► part-00000.parquet ─┐
//!   partition 1 ─► part-00001.parquet ─┤  <parent>/.<name>.partial-…   ── rename ─►  <target>
//!       …                              ┘  (local; object stores show an object when it is whole)
//! ```

use crate::{
    Dataset, Ledger,
    error::Result,
    nodes::{ParquetFiles, UnaryExec, write_empty},
    partitions::Run,
    target::Target,
};
use arrow::{array::AsArray, datatypes::UInt64Type, record_batch::RecordBatch};
use std::sync::Arc;

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
    /// What the plan's nodes have for the data-quality ledger.
    pub ledger: Ledger,
}

impl Dataset {
    /// Writes a folder of Parquet files, by path or URL. Schema metadata are kept. Every partition is written where
    /// it is computed: on a cluster the target must be storage that all executors see.
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
        match write_partitions(run, &target, options).await {
            Ok(summary) => {
                target.publish().await?;
                Ok(WriteSummary { location: location.to_owned(), ..summary })
            }
            Err(e) => {
                target.abandon().await;
                Err(e)
            }
        }
    }
}

async fn write_partitions(run: Run, target: &Target, options: &WriteOptions) -> Result<WriteSummary> {
    let files = ParquetFiles {
        row_group_bytes: options.row_group_bytes,
        compression_level: options.compression_level,
        ..target.files()
    };
    let schema = run.schema();
    let run = run.under(|rows| Ok(Arc::new(UnaryExec::try_new(files.clone(), rows)?)))?;
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let (written, ledger) = run.collect_at_once(at_once).await?;
    let mut summary = WriteSummary { ledger, ..WriteSummary::default() };
    for batch in written.iter().flatten() {
        let [files, rows, bytes] = sums(batch);
        summary.files += files as usize;
        summary.rows += rows as usize;
        summary.bytes += bytes;
    }
    if summary.files == 0 {
        // A table without rows is still a table: its columns can be read.
        summary.bytes = write_empty(&files, target.store(), &schema).await?;
        summary.files = 1;
    }
    Ok(summary)
}

/// Files, rows and bytes of what partitions say that they have written.
fn sums(batch: &RecordBatch) -> [u64; 3] {
    [0, 1, 2].map(|column| {
        let numbers = batch.columns().get(column).and_then(|c| c.as_primitive_opt::<UInt64Type>());
        numbers.map_or(0, |numbers| numbers.iter().flatten().sum())
    })
}
