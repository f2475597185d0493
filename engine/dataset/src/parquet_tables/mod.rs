//! Tables over files, as other tools write them: Spark, Hive, pandas, polars, DuckDB, dask.
//!
//! ```text
//!   's3://lab/runs/*.parquet' ─► locations  files on disk and in stores alike, hidden ones left out (visible)
//!   runs/subject=01/…         ─► partitions names of folders become columns
//!   files of several types    ─► merge      int32 and int64 are int64; what does not go together is told by file
//! ```

mod format;
mod locations;
mod merge;
mod partitions;
mod tables;
mod visible;

pub(crate) use format::MergedParquetFactory;
pub use tables::with_tables_by_location;
pub(crate) use tables::{FileTables, open_parquet};
pub(crate) use visible::VisibleFiles;
