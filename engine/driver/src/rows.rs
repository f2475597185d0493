//! Rows for people: a table on the terminal, a few rows of many.

use crate::Result;
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
    error::ArrowError,
    util::{
        display::{ArrayFormatter, FormatOptions},
        pretty::pretty_format_batches,
    },
};
use datafusion::{error::DataFusionError, logical_expr::LogicalPlan};
use std::sync::Arc;
use voxelflow_dataset::Dataset;

/// Values of a list that are shown.
const LIST_SHOWN: usize = 3;

/// Prints up to `shown` rows to stdout and gives the number printed; more are neither computed nor held.
///
/// # Errors
/// A plan that fails.
pub async fn print_rows(rows: &Dataset, shown: usize) -> Result<u64> {
    // What tells of a plan stands at its top only.
    let whole = shown == usize::MAX
        || matches!(rows.logical_plan()?, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    let batches = if whole { rows.collect().await? } else { rows.take(shown + 1).await? };
    let total: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut left = shown;
    let mut kept = Vec::new();
    for batch in &batches {
        let batch = batch.slice(0, batch.num_rows().min(left));
        left -= batch.num_rows();
        kept.push(short_lists(&batch).map_err(DataFusionError::from)?);
    }
    if !kept.is_empty() {
        say!("{}", pretty_format_batches(&kept).map_err(DataFusionError::from)?);
    }
    if total > shown {
        say!("… the first {shown} rows; `voxelflow sql` with --format csv, json or parquet gives all");
    }
    Ok(total.min(shown) as u64)
}

/// Lists as `[0.12, -1.3, 0.5, … 284 values]`: a series of hundreds of numbers is no table cell.
fn short_lists(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    let shown: Result<Vec<(Field, ArrayRef)>, ArrowError> = columns
        .map(|(field, column)| match column.data_type() {
            DataType::FixedSizeList(..) => {
                Ok((Field::new(field.name(), DataType::Utf8, true), list_text(column)? as ArrayRef))
            }
            _ => Ok((field.as_ref().clone(), Arc::clone(column))),
        })
        .collect();
    let (fields, columns): (Vec<_>, Vec<_>) = shown?.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn list_text(column: &ArrayRef) -> Result<Arc<StringArray>, ArrowError> {
    let list = column.as_fixed_size_list();
    let length = list.value_length() as usize;
    let options = FormatOptions::default();
    let mut texts = Vec::with_capacity(list.len());
    for row in 0..list.len() {
        if list.is_null(row) {
            texts.push(None);
            continue;
        }
        let values = list.value(row);
        let formatter = ArrayFormatter::try_new(values.as_ref(), &options)?;
        let first: Vec<String> =
            (0..length.min(LIST_SHOWN)).map(|i| formatter.value(i).to_string()).collect();
        let rest = if length > LIST_SHOWN { format!(", … {length} values") } else { String::new() };
        texts.push(Some(format!("[{}{rest}]", first.join(", "))));
    }
    Ok(Arc::new(StringArray::from(texts)))
}
