//! What a job can end with, and whose fault it is: exit code 2 for the user's input, 1 for everything else.

use datafusion::error::DataFusionError;
use std::{error::Error as StdError, path::Path};
use voxelflow_dataset::LedgerEntry;
use voxelflow_pipeline::PipelineError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a job can end with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pipeline file is wrong; the message shows the line.
    #[error(transparent)]
    Pipeline(#[from] Box<PipelineError>),
    /// A statement was planned but failed while it ran.
    #[error("{file}:{line}: {statement}: {}", message(source.as_ref()))]
    Statement {
        /// The pipeline file.
        file: String,
        /// The line that the statement starts on.
        line: usize,
        /// Its first words.
        statement: String,
        /// Why.
        source: Box<Error>,
    },
    /// A file, folder or argument cannot be used.
    #[error("{what}: {reason}")]
    Input {
        /// The file, folder or argument.
        what: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The machine failed at reading or writing.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The user has stopped it.
    #[error("stopped")]
    Interrupted,
    /// A dataset's plan or partition.
    #[error(transparent)]
    Dataset(#[from] voxelflow_dataset::Error),
    /// A plan.
    #[error("{}", message(.0))]
    Plan(#[from] DataFusionError),
    /// A cluster.
    #[error(transparent)]
    Cluster(#[from] voxelflow_cluster::Error),
    /// Images, tables of images, or maps.
    #[error(transparent)]
    Tables(#[from] voxelflow_tables::Error),
    /// An image file.
    #[error(transparent)]
    Formats(#[from] voxelflow_formats::Error),
    /// A place for data.
    #[error(transparent)]
    Storage(#[from] voxelflow_storage::Error),
    /// Generated data.
    #[error(transparent)]
    Synth(#[from] voxelflow_synth::Error),
    /// A stage or model.
    #[error(transparent)]
    Stage(#[from] voxelflow_stage::Error),
    /// The report.
    #[error(transparent)]
    Report(#[from] voxelflow_report::Error),
}

impl From<PipelineError> for Error {
    fn from(error: PipelineError) -> Self {
        Self::Pipeline(Box::new(error))
    }
}

impl Error {
    /// A file, folder or argument that cannot be used.
    pub fn input(what: impl ToString, reason: impl ToString) -> Self {
        Self::Input { what: what.to_string(), reason: reason.to_string() }
    }

    /// A read or write that failed: a missing file or a refused permission is the user's to mend.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let path = path.display().to_string();
        match source.kind() {
            Kind::NotFound | Kind::PermissionDenied | Kind::NotADirectory | Kind::ReadOnlyFilesystem => {
                Self::input(path, format!("{source}; choose another path, or mend its permissions"))
            }
            _ => Self::Io { path, source },
        }
    }

    /// True when the user's input is at fault.
    pub fn is_input(&self) -> bool {
        input_in(self)
    }

    /// The line of the ledger for a run that is refused, if that is what is wrong.
    pub(crate) fn refused_run(&self) -> Option<LedgerEntry> {
        let refusal = match self {
            Self::Pipeline(e) => e.stage_error()?.source.as_ref() as &(dyn StdError + 'static),
            Self::Statement { source, .. } => return source.refused_run(),
            _ => return None,
        };
        refusal.downcast_ref::<voxelflow_operators::Error>()?.refused_run()
    }

    /// 2 for wrong input, 1 for a job that failed.
    pub fn exit_code(&self) -> u8 {
        if self.is_input() { 2 } else { 1 }
    }
}

/// Walks from the outside to the cause; the first error that knows whose fault it is decides.
pub(crate) fn input_in(error: &(dyn StdError + 'static)) -> bool {
    verdict(error).unwrap_or_else(|| error.source().is_some_and(input_in))
}

fn verdict(error: &(dyn StdError + 'static)) -> Option<bool> {
    if let Some(own) = error.downcast_ref::<Error>() {
        return match own {
            Error::Input { .. } => Some(true),
            Error::Io { .. } | Error::Interrupted => Some(false),
            Error::Statement { source, .. } => Some(input_in(source.as_ref())),
            Error::Pipeline(e) => Some(e.is_input()),
            Error::Plan(e) => Some(input_in(e)),
            Error::Dataset(e) => verdict(e),
            Error::Cluster(e) => Some(e.is_input()),
            Error::Tables(e) => verdict(e),
            Error::Formats(e) => Some(e.is_input()),
            Error::Storage(e) => Some(e.is_input()),
            Error::Synth(e) => Some(e.is_input()),
            Error::Stage(e) => Some(e.is_input()),
            Error::Report(e) => Some(e.is_input()),
        };
    }
    if let Some(e) = error.downcast_ref::<voxelflow_dataset::Error>() {
        return Some(e.is_input() || e.datafusion().is_some_and(|e| input_in(e)));
    }
    if let Some(e) = error.downcast_ref::<voxelflow_cluster::Error>() {
        return Some(e.is_input());
    }
    if let Some(e) = error.downcast_ref::<voxelflow_tables::Error>() {
        return Some(e.is_input() || e.source().is_some_and(input_in));
    }
    if let Some(e) = error.downcast_ref::<voxelflow_operators::Error>() {
        return Some(e.is_input());
    }
    if let Some(e) = error.downcast_ref::<voxelflow_stage::Error>() {
        return Some(e.is_input());
    }
    if let Some(e) = error.downcast_ref::<voxelflow_storage::Error>() {
        return Some(e.is_input());
    }
    if let Some(e) = error.downcast_ref::<voxelflow_formats::Error>() {
        return Some(e.is_input());
    }
    match error.downcast_ref::<DataFusionError>() {
        Some(DataFusionError::Shared(inner)) => Some(input_in(inner.as_ref())),
        Some(DataFusionError::Plan(_) | DataFusionError::SQL(..) | DataFusionError::SchemaError(..)) => {
            Some(true)
        }
        _ => None,
    }
}

/// The text for people: the cause that our own crates wrote where there is one, without the wrapping that
/// says how it travelled.
fn message(error: &(dyn StdError + 'static)) -> String {
    own_message(error).unwrap_or_else(|| match error.downcast_ref::<DataFusionError>() {
        Some(e) => e.strip_backtrace(),
        None => error.to_string(),
    })
}

fn own_message(error: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(DataFusionError::Shared(inner)) = error.downcast_ref::<DataFusionError>() {
        return own_message(inner.as_ref());
    }
    let own = error.is::<voxelflow_dataset::Error>()
        || error.is::<voxelflow_cluster::Error>()
        || error.is::<voxelflow_tables::Error>()
        || error.is::<voxelflow_operators::Error>()
        || error.is::<voxelflow_stage::Error>()
        || error.is::<voxelflow_storage::Error>()
        || error.is::<voxelflow_formats::Error>()
        || error.is::<Error>();
    if own { Some(error.to_string()) } else { error.source().and_then(own_message) }
}
