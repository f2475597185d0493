//! What can go wrong between ranks.

use crate::Rank;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between ranks. Every message names the rank and what was waited for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
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
    #[error(
        "{rank} computed a {what} that is not finite in step {step}; lower learning_rate, or look for NaN in the series"
    )]
    NotFinite {
        /// The rank that computed it.
        rank: Rank,
        /// "gradient" or "loss".
        what: &'static str,
        /// The rank's step, from 0.
        step: u64,
    },
    /// Two ranks call different methods at the same time.
    #[error(
        "{rank} called {called} while {peer} called {peer_called}; every rank must call the same methods in the same order"
    )]
    Order {
        /// The rank that came second.
        rank: Rank,
        /// What it called.
        called: &'static str,
        /// The rank that came first.
        peer: Rank,
        /// What that one called.
        peer_called: &'static str,
    },
    /// The gang has other members than before.
    #[error("the gang has changed (generation {generation}); its ranks take up from the last closed round")]
    Restarted {
        /// Number of the new membership.
        generation: u64,
    },
    /// Members were lost together with the only copies of some parameters.
    #[error(
        "the newest parameters are lost with the members that held them; training goes on from the newest checkpoint"
    )]
    StateLost,
    /// The driver does not answer any more.
    #[error("{rank} has lost the driver; it waits for it to come back for {seconds} s")]
    DriverLost {
        /// The rank that noticed.
        rank: Rank,
        /// How long it waits.
        seconds: f64,
    },
    /// The gang goes on without this rank.
    #[error("{rank} is no member any more: the gang took it for lost and went on (generation {generation})")]
    Fenced {
        /// The rank.
        rank: Rank,
        /// The membership that it is not part of.
        generation: u64,
    },
    /// The driver has ended the training.
    #[error("the training was cancelled")]
    Cancelled,
    /// A message that its receiver cannot read.
    #[error("{rank} got a message for {what} that it cannot read: {reason}")]
    Message {
        /// The receiver.
        rank: Rank,
        /// What was being exchanged.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A connection that cannot be made, or that broke.
    #[error("connection with {peer} ({what}): {reason}")]
    Connection {
        /// Who is at the other end.
        peer: String,
        /// What was being done.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A connection on which nothing moves.
    #[error(
        "connection with {peer} ({what}): not one byte in {seconds} s; is the host, or the network, down?"
    )]
    Silent {
        /// Who is at the other end.
        peer: String,
        /// What was being done.
        what: &'static str,
        /// The deadline in seconds.
        seconds: f64,
    },
    /// Credentials that cannot be made, read or opened.
    #[error("{what}: {reason}")]
    Credentials {
        /// Which.
        what: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Setting { .. })
    }

    /// True when this rank failed only because another one did; that one's error says more.
    pub fn is_consequence(&self) -> bool {
        matches!(self, Self::PeerLeft { .. } | Self::Fenced { .. } | Self::Cancelled)
    }

    /// True when the gang goes on and this rank takes part in it again by [`GradientSync::join`]; with a checkpoint
    /// after [`Self::StateLost`]. After [`Self::DriverLost`] the leader writes one before it joins, which waits.
    ///
    /// [`GradientSync::join`]: crate::GradientSync::join
    pub fn wants_join(&self) -> bool {
        matches!(self, Self::Restarted { .. } | Self::StateLost | Self::DriverLost { .. })
    }

    /// The same error, naming the operation as its caller knows it.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        match &mut self {
            Self::PeerLeft { what, .. }
            | Self::Deadline { what, .. }
            | Self::Length { what, .. }
            | Self::Message { what, .. } => *what = operation,
            Self::Setting { .. }
            | Self::NotFinite { .. }
            | Self::Order { .. }
            | Self::Connection { .. }
            | Self::Silent { .. }
            | Self::Credentials { .. }
            | Self::Restarted { .. }
            | Self::StateLost
            | Self::DriverLost { .. }
            | Self::Fenced { .. }
            | Self::Cancelled => {}
        }
        self
    }
}
