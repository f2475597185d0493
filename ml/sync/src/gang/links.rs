//! How a member reaches the coordinator and the holders of shards: the seam between what is the same within a
//! process and over a network, and what is not.

use super::node::Node;
use crate::{
    Traffic,
    protocol::{
        Caller, Generation, MemberId, ShardId, ShardReply, ShardRequest, ToCoordinator, Values, View,
    },
};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Who of a member asks; its answers go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The trainer's side.
    Member,
    /// A primary, of its backup.
    Replica,
}

/// Who asks, in the number by which replicas know it: also of which view, so that an answer never reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub member: MemberId,
    pub origin: Origin,
    /// Its last 31 bits.
    pub generation: u64,
}

const GENERATION: u64 = (1 << 31) - 1;

impl Asker {
    pub fn of(request: &ShardRequest, origin: Origin) -> Self {
        Self { member: request.from, origin, generation: request.stamp.generation.0 & GENERATION }
    }

    /// Whether the view that it asked in is `generation`.
    pub fn is_of(self, generation: Generation) -> bool {
        self.generation == generation.0 & GENERATION
    }
}

impl From<Asker> for Caller {
    fn from(asker: Asker) -> Self {
        let origin = u64::from(asker.origin == Origin::Replica);
        Self(asker.generation << 33 | origin << 32 | u64::from(asker.member.0))
    }
}

impl From<Caller> for Asker {
    fn from(Caller(number): Caller) -> Self {
        Self {
            member: MemberId(number as u32),
            origin: if number >> 32 & 1 == 1 { Origin::Replica } else { Origin::Member },
            generation: number >> 33,
        }
    }
}

/// A member's ways to the others. Nothing waits: messages are put on their way.
pub(crate) trait Links: Send + Sync {
    /// To the coordinator; dropped without a connection.
    fn tell(&self, message: ToCoordinator);
    /// To the holder of a shard; asked again after a lost connection, until [`Self::freeze`].
    fn ask(&self, origin: Origin, holder: MemberId, request: ShardRequest, arrays: Vec<Values>);
    /// To whoever asked.
    fn reply(&self, to: Asker, reply: ShardReply, arrays: Vec<Values>);
    /// Forgets what was asked and answered in views before `generation`.
    fn freeze(&self, generation: Generation);
    /// Where the others are.
    fn view(&self, view: &View);
    /// An answer's values were taken.
    fn took(&self, _bytes: u64) {}
    /// The end of all connections, without a word.
    #[cfg(test)]
    fn sever(&self) {}
    /// Bytes moved for this member.
    fn traffic(&self) -> Traffic;
}

/// Bytes that have moved.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Meter {
    pub fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn read(&self) -> Traffic {
        Traffic { sent: self.sent.load(Ordering::Relaxed), received: self.received.load(Ordering::Relaxed) }
    }
}

/// Bytes of the values.
pub(crate) fn bytes(arrays: &[Values]) -> u64 {
    arrays.iter().map(|array| 4 * array.len() as u64).sum()
}

/// The members of a gang that live in this process.
#[derive(Debug, Default)]
pub(crate) struct Housemates(Mutex<BTreeMap<MemberId, Weak<Node>>>);

impl Housemates {
    pub fn enter(&self, member: MemberId, node: Weak<Node>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(member, node);
    }

    pub fn get(&self, member: MemberId) -> Option<std::sync::Arc<Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&member).and_then(Weak::upgrade)
    }
}

/// The number of a shard, to index with, if there is such a shard among `shards`.
pub(crate) fn index(shard: ShardId, shards: usize) -> Option<usize> {
    Some(shard.index()).filter(|index| *index < shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asker_survives_its_number() {
        for origin in [Origin::Member, Origin::Replica] {
            for (member, generation) in [(0, 0), (u32::MAX, 5), (7, GENERATION)] {
                let asker = Asker { member: MemberId(member), origin, generation };
                assert_eq!(Asker::from(Caller::from(asker)), asker);
                assert!(asker.is_of(Generation(generation)));
                assert!(asker.is_of(Generation(generation + GENERATION + 1)));
                assert!(!asker.is_of(Generation(generation + 1)));
            }
        }
    }
}
