//! A member as a state machine: what it says to the coordinator and to the holders of shards, and when a call of its
//! trainer is over. The transport moves the messages and the values.
//!
//! ```text
//!   trainer ── begin(Call) ─► Member ── MemberAction::Tell ─► coordinator
//!      ▲                        │ ───── MemberAction::Ask ──► holders of shards   (+ values, by Payload)
//!      └── Done ◄───────────────┘ ◄── told, answered, tick
//! ```
//! One call at a time. A call that a change of the membership interrupts is over with [`Error::Restarted`]; `join`
//! waits for the next view and takes up from there. Without the coordinator a call ends with [`Error::DriverLost`],
//! after the parameters of the last closed round were fetched again, so that they can be written down.

mod calls;
mod stages;
mod told;

pub use calls::{Call, Done, MemberAction, Payload};

use super::{
    Failure, Generation, Hello, Incarnation, Leave, MemberId, Pace, ReplicaStatus, Role, Rules, ShardId,
    ShardReply, ToCoordinator, View,
};
use crate::{Error, Lease, Place, Position, Round, Totals, equal_ranges};
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    ops::Range,
};

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For a view.
    View,
    /// The leader's values, on the shards.
    Installing,
    /// For the other ranks.
    Joining,
    /// Asynchronous modes: for the shards to take the gradient.
    Pushing,
    /// For the round.
    Closing,
    /// For the parameters.
    Fetching,
    /// For the other ranks.
    Meeting,
    /// Asynchronous modes: until all have fetched.
    Fetched,
    /// For an answer of the coordinator.
    Answer,
    /// For the parameters of the last closed round, because the coordinator is lost.
    Recovering,
}

#[derive(Debug)]
struct Open {
    call: Call,
    stage: Stage,
    /// Asynchronous modes: version of the parameters that the gradient was computed on.
    read: u64,
    /// Questions that are not answered: whose range.
    asked: BTreeMap<u64, ShardId>,
    closed: Option<Round>,
    position: Option<Position>,
    totals: Totals,
    staleness: u64,
    memory: (u64, Vec<String>),
}

/// Settings of a member, all of them from the gang's.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// The gang's rules.
    pub rules: Rules,
    /// Asynchronous modes: minibatches between two fetches.
    pub n_fetch: u64,
    /// Asynchronous modes: minibatches between two pushes.
    pub n_push: u64,
}

/// Words of a trainer that wait for a connection; then the oldest go.
const REPORTS: usize = 1_000;

/// A member of a gang.
#[derive(Debug)]
pub struct Member {
    settings: MemberSettings,
    hello: Hello,
    generation: Generation,
    /// The view that holds; none while one is being formed.
    view: Option<View>,
    connected: bool,
    /// When the coordinator was heard last.
    heard: u64,
    beat: u64,
    now: u64,
    open: Option<Open>,
    outcome: Option<Result<Done, Error>>,
    /// Calls but `join` are refused with it until the next `join`.
    interrupted: Option<Error>,
    failed: Option<Error>,
    /// What the trainer joins with may be taken.
    brings: bool,
    /// The coordinator was silent for too long: only a new view counts.
    driver_lost: bool,
    /// What was said last, to be said again by another connection.
    leaving: Option<Leave>,
    /// Words of the trainer that wait for a connection.
    reports: VecDeque<Vec<u8>>,
    ticked: u64,
    ranges: Vec<Range<usize>>,
    /// Sync: the version that the trainer has. Else its clock.
    version: u64,
    position: Position,
    granted: VecDeque<Lease>,
    taken: Vec<Lease>,
    /// Nothing is left for this rank in this epoch.
    nothing_left: bool,
    want: usize,
    /// Asynchronous modes: samples and loss that were not pushed.
    unpushed: Totals,
    steps: u64,
    seq: u64,
    /// Asynchronous modes, by shard: version that was read, own pushes since.
    read: Vec<(u64, u64)>,
    next_id: u64,
    actions: Vec<MemberAction>,
}

impl Member {
    /// A member that has not connected yet.
    pub fn new(
        settings: MemberSettings,
        member: MemberId,
        incarnation: Incarnation,
        (address, host): (Option<SocketAddr>, String),
        now: u64,
    ) -> Self {
        let role = settings.rules.role(member).unwrap_or(Role::Rank);
        let (run, generation, pid) = (settings.rules.run, Generation::default(), std::process::id());
        let hello = Hello { run, member, incarnation, role, generation, address, host, pid };
        Self {
            settings,
            hello,
            generation,
            view: None,
            connected: false,
            heard: now,
            beat: now,
            now,
            open: None,
            outcome: None,
            // Nothing but `join` comes first.
            interrupted: Some(Error::Restarted { generation: 0 }),
            failed: None,
            brings: true,
            driver_lost: false,
            leaving: None,
            reports: VecDeque::new(),
            ticked: now,
            ranges: Vec::new(),
            version: 0,
            position: Position::default(),
            granted: VecDeque::new(),
            taken: Vec::new(),
            nothing_left: false,
            want: 0,
            unpushed: Totals::default(),
            steps: 0,
            seq: 0,
            read: Vec::new(),
            next_id: 0,
            actions: Vec::new(),
        }
    }

    /// This member.
    pub fn id(&self) -> MemberId {
        self.hello.member
    }

    /// The view that holds; none while one is being formed.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Where training stands after the last round that this rank has.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Place among the ranks of the view.
    pub fn place(&self) -> Place {
        let ranks: Vec<MemberId> = self.view.iter().flat_map(View::ranks).collect();
        let index = ranks.iter().position(|rank| *rank == self.id()).unwrap_or(self.id().index());
        Place { index, of: ranks.len().max(index + 1) }
    }

    /// Ranges of the shards.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Asynchronous modes: whether a step with samples now is pushed (else its gradient is added to what was not).
    pub fn pushes_next(&self) -> bool {
        (self.steps + 1).is_multiple_of(self.settings.n_push)
    }

    /// Where the values of an answer belong; `None`: nobody waits for them any more.
    pub fn wanted(&self, reply: &ShardReply) -> Option<Range<usize>> {
        let shard = self.open.as_ref()?.asked.get(&reply.id).filter(|shard| **shard == reply.shard)?;
        self.ranges.get(shard.index()).cloned()
    }

    /// The result of the call, once [`MemberAction::Done`] has said so.
    pub fn outcome(&mut self) -> Option<Result<Done, Error>> {
        self.outcome.take()
    }

    /// Connected to the coordinator.
    pub fn connected(&mut self, now: u64) -> Vec<MemberAction> {
        self.at(now);
        self.connected = true;
        (self.heard, self.beat) = (self.now, self.now);
        self.hello.generation = self.generation;
        let hello = self.hello.clone();
        self.tell(ToCoordinator::Hello(hello));
        for report in std::mem::take(&mut self.reports) {
            self.tell(ToCoordinator::Report(report));
        }
        if let Some(leave) = self.leaving.clone() {
            self.tell(ToCoordinator::Leave(leave));
        }
        self.drain()
    }

    /// The connection to the coordinator is lost.
    pub fn disconnected(&mut self, now: u64) {
        self.at(now);
        self.connected = false;
    }

    /// Time has passed: heartbeats, and what follows from the coordinator's silence.
    pub fn tick(&mut self, now: u64) -> Vec<MemberAction> {
        self.at(now);
        let Rules { heartbeat_ms, dead_ms, hold_ms, .. } = self.settings.rules;
        if self.connected && self.now >= self.beat + heartbeat_ms {
            self.beat = self.now;
            self.tell(ToCoordinator::Heartbeat);
        }
        // A process that was stopped cannot blame the coordinator for it.
        if self.now > self.ticked + dead_ms / 2 {
            self.heard = self.now;
        }
        self.ticked = self.now;
        let silent = self.now.saturating_sub(self.heard);
        if silent >= hold_ms {
            if self.failed.is_none() {
                let error = self.driver_is_late();
                self.fail_with(error);
                self.actions.push(MemberAction::Released);
            }
        } else if silent >= dead_ms {
            self.driver_is_lost(silent >= 2 * dead_ms);
        }
        self.drain()
    }

    /// The trainer calls. Its values must stay where [`Payload`] finds them until the call is over.
    pub fn begin(&mut self, now: u64, call: Call) -> Vec<MemberAction> {
        self.at(now);
        self.outcome = None;
        let refused = match &call {
            Call::Join { .. } => self.failed.clone(),
            // The leader writes down what it has, before it joins again.
            Call::State if matches!(self.interrupted, Some(Error::DriverLost { .. })) => self.failed.clone(),
            _ => self.failed.clone().or(self.interrupted.clone()),
        };
        if let Some(error) = refused {
            self.over(Err(error));
            return self.drain();
        }
        let stage = match call {
            Call::Join { n_parameters, .. } => {
                self.interrupted = None;
                if self.driver_lost {
                    // What it does when it comes back, it tells by a new view.
                    self.view = None;
                }
                self.forget_rounds(n_parameters);
                Stage::View
            }
            Call::Step { .. } if self.is_sync() => Stage::Closing,
            Call::Step { .. } | Call::Synchronise => Stage::Pushing,
            Call::Lease { .. } => Stage::Answer,
            Call::Sum(_) => Stage::Meeting,
            Call::State => Stage::Fetching,
        };
        let alone = matches!(call, Call::Step { alone: true, .. });
        let read = self.read.first().map_or(0, |(version, own)| version + if alone { *own } else { 0 });
        self.open = Some(Open {
            call,
            stage,
            read,
            asked: BTreeMap::new(),
            closed: None,
            position: None,
            totals: Totals::default(),
            staleness: 0,
            memory: (0, Vec::new()),
        });
        self.enter(stage);
        self.drain()
    }

    /// Word of the trainer for the driver. Without a connection it waits for the next one: the coordinator ends the
    /// connection of a member that has not said who it is.
    pub fn report(&mut self, bytes: Vec<u8>) -> Vec<MemberAction> {
        if self.connected {
            self.tell(ToCoordinator::Report(bytes));
        } else {
            if self.reports.len() >= REPORTS {
                self.reports.pop_front();
            }
            self.reports.push_back(bytes);
        }
        self.drain()
    }

    /// This member's work is done; it serves until [`MemberAction::Released`].
    pub fn finish(&mut self) -> Vec<MemberAction> {
        self.leave(Leave::Finished)
    }

    /// This member has failed.
    pub fn fail(&mut self, failure: Failure) -> Vec<MemberAction> {
        self.leave(Leave::Failed(failure))
    }

    fn leave(&mut self, leave: Leave) -> Vec<MemberAction> {
        self.leaving = Some(leave.clone());
        self.tell(ToCoordinator::Leave(leave));
        self.drain()
    }

    /// The transport has tried in vain, for longer than `reconnect_ms`, to reach this holder; say so as long as it lasts.
    pub fn unreachable(&mut self, holder: MemberId) -> Vec<MemberAction> {
        if self.view.is_some() {
            self.tell(ToCoordinator::Unreachable { generation: self.generation, member: holder });
        }
        self.drain()
    }

    /// What the replicas here hold, after [`MemberAction::Freeze`].
    pub fn frozen(&mut self, generation: Generation, replicas: Vec<ReplicaStatus>) -> Vec<MemberAction> {
        self.tell(ToCoordinator::Status { generation, replicas });
        self.drain()
    }

    fn at(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn drain(&mut self) -> Vec<MemberAction> {
        std::mem::take(&mut self.actions)
    }

    fn tell(&mut self, message: ToCoordinator) {
        self.actions.push(MemberAction::Tell(message));
    }

    fn is_sync(&self) -> bool {
        self.settings.rules.pace == Pace::Sync
    }

    fn over(&mut self, outcome: Result<Done, Error>) {
        self.open = None;
        self.outcome = Some(outcome);
        self.actions.push(MemberAction::Done);
    }

    /// The open call, and all to come, end with `error`.
    fn fail_with(&mut self, error: Error) {
        if self.failed.is_none() {
            self.failed = Some(error.clone());
            if self.open.is_some() {
                self.over(Err(error));
            }
        }
    }

    /// The open call ends with `error`, unless it is `join`; others are refused until the next one.
    fn interrupt(&mut self, error: Error) {
        self.interrupted = Some(error.clone());
        match self.open.as_mut() {
            Some(Open { call: Call::Join { .. }, stage, asked, .. }) => {
                *stage = Stage::View;
                asked.clear();
            }
            Some(_) => self.over(Err(error)),
            None => {}
        }
    }

    fn forget_rounds(&mut self, n_parameters: usize) {
        self.ranges = equal_ranges(n_parameters, self.settings.rules.shards as usize);
        self.granted.clear();
        self.taken.clear();
        self.nothing_left = false;
        self.want = 0;
        self.unpushed = Totals::default();
        self.read = vec![(0, 0); self.ranges.len()];
    }
}
