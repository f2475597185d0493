//! The decision: which waiting partitions go to which executors now, and why the others do not.
//!
//! ```text
//!   queues, each in the order of submission          the queue that is furthest below its share
//!   default: [gang of 4] [60 partitions]    ──►      is served: one slot, or one whole gang
//!   small:   [8 partitions]                                │
//!                                                          ▼
//!                        fits ──► bound                    does not fit ──► passed over, with the reason;
//!                                                          a gang keeps what is free until it fits
//! ```
//!
//! * A gang starts with all the members that it needs, or not at all. Further members of an elastic one are
//!   bound slot by slot as room comes.
//! * Queues take turns by what they have and what they weigh. Idle room is anybody's; a gang that needs more than
//!   its queue's share is served last, from what nobody else wants.
//! * The first gang of a queue that does not fit keeps free room, up to its queue's share, until its deadline:
//!   tasks that end make room for it and not for the small tasks behind it. Later gangs, and gangs that the
//!   empty cluster could not hold, keep nothing.
//! * The same view gives the same decision.

use super::{
    cluster_view::{ClusterView, Demand, GangNeed, Room, StageKey, Waiting, is_of},
    free_room::FreeRoom,
    reason::{Hold, Need, Reason},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Partitions of a stage for an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The stage.
    pub stage: StageKey,
    /// The executor.
    pub executor: String,
    /// How many partitions it gets.
    pub partitions: u32,
}

/// A stage with partitions that stay waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The stage.
    pub stage: StageKey,
    /// Why.
    pub reason: Reason,
    /// Its deadline has passed before it could start: it is to be given up.
    pub gives_up: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What is bound.
    pub bindings: Vec<Binding>,
    /// What is not.
    pub passed_over: Vec<PassedOver>,
}

/// Decides from `view` alone.
pub fn decide(view: &ClusterView) -> Decision {
    let mut round = Round::new(view);
    while let Some(queue) = round.next_queue() {
        round.serve(queue);
    }
    round.serve_the_rest();
    round.decision
}

/// A queue in its turn.
struct Turn<'a> {
    name: &'a str,
    weight: u32,
    /// Slots that it has: running, bound in this round, or kept for a gang.
    used: u32,
    /// Whether it has a stage that the cluster could run at all.
    active: bool,
    /// Whether one of its gangs has been passed over: only the first may keep room.
    gang_waits: bool,
    stages: VecDeque<Pending<'a>>,
}

#[derive(Clone, Copy)]
struct Pending<'a> {
    stage: &'a Waiting,
    left: u32,
}

/// A gang that did not fit in its turn, and the room that is kept for it.
struct Deferred<'a> {
    queue: usize,
    pending: Pending<'a>,
    need: &'a GangNeed,
    kept: Vec<usize>,
}

struct Round<'a> {
    view: &'a ClusterView,
    room: FreeRoom<'a>,
    turns: Vec<Turn<'a>>,
    deferred: Vec<Deferred<'a>>,
    decision: Decision,
}

impl<'a> Round<'a> {
    fn new(view: &'a ClusterView) -> Self {
        let mut turns: BTreeMap<&str, Turn<'a>> = BTreeMap::new();
        let mut waiting: Vec<&Waiting> = view.waiting.iter().filter(|w| w.pending > 0).collect();
        waiting.sort_by(|a, b| a.key.cmp(&b.key));
        for stage in waiting {
            let turn = turns.entry(&stage.queue).or_insert_with(|| Turn::new(view, &stage.queue));
            turn.active |= view.capacity(&each_of(stage), stage.pool.as_deref()) >= at_once(stage);
            turn.stages.push_back(Pending { stage, left: stage.pending });
        }
        Self {
            view,
            room: FreeRoom::new(&view.executors),
            turns: turns.into_values().collect(),
            deferred: Vec::new(),
            decision: Decision::default(),
        }
    }

    /// The queue that is served next, of those that have stages left to look at: of the ones below their share of
    /// what these queues have and one slot more, the one that has least for its weight. So none ever has a slot
    /// more or less than its share.
    fn next_queue(&self) -> Option<usize> {
        let with_work: Vec<_> = self.turns.iter().enumerate().filter(|(_, t)| !t.stages.is_empty()).collect();
        let weights: u64 = with_work.iter().map(|(_, t)| u64::from(t.weight)).sum();
        let slots: u64 = with_work.iter().map(|(_, t)| u64::from(t.used)).sum::<u64>() + 1;
        let below =
            with_work.into_iter().filter(|(_, t)| u64::from(t.used) * weights < u64::from(t.weight) * slots);
        let least = below.min_by(|(_, a), (_, b)| {
            let (a_has, b_has) = (u64::from(a.used) + 1, u64::from(b.used) + 1);
            (a_has * u64::from(b.weight)).cmp(&(b_has * u64::from(a.weight)))
        });
        least.map(|(index, _)| index)
    }

    /// Gives the first stage of `queue` one slot, or a gang all that it needs to start.
    fn serve(&mut self, queue: usize) {
        let Some(pending) = self.turns[queue].stages.front().copied() else { return };
        let bound = match &pending.stage.demand {
            Demand::Each => self.bind(queue, pending.stage, 1),
            Demand::Together => self.bind(queue, pending.stage, pending.left),
            Demand::Gang(need) if pending.left < need.members => self.bind(queue, pending.stage, 1),
            Demand::Gang(need) => {
                let fits = self.room.fits(&need.each, pending.stage.pool.as_deref()) >= need.at_least;
                if fits && self.allowance(queue) >= need.at_least {
                    (0..need.at_least).map(|_| self.bind(queue, pending.stage, 1)).sum()
                } else {
                    0
                }
            }
        };
        let stages = &mut self.turns[queue].stages;
        match stages.front_mut() {
            Some(first) if bound > 0 && bound < first.left => first.left -= bound,
            _ => {
                stages.pop_front();
            }
        }
        if bound == 0 {
            self.defer(queue, pending);
        }
    }

    /// Binds `partitions` as one slot's work; 0 if there is no room.
    fn bind(&mut self, queue: usize, stage: &Waiting, partitions: u32) -> u32 {
        let Some(index) = self.room.take(&each_of(stage), stage.pool.as_deref()) else { return 0 };
        self.turns[queue].used += 1;
        let executor = &self.room.executor(index).id;
        let bindings = &mut self.decision.bindings;
        match bindings.iter_mut().find(|b| b.stage == stage.key && b.executor == *executor) {
            Some(binding) => binding.partitions += partitions,
            None => {
                bindings.push(Binding { stage: stage.key.clone(), executor: executor.clone(), partitions })
            }
        }
        partitions
    }

    /// A stage that did not fit: a gang keeps room and is looked at again when all others have been served.
    fn defer(&mut self, queue: usize, pending: Pending<'a>) {
        let Demand::Gang(need) = &pending.stage.demand else {
            return self.pass_over(queue, &pending, 1, false);
        };
        // Members that an elastic gang could do without wait as tasks do.
        let wanted = wanted(&pending, need);
        if wanted == 0 {
            return self.pass_over(queue, &pending, 1, false);
        }
        let mut kept = Vec::new();
        let pool = pending.stage.pool.as_deref();
        let could_ever = self.view.capacity(&need.each, pool) >= wanted && self.share(queue) >= wanted;
        if could_ever && !need.is_overdue() && !self.turns[queue].gang_waits {
            self.turns[queue].gang_waits = true;
            kept = self.keep(queue, &need.each, pool, wanted);
        }
        self.deferred.push(Deferred { queue, pending, need, kept });
    }

    /// Takes free room, as much as the queue may have, without binding anything.
    fn keep(&mut self, queue: usize, each: &Room, pool: Option<&str>, wanted: u32) -> Vec<usize> {
        let most = wanted.min(self.allowance(queue));
        let kept: Vec<usize> = (0..most).map_while(|_| self.room.take(each, pool)).collect();
        self.turns[queue].used += kept.len() as u32;
        kept
    }

    /// Gangs that did not fit in their turn, from what the others have left.
    fn serve_the_rest(&mut self) {
        let mut deferred = std::mem::take(&mut self.deferred);
        deferred.sort_by(|a, b| a.pending.stage.key.cmp(&b.pending.stage.key));
        // What the others keep stays in the list, for the reasons of those who pass.
        self.deferred = deferred;
        for i in 0..self.deferred.len() {
            let Deferred { queue, pending, need, .. } = self.deferred[i];
            let kept = std::mem::take(&mut self.deferred[i].kept);
            for index in &kept {
                self.room.give_back(*index, &need.each);
            }
            self.turns[queue].used -= kept.len() as u32;
            let (pool, wanted) = (pending.stage.pool.as_deref(), wanted(&pending, need));
            if self.room.fits(&need.each, pool) >= wanted {
                let bound = (0..pending.left).map_while(|_| match self.bind(queue, pending.stage, 1) {
                    0 => None,
                    n => Some(n),
                });
                let left = pending.left - bound.sum::<u32>();
                if left > 0 {
                    self.pass_over(queue, &Pending { left, ..pending }, 1, false);
                }
                continue;
            }
            let fresh = pending.left >= need.members;
            self.pass_over(queue, &pending, wanted, fresh && need.is_overdue());
            let again = if kept.is_empty() { 0 } else { wanted };
            self.deferred[i].kept = self.keep(queue, &need.each, pool, again);
        }
    }

    /// Slots that `queue` may have now: by weight, among the queues with work that the cluster could run. Alone
    /// it may have all.
    fn share(&self, queue: usize) -> u32 {
        let others = self.turns.iter().enumerate().filter(|(i, t)| t.active && *i != queue);
        let others: u64 = others.map(|(_, t)| u64::from(t.weight)).sum();
        if others == 0 {
            return u32::MAX;
        }
        let weight = u64::from(self.turns[queue].weight);
        let share = (u64::from(self.view.slots(None)) * weight).div_ceil(weight + others);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    fn allowance(&self, queue: usize) -> u32 {
        self.share(queue).saturating_sub(self.turns[queue].used)
    }

    fn pass_over(&mut self, queue: usize, pending: &Pending<'_>, slots: u32, gives_up: bool) {
        let reason = self.reason(queue, pending.stage, slots);
        self.decision.passed_over.push(PassedOver { stage: pending.stage.key.clone(), reason, gives_up });
    }

    fn reason(&self, queue: usize, stage: &Waiting, slots: u32) -> Reason {
        let (each, pool) = (each_of(stage), stage.pool.as_deref());
        let need = Need { slots, each, pool: stage.pool.clone() };
        let total = self.view.capacity(&each, pool);
        if total < slots {
            return Reason::TooSmall { need, total };
        }
        let share = self.share(queue);
        if share < slots {
            let others = self.turns.iter().enumerate().filter(|(i, t)| t.active && *i != queue);
            let others = others.map(|(_, t)| t.name.to_owned()).collect();
            let (queue, total) = (self.turns[queue].name.to_owned(), self.view.slots(None));
            return Reason::OverShare { need, queue, share, total, others };
        }
        let free = self.room.fits(&each, pool);
        Reason::Busy { need, free, total, held_by: self.users(pool), kept: self.kept(pool) }
    }

    /// Jobs that have tasks on executors of `pool`, those of this round too.
    fn users(&self, pool: Option<&str>) -> Vec<String> {
        let may_use = |id: &str| self.view.executors.iter().any(|e| e.id == id && is_of(e, pool));
        let running = self.view.running.iter().filter(|r| r.slots > 0).map(|r| (&r.executor, &r.job));
        let bound = self.decision.bindings.iter().map(|b| (&b.executor, &b.stage.job));
        let users = running.chain(bound).filter(|(executor, _)| may_use(executor));
        users.map(|(_, job)| job.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What is kept for gangs on executors of `pool`.
    fn kept(&self, pool: Option<&str>) -> Vec<Hold> {
        let usable = |index: &&usize| is_of(self.room.executor(**index), pool);
        let holds = self.deferred.iter().map(|d| Hold {
            gang: d.need.name.clone(),
            job: d.pending.stage.key.job.clone(),
            slots: d.kept.iter().filter(usable).count() as u32,
            deadline: d.need.deadline,
        });
        holds.filter(|hold| hold.slots > 0).collect()
    }
}

impl<'a> Turn<'a> {
    fn new(view: &ClusterView, name: &'a str) -> Self {
        let used = view.running.iter().filter(|r| r.queue == name).map(|r| r.slots).sum();
        let weight = view.weights.get(name).copied().unwrap_or(1).max(1);
        Self { name, weight, used, active: false, gang_waits: false, stages: VecDeque::new() }
    }
}

/// What each partition of `stage` takes.
fn each_of(stage: &Waiting) -> Room {
    match &stage.demand {
        Demand::Gang(need) => need.each,
        Demand::Each | Demand::Together => Room::SLOT,
    }
}

/// How many partitions of `stage` must start together.
fn at_once(stage: &Waiting) -> u32 {
    match &stage.demand {
        Demand::Gang(need) if stage.pending >= need.members => need.at_least,
        _ => 1,
    }
}

/// How many members a gang cannot do without: what it needs to start, or what a strict one has lost.
fn wanted(pending: &Pending<'_>, need: &GangNeed) -> u32 {
    match pending.left >= need.members {
        true => need.at_least,
        false if need.at_least == need.members => pending.left,
        false => 0,
    }
}
