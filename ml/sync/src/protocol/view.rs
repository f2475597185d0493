//! A membership: who is in, who holds which shard, and where training goes on.

use super::identity::{Generation, Incarnation, MemberId, Role};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A membership, who holds what, and where training goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Its number.
    pub generation: Generation,
    /// Who is in, by member.
    pub members: Vec<Attendant>,
    /// Who holds which shard.
    pub placement: Placement,
    /// The version that it begins with (asynchronous modes: every shard has one of its own).
    pub version: u64,
    /// Where that version comes from.
    pub begin: Begin,
}

impl View {
    /// Those that train, in rank order.
    pub fn ranks(&self) -> impl Iterator<Item = MemberId> {
        self.members.iter().filter(|m| m.role == Role::Rank).map(|m| m.member)
    }

    /// The rank that brings parameters and writes checkpoints: the lowest.
    pub fn leader(&self) -> Option<MemberId> {
        self.ranks().next()
    }

    /// Where `member` can be reached.
    pub fn attendant(&self, member: MemberId) -> Option<&Attendant> {
        self.members.iter().find(|m| m.member == member)
    }
}

/// A member of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attendant {
    /// Its row of the gang.
    pub member: MemberId,
    /// Its life.
    pub incarnation: Incarnation,
    /// What it does.
    pub role: Role,
    /// Where its shards are reached.
    pub address: Option<SocketAddr>,
    /// Its host.
    pub host: String,
}

/// Who holds which shard, by shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By shard.
    pub holders: Vec<Holders>,
}

/// Who holds a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// Answers the ranks.
    pub primary: MemberId,
    /// Keeps a copy; none where there is nobody else.
    pub backup: Option<MemberId>,
    /// The backup lacks the version: the primary installs it.
    pub copy: bool,
    /// The version that the holders have (nothing with [`Begin::Bring`]).
    pub version: u64,
}

/// Where a view's parameters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begin {
    /// The leader brings them: fresh ones, or those of a checkpoint.
    Bring {
        /// The gang had trained, and lost a shard with all its replicas.
        lost: bool,
    },
    /// The primaries have them.
    Held,
}
