//! What a run ends with: one line a statement.

use super::StatementRecord;
use crate::Result;
use arrow::{
    array::{ArrayRef, RecordBatch, StringArray},
    util::pretty::pretty_format_batches,
};
use std::sync::Arc;

/// What became of one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The statement's first words.
    pub title: String,
    /// Ran or not.
    pub note: OutcomeNote,
    /// Its record.
    pub record: StatementRecord,
}

/// Whether a statement ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeNote {
    /// It ran.
    Ran,
    /// It had been run before, from the same inputs.
    Unchanged,
}

impl OutcomeNote {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Unchanged => "unchanged",
        }
    }
}

/// The closing table: statement, rows, loss before and after, what was written, seconds.
///
/// # Errors
/// Never for columns of equal length.
pub fn summary_table(outcomes: &[Outcome]) -> Result<String> {
    let column = |cell: fn(&Outcome) -> String| -> ArrayRef {
        Arc::new(outcomes.iter().map(|o| Some(cell(o))).collect::<StringArray>())
    };
    let batch = RecordBatch::try_from_iter([
        ("statement", column(|o| o.title.clone())),
        ("", column(note)),
        ("rows", column(|o| o.record.rows.map(|r| r.to_string()).unwrap_or_default())),
        ("loss before → after", column(loss)),
        ("written", column(written)),
        ("seconds", column(|o| format!("{:.2}", o.record.seconds))),
    ]);
    let table = batch.and_then(|b| pretty_format_batches(&[b]));
    Ok(table.map_err(datafusion::error::DataFusionError::from)?.to_string())
}

fn note(outcome: &Outcome) -> String {
    match (outcome.note, outcome.record.taken_over) {
        (OutcomeNote::Ran, 1) => "ran, but for 1 run finished before".into(),
        (OutcomeNote::Ran, n @ 2..) => format!("ran, but for {n} runs finished before"),
        (note, _) => note.text().into(),
    }
}

fn loss(outcome: &Outcome) -> String {
    outcome.record.loss.map(|[before, after]| format!("{before:.3} → {after:.3}")).unwrap_or_default()
}

fn written(outcome: &Outcome) -> String {
    let files = &outcome.record.files;
    match files.as_slice() {
        [] => String::new(),
        [one] => format!("{} ({})", one.path.display(), bytes(one.bytes)),
        [first, rest @ ..] => {
            let total = files.iter().map(|f| f.bytes).sum();
            format!("{} and {} more ({})", first.path.display(), rest.len(), bytes(total))
        }
    }
}

fn bytes(n: u64) -> String {
    indicatif::HumanBytes(n).to_string()
}
