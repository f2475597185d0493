//! One member's copy of one shard: what it does with requests, without sockets or threads.
//!
//! ```text
//!   ranks ── Push ──► primary: all ranks of the view have come
//!                       │        newest ─ step ─► next version      (the one before is kept)
//!                       ├─ Replicate{mean gradient} ─► backup: the same step
//!                       │ ◄──────────── Replicated ───┘
//!   ranks ◄─ Fetch ─────┘ answered only now: what a rank has seen survives the primary
//! ```
//!
//! | state | means | leaves it by |
//! |---|---|---|
//! | frozen | a view is being formed: requests of older ones are refused, of newer ones kept | `view` |
//! | waiting | holder without values (new backup, or a view that begins with the leader's) | `Install` |
//! | installing | primary with values, its backup has not confirmed them | `Installed` |
//! | ready | serves | `freeze` |
//!
//! Sync: version k + 1 is made from the gradients of round k of all ranks, in rank order. At most one version is
//! ahead of what every rank has fetched, so one version of undo is enough to go back to a round that all shards have.
//! Asynchronous modes: every push is an update of its own, acknowledged once the backup has it.

mod values;

use super::{
    Answer, Ask, Begin, Generation, MemberId, Pace, Refusal, ReplicaStatus, RunId, ShardId, ShardReply,
    ShardRequest, Stamp, View, Wanted,
    versions::{Update, Versions},
};
use crate::OptimizerSettings;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use values::Push;

/// An array on its way; within a process it is shared, never copied.
pub type Values = Arc<Vec<f32>>;

/// The connection that a request came by, as the transport numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller(pub u64);

/// What a replica wants done.
#[derive(Clone, Debug)]
pub enum ReplicaAction {
    /// Answer the request that came by `to`.
    Reply {
        /// Where it came from.
        to: Caller,
        /// The header.
        reply: ShardReply,
        /// What follows it.
        arrays: Vec<Values>,
    },
    /// Ask another holder; its answer goes to [`Replica::answered`].
    Ask {
        /// Whom.
        member: MemberId,
        /// The header.
        request: ShardRequest,
        /// What follows it.
        arrays: Vec<Values>,
    },
}

/// What a replica does with gradients.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The update rule.
    pub optimizer: OptimizerSettings,
    /// When updates are made.
    pub pace: Pace,
    /// λ of delay compensation (asynchronous modes); 0: none.
    pub delay_compensation: f32,
}

/// What this member is for the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    Primary { backup: Option<MemberId> },
    Backup,
}

/// Whom an answer goes to.
#[derive(Clone, Copy, Debug)]
struct Asker {
    caller: Caller,
    member: MemberId,
    id: u64,
}

/// A gradient that waits for those of the other ranks.
#[derive(Debug)]
struct Share {
    samples: u64,
    differences: bool,
    gradient: Values,
}

/// An update that the backup has not confirmed.
#[derive(Debug)]
struct Unconfirmed {
    id: u64,
    /// Who is told when it is, and the updates before theirs.
    pushed: Option<(Asker, u64)>,
}

/// A replica of one shard.
#[derive(Debug)]
pub struct Replica {
    me: MemberId,
    shard: ShardId,
    settings: ReplicaSettings,
    /// The newest view that was heard of.
    stamp: Stamp,
    frozen: bool,
    part: Part,
    ranks: Vec<MemberId>,
    values: Option<Versions>,
    /// The view in which `values` last took part.
    valid_in: Stamp,
    /// The question by which the backup is being installed, and who brought the values.
    installing: Option<(u64, Option<Asker>)>,
    /// Sync: gradients of the round that is open, by rank.
    shares: BTreeMap<MemberId, Share>,
    unconfirmed: VecDeque<Unconfirmed>,
    /// Asynchronous modes: newest push by rank.
    applied: BTreeMap<MemberId, u64>,
    /// What a rank computes its gradients on, for delay compensation.
    read: BTreeMap<MemberId, (u64, Values)>,
    /// Fetches of what is not there yet.
    waiting: Vec<(Asker, Wanted, bool)>,
    /// Requests of views that are not known yet.
    early: Vec<(Caller, ShardRequest, Vec<Values>)>,
    next_id: u64,
}

/// Requests of unknown views that are kept; more can only be a fault.
const MOST_EARLY: usize = 1024;

impl Replica {
    /// A replica of `shard` at member `me`, before the first view.
    pub fn new(me: MemberId, shard: ShardId, run: RunId, settings: ReplicaSettings) -> Self {
        let stamp = Stamp { run, generation: Generation::default() };
        Self {
            me,
            shard,
            settings,
            stamp,
            frozen: true,
            part: Part::None,
            ranks: Vec::new(),
            values: None,
            valid_in: stamp,
            installing: None,
            shares: BTreeMap::new(),
            unconfirmed: VecDeque::new(),
            applied: BTreeMap::new(),
            read: BTreeMap::new(),
            waiting: Vec::new(),
            early: Vec::new(),
            next_id: 0,
        }
    }

    /// The shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// It serves in this view, and no other is being formed.
    #[cfg(test)]
    pub(super) fn is_in(&self, generation: Generation) -> bool {
        self.stamp.generation == generation && !self.frozen
    }

    /// The parameters of a version, if they are here.
    #[cfg(test)]
    pub(super) fn parameters(&self, version: u64) -> Option<Values> {
        self.values
            .as_ref()
            .and_then(|values| values.get(version))
            .map(|version| Arc::clone(&version.parameters))
    }

    /// What could be served of the shard; none without values.
    pub fn status(&self) -> Option<ReplicaStatus> {
        self.values.as_ref().map(|values| ReplicaStatus {
            shard: self.shard,
            newest: values.newest.number,
            has_previous: values.previous.is_some(),
            generation: self.valid_in.generation,
        })
    }

    /// A view with this number is being formed: older ones are over. Whoever waits is told.
    pub fn freeze(&mut self, generation: Generation) -> Vec<ReplicaAction> {
        if generation <= self.stamp.generation {
            return Vec::new();
        }
        self.stamp.generation = generation;
        self.frozen = true;
        self.part = Part::None;
        self.forget_view()
    }

    /// A new view. What it keeps of the shard it goes back to the view's version with.
    pub fn view(&mut self, view: &View) -> Vec<ReplicaAction> {
        if view.generation < self.stamp.generation
            || (view.generation == self.stamp.generation && !self.frozen)
        {
            return Vec::new();
        }
        self.stamp.generation = view.generation;
        let mut actions = self.forget_view();
        self.frozen = false;
        self.ranks = view.ranks().collect();
        let Some(holders) = view.placement.holders.get(self.shard.index()).copied() else {
            self.part = Part::None;
            return actions;
        };
        self.part = match holders {
            _ if holders.primary == self.me => Part::Primary { backup: holders.backup },
            _ if holders.backup == Some(self.me) => Part::Backup,
            _ => Part::None,
        };
        let keeps = match self.part {
            Part::None => false,
            Part::Primary { .. } => view.begin == Begin::Held,
            Part::Backup => view.begin == Begin::Held && !holders.copy,
        };
        if !(keeps && self.values.as_mut().is_some_and(|values| values.go_back(holders.version))) {
            self.values = None;
        }
        self.valid_in = self.stamp;
        if let (Part::Primary { backup: Some(backup) }, true) =
            (self.part, holders.copy && self.values.is_some())
        {
            actions.extend(self.install_on(backup, None));
        }
        for (caller, request, arrays) in std::mem::take(&mut self.early) {
            actions.extend(self.request(caller, request, arrays));
        }
        actions
    }

    /// All that belonged to the view before; whoever waits is refused.
    fn forget_view(&mut self) -> Vec<ReplicaAction> {
        self.shares.clear();
        self.applied.clear();
        self.read.clear();
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(asker, ..)| asker);
        let unconfirmed = std::mem::take(&mut self.unconfirmed).into_iter();
        let pushed = unconfirmed.filter_map(|update| update.pushed.map(|(asker, _)| asker));
        let installer = self.installing.take().and_then(|(_, asker)| asker);
        let generation = self.stamp.generation;
        waiting
            .chain(pushed)
            .chain(installer)
            .map(|asker| self.reply(asker, Answer::Refused(Refusal::Stale { generation }), Vec::new()))
            .collect()
    }

    /// A request with what followed it.
    pub fn request(
        &mut self,
        caller: Caller,
        request: ShardRequest,
        arrays: Vec<Values>,
    ) -> Vec<ReplicaAction> {
        let asker = Asker { caller, member: request.from, id: request.id };
        let known = self.stamp.generation;
        if request.stamp.run != self.stamp.run || request.shard != self.shard {
            return self.refuse(asker, Refusal::NotHolder);
        }
        if request.stamp.generation < known {
            return self.refuse(asker, Refusal::Stale { generation: known });
        }
        if request.stamp.generation > known || self.frozen {
            if self.early.len() >= MOST_EARLY {
                return self.refuse(asker, Refusal::Stale { generation: known });
            }
            self.early.push((caller, request, arrays));
            return Vec::new();
        }
        if arrays.len() != request.ask.arrays() {
            let (found, expected) = (arrays.len() as u64, request.ask.arrays() as u64);
            return self.refuse(asker, Refusal::Length { found, expected });
        }
        match (request.ask, self.part) {
            (Ask::Push { round, seq, samples, read, alone, differences }, Part::Primary { .. }) => {
                let gradient = arrays.into_iter().next().unwrap_or_default();
                self.push(asker, Push { round, seq, samples, read, alone, differences }, gradient)
            }
            (Ask::Fetch(wanted), Part::Primary { .. }) => self.fetch(asker, wanted, false),
            (Ask::State(wanted), Part::Primary { .. }) => self.fetch(asker, wanted, true),
            (Ask::Install { version, steps, vectors }, Part::Primary { .. } | Part::Backup) => {
                self.install(asker, (version, steps), &vectors, arrays)
            }
            (Ask::Replicate { version, samples, differences }, Part::Backup) => {
                // The gradient is the mean already.
                let (gradients, samples) = (arrays, samples.min(1));
                self.follow(asker, version, Update { gradients, samples, differences, read: None })
            }
            _ => self.refuse(asker, Refusal::NotHolder),
        }
    }

    /// The backup's answer to [`ReplicaAction::Ask`].
    pub fn answered(&mut self, reply: &ShardReply) -> Vec<ReplicaAction> {
        match reply.answer {
            Answer::Installed if self.installing.is_some_and(|(id, _)| id == reply.id) => {
                let installer = self.installing.take().and_then(|(_, asker)| asker);
                let mut actions: Vec<_> = installer
                    .into_iter()
                    .map(|asker| self.reply(asker, Answer::Installed, Vec::new()))
                    .collect();
                actions.extend(self.serve_waiting());
                actions
            }
            // Confirmations come in the order of the questions.
            Answer::Replicated { .. } if self.unconfirmed.front().is_some_and(|u| u.id == reply.id) => {
                let confirmed = self.unconfirmed.pop_front().and_then(|update| update.pushed);
                let mut actions: Vec<_> = confirmed
                    .into_iter()
                    .map(|(asker, version)| self.reply(asker, Answer::Pushed { version }, Vec::new()))
                    .collect();
                actions.extend(self.serve_waiting());
                actions
            }
            // A refusal means that the view is over, or will be: the coordinator sees to it.
            _ => Vec::new(),
        }
    }

    fn ask(&mut self, ask: Ask) -> ShardRequest {
        self.next_id += 1;
        ShardRequest { stamp: self.stamp, from: self.me, shard: self.shard, id: self.next_id, ask }
    }

    fn reply(&self, to: Asker, answer: Answer, arrays: Vec<Values>) -> ReplicaAction {
        let reply = ShardReply { shard: self.shard, id: to.id, answer };
        ReplicaAction::Reply { to: to.caller, reply, arrays }
    }

    fn refuse(&self, to: Asker, refusal: Refusal) -> Vec<ReplicaAction> {
        vec![self.reply(to, Answer::Refused(refusal), Vec::new())]
    }
}

#[cfg(test)]
mod tests;
