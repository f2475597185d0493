//! What a gang is made of and how long it waits: the constants of the protocol.

use super::identity::{MemberId, Role, RunId};
use serde::{Deserialize, Serialize};

/// How far ranks may drift apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// One update for the sum of all ranks' gradients.
    Sync,
    /// Each push is an update; the fastest may lead the slowest by so many steps.
    Bounded(u64),
    /// Each push is an update.
    Async,
}

/// A gang, and its clocks in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The run.
    pub run: RunId,
    /// Members that train: `0..ranks`.
    pub ranks: u32,
    /// Fewer ranks than this do not train: they pause.
    pub min_ranks: u32,
    /// Members `ranks..ranks + dedicated` only hold shards; none: the ranks hold them.
    pub dedicated: u32,
    /// Shards that the parameters are cut into.
    pub shards: u32,
    /// Every shard has a copy at another member, if there is one. Not within one process, which dies as a whole.
    pub copies: bool,
    /// How far ranks may drift apart.
    pub pace: Pace,
    /// Lives of a member after its first.
    pub max_rank_restarts: u32,
    /// Between two heartbeats.
    pub heartbeat_ms: u64,
    /// Silence after which a member is dead.
    pub dead_ms: u64,
    /// Time that a member has to come back after its connection is lost.
    pub reconnect_ms: u64,
    /// Time to wait for all members before a gang of at least `min_ranks` begins.
    pub gather_ms: u64,
    /// Time that a late member may have to wait for a round's boundary.
    pub boundary_ms: u64,
    /// Time after which a gang that cannot go on fails, and says who is missing.
    pub deadline_ms: u64,
    /// Time that members wait for a coordinator that is lost.
    pub hold_ms: u64,
}

impl Rules {
    /// A gang of `ranks` ranks, all of them needed, with the usual clocks.
    pub fn fixed(run: RunId, ranks: u32, shards: u32) -> Self {
        Self {
            run,
            ranks,
            min_ranks: ranks,
            dedicated: 0,
            shards,
            copies: true,
            pace: Pace::Sync,
            max_rank_restarts: 3,
            heartbeat_ms: 500,
            dead_ms: 3_000,
            reconnect_ms: 1_000,
            gather_ms: 10_000,
            boundary_ms: 1_000,
            deadline_ms: 600_000,
            hold_ms: 60_000,
        }
    }

    /// All members that are wanted.
    pub fn members(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..self.ranks + self.dedicated).map(MemberId)
    }

    /// What `member` does; none: there is no such member.
    pub fn role(&self, member: MemberId) -> Option<Role> {
        match member.0 {
            n if n < self.ranks => Some(Role::Rank),
            n if n < self.ranks + self.dedicated => Some(Role::Shards),
            _ => None,
        }
    }
}
