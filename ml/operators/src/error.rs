//! What can go wrong when a stage becomes a plan, or when such a plan runs.

use crate::{FailureCause, RankFailure};
use datafusion::error::DataFusionError;
use voxelflow_dataset::{Finding, LedgerEntry, Level, RunKey, StageError};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a stage becomes a plan, or when such a plan runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or what a stage says about its data.
    #[error(transparent)]
    Stage(#[from] voxelflow_stage::Error),
    /// A setting of signal processing, or series that it cannot be applied to.
    #[error(transparent)]
    Signal(#[from] voxelflow_signal::Error),
    /// A column that is missing or of the wrong type.
    #[error("{operator} needs the column `{column}` of type {needed}, {found}; the columns are: {}", columns.join(", "))]
    Column {
        /// What needs the column.
        operator: &'static str,
        /// The column's name.
        column: &'static str,
        /// The type that it must have.
        needed: &'static str,
        /// What is there instead, and what to do.
        found: String,
        /// The columns that are there.
        columns: Vec<String>,
    },
    /// Confounds that are to be removed and cannot be.
    #[error("confounds of {run}: {reason}")]
    Confounds {
        /// The run.
        run: String,
        /// The values of its key columns.
        keys: Box<RunKey>,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Events that cannot be made a design.
    #[error("design of {run}: {reason}")]
    Design {
        /// The run.
        run: String,
        /// The values of its key columns.
        keys: Box<RunKey>,
        /// What is wrong (with file and line, where it is an event) and what to do.
        reason: String,
    },
    /// Several runs that cannot be cleaned.
    #[error("{}", faults_text(faults))]
    Runs {
        /// What is wrong with each, in the order of the runs.
        faults: Vec<Error>,
    },
    /// A setting of signal processing, or data that it cannot be applied to, of one run.
    #[error("{run}: {source}")]
    RunSignal {
        /// The run.
        run: String,
        /// The values of its key columns.
        keys: Box<RunKey>,
        /// What is wrong.
        source: voxelflow_signal::Error,
    },
    /// Series with NaN or infinity where that is an error.
    #[error(
        "{count} of {rows} series in a batch hold NaN or infinity, the first is that of {first}; \
         write not_finite => 'drop' to leave such rows out or not_finite => 'zero' to set their series to zero"
    )]
    NotFinite {
        /// The first such row, by its key columns.
        first: String,
        /// Such rows of the batch.
        count: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// A stage that nobody has.
    #[error("there is no stage `{stage}`{}; the stages are: {}", did_you_mean(nearest), valid.join(", "))]
    UnknownStage {
        /// The name as written.
        stage: String,
        /// The most similar stage.
        nearest: Option<String>,
        /// All stages.
        valid: Vec<String>,
    },
    /// A table operator that nobody has.
    #[error("there is no table operator `{operator}`{}; the operators are: {}", did_you_mean(nearest), valid.join(", "))]
    UnknownOperator {
        /// The name as written.
        operator: String,
        /// The most similar operator.
        nearest: Option<String>,
        /// All operators.
        valid: Vec<String>,
    },
    /// Rows that cannot be split as asked for.
    #[error("split: {reason}")]
    Split {
        /// What is wrong and what to do.
        reason: String,
    },
    /// Runs that cannot be joined.
    #[error("concatenate: {reason}")]
    Concatenate {
        /// The voxel and the run, what is wrong and what to do.
        reason: String,
    },
    /// `PER column` for a stage that fits one model to all rows.
    #[error("`{stage}` trains one model on all rows, not one for each {column}; leave PER out")]
    Per {
        /// The stage.
        stage: String,
        /// The column after `PER`.
        column: String,
    },
    /// Rows to validate on of another length than those to train on.
    #[error(
        "the rows to validate on have {found} time points, those to train on {expected}; take runs of equal length"
    )]
    ValidationLength {
        /// Their time points.
        found: usize,
        /// Time points of the rows to train on.
        expected: usize,
    },
    /// Nothing to train or to validate on.
    #[error(
        "there are no rows for model `{model}`; look at the query after {clause}, for example with SELECT count(*)"
    )]
    NoRows {
        /// The model.
        model: String,
        /// The clause that gives the rows: `ON` or `VALIDATE ON`.
        clause: &'static str,
    },
    /// A series that cannot be learned from.
    #[error(
        "column `{column}` of {row} {reason}; leave such rows out, for example with \
         FROM clean(table, not_finite => 'drop') or WHERE {column} IS NOT NULL"
    )]
    Series {
        /// The column of series.
        column: String,
        /// The row, by its key columns.
        row: String,
        /// What it holds.
        reason: String,
    },
    /// Subjects that are trained on and validated on.
    #[error(
        "in both the rows to train on and those to validate on: subject {}; split by subject, as in \
         split(table, by => 'subject', test => 0.2), or write subject_overlap => 'other_runs' (no run in both) or \
         'allow' if the validation loss may be that of subjects already seen",
        subjects.join(", ")
    )]
    SubjectOverlap {
        /// The subjects.
        subjects: Vec<String>,
    },
    /// Runs that are trained on and validated on.
    #[error(
        "in both the rows to train on and those to validate on: {}; split by run, as in \
         split(table, by => 'run', test => 0.2), or write subject_overlap => 'allow'",
        runs.join("; ")
    )]
    RunOverlap {
        /// The runs, by their key columns.
        runs: Vec<String>,
    },
    /// Series that are trained on and validated on.
    #[error(
        "{count} series are in both the rows to train on and those to validate on, the first is that of {first}; \
         split the rows, or write subject_overlap => 'allow' if the validation loss may be that of series already seen"
    )]
    SeriesOverlap {
        /// How many.
        count: usize,
        /// The first, by its key columns.
        first: String,
    },
    /// The same query for the rows to train on and for those to validate on.
    #[error(
        "the rows to validate on are the rows to train on; split them, as in split(table, by => 'subject', test => 0.2), or \
         write subject_overlap => 'allow' if the validation loss may be that of series already seen"
    )]
    SameRows,
    /// Series that are trained on, and validated on under the name of another run.
    #[error(
        "{count} series to validate on are series to train on under another name, value for value: that of {first} is that \
         of {other}; leave one of them out, or write subject_overlap => 'allow' if the validation loss may be that of series \
         already seen"
    )]
    RenamedSeries {
        /// How many.
        count: usize,
        /// The first to validate on, by its key columns.
        first: String,
        /// The same one to train on.
        other: String,
    },
    /// What is validated on was trained on by a model that rows went through.
    #[error(
        "the rows went through the model `{model}`, which was trained on what is to be validated on: {seen}; validate on \
         others, train `{model}` without them, or write subject_overlap => 'allow' if the validation loss may be that of \
         what was seen"
    )]
    UpstreamOverlap {
        /// The model.
        model: String,
        /// The subjects or runs.
        seen: String,
    },
    /// A rank that failed, or that panicked: a defect of the stage.
    #[error("rank {rank} {} `{stage}`: {failure}", if failure.cause == FailureCause::Panic { "panicked in stage" } else { "of" })]
    Rank {
        /// Its number.
        rank: usize,
        /// The stage that was trained.
        stage: String,
        /// What happened.
        failure: RankFailure,
    },
    /// A gang that lost members, or waited too long for them.
    #[error("the gang that trained model `{model}` failed: {cause}")]
    Gang {
        /// The model.
        model: String,
        /// Who, what, and the end of that member's log.
        cause: String,
    },
    /// A gang that ended without a failure and without a model.
    #[error(
        "the ranks of model `{model}` have all left before it was trained; look at the executors' logs, then run the statement again: it goes on from the newest checkpoint"
    )]
    NoLeader {
        /// The model.
        model: String,
    },
    /// A training whose loss grew out of all bounds.
    #[error(
        "model `{model}` diverged: its loss rose from {before:.3} to {after:.3e}; take a smaller learning_rate or another \
         optimizer"
    )]
    Diverged {
        /// The model.
        model: String,
        /// Loss before the first step.
        before: f64,
        /// Loss at the end.
        after: f64,
    },
    /// A session, of an executor for example, that was made without stages.
    #[error("stage `{stage}` is not known where it is to be trained: run the same build everywhere")]
    NoStages {
        /// The stage.
        stage: String,
    },
    /// What a rank gave back is not what a rank gives back.
    #[error("row {row} of a rank cannot be read: run the same build everywhere")]
    RankRow {
        /// The row.
        row: usize,
    },
    /// Files of the session that cannot be read or written.
    #[error("temporary file {path}: {reason}; make room, or choose another folder for temporary files")]
    Storage {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// A model's folder that cannot be read or written.
    #[error("model folder {path}: {reason}")]
    ModelFolder {
        /// The folder or file.
        path: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A function over series that is called with something else.
    #[error("{function}: {reason}")]
    Call {
        /// The function.
        function: String,
        /// What is wrong and what would be right.
        reason: String,
    },
}

/// Faults that one message lists.
const LISTED: usize = 10;

fn faults_text(faults: &[Error]) -> String {
    let listed: Vec<String> = faults.iter().take(LISTED).map(|fault| format!("\n  {fault}")).collect();
    let more = match faults.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!("{} runs cannot be cleaned:{}{more}", faults.len(), listed.concat())
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(", did you mean `{n}`?")).unwrap_or_default()
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Stage(e) => e.is_input(),
            Self::Runs { faults } => faults.iter().all(Self::is_input),
            Self::Signal(e) | Self::RunSignal { source: e, .. } => e.is_input(),
            Self::Rank { failure, .. } => failure.cause == FailureCause::Input,
            Self::Storage { .. }
            | Self::Gang { .. }
            | Self::Diverged { .. }
            | Self::NoLeader { .. }
            | Self::NoStages { .. }
            | Self::RankRow { .. } => false,
            _ => true,
        }
    }

    /// The line of the ledger for a run that is refused, the first if there are several.
    pub fn refused_run(&self) -> Option<LedgerEntry> {
        let (keys, reason) = match self {
            Self::Confounds { keys, reason, .. } | Self::Design { keys, reason, .. } => {
                (keys, reason.clone())
            }
            Self::RunSignal { keys, source, .. } => (keys, source.to_string()),
            Self::Runs { faults } => return faults.iter().find_map(Self::refused_run),
            _ => return None,
        };
        let known = keys.iter().any(Option::is_some);
        known.then(|| LedgerEntry::of_run(keys.as_ref().clone(), Level::Run, Finding::Refused, reason, 1))
    }

    /// The option at fault, so that the language can point at it.
    pub fn option(&self) -> Option<&str> {
        match self {
            Self::Stage(e) => e.option(),
            // One place for all: what the first points at.
            Self::Runs { faults } => faults.first()?.option(),
            Self::Signal(e) | Self::RunSignal { source: e, .. } => e.setting(),
            Self::Confounds { .. } => Some("confounds"),
            Self::NotFinite { .. } => Some("not_finite"),
            Self::SubjectOverlap { .. }
            | Self::RunOverlap { .. }
            | Self::SeriesOverlap { .. }
            | Self::SameRows
            | Self::RenamedSeries { .. }
            | Self::UpstreamOverlap { .. } => Some("subject_overlap"),
            _ => None,
        }
    }
}

impl From<Error> for StageError {
    fn from(e: Error) -> Self {
        Self { option: e.option().map(str::to_owned), source: Box::new(e) }
    }
}

impl From<Error> for DataFusionError {
    fn from(e: Error) -> Self {
        Self::External(Box::new(e))
    }
}
