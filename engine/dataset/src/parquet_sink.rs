//! Writing Parquet: one file per partition, row groups bounded in bytes, nothing half-written to be seen.
//!
//! ```text
//!   partition 0 ─► part-00000.parquet ─┐
//!   partition 1 ─► part-00001.parquet ─┤  <parent>/.<name>.partial-…/rows   ── rename ─►  <target>
//!       …                              ┘  (local; object stores show an object when it is whole)
//! ```
//!
//! A local write that is killed leaves its finished partitions, and the next one of the same rows goes on with them
//! (see `staging`). That needs partitions that stand by themselves (see `partition_wise`), as those of images do.

use crate::{
    Dataset, Ledger,
    error::Result,
    functions::Accumulators,
    nodes::{ParquetFiles, UnaryExec, write_empty},
    partition_wise::is_partition_wise,
    partitions::Run,
    plan_identity::PlanIdentity,
    target::Target,
};
use arrow::{array::AsArray, datatypes::UInt64Type, record_batch::RecordBatch};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// How Parquet is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Replace what is there; otherwise a target with something in it is refused.
    pub overwrite: bool,
    /// Go on with the partitions that a write of the same rows to the same local folder has finished before it was
    /// killed; otherwise they are removed.
    pub take_over: bool,
    /// Bytes that a row group may take in memory before it is written out. Bounds the memory of a writer.
    pub row_group_bytes: usize,
    /// Level of zstd, 1 to 22; 0: not compressed.
    pub compression_level: i32,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { overwrite: false, take_over: true, row_group_bytes: 64 << 20, compression_level: 1 }
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
    /// Partitions that an earlier write had finished before it was killed.
    pub taken_over: usize,
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
    /// A target that is taken, that another process writes, or that cannot be written; a fault in the chain, a
    /// partition that fails; then nothing is left behind.
    pub async fn write_parquet(&self, location: &str) -> Result<WriteSummary> {
        self.write_parquet_with(location, &WriteOptions::default()).await
    }

    /// As [`Dataset::write_parquet`], with options.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub async fn write_parquet_with(&self, location: &str, options: &WriteOptions) -> Result<WriteSummary> {
        self.write_counted(location, options, None).await
    }

    /// As [`Dataset::write_parquet_with`]; with `sums`, the session learns nothing of what is counted.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub(crate) async fn write_counted(
        &self,
        location: &str,
        options: &WriteOptions,
        sums: Option<&Arc<Accumulators>>,
    ) -> Result<WriteSummary> {
        // The plan is checked before the target is touched.
        let run = Run::of(self).await?.counted_apart(sums);
        let key = if options.take_over { self.write_key(&run, options).await? } else { None };
        let target = Target::open(self.engine(), location, options.overwrite, key).await?;
        let metadata = self.engine().planner().metadata_of(self.logical_plan()?);
        match write_partitions(run, &target, options, metadata).await {
            Ok((summary, files)) => {
                target.publish(files).await?;
                Ok(WriteSummary { location: location.to_owned(), ..summary })
            }
            Err(e) => {
                target.abandon().await;
                Err(e)
            }
        }
    }
}

impl Dataset {
    /// What is written, by content: equal keys, equal files. None where partitions depend on one another, or on this
    /// session.
    async fn write_key(&self, run: &Run, options: &WriteOptions) -> Result<Option<String>> {
        if !is_partition_wise(run.plan().as_ref()) {
            return Ok(None);
        }
        let identity = PlanIdentity::of(self.engine(), self.logical_plan()?).await?;
        let WriteOptions { row_group_bytes, compression_level, .. } = options;
        let batch_size = self.engine().context().state().config().batch_size();
        let text = format!(
            "{} {} {row_group_bytes} {compression_level} {batch_size}",
            identity.key,
            run.partitions()
        );
        let key = blake3::hash(text.as_bytes()).to_hex();
        Ok((!identity.bound).then(|| key[..16].to_owned()))
    }
}

/// Writes all partitions. Gives what was written, and the names of its files.
async fn write_partitions(
    run: Run,
    target: &Target,
    options: &WriteOptions,
    metadata: HashMap<String, String>,
) -> Result<(WriteSummary, BTreeSet<String>)> {
    let files = ParquetFiles {
        metadata: metadata.into_iter().collect(),
        row_group_bytes: options.row_group_bytes,
        compression_level: options.compression_level,
        ..target.files()
    };
    let schema = run.schema();
    let run = run.under(|rows| Ok(Arc::new(UnaryExec::try_new(files.clone(), rows)?)))?;
    let (written, ledger) = run.collect_at_once(run.at_once()).await?;
    let mut summary = WriteSummary { ledger, ..WriteSummary::default() };
    let mut names = BTreeSet::new();
    for batch in written.iter().flatten() {
        let column = batch.columns().first().and_then(|column| column.as_string_opt::<i32>());
        names.extend(column.into_iter().flatten().flatten().map(str::to_owned));
        let [rows, bytes, taken_over] = sums(batch);
        summary.rows += rows as usize;
        summary.bytes += bytes;
        summary.taken_over += taken_over as usize;
    }
    if names.is_empty() {
        // A table without rows is still a table: its columns can be read.
        let (name, bytes) = write_empty(&files, target.store(), &schema).await?;
        names.insert(name);
        summary.bytes = bytes;
    }
    summary.files = names.len();
    Ok((summary, names))
}

/// Rows and bytes of what partitions say that they have written, and how many were taken over.
fn sums(batch: &RecordBatch) -> [u64; 3] {
    [1, 2, 3].map(|column| {
        let numbers = batch.columns().get(column).and_then(|c| c.as_primitive_opt::<UInt64Type>());
        numbers.map_or(0, |numbers| numbers.iter().flatten().sum())
    })
}
