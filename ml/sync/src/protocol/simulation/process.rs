//! One life of a member: its state machines, its trainer, and what the adapter between them and a transport keeps.

use super::{
    plan::Plan,
    trainer::{Checkpoint, Trainer},
};
use crate::{
    OptimizerKind, OptimizerSettings, Reduction,
    protocol::{
        Incarnation, LinkId, Member, MemberId, MemberSettings, Replica, ReplicaSettings, ShardId,
        ShardRequest, Values, View,
    },
};
use std::collections::{BTreeMap, VecDeque};

/// A life of a member.
pub type Key = (MemberId, Incarnation);

/// Who of a process asks: its replies go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Member,
    Replica(ShardId),
}

/// A request that is not answered.
#[derive(Clone, Debug)]
pub struct Asked {
    pub request: ShardRequest,
    pub arrays: Vec<Values>,
}

/// A process.
pub struct Process<E> {
    pub member: Member,
    pub replicas: Vec<Replica>,
    pub trainer: Trainer,
    pub link: Option<LinkId>,
    /// The view that its replicas know: where the others are.
    pub view: Option<View>,
    /// What is not answered, by whom it is asked of and who asks.
    pub asked: BTreeMap<(Key, Origin), VecDeque<Asked>>,
    pub parameters: Vec<f32>,
    pub gradient: Vec<f32>,
    /// Asynchronous modes: gradients of steps that were not pushed.
    pub unpushed: Vec<f32>,
    /// What it joins with.
    pub start: Checkpoint,
    /// Number of the computation that is under way.
    pub computation: u64,
    /// Stopped: what reaches it, waits.
    pub paused: bool,
    pub backlog: VecDeque<E>,
    /// Since when a connection to another is tried in vain.
    pub dialing: BTreeMap<Key, u64>,
    /// Cut off until then.
    pub cut_until: u64,
}

impl<E> Process<E> {
    pub fn new(plan: &Plan, (member, incarnation): Key, start: Checkpoint, now: u64) -> Self {
        let optimizer = OptimizerSettings {
            optimizer: OptimizerKind::Sgd,
            learning_rate: 1.0,
            reduction: Reduction::Sum,
            ..OptimizerSettings::default()
        };
        let settings = ReplicaSettings { optimizer, pace: plan.rules.pace, delay_compensation: 0.0 };
        let replica = |shard| Replica::new(member, ShardId(shard), plan.rules.run, settings.clone());
        let rules = plan.rules.clone();
        let settings = MemberSettings { rules, n_fetch: plan.n_fetch, n_push: plan.n_push };
        let host = format!("host-{}", member.0 / 2);
        let n = start.parameters.len();
        Self {
            member: Member::new(settings, member, incarnation, (None, host), now),
            replicas: (0..plan.rules.shards).map(replica).collect(),
            trainer: Trainer::new(),
            link: None,
            view: None,
            asked: BTreeMap::new(),
            parameters: start.parameters.clone(),
            gradient: vec![0.0; n],
            unpushed: vec![0.0; n],
            start,
            computation: 0,
            paused: false,
            backlog: VecDeque::new(),
            dialing: BTreeMap::new(),
            cut_until: 0,
        }
    }
}
