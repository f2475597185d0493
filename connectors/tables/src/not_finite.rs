//! NaN and infinity in series as they are read: kept, and told to the data-quality ledger.

use arrow::array::{ArrowPrimitiveType, AsArray, FixedSizeListArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::error::Result as PlanResult;
use voxelflow_dataset::{Finding, LedgerNotes};
use voxelflow_stage::SERIES_COLUMN;

/// Notes the rows of `batch` whose series hold NaN or infinity.
pub(crate) fn note_not_finite(notes: &LedgerNotes, batch: &RecordBatch) -> PlanResult<()> {
    let series = batch.column_by_name(SERIES_COLUMN).and_then(|column| column.as_fixed_size_list_opt());
    let Some(series) = series else { return Ok(()) };
    let rows = match series.value_type() {
        DataType::Float32 => rows_of::<Float32Type>(series),
        DataType::Float64 => rows_of::<Float64Type>(series),
        _ => Vec::new(),
    };
    Ok(notes.note_rows(batch, &rows, Finding::NotFinite, "NaN or infinity in the file: read as it is")?)
}

fn rows_of<N: ArrowPrimitiveType>(series: &FixedSizeListArray) -> Vec<usize>
where
    N::Native: Into<f64>,
{
    let Some(values) = series.values().as_primitive_opt::<N>() else { return Vec::new() };
    let points = usize::try_from(series.value_length()).unwrap_or_default().max(1);
    let is_broken = |series: &[N::Native]| !series.iter().all(|x| (*x).into().is_finite());
    let rows = values.values().chunks_exact(points).enumerate();
    rows.filter(|(_, series)| is_broken(series)).map(|(row, _)| row).collect()
}
