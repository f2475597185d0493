//! What is asked of the holder of a shard, and what it answers.
//!
//! Headers and values are apart: a header is small and serialisable, its values travel behind it as raw `f32`
//! frames. How many there are, and how long each is, the header says.
//!
//! | request | values behind it | answered | answer's values |
//! |---|---|---|---|
//! | `Push` | gradient | at once (asynchronous modes: once applied and replicated) | – |
//! | `Fetch` | – | once the version is there and replicated | parameters |
//! | `State` | – | as `Fetch` | optimizer's vectors |
//! | `Install` | parameters, optimizer's vectors | once installed (and, by a primary, on its backup) | – |
//! | `Replicate` | mean gradient, nothing for an empty round | once applied | – |
//!
//! After a connection is lost the sender asks again what was not answered, in the same order: requests are
//! idempotent. A holder that has not heard of the asker's view yet keeps the request until it has.

use super::identity::{Generation, MemberId, ShardId, Stamp};
use serde::{Deserialize, Serialize};

/// A question to the holder of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardRequest {
    /// Run and view.
    pub stamp: Stamp,
    /// Who asks.
    pub from: MemberId,
    /// Which shard.
    pub shard: ShardId,
    /// Number of the question; the answer carries it.
    pub id: u64,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// Take this gradient.
    Push {
        /// Sync: number of the round; else the clock of the rank.
        round: u64,
        /// Number of this push in this life of the rank.
        seq: u64,
        /// Samples in the gradient.
        samples: u64,
        /// Version of the parameters that it was computed on.
        read: u64,
        /// Do not wait for the other ranks.
        alone: bool,
        /// Sync: no gradient, but what the rank's parameters lie below the version's, times the samples.
        differences: bool,
    },
    /// The parameters.
    Fetch(Wanted),
    /// The optimizer's memory.
    State(Wanted),
    /// Begin with these values.
    Install {
        /// Their version.
        version: u64,
        /// Updates that the optimizer has seen.
        steps: u64,
        /// Names of the optimizer's vectors; empty for a fresh optimizer.
        vectors: Vec<String>,
    },
    /// Apply this update too.
    Replicate {
        /// The version that it leads to.
        version: u64,
        /// Samples in the mean; 0: the round was empty.
        samples: u64,
        /// As in [`Ask::Push`].
        differences: bool,
    },
}

/// Which version is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// This one, once it is there.
    Version(u64),
    /// Whichever is newest.
    Newest,
}

impl Ask {
    /// Arrays that follow the header.
    pub fn arrays(&self) -> usize {
        match self {
            Self::Push { .. } => 1,
            Self::Fetch(_) | Self::State(_) => 0,
            Self::Install { vectors, .. } => 1 + vectors.len(),
            Self::Replicate { samples, .. } => usize::from(*samples > 0),
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardReply {
    /// Which shard.
    pub shard: ShardId,
    /// Number of the question.
    pub id: u64,
    /// What is answered.
    pub answer: Answer,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The gradient is taken.
    Pushed {
        /// Asynchronous modes: updates applied before it.
        version: u64,
    },
    /// The parameters follow.
    Parameters {
        /// Their version.
        version: u64,
    },
    /// The optimizer's vectors follow.
    State {
        /// Version of the parameters that they belong to.
        version: u64,
        /// Updates that the optimizer has seen.
        steps: u64,
        /// Their names.
        vectors: Vec<String>,
    },
    /// Installed.
    Installed,
    /// Applied.
    Replicated {
        /// The version that it led to.
        version: u64,
    },
    /// Not done.
    Refused(Refusal),
}

impl Answer {
    /// Arrays that follow the header.
    pub fn arrays(&self) -> usize {
        match self {
            Self::Parameters { .. } => 1,
            Self::State { vectors, .. } => vectors.len(),
            Self::Pushed { .. } | Self::Installed | Self::Replicated { .. } | Self::Refused(_) => 0,
        }
    }
}

/// Why a holder refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The holder knows a newer view: the asker learns of it from the coordinator, or is fenced.
    Stale {
        /// The holder's view.
        generation: Generation,
    },
    /// It holds no such shard in this view, or belongs to another run.
    NotHolder,
    /// Values of another length.
    Length {
        /// Values brought.
        found: u64,
        /// Values expected.
        expected: u64,
    },
    /// The version is neither here nor to come.
    NoSuchVersion {
        /// Newest version here.
        newest: u64,
    },
    /// The optimizer cannot go on from the state that was brought.
    State(String),
}
