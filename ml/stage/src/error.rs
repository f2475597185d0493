//! What can go wrong in or around a stage.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in or around a stage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option's name is not known.
    #[error("unknown option `{option}` of {what}{}; the options are: {}", did_you_mean(nearest), valid.join(", "))]
    UnknownOption {
        /// Whose option.
        what: String,
        /// The name as written.
        option: String,
        /// The most similar valid name.
        nearest: Option<String>,
        /// All valid names.
        valid: Vec<String>,
    },
    /// An option's value cannot be used.
    #[error("option `{option}` of {what}: {reason}")]
    OptionValue {
        /// Whose option.
        what: String,
        /// The option's name.
        option: String,
        /// Why, and what would be right.
        reason: String,
    },
    /// The data do not fit the stage.
    #[error("{what}: {reason}")]
    Data {
        /// Table, column or model.
        what: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A model folder cannot be read or written.
    #[error("model folder {path}: {reason}")]
    Folder {
        /// The folder or file.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Rows to train on that cannot be read any more.
    #[error("rows in {path}: {reason}")]
    Rows {
        /// The folder or file.
        path: String,
        /// What the machine says.
        reason: String,
    },
    /// A device that computes has failed.
    #[error("compute device: {reason}")]
    Device {
        /// What it says.
        reason: String,
    },
    /// Ranks could not agree.
    #[error(transparent)]
    Sync(#[from] voxelflow_sync::Error),
    /// Training was cancelled.
    #[error("training was cancelled")]
    Cancelled,
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::UnknownOption { .. } | Self::OptionValue { .. } | Self::Data { .. } | Self::Folder { .. }
        )
    }
    /// The option that is wrong, so that a caller can point at it.
    pub fn option(&self) -> Option<&str> {
        match self {
            Self::UnknownOption { option, .. } | Self::OptionValue { option, .. } => Some(option),
            _ => None,
        }
    }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(", did you mean `{n}`?")).unwrap_or_default()
}
