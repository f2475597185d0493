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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeNote {
    /// It ran.
    Ran,
    /// It ran, because its result was made by another build of the program, from the same inputs.
    RanAgain {
        /// First digits of the other build; empty where a version made it that did not write its build.
        build: String,
    },
    /// This build has run it before, from the same inputs.
    Unchanged,
    /// Another build has run it, from the same inputs, and the user keeps its result.
    Kept {
        /// First digits of the other build.
        build: String,
    },
}

impl OutcomeNote {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Self::Ran => "ran".into(),
            Self::RanAgain { build } => format!("ran again: made by {}", named(build)),
            Self::Unchanged => "unchanged".into(),
            Self::Kept { build } => format!("unchanged: made by {}", named(build)),
        }
    }

    /// Whether it ran now.
    pub fn ran(&self) -> bool {
        matches!(self, Self::Ran | Self::RanAgain { .. })
    }

    /// The other build that made its result, of those that tell.
    pub fn other_build(&self) -> Option<&str> {
        match self {
            Self::RanAgain { build } | Self::Kept { build } => Some(build),
            Self::Ran | Self::Unchanged => None,
        }
    }
}

fn named(build: &str) -> String {
    if build.is_empty() { "an earlier version".into() } else { format!("build {build}") }
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
    if let (true, Some([end, asked])) = (outcome.note.ran(), outcome.record.ranks) {
        return format!("{}; {end} of {asked} ranks to the end", outcome.note.text());
    }
    match (&outcome.note, outcome.record.taken_over) {
        (OutcomeNote::Ran, 1) => "ran, but for 1 run finished before".into(),
        (OutcomeNote::Ran, n @ 2..) => format!("ran, but for {n} runs finished before"),
        (note, _) => note.text(),
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
