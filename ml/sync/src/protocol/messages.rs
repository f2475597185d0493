//! What members and coordinator say to each other, over one ordered connection per member.
//!
//! ```text
//!   member                               coordinator
//!     │ Hello ─────────────────────────────► │   first message of every connection
//!     │ Heartbeat ─────────────────────────► │   every 500 ms
//!     │ ◄──────────────────────────── Freeze │   the membership changes: refuse older generations
//!     │ Status ────────────────────────────► │   which versions of which shards are here
//!     │ ◄────────────────────────────── View │   who is in, who holds what, from which version
//!     │ Join ──────────────────────────────► │   all ranks: here with so many parameters
//!     │ ◄─────────────────────────── Started │   position: go on from here
//!     │ Take ──────────────────────────────► │
//!     │ ◄───────────────────────────── Taken │   a lease on rows
//!     │ Closing ───────────────────────────► │   what this rank brings to the round
//!     │ ◄──────────────────────────── Closed │   what all brought, cursors, the next lease
//!     │ Arrive ────────────────────────────► │   barrier, sum
//!     │ ◄──────────────────────────── Passed │
//! ```
//!
//! A connection that is lost loses what was on its way; so the next `Hello` always leads to a new view, and
//! nothing needs to be sent twice.

use super::{
    ending::{Leave, Stop},
    identity::{Generation, Incarnation, MemberId, Role, RunId, ShardId},
    view::View,
};
use crate::{Lease, Position, Totals};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// From a member to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// Who this is. The first message of a connection, also of one after a loss.
    Hello(Hello),
    /// Still alive.
    Heartbeat,
    /// Answer to [`ToMember::Freeze`]: what this member could serve.
    Status {
        /// The generation that was asked for.
        generation: Generation,
        /// The replicas that this member holds.
        replicas: Vec<ReplicaStatus>,
    },
    /// A rank has called `join` in this view.
    Join {
        /// The view.
        generation: Generation,
        /// Length of its parameters.
        n_parameters: u64,
        /// Rows of the whole training set.
        rows: u64,
        /// From the leader, when the view begins with [`Begin::Bring`]: where its parameters stand. It has installed
        /// them on every shard before it says so.
        position: Option<Position>,
    },
    /// A rank wants rows.
    Take {
        /// The view.
        generation: Generation,
        /// Visits, at most.
        at_most: u64,
    },
    /// What a rank brings to a round.
    Closing {
        /// The view.
        generation: Generation,
        /// Sync: number of the round; else this rank's clock.
        round: u64,
        /// Samples in its gradient.
        samples: u64,
        /// Loss summed over them.
        loss: f64,
        /// Visits that the gradient was computed on.
        taken: Vec<Lease>,
        /// A step of the leader for which nobody waits.
        alone: bool,
        /// Visits wanted for the next round, at most; 0: none, or more than enough are at hand.
        want: u64,
    },
    /// A rank has come to where all ranks meet.
    Arrive {
        /// The view.
        generation: Generation,
        /// For what.
        meeting: Meeting,
    },
    /// The transport cannot reach this member, whom the view needs.
    Unreachable {
        /// The view.
        generation: Generation,
        /// Whom.
        member: MemberId,
    },
    /// Word from the trainer to the driver (progress), as it is; best effort.
    Report(Vec<u8>),
    /// This member's work is over. It serves its shards until [`ToMember::Stop`] if it has only finished.
    Leave(Leave),
}

/// Who a member is and where it can be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The run it was started for.
    pub run: RunId,
    /// Its row of the gang.
    pub member: MemberId,
    /// Its life.
    pub incarnation: Incarnation,
    /// What it does.
    pub role: Role,
    /// The newest view it has heard of.
    pub generation: Generation,
    /// Where the others reach its shards; none within a process.
    pub address: Option<SocketAddr>,
    /// Host, for people and for reductions within a host.
    pub host: String,
    /// Process, for people.
    pub pid: u32,
}

/// Where all ranks meet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Meeting {
    /// End of an epoch or of a warm-up.
    Synchronise,
    /// All ranks have fetched what [`Meeting::Synchronise`] led to (asynchronous modes: nobody pushes before).
    Fetched,
    /// Element-wise sum.
    Sum(Vec<f64>),
}

impl Meeting {
    /// The method of [`GradientSync`](crate::GradientSync) behind it, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Synchronise | Self::Fetched => "synchronise",
            Self::Sum(_) => "sum",
        }
    }
}

/// What a member can serve of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// The shard.
    pub shard: ShardId,
    /// Newest version that is whole.
    pub newest: u64,
    /// The version before it is here as well.
    pub has_previous: bool,
    /// The view in which it last took part: one that missed a view may hold what was undone since.
    pub generation: Generation,
}

impl ReplicaStatus {
    /// Whether this replica can show version `version`.
    pub fn shows(&self, version: u64) -> bool {
        version == self.newest || (self.has_previous && self.newest.checked_sub(1) == Some(version))
    }
}

/// From the coordinator to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToMember {
    /// Answer to a heartbeat.
    Heartbeat,
    /// Refuse all of older generations and tell what you hold.
    Freeze {
        /// The generation that is being formed.
        generation: Generation,
    },
    /// A new membership.
    View(View),
    /// All ranks have joined: training goes on from here.
    Started {
        /// The view.
        generation: Generation,
        /// The position that the parameters stand for.
        position: Position,
    },
    /// Answer to [`ToCoordinator::Take`].
    Taken {
        /// The view.
        generation: Generation,
        /// `None`: nothing is left for this rank in this epoch now.
        lease: Option<Lease>,
    },
    /// A round is closed.
    Closed {
        /// The view.
        generation: Generation,
        /// Number of the round, as in [`ToCoordinator::Closing`].
        round: u64,
        /// Updates of the parameters before it.
        updates: u64,
        /// Samples of all ranks (asynchronous modes: of this rank).
        samples: u64,
        /// Loss summed over them.
        loss: f64,
        /// No rank had any rows: the epoch is over.
        finished: bool,
        /// Where training stands after it.
        position: Position,
        /// The next lease, if one was wanted and is to be had.
        lease: Option<Lease>,
    },
    /// All ranks have come.
    Passed {
        /// The view.
        generation: Generation,
        /// What came of it.
        meeting: Passed,
    },
    /// This member shall go.
    Stop(Stop),
}

/// What came of a meeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Passed {
    /// Of [`Meeting::Synchronise`].
    Synchronise {
        /// The version that all ranks take (sync mode).
        version: u64,
        /// Samples and losses of all ranks since the last one.
        totals: Totals,
        /// Where training stands.
        position: Position,
    },
    /// Of [`Meeting::Fetched`].
    Fetched,
    /// The sum over the ranks.
    Sum(Vec<f64>),
}
