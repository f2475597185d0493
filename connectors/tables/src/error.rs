//! What can go wrong between images and tables.

use datafusion::error::DataFusionError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between images and tables.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A location names no image.
    #[error("{location}: {reason}")]
    Location {
        /// As written.
        location: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// An image cannot be part of this table.
    #[error("{path}: {reason}")]
    Image {
        /// The image.
        path: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Several images that cannot be part of this table.
    #[error("{} images cannot be read:{}", faults.len(), faults_text(faults))]
    Images {
        /// What is wrong with each, in the order of the runs.
        faults: Vec<Error>,
    },
    /// Images of one table, or an image and its mask, lie on different grids.
    #[error("{what} {path} does not lie on the grid of {other}: {difference}; {advice}")]
    Grid {
        /// `mask`, `atlas` or `image`.
        what: &'static str,
        /// The file that differs.
        path: String,
        /// The file that it is compared to.
        other: String,
        /// Shapes, or the shift in mm.
        difference: String,
        /// What to do.
        advice: String,
    },
    /// A table from which no map can be written.
    #[error("EXPORT MAPS: {reason}")]
    Export {
        /// What is missing or wrong and what to do.
        reason: String,
    },
    /// An option of the table.
    #[error(transparent)]
    Stage(#[from] voxelflow_stage::Error),
    /// An image cannot be read or written.
    #[error(transparent)]
    Format(#[from] voxelflow_formats::Error),
    /// A location, or a file that cannot be published.
    #[error(transparent)]
    Storage(#[from] voxelflow_storage::Error),
    /// The mask of an image cannot be found.
    #[error("{path}: no brain found: {source}; give OPTIONS (mask 'a mask file' | 'none')")]
    AutoMask {
        /// The image.
        path: String,
        /// Why.
        source: voxelflow_signal::Error,
    },
    /// Volumes cannot be resampled, smoothed or divided into parcels.
    #[error("{path}: {source}")]
    Volumes {
        /// The image, mask or atlas.
        path: String,
        /// Why.
        source: voxelflow_signal::Error,
    },
    /// Rows that do not fit in memory could not be kept on disk.
    #[error("{path}: temporary file for series: {reason}")]
    Spill {
        /// The image that was read, or the map that was written.
        path: String,
        /// What failed, and what to do.
        reason: String,
    },
    /// The plan that feeds or drains a table failed.
    #[error(transparent)]
    Plan(#[from] DataFusionError),
    /// Arrow refused the columns.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
    /// The reader went away.
    #[error("reading was cancelled")]
    Cancelled,
}

/// Faults that one message lists.
const LISTED: usize = 10;

fn faults_text(faults: &[Error]) -> String {
    let listed: Vec<String> = faults.iter().take(LISTED).map(|fault| format!("\n  {fault}")).collect();
    match faults.len().saturating_sub(LISTED) {
        0 => listed.concat(),
        more => format!("{}\n  and {more} more", listed.concat()),
    }
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Location { .. }
            | Self::Image { .. }
            | Self::Grid { .. }
            | Self::Export { .. }
            | Self::AutoMask { .. }
            | Self::Volumes { .. } => true,
            Self::Images { faults } => faults.iter().all(Self::is_input),
            Self::Stage(e) => e.is_input(),
            Self::Format(e) => e.is_input(),
            Self::Storage(e) => e.is_input(),
            Self::Plan(e) => Self::in_plan(e).is_some_and(Self::is_input),
            Self::Spill { .. } | Self::Arrow(_) | Self::Cancelled => false,
        }
    }

    /// Our error inside DataFusion's, if there is one.
    pub fn in_plan(error: &DataFusionError) -> Option<&Self> {
        match error.find_root() {
            DataFusionError::External(inner) => inner.downcast_ref(),
            _ => None,
        }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Plan(inner) => inner,
            other => Self::External(Box::new(other)),
        }
    }
}
