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

use super::{
    identity::{Generation, Incarnation, MemberId, Role, ShardId, Stamp},
    messages::{
        Begin, Failure, Hello, Leave, Meeting, Passed, Reason, ReplicaStatus, Stop, ToCoordinator, ToMember,
        View,
    },
    rules::{Pace, Rules},
    shard_messages::{Answer, Ask, Refusal, ShardReply, ShardRequest, Wanted},
};
use crate::{Error, Lease, Place, Position, Rank, Round, Totals, equal_ranges};
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    ops::Range,
};

/// What a trainer calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// [`GradientSync::join`](crate::GradientSync::join).
    Join {
        /// Length of the parameters.
        n_parameters: usize,
        /// Rows of the whole training set.
        rows: usize,
        /// Where the parameters stand, if they are needed.
        position: Position,
        /// Updates that the optimizer has seen.
        steps: u64,
        /// Names of its vectors; empty: fresh.
        vectors: Vec<String>,
    },
    /// [`GradientSync::lease`](crate::GradientSync::lease).
    Lease {
        /// Visits, at most.
        at_most: usize,
    },
    /// [`GradientSync::step`](crate::GradientSync::step), `step_alone`.
    Step {
        /// Samples in the gradient.
        samples: u64,
        /// Loss summed over them.
        loss: f64,
        /// `step_alone`.
        alone: bool,
    },
    /// [`GradientSync::synchronise`](crate::GradientSync::synchronise).
    Synchronise,
    /// [`GradientSync::sum`](crate::GradientSync::sum).
    Sum(Vec<f64>),
    /// [`GradientSync::optimizer_state`](crate::GradientSync::optimizer_state).
    State,
}

impl Call {
    fn name(&self) -> &'static str {
        match self {
            Self::Join { .. } => "join",
            Self::Lease { .. } => "lease",
            Self::Step { .. } => "step",
            Self::Synchronise => "synchronise",
            Self::Sum(_) => "sum",
            Self::State => "optimizer_state",
        }
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// Of [`Call::Join`]: the position that the parameters stand for.
    Joined(Position),
    /// Of [`Call::Lease`].
    Leased(Option<Lease>),
    /// Of [`Call::Step`].
    Stepped(Round),
    /// Of [`Call::Synchronise`].
    Synchronised(Totals),
    /// Of [`Call::Sum`].
    Summed(Vec<f64>),
    /// Of [`Call::State`]: the vectors came with the answers.
    State {
        /// Updates that the optimizer has seen.
        steps: u64,
        /// Names of its vectors.
        vectors: Vec<String>,
    },
}

/// What a member wants done, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberAction {
    /// Say this to the coordinator; without a connection, drop it.
    Tell(ToCoordinator),
    /// Ask the holder of a shard. Ask again, in the same order, what was not answered when a connection is lost, until
    /// the next [`MemberAction::Freeze`].
    Ask {
        /// Whom.
        holder: MemberId,
        /// The header.
        request: ShardRequest,
        /// What follows it.
        payload: Payload,
    },
    /// [`Replica::freeze`](super::Replica::freeze) all replicas here, then tell [`Member::frozen`] what they hold.
    Freeze(Generation),
    /// [`Replica::view`](super::Replica::view) on all replicas here.
    Apply(View),
    /// The call is over: [`Member::outcome`].
    Done,
    /// The gang needs this member no more, or is lost for good.
    Released,
}

/// The values that follow a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    Nothing,
    /// This range of the gradient: of the step, or (asynchronous modes) of all steps that were not pushed yet.
    Gradient(Range<usize>),
    /// This range of the parameters and of the optimizer's vectors that the trainer joins with.
    Start(Range<usize>),
}

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

/// What comes from the coordinator.
impl Member {
    /// The coordinator says something.
    pub fn told(&mut self, now: u64, message: ToMember) -> Vec<MemberAction> {
        self.at(now);
        self.heard = self.now;
        if std::mem::take(&mut self.driver_lost) {
            // It was silent, not gone, and does not know that this member has given it up.
            self.view = None;
            let hello = self.hello.clone();
            self.tell(ToCoordinator::Hello(hello));
        }
        match message {
            ToMember::Heartbeat => {}
            ToMember::Freeze { generation } => self.freeze(generation),
            ToMember::View(view) => self.take_view(view),
            ToMember::Stop(stop) => self.stop(stop),
            ToMember::Started { generation, position } if self.is_current(generation) => {
                self.started(position);
            }
            ToMember::Taken { generation, lease } if self.is_current(generation) => {
                self.nothing_left = lease.is_none();
                self.granted.extend(lease);
                if let Some(Open { call: Call::Lease { at_most }, .. }) = self.open {
                    let lease = self.next_lease(at_most);
                    self.over(Ok(Done::Leased(lease)));
                }
            }
            ToMember::Passed { generation, meeting } if self.is_current(generation) => self.passed(meeting),
            closed @ ToMember::Closed { .. } => self.closed(closed),
            ToMember::Started { .. } | ToMember::Taken { .. } | ToMember::Passed { .. } => {}
        }
        self.drain()
    }

    fn is_current(&self, generation: Generation) -> bool {
        self.view.is_some() && generation == self.generation
    }

    fn freeze(&mut self, generation: Generation) {
        if generation < self.generation {
            return;
        }
        self.generation = generation;
        self.driver_lost = false;
        self.view = None;
        self.actions.push(MemberAction::Freeze(generation));
        self.interrupt(Error::Restarted { generation: generation.0 });
    }

    fn take_view(&mut self, view: View) {
        if view.generation < self.generation {
            return;
        }
        self.generation = view.generation;
        self.driver_lost = false;
        self.actions.push(MemberAction::Apply(view.clone()));
        self.view = Some(view);
        if self.open.as_ref().is_some_and(|open| open.stage == Stage::View) {
            self.enter(Stage::View);
        }
    }

    fn stop(&mut self, stop: Stop) {
        let rank = self.id().rank();
        let error = match stop {
            Stop::Finished => return self.actions.push(MemberAction::Released),
            Stop::Fenced => Error::Fenced { rank, generation: self.generation.0 },
            Stop::Cancelled | Stop::Drained => Error::Cancelled,
            Stop::Failed(reason) => self.reason(reason),
        };
        self.fail_with(error);
        self.tell(ToCoordinator::Leave(Leave::Stopped));
        self.actions.push(MemberAction::Released);
    }

    fn reason(&self, reason: Reason) -> Error {
        let rank = self.id().rank();
        let what = self.open.as_ref().map_or("the gang", |open| open.call.name());
        let names = |missing: &[MemberId]| {
            let names: Vec<String> = missing
                .iter()
                .map(|m| match self.settings.rules.role(*m) {
                    Some(Role::Rank) => m.rank().to_string(),
                    _ => m.to_string(),
                })
                .collect();
            names.join(", ")
        };
        let place = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        match reason {
            Reason::Left { member } => Error::PeerLeft { rank, peer: member.rank(), what },
            Reason::Late { seconds, missing, .. } => {
                Error::Deadline { rank, seconds, what, missing: names(&missing) }
            }
            Reason::Length { member, found, expected, .. } => {
                Error::Length { rank: member.rank(), what, found: place(found), expected: place(expected) }
            }
            Reason::Order { member, called, peer, peer_called } => Error::Order {
                rank: member.rank(),
                called: method(&called),
                peer: peer.rank(),
                peer_called: method(&peer_called),
            },
            Reason::Other(reason) => Error::Message { rank, what, reason },
        }
    }

    fn started(&mut self, position: Position) {
        let Some(open) = self.open.as_mut().filter(|open| open.stage == Stage::Joining) else { return };
        open.position = Some(position.clone());
        let view_version = self.view.as_ref().map_or(0, |view| view.version);
        self.version = if self.is_sync() { view_version } else { position.round };
        self.position = position;
        self.enter(Stage::Fetching);
    }

    fn closed(&mut self, message: ToMember) {
        let ToMember::Closed { generation, round, updates, samples, loss, finished, position, lease } =
            message
        else {
            return;
        };
        if !self.is_current(generation) || round != self.version {
            return;
        }
        self.nothing_left |= self.want > 0 && lease.is_none() && self.granted.is_empty();
        self.granted.extend(lease);
        let Some(open) = &mut self.open else { return };
        open.closed = Some(Round { round: updates, samples, loss, staleness: 0, finished });
        open.position = Some(position);
        self.go_on();
    }

    fn passed(&mut self, meeting: Passed) {
        let sync = self.is_sync();
        let Some(open) = self.open.as_mut().filter(|o| matches!(o.stage, Stage::Meeting | Stage::Fetched))
        else {
            return;
        };
        match meeting {
            Passed::Sum(values) => self.over(Ok(Done::Summed(values))),
            Passed::Synchronise { version, totals, position } => {
                open.totals = totals;
                open.position = Some(position);
                if sync {
                    self.version = version;
                }
                self.granted.clear();
                self.taken.clear();
                self.nothing_left = false;
                self.enter(Stage::Fetching);
            }
            Passed::Fetched => {
                let totals = open.totals;
                self.over(Ok(Done::Synchronised(totals)));
            }
        }
    }

    fn driver_is_lost(&mut self, for_long: bool) {
        self.driver_lost = true;
        let (rank, seconds) = (self.id().rank(), self.settings.rules.hold_ms as f64 / 1000.0);
        let error = Error::DriverLost { rank, seconds };
        match self.open.as_ref().map(|open| (&open.call, open.stage)) {
            None => {
                self.interrupted.get_or_insert(error);
            }
            Some((Call::Join { .. } | Call::State, _)) => {}
            // What the trainer has may be a mixture of two rounds: better the newest checkpoint.
            Some((_, Stage::Recovering)) if for_long => self.interrupt(Error::StateLost),
            Some((_, Stage::Recovering)) => {}
            Some((Call::Step { .. }, _)) if self.is_sync() => self.enter(Stage::Recovering),
            Some(_) => self.interrupt(error),
        }
    }

    fn driver_is_late(&self) -> Error {
        Error::Deadline {
            rank: self.id().rank(),
            seconds: self.settings.rules.hold_ms as f64 / 1000.0,
            what: "the driver",
            missing: "the driver".into(),
        }
    }
}

fn method(name: &str) -> &'static str {
    ["join", "lease", "step", "synchronise", "sum", "optimizer_state"]
        .into_iter()
        .find(|known| *known == name)
        .unwrap_or("another method")
}

/// How a call goes from stage to stage.
impl Member {
    fn enter(&mut self, stage: Stage) {
        let Some(open) = &mut self.open else { return };
        open.stage = stage;
        open.asked.clear();
        let call = open.call.clone();
        match (stage, call) {
            (Stage::View, Call::Join { .. }) => self.enter_view(),
            (Stage::Installing, Call::Join { steps, vectors, .. }) => {
                let version = self.view.as_ref().map_or(0, |view| view.version);
                let ask = Ask::Install { version, steps, vectors };
                self.ask_all(|_| ask.clone(), Payload::Start);
            }
            (Stage::Joining, Call::Join { n_parameters, rows, position, .. }) => {
                let brings = matches!(self.view.as_ref().map(|v| v.begin), Some(Begin::Bring { .. }));
                let leads = self.view.as_ref().and_then(View::leader) == Some(self.id());
                self.tell(ToCoordinator::Join {
                    generation: self.generation,
                    n_parameters: n_parameters as u64,
                    rows: rows as u64,
                    position: (brings && leads).then_some(position),
                });
            }
            (Stage::Pushing, Call::Step { samples, loss, alone }) => self.enter_pushing(samples, loss, alone),
            (Stage::Pushing, _) => {
                if self.unpushed.samples > 0 {
                    let samples = self.unpushed.samples;
                    self.push_all(samples, false);
                }
            }
            (Stage::Closing, Call::Step { samples, loss, alone }) => self.enter_closing(samples, loss, alone),
            (Stage::Closing, _) => self.tell_unpushed(),
            (Stage::Fetching, Call::State) => {
                let wanted = self.wanted_version();
                self.ask_all(|_| Ask::State(wanted), |_| Payload::Nothing);
            }
            (Stage::Fetching | Stage::Recovering, _) => {
                let wanted = self.wanted_version();
                self.ask_all(|_| Ask::Fetch(wanted), |_| Payload::Nothing);
            }
            (Stage::Meeting, Call::Sum(values)) => self.arrive(Meeting::Sum(values)),
            (Stage::Meeting, _) => self.arrive(Meeting::Synchronise),
            (Stage::Fetched, _) => self.arrive(Meeting::Fetched),
            (Stage::Answer, Call::Lease { at_most }) => self.enter_lease(at_most),
            (Stage::View | Stage::Installing | Stage::Joining | Stage::Answer, _) => {}
        }
        self.go_on();
    }

    fn enter_view(&mut self) {
        let Some(view) = &self.view else { return };
        let leads = view.leader() == Some(self.id());
        match view.begin {
            Begin::Bring { .. } if leads && !self.brings => {
                self.brings = true;
                self.over(Err(Error::StateLost));
            }
            Begin::Bring { .. } if leads => self.enter(Stage::Installing),
            _ => self.enter(Stage::Joining),
        }
    }

    fn enter_lease(&mut self, at_most: usize) {
        self.want = at_most;
        if self.nothing_left || !self.granted.is_empty() || at_most == 0 {
            let lease = self.next_lease(at_most);
            return self.over(Ok(Done::Leased(lease)));
        }
        self.tell(ToCoordinator::Take { generation: self.generation, at_most: at_most as u64 });
    }

    fn next_lease(&mut self, at_most: usize) -> Option<Lease> {
        let mut lease = self.granted.pop_front()?;
        if lease.len() > at_most {
            let cut = lease.visits.start + at_most;
            self.granted.push_front(Lease { visits: cut..lease.visits.end, ..lease.clone() });
            lease.visits.end = cut;
        }
        if !lease.is_empty() {
            self.taken.push(lease.clone());
        }
        Some(lease)
    }

    fn enter_pushing(&mut self, samples: u64, loss: f64, alone: bool) {
        if samples == 0 {
            return;
        }
        let push = alone || self.pushes_next();
        self.steps += u64::from(!alone);
        self.unpushed = self.unpushed.plus(Totals { samples, loss });
        if push {
            let samples = self.unpushed.samples;
            self.push_all(samples, alone);
        }
    }

    fn push_all(&mut self, samples: u64, alone: bool) {
        self.seq += 1;
        let (round, seq, read) = (self.version, self.seq, self.read.clone());
        self.ask_all(
            |shard| {
                let read = read.get(shard.index()).map_or(0, |(version, _)| *version);
                Ask::Push { round, seq, samples, read, alone }
            },
            Payload::Gradient,
        );
    }

    fn enter_closing(&mut self, samples: u64, loss: f64, alone: bool) {
        if !self.is_sync() {
            return self.tell_unpushed();
        }
        let taken = std::mem::take(&mut self.taken);
        self.close(samples, loss, taken, alone);
        let round = self.version;
        self.seq += 1;
        let seq = self.seq;
        self.ask_all(|_| Ask::Push { round, seq, samples, read: round, alone }, Payload::Gradient);
        self.ask_all(|_| Ask::Fetch(Wanted::Version(round + 1)), |_| Payload::Nothing);
    }

    /// Asynchronous modes: what was pushed just now counts.
    fn tell_unpushed(&mut self) {
        let (totals, taken) = if self.is_flushed() {
            (std::mem::take(&mut self.unpushed), std::mem::take(&mut self.taken))
        } else {
            (Totals::default(), Vec::new())
        };
        self.close(totals.samples, totals.loss, taken, false);
    }

    /// Asynchronous modes: the gradients of all steps so far are on the shards.
    fn is_flushed(&self) -> bool {
        match self.open.as_ref().map(|open| &open.call) {
            Some(Call::Step { alone, .. }) => *alone || self.steps.is_multiple_of(self.settings.n_push),
            _ => true,
        }
    }

    fn close(&mut self, samples: u64, loss: f64, taken: Vec<Lease>, alone: bool) {
        let at_hand: usize = self.granted.iter().map(Lease::len).sum();
        let want = if self.nothing_left || alone { 0 } else { self.want.saturating_sub(at_hand) as u64 };
        let (generation, round) = (self.generation, self.version);
        self.tell(ToCoordinator::Closing { generation, round, samples, loss, taken, alone, want });
    }

    fn arrive(&mut self, meeting: Meeting) {
        self.tell(ToCoordinator::Arrive { generation: self.generation, meeting });
    }

    fn wanted_version(&self) -> Wanted {
        if self.is_sync() { Wanted::Version(self.version) } else { Wanted::Newest }
    }

    /// Asks every primary, starting at another one than the other ranks.
    fn ask_all(&mut self, ask: impl Fn(ShardId) -> Ask, payload: impl Fn(Range<usize>) -> Payload) {
        let (Some(view), Some(open)) = (&self.view, &mut self.open) else { return };
        let holders = &view.placement.holders;
        let stamp = Stamp { run: self.hello.run, generation: self.generation };
        for step in 0..holders.len() {
            let number = (self.hello.member.index() + step) % holders.len();
            let (shard, range) =
                (ShardId(number as u32), self.ranges.get(number).cloned().unwrap_or_default());
            self.next_id += 1;
            open.asked.insert(self.next_id, shard);
            let request =
                ShardRequest { stamp, from: self.hello.member, shard, id: self.next_id, ask: ask(shard) };
            let (holder, payload) = (holders[number].primary, payload(range));
            self.actions.push(MemberAction::Ask { holder, request, payload });
        }
    }

    /// A holder answers. Its values must be in place ([`Self::wanted`]) before.
    pub fn answered(&mut self, now: u64, reply: &ShardReply) -> Vec<MemberAction> {
        self.at(now);
        let shard = reply.shard.index();
        let Some(open) = self.open.as_mut().filter(|open| open.asked.contains_key(&reply.id)) else {
            return Vec::new();
        };
        match &reply.answer {
            // The coordinator will tell of the view that the holder knows.
            Answer::Refused(Refusal::Stale { .. }) => return Vec::new(),
            Answer::Refused(_) if open.stage == Stage::Recovering => {
                self.interrupt(Error::StateLost);
                return self.drain();
            }
            Answer::Refused(refusal) => {
                let error = refused(self.hello.member.rank(), refusal, open.call.name());
                self.fail_with(error);
                return self.drain();
            }
            Answer::Parameters { version } if open.stage == Stage::Recovering && *version != self.version => {
                self.interrupt(Error::StateLost);
                return self.drain();
            }
            Answer::Parameters { version } => {
                if let Some(read) = self.read.get_mut(shard) {
                    *read = (*version, 0);
                }
            }
            Answer::Pushed { version } => {
                if let Some((read, own)) = self.read.get_mut(shard) {
                    open.staleness = open.staleness.max(version.saturating_sub(*read + *own));
                    *own += 1;
                }
            }
            Answer::State { steps, vectors, .. } => open.memory = (*steps, vectors.clone()),
            Answer::Installed | Answer::Replicated { .. } => {}
        }
        open.asked.remove(&reply.id);
        self.go_on();
        self.drain()
    }

    /// On to the next stage, if this one is through.
    fn go_on(&mut self) {
        let sync = self.is_sync();
        let Some(open) = self.open.as_mut().filter(|open| open.asked.is_empty()) else { return };
        match (open.stage, &open.call) {
            (Stage::Installing, _) => self.enter(Stage::Joining),
            (Stage::Pushing, Call::Synchronise) if sync || self.unpushed.samples == 0 => {
                self.enter(Stage::Meeting)
            }
            (Stage::Pushing, _) => self.enter(Stage::Closing),
            (Stage::Closing, Call::Step { .. }) if sync => self.finish_round(),
            (Stage::Closing, Call::Step { samples, alone, .. }) if open.closed.is_some() => {
                let fetch = *alone || (*samples > 0 && self.steps.is_multiple_of(self.settings.n_fetch));
                if fetch { self.enter(Stage::Fetching) } else { self.finish_round() }
            }
            (Stage::Closing, Call::Synchronise) if open.closed.is_some() => {
                self.version += 1;
                self.enter(Stage::Meeting);
            }
            (Stage::Fetching, Call::Join { .. }) => {
                self.brings = false;
                self.interrupted = None;
                let position = self.position.clone();
                self.over(Ok(Done::Joined(position)));
            }
            (Stage::Fetching, Call::Step { .. }) => self.finish_round(),
            (Stage::Fetching, Call::Synchronise) => {
                self.position = open.position.take().unwrap_or_default();
                let totals = open.totals;
                if sync { self.over(Ok(Done::Synchronised(totals))) } else { self.enter(Stage::Fetched) }
            }
            (Stage::Fetching, Call::State) => {
                let (steps, vectors) = std::mem::take(&mut open.memory);
                self.over(Ok(Done::State { steps, vectors }));
            }
            (Stage::Recovering, _) => {
                let (rank, seconds) = (self.id().rank(), self.settings.rules.hold_ms as f64 / 1000.0);
                self.interrupt(Error::DriverLost { rank, seconds });
            }
            _ => {}
        }
    }

    fn finish_round(&mut self) {
        let sync = self.is_sync();
        let Some(open) = &mut self.open else { return };
        let Some(closed) = open.closed.take() else { return };
        if let Some(position) = open.position.take().filter(|_| sync) {
            self.position = position;
        }
        self.version += 1;
        let round = match open.call {
            Call::Step { samples, loss, .. } if !sync => {
                Round { round: open.read, samples, loss, staleness: open.staleness, finished: samples == 0 }
            }
            _ => closed,
        };
        self.over(Ok(Done::Stepped(round)));
    }
}

fn refused(rank: Rank, refusal: &Refusal, what: &'static str) -> Error {
    match refusal {
        Refusal::Length { found, expected } => {
            let place = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            Error::Length { rank, what, found: place(*found), expected: place(*expected) }
        }
        Refusal::State(reason) => Error::Message { rank, what, reason: reason.clone() },
        Refusal::Stale { .. } | Refusal::NotHolder | Refusal::NoSuchVersion { .. } => {
            Error::Message { rank, what, reason: format!("a holder of a shard refuses: {refusal:?}") }
        }
    }
}
