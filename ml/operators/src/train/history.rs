//! What `TRAIN MODEL` yields: one row for each epoch.

use super::gang::Outcome;
use crate::train::{Statistics, TrainJob};
use arrow::{
    array::{ArrayRef, Float64Array, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{DFSchema, DFSchemaRef},
    error::Result,
};
use std::sync::Arc;

/// Columns of the history.
pub(super) fn arrow_schema() -> SchemaRef {
    let count = |name: &str| Field::new(name, DataType::UInt64, false);
    let number = |name: &str| Field::new(name, DataType::Float64, false);
    Arc::new(Schema::new(vec![
        Field::new("model", DataType::Utf8, false),
        count("epoch"),
        count("samples"),
        number("loss"),
        Field::new("validation_loss", DataType::Float64, true),
        number("seconds"),
        number("initial_loss"),
        count("rows"),
        count("validation_rows"),
        count("ranks"),
        count("ranks_at_end"),
        count("parameters"),
        Field::new("folder", DataType::Utf8, false),
    ]))
}

pub(super) fn schema() -> Result<DFSchemaRef> {
    Ok(Arc::new(DFSchema::try_from(arrow_schema())?))
}

/// The rows of a training that is done.
pub(super) fn batch(job: &TrainJob, statistics: &Statistics, outcome: &Outcome) -> Result<RecordBatch> {
    let history = &outcome.history;
    let epochs = &history.epochs;
    let n = epochs.len();
    let count = |value: usize| Arc::new(UInt64Array::from_value(value as u64, n)) as ArrayRef;
    let text =
        |value: &str| Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, n))) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        text(&job.model),
        Arc::new(UInt64Array::from_iter_values(epochs.iter().map(|e| e.epoch))),
        Arc::new(UInt64Array::from_iter_values(epochs.iter().map(|e| e.samples))),
        Arc::new(Float64Array::from_iter_values(epochs.iter().map(|e| e.loss))),
        Arc::new(Float64Array::from_iter(epochs.iter().map(|e| e.validation_loss))),
        Arc::new(Float64Array::from_iter_values(epochs.iter().map(|e| e.seconds))),
        Arc::new(Float64Array::from_value(history.initial_loss, n)),
        count(statistics.rows),
        count(statistics.validation_rows),
        count(job.settings.ranks),
        count(outcome.ranks_at_end),
        count(job.parameters),
        text(&job.folder.display().to_string()),
    ];
    Ok(RecordBatch::try_new(arrow_schema(), columns)?)
}
