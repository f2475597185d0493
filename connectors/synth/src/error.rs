//! What can go wrong while data are made.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while data are made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of its range.
    #[error("setting `{setting}` of synth: {reason}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The output folder holds something else.
    #[error("{}: {reason}", path.display())]
    Folder {
        /// The file or folder in the way.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A file cannot be published.
    #[error(transparent)]
    Storage(#[from] voxelflow_storage::Error),
    /// Parquet could not be written.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Why.
        source: parquet::errors::ParquetError,
    },
    /// Arrow refused the columns.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
    /// An image cannot be written.
    #[error(transparent)]
    Image(#[from] voxelflow_formats::Error),
    /// The task cannot be made a design.
    #[error(transparent)]
    Signal(#[from] voxelflow_signal::Error),
    /// The grid cannot be described.
    #[error(transparent)]
    Stage(#[from] voxelflow_stage::Error),
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Setting { .. } | Self::Folder { .. } => true,
            Self::Storage(e) => e.is_input(),
            Self::Signal(e) => e.is_input(),
            Self::Stage(e) => e.is_input(),
            Self::Image(e) => e.is_input(),
            Self::Parquet { .. } | Self::Arrow(_) => false,
        }
    }
}
