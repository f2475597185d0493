//! The ledger as a table: one row an entry.

use super::{Ledger, LedgerEntry, RUN_KEYS};
use crate::error::Result;
use arrow::{
    array::{ArrayRef, Int64Array, Int64Builder, ListBuilder, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::error::DataFusionError;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use std::sync::{Arc, LazyLock};

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let mut fields = vec![text("statement", false)];
    fields.extend(RUN_KEYS.map(|key| text(key, true)));
    fields.extend(["level", "what", "reason"].map(|name| text(name, false)));
    fields.push(Field::new("count", DataType::Int64, false));
    fields.push(text("places", true));
    fields.push(Field::new("indices", DataType::new_list(DataType::Int64, true), true));
    Arc::new(Schema::new(fields))
});

/// Columns of the table: `statement` (what made the entry, `table series`), `subject`, `session`, `task`, `run` (null
/// where unknown), `level`, `what`, `reason`, `count`, `places` (the first as text: `0-3,17`, or names) and `indices`
/// (the lowest [`LISTED`](super::LISTED) volumes or voxels, ascending; null where there are none).
pub fn ledger_schema() -> SchemaRef {
    Arc::clone(&SCHEMA)
}

fn batch(ledger: &Ledger, statement: &str) -> Result<RecordBatch> {
    let text = |of: &dyn Fn(&LedgerEntry) -> Option<String>| -> ArrayRef {
        Arc::new(ledger.iter().map(of).collect::<StringArray>())
    };
    let mut columns = vec![text(&|_| Some(statement.to_owned()))];
    // A run that lacks a key has the empty text, as in other tables; what is about no run has null.
    let key = |entry: &LedgerEntry, key: usize| {
        let run = entry.run();
        run.iter().any(Option::is_some).then(|| run[key].clone().unwrap_or_default())
    };
    columns.extend((0..RUN_KEYS.len()).map(|at| text(&move |entry| key(entry, at))));
    columns.push(text(&|entry| Some(entry.level().name().into())));
    columns.push(text(&|entry| Some(entry.what().name().into())));
    columns.push(text(&|entry| Some(entry.reason().into())));
    let counts = ledger.iter().map(|entry| i64::try_from(entry.count()).unwrap_or(i64::MAX));
    columns.push(Arc::new(counts.collect::<Int64Array>()));
    columns.push(text(&|entry| entry.places().text(entry.count())));
    let mut indices = ListBuilder::new(Int64Builder::new());
    for entry in ledger.iter() {
        let listed = entry.places().indices();
        for index in listed.iter().flat_map(|listed| listed.iter()) {
            indices.values().append_value(i64::try_from(index).unwrap_or(i64::MAX));
        }
        indices.append(listed.is_some());
    }
    columns.push(Arc::new(indices.finish()));
    Ok(RecordBatch::try_new(ledger_schema(), columns).map_err(DataFusionError::from)?)
}

pub(super) fn to_parquet(ledger: &Ledger, statement: &str) -> Result<Vec<u8>> {
    let batch = batch(ledger, statement)?;
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut file = Vec::new();
    let written = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties))
        .and_then(|mut writer| writer.write(&batch).and_then(|()| writer.close()));
    written.map_err(DataFusionError::from)?;
    Ok(file)
}
