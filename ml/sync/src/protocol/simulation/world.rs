//! The queue of events, the connections, and what must hold.

use super::{
    plan::{Fault, Plan},
    process::{Asked, Key, Origin, Process},
    trainer::{Checkpoint, Doing, Next},
};
use crate::{
    Error, Lease,
    protocol::{
        Action, Answer, Begin, Call, Caller, Coordinator, Event, Generation, Incarnation, LinkId,
        MemberAction, MemberId, Outcome, Pace, Payload, ReplicaAction, ShardId, ShardReply, ShardRequest,
        ToCoordinator, ToMember, Values,
    },
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{collections::BTreeMap, sync::Arc};

/// Something that happens at a time.
#[derive(Clone, Debug)]
enum Happening {
    ToCoordinator(LinkId, ToCoordinator),
    LostAtCoordinator(LinkId),
    CoordinatorTick,
    Fault(Fault),
    StartCoordinator,
    /// The launcher has noticed that a member's task is gone.
    Rebind(MemberId),
    Start(MemberId),
    Resume(Key),
    Redial(Key, Key, Origin),
    /// Something that reaches a process.
    At(Key, Reaching),
}

#[derive(Clone, Debug)]
enum Reaching {
    Connect,
    Told(LinkId, ToMember),
    Disconnected(LinkId),
    Request(u64, ShardRequest, Vec<Values>),
    Reply(u64, ShardReply, Vec<Values>),
    Tick,
    Computed(u64),
}

/// A connection from an asker to a holder.
#[derive(Clone, Debug)]
struct Conn {
    from: Key,
    origin: Origin,
    to: Key,
    last_there: u64,
    last_back: u64,
}

/// A connection to the coordinator.
#[derive(Clone, Debug)]
struct Link {
    key: Key,
    last_there: u64,
    last_back: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub seed: u64,
    pub finished: bool,
    pub views: u64,
    pub kills: u64,
    pub late: u64,
    pub states_lost: u64,
    /// Why it failed.
    pub failure: String,
    /// Checkpoints that were written because the driver was lost.
    pub rescues: u64,
}

/// A gang and all around it.
pub struct World {
    plan: Plan,
    trace: bool,
    rng: ChaCha8Rng,
    now: u64,
    number: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    coordinator: Option<Coordinator>,
    coordinators: u32,
    /// Pairs that cannot reach each other, until then.
    apart: BTreeMap<(MemberId, MemberId), u64>,
    links: BTreeMap<LinkId, Link>,
    conns: BTreeMap<u64, Conn>,
    processes: BTreeMap<Key, Process<Reaching>>,
    lives: BTreeMap<MemberId, u32>,
    storage: Option<Checkpoint>,
    outcome: Option<Outcome>,
    /// Who has served a shard in a generation.
    served: BTreeMap<(Generation, ShardId), Key>,
    results: Vec<Checkpoint>,
    summary: Summary,
}

impl World {
    pub fn new(seed: u64, plan: Plan, trace: bool) -> Self {
        let mut world = Self {
            coordinator: Some(Coordinator::new(plan.rules.clone(), 0)),
            coordinators: 0,
            apart: BTreeMap::new(),
            trace,
            rng: ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9)),
            now: 0,
            number: 0,
            queue: BTreeMap::new(),
            links: BTreeMap::new(),
            conns: BTreeMap::new(),
            processes: BTreeMap::new(),
            lives: BTreeMap::new(),
            storage: None,
            outcome: None,
            served: BTreeMap::new(),
            results: Vec::new(),
            summary: Summary { seed, ..Summary::default() },
            plan,
        };
        let plan = world.plan.clone();
        for (member, start) in plan.starts.iter().enumerate() {
            world.at(*start, Happening::Start(MemberId(member as u32)));
            world.summary.late += u64::from(*start > plan.rules.gather_ms);
        }
        for (time, fault) in &plan.faults {
            world.at(*time, Happening::Fault(*fault));
        }
        world.at(100, Happening::CoordinatorTick);
        world
    }

    /// Until nothing happens any more.
    pub fn run(&mut self) {
        let limit = 10 * self.plan.rules.deadline_ms;
        while let Some(((time, _), happening)) = self.queue.pop_first() {
            self.now = time;
            assert!(
                time < limit,
                "still running after {limit} ms: {:?}",
                self.coordinator.as_ref().map(Coordinator::state)
            );
            self.happen(happening);
            if self.outcome.is_some() && self.processes.is_empty() {
                break;
            }
            if self.coordinator.is_none() && self.processes.is_empty() && self.now > 30_000 {
                break;
            }
        }
    }

    /// What came of it, after a last look.
    pub fn summary(mut self) -> Summary {
        match &self.outcome {
            Some(Outcome::Finished) => self.summary.finished = true,
            Some(Outcome::Failed(cause)) => {
                assert!(!cause.reason.is_empty());
                assert!(!self.plan.faults.is_empty(), "{cause:?}");
                self.summary.failure.clone_from(&cause.reason);
            }
            Some(Outcome::Cancelled) => panic!("nobody has cancelled"),
            None => assert!(self.coordinator.is_none(), "no outcome"),
        }
        if self.summary.finished {
            assert!(!self.results.is_empty(), "finished without a result");
        }
        for result in &self.results {
            self.check_counts(&result.parameters);
        }
        if let (Some(checkpoint), true) = (&self.storage, self.is_sync()) {
            checkpoint.check(&self.plan);
        }
        self.summary
    }

    fn check_counts(&self, parameters: &[f32]) {
        let epochs = self.plan.epochs as f32;
        let counts = &parameters[..self.plan.rows];
        if self.is_sync() {
            assert!(counts.iter().all(|count| *count == epochs), "{counts:?}");
            let warm = parameters[self.plan.rows];
            assert!(self.plan.warm_up as f32 == warm, "{warm} steps of warm-up");
        } else {
            assert!(counts.iter().all(|count| *count >= epochs), "{counts:?}");
        }
    }

    fn is_sync(&self) -> bool {
        self.plan.rules.pace == Pace::Sync
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((time.max(self.now), self.number), happening);
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>6} {}", self.now, what());
        }
    }

    fn delay(&mut self) -> u64 {
        let most = if self.rng.random_bool(0.02) { self.plan.slow_delay } else { self.plan.delay };
        self.rng.random_range(0..=most)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ToCoordinator(link, message) if self.links.contains_key(&link) => {
                if !matches!(message, ToCoordinator::Heartbeat) {
                    self.say(|| format!("{:?} says {message:?}", self.links[&link].key));
                }
                self.tell_coordinator(Event::Message { link, message });
            }
            Happening::ToCoordinator(..) => {}
            Happening::LostAtCoordinator(link) => self.tell_coordinator(Event::Lost { link }),
            Happening::CoordinatorTick => {
                if self.coordinator.is_some() {
                    self.tell_coordinator(Event::Tick);
                    self.at(self.now + 100, Happening::CoordinatorTick);
                }
            }
            Happening::Fault(fault) => self.fault(fault),
            Happening::Rebind(member) => {
                if self.youngest(member).is_none() {
                    self.start(member);
                }
            }
            Happening::StartCoordinator => {
                self.coordinators += 1;
                let first = Generation(u64::from(self.coordinators) << 32);
                let coordinator = Coordinator::new(self.plan.rules.clone(), self.now);
                self.coordinator = Some(coordinator.starting_at(first));
                self.at(self.now, Happening::CoordinatorTick);
                // A driver that starts over has its launcher start what is not there.
                for member in self.plan.rules.members() {
                    if self.youngest(member).is_none() && self.lives.contains_key(&member) {
                        self.at(self.now, Happening::Start(member));
                    }
                }
            }
            Happening::Start(member) => self.start(member),
            Happening::Resume(key) => {
                let Some(process) = self.processes.get_mut(&key) else { return };
                process.paused = false;
                for reaching in std::mem::take(&mut process.backlog) {
                    self.reach(key, reaching);
                }
            }
            Happening::Redial(from, to, origin) => self.transmit(from, to, origin),
            Happening::At(key, reaching) => self.reach(key, reaching),
        }
    }

    fn start(&mut self, member: MemberId) {
        if self.outcome.is_some() {
            return;
        }
        let life = self.lives.entry(member).or_default();
        *life += 1;
        let key = (member, Incarnation::of_attempt(*life, 0));
        self.say(|| format!("{key:?} starts"));
        let start = self.storage.clone().unwrap_or_else(|| Checkpoint::fresh(&self.plan));
        self.processes.insert(key, Process::new(&self.plan, key, start, self.now));
        self.at(self.now, Happening::At(key, Reaching::Connect));
        self.at(self.now + 50, Happening::At(key, Reaching::Tick));
        if member.0 < self.plan.rules.ranks {
            self.go_on(key, Next::Call(Call::Sum(Vec::new())));
        }
    }

    /// The youngest process of a member.
    fn youngest(&self, member: MemberId) -> Option<Key> {
        self.processes.keys().rfind(|key| key.0 == member).copied()
    }

    fn reach(&mut self, key: Key, reaching: Reaching) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&key) else { return };
        if process.paused {
            return process.backlog.push_back(reaching);
        }
        match reaching {
            Reaching::Connect => self.connect(key),
            Reaching::Told(link, message) => {
                if process.link == Some(link) {
                    let actions = process.member.told(now, message);
                    self.do_member(key, actions);
                }
            }
            Reaching::Disconnected(link) => {
                if process.link == Some(link) {
                    process.link = None;
                    process.member.disconnected(now);
                    let wait = self.rng.random_range(0..300);
                    self.at(now + wait, Happening::At(key, Reaching::Connect));
                }
            }
            Reaching::Request(conn, request, arrays) => {
                if self.conns.contains_key(&conn) {
                    let shard = request.shard.index();
                    let actions = process.replicas[shard].request(Caller(conn), request, arrays);
                    self.do_replica(key, shard, actions);
                }
            }
            Reaching::Reply(conn, reply, arrays) => self.reply(key, conn, &reply, &arrays),
            Reaching::Tick => {
                let actions = process.member.tick(now);
                self.at(now + 100, Happening::At(key, Reaching::Tick));
                self.do_member(key, actions);
            }
            Reaching::Computed(computation) => {
                if process.computation == computation {
                    self.step(key);
                }
            }
        }
    }

    fn is_cut(&self, key: Key) -> bool {
        self.processes.get(&key).is_none_or(|process| process.cut_until > self.now)
    }
}

/// Connections.
impl World {
    fn connect(&mut self, key: Key) {
        if self.coordinator.is_none() || self.is_cut(key) {
            return self.at(self.now + 200, Happening::At(key, Reaching::Connect));
        }
        self.number += 1;
        let link = LinkId(self.number);
        self.links.insert(link, Link { key, last_there: self.now, last_back: self.now });
        let now = self.now;
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.link = Some(link);
        let actions = process.member.connected(now);
        self.do_member(key, actions);
    }

    fn lose_link(&mut self, link: LinkId, within: u64) {
        let Some(Link { key, .. }) = self.links.remove(&link) else { return };
        for happening in
            [Happening::LostAtCoordinator(link), Happening::At(key, Reaching::Disconnected(link))]
        {
            let wait = self.rng.random_range(0..=within);
            self.at(self.now + wait, happening);
        }
    }

    fn lose_conns(&mut self, key: Key) {
        self.lose_conns_if(|c| c.from == key || c.to == key);
    }

    fn lose_conns_between(&mut self, one: Key, other: Key) {
        self.lose_conns_if(|c| (c.from == one && c.to == other) || (c.from == other && c.to == one));
    }

    fn lose_conns_if(&mut self, is_lost: impl Fn(&Conn) -> bool) {
        let lost: Vec<u64> = self.conns.iter().filter(|(_, c)| is_lost(c)).map(|(id, _)| *id).collect();
        for id in lost {
            if let Some(Conn { from, origin, to, .. }) = self.conns.remove(&id) {
                let wait = self.rng.random_range(0..500);
                self.at(self.now + wait, Happening::Redial(from, to, origin));
            }
        }
    }

    /// Sends what is not answered by a new connection, or by the one that there is.
    fn transmit(&mut self, from: Key, to: Key, origin: Origin) {
        let Some(process) = self.processes.get(&from) else { return };
        let asked = process.asked.get(&(to, origin)).cloned().unwrap_or_default();
        if asked.is_empty() || self.conns.values().any(|c| (c.from, c.to, c.origin) == (from, to, origin)) {
            return;
        }
        if self.is_cut(from) || self.is_cut(to) || self.are_apart(from, to) {
            return self.redial(from, to, origin);
        }
        if let Some(process) = self.processes.get_mut(&from) {
            process.dialing.remove(&to);
        }
        self.number += 1;
        let conn = self.number;
        self.conns.insert(conn, Conn { from, origin, to, last_there: self.now, last_back: self.now });
        for Asked { request, arrays } in asked {
            self.send_request(conn, request, arrays);
        }
    }

    fn are_apart(&self, one: Key, other: Key) -> bool {
        let until = |pair| self.apart.get(&pair).is_some_and(|until| *until > self.now);
        until((one.0, other.0)) || until((other.0, one.0))
    }

    /// Tries again soon; after a while the coordinator is told.
    fn redial(&mut self, from: Key, to: Key, origin: Origin) {
        let now = self.now;
        self.at(now + 100, Happening::Redial(from, to, origin));
        let Some(process) = self.processes.get_mut(&from) else { return };
        let since = *process.dialing.entry(to).or_insert(now);
        if now >= since + self.plan.rules.reconnect_ms {
            let actions = process.member.unreachable(to.0);
            self.do_member(from, actions);
        }
    }

    fn send_request(&mut self, id: u64, request: ShardRequest, arrays: Vec<Values>) {
        let delay = self.delay();
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.last_there = conn.last_there.max(now + delay);
        let (time, to) = (conn.last_there, conn.to);
        self.at(time, Happening::At(to, Reaching::Request(id, request, arrays)));
    }

    fn ask(&mut self, from: Key, to: Key, origin: Origin, asked: Asked) {
        let Some(process) = self.processes.get_mut(&from) else { return };
        process.asked.entry((to, origin)).or_default().push_back(asked.clone());
        let conn = self.conns.iter().find(|(_, c)| (c.from, c.to, c.origin) == (from, to, origin));
        match conn.map(|(id, _)| *id) {
            Some(id) => self.send_request(id, asked.request, asked.arrays),
            None => self.transmit(from, to, origin),
        }
    }

    fn reply(&mut self, key: Key, conn: u64, reply: &ShardReply, arrays: &[Values]) {
        let now = self.now;
        let Some(Conn { origin, to, .. }) = self.conns.get(&conn).cloned() else { return };
        let Some(process) = self.processes.get_mut(&key) else { return };
        let Some(asked) = process.asked.get_mut(&(to, origin)) else { return };
        let Some(place) =
            asked.iter().position(|a| a.request.id == reply.id && a.request.shard == reply.shard)
        else {
            return;
        };
        asked.remove(place);
        match origin {
            Origin::Member => {
                if let (Some(range), Answer::Parameters { .. }) =
                    (process.member.wanted(reply), &reply.answer)
                {
                    process.parameters[range].copy_from_slice(&arrays[0]);
                }
                let actions = process.member.answered(now, reply);
                self.do_member(key, actions);
            }
            Origin::Replica(shard) => {
                let actions = process.replicas[shard.index()].answered(reply);
                self.do_replica(key, shard.index(), actions);
            }
        }
    }
}

/// What the state machines want done.
impl World {
    fn tell_coordinator(&mut self, event: Event) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let actions = coordinator.handle(self.now, event);
        for action in actions {
            match action {
                Action::Send { link, message } => self.send_to_member(link, message),
                Action::Close { link } => self.lose_link(link, 20),
                Action::Cancel { member, incarnation } => {
                    if self.plan.cancels {
                        self.end_process((member, incarnation));
                    }
                }
                Action::Replace { member } => {
                    let wait = self.rng.random_range(100..2_000);
                    self.at(self.now + wait, Happening::Start(member));
                }
                Action::Report { .. } => {}
                Action::Note(note) | Action::Warning(note) => self.say(|| note),
                Action::Ended(outcome) => {
                    self.say(|| format!("ended: {outcome:?}"));
                    assert!(self.outcome.is_none(), "ended twice");
                    self.outcome = Some(outcome);
                    // Those that were fenced and cut off may never hear of it.
                    let zombies: Vec<Key> =
                        self.processes.iter().filter(|(_, p)| p.link.is_none()).map(|(k, _)| *k).collect();
                    zombies.into_iter().for_each(|key| self.end_process(key));
                }
            }
        }
    }

    fn send_to_member(&mut self, link: LinkId, message: ToMember) {
        if let ToMember::View(view) = &message {
            let coordinator = self.coordinator.as_ref().unwrap();
            if Some(view.generation) == coordinator.view().map(|v| v.generation) {
                let present = view.members.iter().filter(|m| m.member.0 < self.plan.rules.ranks).count();
                assert!(present >= self.plan.rules.min_ranks as usize, "a minority trains: {view:?}");
            }
            for holders in &view.placement.holders {
                assert_ne!(Some(holders.primary), holders.backup, "{view:?}");
                assert!(view.attendant(holders.primary).is_some());
            }
            if self.links.get(&link).map(|l| l.key.0) == view.members.first().map(|m| m.member) {
                self.summary.views += 1;
                self.summary.states_lost += u64::from(view.begin == Begin::Bring { lost: true });
            }
        }
        let delay = self.delay();
        let now = self.now;
        let Some(state) = self.links.get_mut(&link) else { return };
        state.last_back = state.last_back.max(now + delay);
        let (time, key) = (state.last_back, state.key);
        self.at(time, Happening::At(key, Reaching::Told(link, message)));
    }

    fn do_member(&mut self, key: Key, actions: Vec<MemberAction>) {
        for action in actions {
            let Some(process) = self.processes.get_mut(&key) else { return };
            match action {
                MemberAction::Tell(message) => {
                    let Some(link) = process.link else { continue };
                    let delay = self.delay();
                    let now = self.now;
                    let Some(state) = self.links.get_mut(&link) else { continue };
                    state.last_there = state.last_there.max(now + delay);
                    let time = state.last_there;
                    self.at(time, Happening::ToCoordinator(link, message));
                }
                MemberAction::Ask { holder, request, payload } => {
                    let arrays = match payload {
                        Payload::Nothing => Vec::new(),
                        Payload::Gradient(range) => vec![Arc::new(process.gradient[range].to_vec())],
                        Payload::Start(range) => vec![Arc::new(process.parameters[range].to_vec())],
                    };
                    let view = process.view.as_ref().expect("asks in a view");
                    let to = (holder, view.attendant(holder).expect("holds in the view").incarnation);
                    self.ask(key, to, Origin::Member, Asked { request, arrays });
                }
                MemberAction::Freeze(generation) => {
                    process.asked.clear();
                    let mut answers = Vec::new();
                    for (shard, replica) in process.replicas.iter_mut().enumerate() {
                        answers.push((shard, replica.freeze(generation)));
                    }
                    let status = process.replicas.iter().filter_map(|r| r.status()).collect();
                    let told = process.member.frozen(generation, status);
                    for (shard, actions) in answers {
                        self.do_replica(key, shard, actions);
                    }
                    self.do_member(key, told);
                }
                MemberAction::Apply(view) => {
                    process.view = Some(view.clone());
                    let mut answers = Vec::new();
                    for (shard, replica) in process.replicas.iter_mut().enumerate() {
                        answers.push((shard, replica.view(&view)));
                    }
                    for (shard, actions) in answers {
                        self.do_replica(key, shard, actions);
                    }
                }
                MemberAction::Done => self.done(key),
                MemberAction::Released => {
                    self.say(|| format!("{key:?} is released"));
                    self.end_process(key);
                }
            }
        }
    }

    /// One primary serves a shard in a view, and what it serves its backup has.
    fn check_served(&mut self, key: Key, shard: ShardId, version: u64, values: &Values) {
        let Some(view) = self.processes.get(&key).map(|p| p.view.clone().expect("serves in a view")) else {
            return;
        };
        let server = *self.served.entry((view.generation, shard)).or_insert(key);
        assert_eq!(server, key, "two primaries serve {shard} in {}", view.generation);
        let Some(backup) = view.placement.holders[shard.index()].backup else { return };
        let backup = (backup, view.attendant(backup).unwrap().incarnation);
        let same_view =
            |p: &&Process<Reaching>| p.view.as_ref().is_some_and(|v| v.generation == view.generation);
        let Some(process) = self.processes.get(&backup).filter(same_view) else { return };
        if self.is_sync() && process.replicas[shard.index()].is_in(view.generation) {
            let copy = process.replicas[shard.index()].parameters(version);
            assert_eq!(copy.as_ref(), Some(values), "{shard} at version {version}: {key:?} and its backup");
        }
    }

    fn do_replica(&mut self, key: Key, shard: usize, actions: Vec<ReplicaAction>) {
        for action in actions {
            match action {
                ReplicaAction::Reply { to: Caller(id), reply, arrays } => {
                    if let Answer::Parameters { version } = reply.answer {
                        self.check_served(key, reply.shard, version, &arrays[0]);
                    }
                    let delay = self.delay();
                    let now = self.now;
                    let Some(conn) = self.conns.get_mut(&id) else { continue };
                    conn.last_back = conn.last_back.max(now + delay);
                    let (time, from) = (conn.last_back, conn.from);
                    self.at(time, Happening::At(from, Reaching::Reply(id, reply, arrays)));
                }
                ReplicaAction::Ask { member, request, arrays } => {
                    let view = self.processes.get(&key).and_then(|p| p.view.clone());
                    let Some(attendant) = view.as_ref().and_then(|v| v.attendant(member)) else {
                        panic!("{key:?} asks {member} outside of a view")
                    };
                    let to = (member, attendant.incarnation);
                    let origin = Origin::Replica(ShardId(shard as u32));
                    self.ask(key, to, origin, Asked { request, arrays });
                }
            }
        }
    }
}

/// Trainers.
impl World {
    fn done(&mut self, key: Key) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        let outcome = process.member.outcome().expect("a call is over");
        let leads = process.member.place().leads();
        let next = process.trainer.done(&self.plan, leads, outcome.clone());
        if process.trainer.consistent && self.plan.rules.pace == Pace::Sync {
            let checkpoint = Checkpoint {
                parameters: process.parameters.clone(),
                position: process.member.position().clone(),
            };
            checkpoint.check(&self.plan);
            if leads && self.rng.random_bool(0.3) {
                self.storage = Some(checkpoint);
            }
        }
        if outcome.is_err() {
            self.say(|| format!("{key:?}: {outcome:?}"));
        }
        self.go_on(key, next);
    }

    fn go_on(&mut self, key: Key, next: Next) {
        let now = self.now;
        let sync = self.is_sync();
        let Some(process) = self.processes.get_mut(&key) else { return };
        match next {
            Next::Call(Call::Sum(values)) if values.is_empty() => self.join(key),
            Next::Call(mut call) => {
                if let Call::Step { alone: true, .. } = call {
                    process.gradient.fill(0.0);
                    process.gradient[self.plan.rows] = -1.0;
                }
                if let Call::Sum(values) = &mut call {
                    values[0] = 1.0;
                }
                let actions = process.member.begin(now, call);
                self.do_member(key, actions);
            }
            Next::Compute => {
                process.computation += 1;
                let (computation, most) = (process.computation, self.plan.compute);
                let wait = self.rng.random_range(0..=most);
                self.at(now + wait, Happening::At(key, Reaching::Computed(computation)));
            }
            Next::Restore => {
                process.start = self.storage.clone().unwrap_or_else(|| Checkpoint::fresh(&self.plan));
                process.parameters.clone_from(&process.start.parameters);
                self.join(key);
            }
            Next::Rescue => {
                // Only a lost driver leaves the parameters of a closed round behind.
                let position = process.member.position().clone();
                let lost = self.coordinator.is_none();
                if lost && sync && process.member.place().leads() && process.trainer.rescues {
                    let checkpoint = Checkpoint { parameters: process.parameters.clone(), position };
                    checkpoint.check(&self.plan);
                    self.storage = Some(checkpoint);
                    self.summary.rescues += 1;
                }
                self.join(key);
            }
            Next::Finish => {
                let position = process.member.position().clone();
                self.results.push(Checkpoint { parameters: process.parameters.clone(), position });
                let actions = process.member.finish();
                self.do_member(key, actions);
            }
            Next::Fail(error) => {
                self.say(|| format!("{key:?} ends: {error}"));
                let told = matches!(
                    error,
                    Error::Fenced { .. } | Error::Cancelled | Error::PeerLeft { .. } | Error::Deadline { .. }
                );
                let ended = self.outcome.is_some();
                assert!(told || ended, "{key:?} fails: {error}");
                if let Error::Deadline { what: "the driver", .. } = error {
                    self.end_process(key);
                }
            }
        }
    }

    fn join(&mut self, key: Key) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.trainer.doing = Doing::Joining;
        process.computation += 1;
        process.unpushed.fill(0.0);
        let call = Call::Join {
            n_parameters: self.plan.rows + 1,
            rows: self.plan.rows,
            position: process.start.position.clone(),
            steps: 0,
            vectors: Vec::new(),
        };
        let actions = process.member.begin(now, call);
        self.do_member(key, actions);
    }

    /// The gradient of the rows that were leased, and the step with it.
    fn step(&mut self, key: Key) {
        let (now, sync) = (self.now, self.is_sync());
        let Some(process) = self.processes.get_mut(&key) else { return };
        let Doing::Computing(lease) = std::mem::replace(&mut process.trainer.doing, Doing::Over) else {
            return;
        };
        let visits = lease.as_ref().map_or(0, Lease::len);
        process.gradient.fill(0.0);
        if let Some(lease) = &lease {
            let first = lease.block_rows(self.plan.rows).start;
            lease.visits.clone().for_each(|visit| process.gradient[first + visit] -= 1.0);
        }
        let samples = visits as u64;
        if !sync {
            process.gradient.iter_mut().zip(&process.unpushed).for_each(|(g, u)| *g += u);
            if samples > 0 && !process.member.pushes_next() {
                process.unpushed.clone_from(&process.gradient);
            } else if samples > 0 {
                process.unpushed.fill(0.0);
            }
        }
        process.trainer.doing = Doing::Stepping(lease);
        let actions = process
            .member
            .begin(now, Call::Step { samples, loss: visits as f64, alone: false, differences: false });
        self.do_member(key, actions);
    }
}

/// What goes wrong.
impl World {
    fn end_process(&mut self, key: Key) {
        if let Some(process) = self.processes.remove(&key) {
            if let Some(link) = process.link {
                self.lose_link(link, 50);
            }
            self.lose_conns(key);
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.say(|| format!("{fault:?}"));
        let member = match fault {
            Fault::KillCoordinator => {
                self.coordinator = None;
                self.summary.kills += 1;
                let links: Vec<LinkId> = self.links.keys().copied().collect();
                return links.into_iter().for_each(|link| self.lose_link(link, 50));
            }
            Fault::RestartCoordinator(after) => {
                if self.outcome.is_none() && self.coordinator.is_some() {
                    self.coordinator = None;
                    let links: Vec<LinkId> = self.links.keys().copied().collect();
                    links.into_iter().for_each(|link| self.lose_link(link, 50));
                    self.at(self.now + after, Happening::StartCoordinator);
                }
                return;
            }
            Fault::CutPair(one, other, for_ms) => {
                self.apart.insert((one, other), self.now + for_ms);
                let (Some(one), Some(other)) = (self.youngest(one), self.youngest(other)) else { return };
                return self.lose_conns_between(one, other);
            }
            Fault::Drain(member) => return self.tell_coordinator(Event::Drain(Some(member))),
            Fault::Kill(member)
            | Fault::Vanish(member)
            | Fault::Pause(member, _)
            | Fault::Cut(member, _)
            | Fault::ResetControl(member)
            | Fault::ResetData(member) => member,
        };
        let Some(key) = self.youngest(member) else { return };
        let now = self.now;
        if let Fault::Kill(_) | Fault::Vanish(_) = fault {
            // Whatever the coordinator says.
            self.at(now + 20_000, Happening::Rebind(member));
        }
        let Some(process) = self.processes.get_mut(&key) else { return };
        match fault {
            Fault::Kill(_) => {
                self.summary.kills += 1;
                self.end_process(key);
                if self.rng.random_bool(0.5) {
                    self.tell_coordinator(Event::TasksLost(vec![member]));
                }
            }
            Fault::Vanish(_) => {
                self.summary.kills += 1;
                if let Some(link) = process.link {
                    // The coordinator's end stays open, and silent.
                    self.links.remove(&link);
                }
                self.processes.remove(&key);
                self.lose_conns(key);
            }
            Fault::Pause(_, for_ms) => {
                process.paused = true;
                self.at(now + for_ms, Happening::Resume(key));
            }
            Fault::Cut(_, for_ms) => {
                process.cut_until = now + for_ms;
                if let Some(link) = process.link {
                    self.lose_link(link, for_ms.min(3_000));
                }
                self.lose_conns(key);
            }
            Fault::ResetControl(_) => {
                if let Some(link) = process.link {
                    self.lose_link(link, 20);
                }
            }
            Fault::ResetData(_) => self.lose_conns(key),
            Fault::Drain(_) | Fault::CutPair(..) | Fault::KillCoordinator | Fault::RestartCoordinator(_) => {}
        }
    }
}
