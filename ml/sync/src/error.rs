//! What can go wrong between ranks.

use crate::Rank;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between ranks. Every message names the rank and what was waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another rank ended (finished early, failed or panicked) while this one waited for it.
    #[error("{rank} waited for {what}, but {peer} has left the gang")]
    PeerLeft {
        /// The rank that waited.
        rank: Rank,
        /// The rank that is gone.
        peer: Rank,
        /// What was waited for.
        what: &'static str,
    },
    /// A deadline passed.
    #[error("{rank} waited {seconds} s for {what}; missing: {missing}")]
    Deadline {
        /// The rank that waited.
        rank: Rank,
        /// The deadline in seconds.
        seconds: f64,
        /// What was waited for.
        what: &'static str,
        /// Who has not arrived.
        missing: String,
    },
    /// Two ranks disagree on the length of a buffer.
    #[error("{rank} brought {found} values to {what}, expected {expected}")]
    Length {
        /// The rank with the odd buffer.
        rank: Rank,
        /// What was being exchanged.
        what: &'static str,
        /// Values brought.
        found: usize,
        /// Values expected.
        expected: usize,
    },
    /// A setting that cannot work.
    #[error("setting `{name}`: {reason}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// Why, and what would be right.
        reason: String,
    },
    /// A gradient or a loss that is not finite: training would silently turn to NaN.
    #[error("{rank} computed a {what} that is not finite in step {step}; lower learning_rate, or look for NaN in the series")]
    NotFinite {
        /// The rank that computed it.
        rank: Rank,
        /// "gradient" or "loss".
        what: &'static str,
        /// The rank's step, from 0.
        step: u64,
    },
}
