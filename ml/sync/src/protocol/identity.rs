//! Who speaks, and in which view of the membership.

use crate::Rank;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One training run. A driver that starts over with the same run resumes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub u128);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {:032x}", self.0)
    }
}

/// A row of the gang: `0..ranks` train, dedicated shard holders come after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u32);

impl MemberId {
    /// The same number as a rank.
    pub fn rank(self) -> Rank {
        Rank(self.0 as usize)
    }

    /// The number, to index with.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// One life of a member. A greater one replaces a smaller one, which is fenced from then on: take the attempt
/// that the launcher counts in the upper half and a random number in the lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Attempt `attempt` of a member, told apart from others of the same number by `nonce`.
    pub fn of_attempt(attempt: u32, nonce: u32) -> Self {
        Self(u64::from(attempt) << 32 | u64::from(nonce))
    }
}

/// Number of a view of the membership; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation(pub u64);

impl Generation {
    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.0)
    }
}

/// A part of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u32);

impl ShardId {
    /// The number, to index with.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Trains, and holds shards where there are no dedicated holders.
    Rank,
    /// Only holds shards.
    Shards,
}

/// What every message between members carries: messages of another run or of an older view are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The run.
    pub run: RunId,
    /// The view that the sender knows.
    pub generation: Generation,
}
