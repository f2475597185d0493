//! NaN and infinity in series as they are read: kept, and told to the data-quality ledger.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::error::Result as PlanResult;
use voxelflow_dataset::{Finding, LedgerNotes};
use voxelflow_stage::SERIES_COLUMN;

/// Notes the rows of `batch` whose series hold NaN or infinity.
pub(crate) fn note_not_finite(notes: &LedgerNotes, batch: &RecordBatch) -> PlanResult<()> {
    let Some((values, points)) = batch.column_by_name(SERIES_COLUMN).and_then(values_of) else {
        return Ok(());
    };
    let rows = match values.data_type() {
        DataType::Float32 => rows_of::<Float32Type>(&values, points),
        DataType::Float64 => rows_of::<Float64Type>(&values, points),
        _ => Vec::new(),
    };
    Ok(notes.note_rows(batch, &rows, Finding::NotFinite, "NaN or infinity in the file: read as it is")?)
}

/// The values below the series of a file, which are of one length, and that length.
fn values_of(series: &ArrayRef) -> Option<(ArrayRef, usize)> {
    let (values, points) = match series.data_type() {
        DataType::List(_) => {
            let lists = series.as_list::<i32>();
            (lists.values(), lists.len().checked_sub(1).map_or(0, |_| lists.value_length(0)))
        }
        _ => {
            let lists = series.as_fixed_size_list_opt()?;
            (lists.values(), lists.value_length())
        }
    };
    Some((ArrayRef::clone(values), usize::try_from(points).ok()?.max(1)))
}

fn rows_of<N: ArrowPrimitiveType>(values: &ArrayRef, points: usize) -> Vec<usize>
where
    N::Native: Into<f64>,
{
    let Some(values) = values.as_primitive_opt::<N>() else { return Vec::new() };
    let is_broken = |series: &[N::Native]| !series.iter().all(|x| (*x).into().is_finite());
    let rows = values.values().chunks_exact(points).enumerate();
    rows.filter(|(_, series)| is_broken(series)).map(|(row, _)| row).collect()
}
