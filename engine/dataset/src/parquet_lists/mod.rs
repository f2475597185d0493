//! Reads lists of one length from Parquet as fast as memory allows.
//!
//! Parquet keeps two levels for every value of a list, which the `parquet` crate decodes one by one: that costs more
//! than the values themselves. Where a page holds nothing but lists of the expected length without nulls, its levels
//! are compared run by run and its values are copied as they lie there.
//!
//! ```text
//!   ParquetListsExec: series
//!     DataSourceExec (Parquet)      the scan as it was planned
//!
//!   per file    other columns ──► DataFusion's reader ──┐
//!               list columns ───► ListChunk ────────────┴─► rows
//!                                   └ not regular: the scan as it was planned, from this row on
//! ```
//! The rows are those of the scan, in its order. A filter is DataFusion's, with what it knows of row groups and pages:
//! the other columns say then which rows are left. Scans with a limit or an order are left as they are.

mod column;
mod file;
mod levels;
mod pages;
mod row_groups;
mod rule;
mod scan;
#[cfg(test)]
mod tests;
mod window;
#[cfg(test)]
mod written_files;

pub(crate) use rule::ReadListsFast;

use crate::{
    NodeCodec,
    nodes::unary::{self, UnaryOperator, UnaryTask},
};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::{error::Result, execution::SendableRecordBatchStream};
use scan::ListScan;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Settings of `ParquetListsExec`: none, for what is read is said by the scan below it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ParquetLists {
    /// The list columns that it can read, for those who look at the plan.
    columns: Vec<String>,
}

impl UnaryOperator for ParquetLists {
    const NAME: &'static str = "ParquetListsExec";

    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        Arc::clone(input)
    }

    fn keeps_rows(&self) -> bool {
        true
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.columns.join(", "))
    }

    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        // All partitions of a scan are read here or none: those that DataFusion reads take files from each other.
        match ListScan::of(task.input.as_ref())? {
            Some(scan) => scan.rows(task),
            None => Ok(task.rows),
        }
    }
}

inventory::submit! {
    NodeCodec {
        name: ParquetLists::NAME,
        encode: unary::encode::<ParquetLists>,
        decode: unary::decode::<ParquetLists>,
    }
}

/// The length of `FixedSizeList<Float32>`.
fn length_of(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(item, n) if *item.data_type() == DataType::Float32 => {
            usize::try_from(*n).ok().filter(|n| *n > 0)
        }
        _ => None,
    }
}
