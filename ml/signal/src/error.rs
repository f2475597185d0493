//! What can go wrong when series or volumes are processed.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when series or volumes are processed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting whose value cannot be used.
    #[error("`{setting}`: {reason}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// Why, and what would be right.
        reason: String,
    },
    /// Series that are shorter than a step needs.
    #[error("series of {time_points} time points are too short for {step}, which needs at least {minimum}")]
    TooShort {
        /// Points of the series.
        time_points: usize,
        /// Points needed.
        minimum: usize,
        /// The step that needs them.
        step: String,
    },
    /// Numbers of values that do not fit each other.
    #[error("{what}: {found} values where {expected} were expected")]
    Shape {
        /// What has the wrong size.
        what: &'static str,
        /// Values found.
        found: usize,
        /// What would fit, in words.
        expected: String,
    },
    /// An image in which no brain was found.
    #[error("no brain mask in a volume of {shape:?} voxels: {reason}")]
    EmptyMask {
        /// Voxels along i, j, k.
        shape: [usize; 3],
        /// Why, and what to do.
        reason: String,
    },
    /// Confounds that the table does not have.
    #[error("no column {} among the confounds; {near}", columns.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", "))]
    MissingConfounds {
        /// Names, or patterns without a match.
        columns: Vec<String>,
        /// What the table has instead.
        near: String,
    },
    /// A confound that holds something else than numbers.
    #[error("the confound `{column}` cannot be used: {reason}; repair it, or leave the column out")]
    UnusableConfound {
        /// The column.
        column: String,
        /// The place, and what stands there.
        reason: String,
    },
    /// A confound without a number where one is needed.
    #[error(
        "the confound `{column}` has no finite value in row {row} (volumes count from 0); only the first volume's \
         missing values are filled: repair the table, or leave the column out"
    )]
    MissingValue {
        /// The column.
        column: String,
        /// The row, which is the volume, from 0.
        row: usize,
    },
    /// An event that cannot be part of a design.
    #[error("event {index} (counted from 0): {reason}")]
    Event {
        /// Its position among the events given.
        index: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A regressor that cannot be a column of a design.
    #[error("regressor `{name}`: {reason}")]
    Regressor {
        /// The column's name.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A step after which there would be no data.
    #[error("nothing is left after {step}: {reason}")]
    NothingLeft {
        /// The step.
        step: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// A sample mask that does not fit the run.
    #[error("sample mask: {reason}")]
    SampleMask {
        /// What is wrong, and what would be right.
        reason: String,
    },
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Setting { .. }
            | Self::TooShort { .. }
            | Self::Shape { .. }
            | Self::EmptyMask { .. }
            | Self::MissingConfounds { .. }
            | Self::UnusableConfound { .. }
            | Self::MissingValue { .. }
            | Self::Event { .. }
            | Self::Regressor { .. }
            | Self::NothingLeft { .. }
            | Self::SampleMask { .. } => true,
        }
    }

    /// The setting at fault, so that a caller can point at it.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Setting { setting, .. } => Some(setting),
            _ => None,
        }
    }
}
