//! The ledger of the statements so far, as the report shows it.

use crate::{Result, Session};
use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Int64Type,
    util::display::array_value_to_string,
};
use datafusion::error::DataFusionError;
use voxelflow_report::LedgerRow;
use voxelflow_stage::RunFiles;

const QUERY: &str = "SELECT subject, session, task, run, statement, what || ' ' || level, reason, places, count \
                     FROM ledger ORDER BY statement, subject, session, task, run, what, level, reason";

/// Its rows.
pub(super) async fn rows(session: &Session) -> Result<Vec<LedgerRow>> {
    let batches = session.sql(QUERY).await?.collect().await?;
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| ledger_row(batch, row))).collect()
}

fn ledger_row(batch: &RecordBatch, row: usize) -> Result<LedgerRow> {
    // A null is an empty text.
    let text =
        |column: usize| array_value_to_string(batch.column(column), row).map_err(DataFusionError::from);
    let key = |column| text(column).map(|value| Some(value).filter(|value| !value.is_empty()));
    let keys = [key(0)?, key(1)?, key(2)?, key(3)?];
    let run = match keys.iter().any(Option::is_some) {
        true => RunFiles { keys, ..RunFiles::default() }.label(),
        false => String::new(),
    };
    let counts = batch.column(8).as_primitive_opt::<Int64Type>();
    let count = counts.and_then(|counts| u64::try_from(counts.value(row)).ok()).unwrap_or_default();
    Ok(LedgerRow { statement: text(4)?, run, what: text(5)?, reason: text(6)?, places: text(7)?, count })
}
