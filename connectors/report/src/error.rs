//! What can go wrong when a report is made.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a report is made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A map's volume cannot be drawn.
    #[error("map `{map}`: {reason}")]
    Map {
        /// The map's name.
        map: String,
        /// What does not fit, and what would.
        reason: String,
    },
    /// A layer's filters do not have the shape that they state.
    #[error("filters of layer `{layer}`: {reason}")]
    Filters {
        /// The layer's path in the model.
        layer: String,
        /// What does not fit.
        reason: String,
    },
    /// A figure could not be drawn.
    #[error("figure `{figure}` could not be drawn: {reason}")]
    Figure {
        /// What the figure shows.
        figure: String,
        /// What the drawing library said.
        reason: String,
    },
    /// The report could not be written.
    #[error("report {}: {cause}; choose a folder that exists or can be made, and that you may write to", path.display())]
    Write {
        /// Where it should have gone.
        path: PathBuf,
        /// What the file system said.
        cause: std::io::Error,
    },
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Map { .. } | Self::Filters { .. } | Self::Write { .. })
    }
}
