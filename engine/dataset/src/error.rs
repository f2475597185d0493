//! What can go wrong in a dataset: a plan that does not fit, a partition that fails, a target that is taken.

use crate::StageError;
use datafusion::{arrow::error::ArrowError, error::DataFusionError};
use std::{error::Error as StdError, fmt, sync::Arc};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in a dataset. Cheap to clone, so that a fault in a chain of verbs can wait for the action.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A verb does not fit its input; found when the plan is made.
    #[error("{verb}: {reason}")]
    Plan {
        /// The verb, for example `filter`.
        verb: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A named function failed or panicked.
    #[error("partition {partition} of {partitions}: function `{function}` at {location}: {reason}")]
    Function {
        /// The partition that failed, from 0.
        partition: usize,
        /// Partitions of the step.
        partitions: usize,
        /// The function's name.
        function: String,
        /// File and line where it is written.
        location: String,
        /// Its error, or what it panicked with.
        reason: String,
    },
    /// A member of a gang panicked.
    #[error("member {member} of {members} of {gang} (function `{function}`): {reason}")]
    GangMember {
        /// Whose gang it is.
        gang: String,
        /// What it ran.
        function: &'static str,
        /// Its number, from 0.
        member: usize,
        /// Members of the gang.
        members: usize,
        /// What it panicked with.
        reason: String,
    },
    /// A partition failed outside of named functions.
    #[error("partition {partition} of {partitions}: {}", describe(source_error))]
    Partition {
        /// The partition that failed, from 0.
        partition: usize,
        /// Partitions of the last step.
        partitions: usize,
        /// Why.
        source_error: Arc<DataFusionError>,
    },
    /// A plan names a function that this build does not have.
    #[error(
        "this build has no function `{name}`{}; it was written by another build, or its crate is not linked ({known} functions are known)",
        did_you_mean(nearest)
    )]
    UnknownFunction {
        /// The name in the plan.
        name: String,
        /// Similar names that are known.
        nearest: Vec<String>,
        /// How many functions are known.
        known: usize,
    },
    /// A function's arguments cannot be written or read.
    #[error("arguments of function `{function}`: {reason}")]
    Arguments {
        /// The function's name.
        function: String,
        /// Why.
        reason: String,
    },
    /// No model or function of a model has that name.
    #[error("there is no {kind} `{name}`{}", did_you_mean(nearest))]
    UnknownName {
        /// `model`, `model function`, …
        kind: &'static str,
        /// As written.
        name: String,
        /// Similar names.
        nearest: Vec<String>,
    },
    /// A stage refused.
    #[error("{0}")]
    Stage(Arc<StageError>),
    /// A folder or file cannot be read or written.
    #[error("{path}: {reason}")]
    Target {
        /// Path or URL.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The plan could not be run.
    #[error("{}", describe(source_error))]
    Execution {
        /// Why.
        source_error: Arc<DataFusionError>,
    },
    /// An error of another crate, in words, before it travels between processes.
    #[error("{words}")]
    Told {
        /// What happened.
        words: String,
        /// Whether the user's input is at fault.
        is_input: bool,
    },
}

/// Stand around an error's text in its `Debug` text: what opens it says whose fault it is.
const INPUT: char = '⟪';
const OTHER: char = '⟦';
const CLOSE: char = '⟧';

/// The message, in brackets: an error that comes from an executor comes as the `Debug` text of all that was wrapped
/// around it, in which [`cause_in`] finds it again.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.is_input() { INPUT } else { OTHER };
        write!(f, "{open}{self}{CLOSE}")
    }
}

/// An error of ours, as it is found in the `Debug` text of another error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause<'a> {
    /// Its message.
    pub words: &'a str,
    /// Whether the user's input is at fault.
    pub is_input: bool,
}

/// The error of ours within the `Debug` text of another error.
pub fn cause_in(text: &str) -> Option<Cause<'_>> {
    let (start, open) = text.char_indices().find(|(_, c)| [INPUT, OTHER].contains(c))?;
    let (words, _) = text.get(start + open.len_utf8()..)?.rsplit_once(CLOSE)?;
    Some(Cause { words, is_input: open == INPUT })
}

impl Error {
    /// True when the user's input, not the machine or the data's transport, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Function { .. } | Self::GangMember { .. } => false,
            Self::Told { is_input, .. } => *is_input,
            Self::Partition { source_error, .. } | Self::Execution { source_error } => {
                matches!(
                    source_error.find_root(),
                    DataFusionError::Plan(_) | DataFusionError::SchemaError(..) | DataFusionError::SQL(..)
                )
            }
            _ => true,
        }
    }

    /// The error of DataFusion behind this one: a caller that knows other crates' errors finds them in it.
    pub fn datafusion(&self) -> Option<&DataFusionError> {
        match self {
            Self::Partition { source_error, .. } | Self::Execution { source_error } => Some(source_error),
            _ => None,
        }
    }

    /// `error` as one that can travel as words: one of ours as it is, another one told.
    pub fn told(error: DataFusionError, is_input: bool) -> Self {
        match Self::from(error) {
            own @ (Self::Execution { .. } | Self::Partition { .. }) => {
                Self::Told { is_input: is_input || own.is_input(), words: own.to_string() }
            }
            own => own,
        }
    }

    pub(crate) fn plan(verb: &'static str, reason: impl ToString) -> Self {
        Self::Plan { verb, reason: reason.to_string() }
    }

    /// A fault found while the plan was made; our own errors inside keep their kind.
    pub(crate) fn planning(verb: &'static str, error: DataFusionError) -> Self {
        find_own(&error).unwrap_or_else(|| Self::plan(verb, describe(&error)))
    }

    pub(crate) fn target(path: impl ToString, reason: impl ToString) -> Self {
        Self::Target { path: path.to_string(), reason: reason.to_string() }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        find_own(&error).unwrap_or_else(|| Self::Execution { source_error: Arc::new(error) })
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<StageError> for Error {
    fn from(error: StageError) -> Self {
        Self::Stage(Arc::new(error))
    }
}

/// The name of the failing partition, unless the error already says one.
pub(crate) fn in_partition(error: DataFusionError, partition: usize, partitions: usize) -> DataFusionError {
    match find_own(&error) {
        Some(own) => own.into(),
        None => Error::Partition { partition, partitions, source_error: Arc::new(error) }.into(),
    }
}

/// Our own error inside an error of DataFusion, however it was wrapped on its way up.
fn find_own(error: &DataFusionError) -> Option<Error> {
    match error {
        DataFusionError::Shared(inner) => find_own(inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => find_own(inner),
        DataFusionError::Collection(all) => all.iter().find_map(find_own),
        DataFusionError::External(inner) => find_in(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => find_in(inner.as_ref()),
            _ => None,
        },
        _ => None,
    }
}

fn find_in(error: &(dyn StdError + Send + Sync + 'static)) -> Option<Error> {
    if let Some(own) = error.downcast_ref::<Error>() {
        return Some(own.clone());
    }
    error.downcast_ref::<DataFusionError>().and_then(find_own)
}

/// The message without the wrapping that says how it travelled.
pub(crate) fn describe(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Shared(inner) => describe(inner),
        DataFusionError::Diagnostic(_, inner) => describe(inner),
        DataFusionError::Context(context, inner) => format!("{context}: {}", describe(inner)),
        DataFusionError::External(inner) => inner.to_string(),
        DataFusionError::Plan(text) | DataFusionError::Execution(text) => text.clone(),
        other => other.strip_backtrace(),
    }
}

/// Names similar to `name`, the most similar first, three at most.
pub(crate) fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(&name.to_lowercase(), &k.to_lowercase()), k))
        .filter(|(score, _)| *score > 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, k)| k.to_owned()).collect()
}

fn did_you_mean(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!(", did you mean `{}`?", nearest.join("` or `")) }
}
