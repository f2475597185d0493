//! Writes the series of every partition to a file of their own, and passes on what orders and names them.
//!
//! ```text
//!   partition: subject … voxel, series  ─►  part-<number>.f32   [rows, time points], little-endian, whole or absent
//!                                       └►  subject … voxel, part, row, points, sum, squares, digest
//! ```
//! Where runs are of several lengths, rows of shorter ones end in NaN.
//! The series do not travel to the driver: only what it needs to put the rows in order and to describe them does.

use super::{
    row_facts::RowFacts,
    storage::{FileWriter, Storage, unique},
};
use crate::{
    Error,
    series_column::{is_ragged, padded, series_length, values_of},
    train::row_order::Keys,
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, UInt32Array,
        UInt64Array,
    },
    datatypes::{DataType, Field, Float32Type, Schema, SchemaRef},
};
use datafusion::{
    common::{DataFusionError, internal_err},
    error::Result,
    execution::SendableRecordBatchStream,
    physical_plan::stream::RecordBatchStreamAdapter,
};
use futures::{TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use voxelflow_dataset::{
    NodeCodec,
    nodes::unary::{self, UnaryExec, UnaryOperator, UnaryTask},
};
use voxelflow_stage::KEY_COLUMNS;

const NAME: &str = "SpoolPartsExec";
/// Key columns that order rows: subject, session, task, run, space and voxel.
const ORDERING: &[&str] = KEY_COLUMNS.split_at(6).0;
/// Bytes that are looked at, then written, while they are in the processor's cache.
const PIECE: usize = 128 << 10;

/// Columns that [`SpoolPartsExec`] adds to those of the keys.
pub(super) const PART: &str = "spool_part";
pub(super) const ROW: &str = "spool_row";
pub(super) const POINTS: &str = "spool_points";
pub(super) const SUM: &str = "spool_sum";
pub(super) const SQUARES: &str = "spool_squares";
pub(super) const DIGEST: &str = "spool_digest";

/// What is spooled, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Spooling {
    /// The folder, a path or URL.
    pub folder: String,
    /// Name of the column of series.
    pub column: String,
    /// Points of every series, or of the longest.
    pub time_points: usize,
    /// Whether series may be null or not finite; null becomes NaN.
    #[serde(default)]
    pub not_finite: bool,
}

/// The name of a part's file.
pub(super) fn part_file(part: u64) -> String {
    format!("part-{part:016x}.f32")
}

/// Spools the rows of its input; yields one row for each, without the series.
pub(super) type SpoolPartsExec = UnaryExec<Spooling>;

/// The key columns that there are, and the columns of the spool.
fn schema(input: &SchemaRef) -> SchemaRef {
    let keys = ORDERING.iter().filter_map(|name| Some(input.column_with_name(name)?.1.clone()));
    let added = [
        Field::new(PART, DataType::UInt64, false),
        Field::new(ROW, DataType::UInt32, false),
        Field::new(POINTS, DataType::UInt32, false),
        Field::new(SUM, DataType::Float64, false),
        Field::new(SQUARES, DataType::Float64, false),
        Field::new(DIGEST, DataType::UInt64, false),
    ];
    Arc::new(Schema::new(keys.chain(added).collect::<Vec<_>>()))
}

impl UnaryOperator for Spooling {
    const NAME: &'static str = NAME;

    fn check(&self, input: &SchemaRef) -> Result<()> {
        let found = input.field_with_name(&self.column)?.data_type();
        if is_ragged(found) || series_length(found) == Some(self.time_points) {
            return Ok(());
        }
        Err(DataFusionError::Plan(format!("{NAME} was received with other columns than it was sent")))
    }

    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        schema(input)
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.column, self.time_points)
    }

    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let part = Part {
            storage: Storage::open(&self.folder, &task.context)?,
            spooling: self.clone(),
            schema: Arc::clone(&task.schema),
            number: unique(),
            rows: 0,
            file: None,
        };
        let rows = stream::try_unfold((part, task.rows), |(mut part, mut input)| async move {
            while let Some(batch) = input.try_next().await? {
                if batch.num_rows() > 0 {
                    return Ok(Some((part.write(&batch).await?, (part, input))));
                }
            }
            part.finish().await.map(|()| None)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, rows)))
    }
}

/// The file of one partition, made when its first row comes.
struct Part {
    storage: Storage,
    spooling: Spooling,
    schema: SchemaRef,
    /// Not the partition's: a task that is run twice writes two files, and its rows tell which is theirs.
    number: u64,
    rows: usize,
    file: Option<FileWriter>,
}

impl Part {
    async fn write(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let Spooling { column, time_points, .. } = &self.spooling;
        let Some(array) = batch.column_by_name(column) else {
            return internal_err!("{NAME} has no column `{column}`");
        };
        let (mut lists, lengths) = padded(array, *time_points)?;
        if lists.null_count() > 0 || lists.values().null_count() > 0 {
            if !self.spooling.not_finite {
                return Err(self.refused(batch, &lists));
            }
            lists = with_nan(&lists, *time_points)?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.storage.create(&part_file(self.number))?),
        };
        let values = lists.values().as_primitive::<Float32Type>().values();
        let bytes = values.inner().as_slice();
        let rows_of_a_piece = (PIECE / (4 * time_points)).max(1);
        let mut facts = Facts::with_capacity(lists.len());
        let bytes = bytes.chunks(rows_of_a_piece * time_points * size_of::<f32>());
        let pieces = values.chunks(rows_of_a_piece * time_points).zip(lengths.chunks(rows_of_a_piece));
        for ((values, lengths), bytes) in pieces.zip(bytes) {
            for (row, length) in values.chunks_exact(*time_points).zip(lengths) {
                let facts_of = RowFacts::of(&row[..*length as usize]);
                if !facts.push(facts_of) && !self.spooling.not_finite {
                    return Err(self.refused(batch, &lists));
                }
            }
            file.write(bytes).await?;
        }
        let first = self.rows;
        self.rows += lists.len();
        self.describe(batch, first, lengths, facts)
    }

    /// The rows that stand for those of `batch`, which lie in the part from `first` on.
    fn describe(
        &self,
        batch: &RecordBatch,
        first: usize,
        points: Vec<u32>,
        facts: Facts,
    ) -> Result<RecordBatch> {
        let n = batch.num_rows();
        let Ok(end) = u32::try_from(first + n) else {
            let reason = "a partition holds more than 4,294,967,295 rows: spread them over more partitions";
            return Err(DataFusionError::Execution(reason.into()));
        };
        let keys = ORDERING.iter().filter_map(|name| batch.column_by_name(name).cloned());
        let added: [ArrayRef; 6] = [
            Arc::new(UInt64Array::from_value(self.number, n)),
            Arc::new(UInt32Array::from_iter_values(first as u32..end)),
            Arc::new(UInt32Array::from(points)),
            Arc::new(Float64Array::from(facts.sums)),
            Arc::new(Float64Array::from(facts.squares)),
            Arc::new(UInt64Array::from(facts.digests)),
        ];
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), keys.chain(added).collect())?)
    }

    /// The first row of `batch` that cannot be learned from.
    fn refused(&self, batch: &RecordBatch, lists: &FixedSizeListArray) -> DataFusionError {
        let Some((row, reason)) = first_unusable(lists, self.spooling.time_points) else {
            return DataFusionError::Internal("a series was refused without a reason".into());
        };
        match Keys::of(batch) {
            Ok(keys) => {
                let row = keys.describe(row, &format!("row {}", self.rows + row));
                Error::Series { column: self.spooling.column.clone(), row, reason }.into()
            }
            Err(e) => e.into(),
        }
    }

    async fn finish(self) -> Result<()> {
        match self.file {
            Some(file) => Ok(file.finish().await?),
            None => Ok(()),
        }
    }
}

/// The same lists with NaN for null.
fn with_nan(lists: &FixedSizeListArray, time_points: usize) -> Result<FixedSizeListArray> {
    let values = lists.values().as_primitive::<Float32Type>();
    let value = |at: usize| match lists.is_valid(at / time_points) && values.is_valid(at) {
        true => values.value(at),
        false => f32::NAN,
    };
    let values: Float32Array = (0..values.len()).map(value).collect::<Vec<f32>>().into();
    let DataType::FixedSizeList(item, length) = lists.data_type() else {
        return internal_err!("{NAME} has lists of several lengths");
    };
    Ok(FixedSizeListArray::try_new(Arc::clone(item), *length, Arc::new(values), None)?)
}

/// Columns of [`RowFacts`].
struct Facts {
    sums: Vec<f64>,
    squares: Vec<f64>,
    digests: Vec<u64>,
}

impl Facts {
    fn with_capacity(n: usize) -> Self {
        Self { sums: Vec::with_capacity(n), squares: Vec::with_capacity(n), digests: Vec::with_capacity(n) }
    }

    /// Whether the row can be learned from.
    fn push(&mut self, facts: RowFacts) -> bool {
        self.sums.push(facts.sum);
        self.squares.push(facts.squares);
        self.digests.push(facts.digest);
        facts.is_finite()
    }
}

/// The first row that cannot be learned from, and why.
fn first_unusable(lists: &FixedSizeListArray, time_points: usize) -> Option<(usize, String)> {
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

inventory::submit! {
    NodeCodec { name: NAME, encode: unary::encode::<Spooling>, decode: unary::decode::<Spooling> }
}
