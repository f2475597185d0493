//! A member at work: its state machines, what has come for them, and who turns the handle.
//!
//! ```text
//!   control ─┐                        trainer calls ── begin ─► Member ─► actions ─► Links
//!   answers ─┼─► queue of events ─►─┬─ during a call: the trainer's thread ─────┘
//!   end     ─┘                      └─ between calls: the member's own thread
//!   requests of other members ─────► Replica, on the thread that brought them
//! ```
//! While a trainer waits for its call it turns the handle itself: its values are at hand without a copy being kept,
//! and an answer needs no other thread to wake up. Between calls (it computes) the member's own thread answers the
//! coordinator. One of them at a time holds `core`; nothing is awaited while it is held but memory.

use super::{
    hands::Hands,
    links::{Asker, Links, Origin, bytes, index},
};
use crate::{
    Error, Place, Position, Result,
    protocol::{
        Call, Caller, Done, Failure, Generation, Member, MemberAction, MemberId, Replica, ReplicaAction,
        Rules, ShardReply, ShardRequest, Stop, ToMember, Values, View,
    },
};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// What has come for a member.
#[derive(Debug)]
pub(crate) enum Event {
    /// The coordinator is reached.
    Connected,
    /// It is lost.
    Disconnected,
    /// It says something.
    Told(ToMember),
    /// The holder of a shard answers the trainer.
    Answered(Asker, ShardReply, Vec<Values>),
    /// A backup answers its primary here.
    Confirmed(ShardReply),
    /// Somebody asks a replica here, and cannot wait until it is free.
    Asked(Asker, ShardRequest, Vec<Values>),
    /// The holder of a shard cannot be reached.
    Unreachable(MemberId),
    /// The trainer has a word for the driver.
    Report(Vec<u8>),
    /// The trainer's work is done.
    Finish,
    /// The trainer has failed.
    Fail(Failure),
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// A trainer turns the handle.
    in_call: bool,
    released: bool,
}

#[derive(Debug)]
struct Core {
    member: Member,
    next_tick: Instant,
    /// Since when there is no connection to the coordinator.
    alone_since: Option<Instant>,
    leaving: bool,
}

/// A member of a gang in this process.
pub(crate) struct Node {
    pub me: MemberId,
    rules: Rules,
    epoch: Instant,
    queue: Mutex<Queue>,
    changed: Condvar,
    core: Mutex<Core>,
    replicas: Vec<Mutex<Replica>>,
    links: OnceLock<Arc<dyn Links>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.me)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub fn new(rules: Rules, member: Member, replicas: Vec<Replica>) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            me: member.id(),
            rules,
            epoch: now,
            queue: Mutex::default(),
            changed: Condvar::default(),
            core: Mutex::new(Core { member, next_tick: now, alone_since: Some(now), leaving: false }),
            replicas: replicas.into_iter().map(Mutex::new).collect(),
            links: OnceLock::new(),
        })
    }

    /// Starts the member's own thread, which ends when the gang needs the member no more; its links end then too.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(
        self: &Arc<Self>,
        links: Arc<dyn Links>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let _ = self.links.set(links);
        let node = Arc::clone(self);
        let turn = move || {
            node.turn();
            ended();
        };
        std::thread::Builder::new().name(self.me.to_string()).spawn(turn).map(drop).map_err(|e| {
            Error::Connection {
                peer: self.me.to_string(),
                what: "starting",
                reason: format!("no thread for it: {e}"),
            }
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Something has come.
    pub fn post(&self, event: Event) {
        lock(&self.queue).events.push_back(event);
        self.changed.notify_all();
    }

    /// The member's task was taken away from it: whatever it is in ends.
    pub fn abandon(&self) {
        let reason = "its task was cancelled".to_owned();
        self.post(Event::Fail(Failure { reason, permanent: false, log_tail: Vec::new() }));
        self.post(Event::Told(ToMember::Stop(Stop::Cancelled)));
    }

    /// Whether the gang needs this member no more.
    pub fn is_released(&self) -> bool {
        lock(&self.queue).released
    }

    /// Waits for that. False: not within `time`.
    pub fn wait_released(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.queue), time, |queue| !queue.released);
        waited.unwrap_or_else(PoisonError::into_inner).0.released
    }

    #[cfg(test)]
    pub fn sever(&self) {
        if let Some(links) = self.links() {
            links.sever();
        }
    }

    pub fn place(&self) -> Place {
        lock(&self.core).member.place()
    }

    pub fn position(&self) -> Position {
        lock(&self.core).member.position().clone()
    }

    pub fn view(&self) -> Option<View> {
        lock(&self.core).member.view().cloned()
    }

    /// Whether a step with samples is pushed now (asynchronous modes).
    pub fn pushes_next(&self) -> bool {
        lock(&self.core).member.pushes_next()
    }

    pub fn traffic(&self) -> crate::Traffic {
        self.links.get().map(|links| links.traffic()).unwrap_or_default()
    }

    fn links(&self) -> Option<&dyn Links> {
        self.links.get().map(|links| &**links)
    }

    /// A call of the trainer, to its end.
    ///
    /// # Errors
    /// What ended it.
    pub fn call(&self, call: Call, hands: &mut Hands<'_>) -> Result<Done> {
        lock(&self.queue).in_call = true;
        let mut core = lock(&self.core);
        let actions = core.member.begin(self.now(), call);
        self.perform(&mut core, actions, hands);
        let outcome = loop {
            if let Some(outcome) = core.member.outcome() {
                break outcome;
            }
            let until = core.next_tick;
            let event = self.next_event(until);
            self.handle(&mut core, event, hands);
        };
        drop(core);
        lock(&self.queue).in_call = false;
        self.changed.notify_all();
        outcome
    }

    /// The next event, or none when it is `until`.
    fn next_event(&self, until: Instant) -> Option<Event> {
        let time = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(lock(&self.queue), time, |q| q.events.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.events.pop_front()
    }

    /// Between calls.
    fn turn(&self) {
        loop {
            let until = lock(&self.core).next_tick;
            let time = until.saturating_duration_since(Instant::now());
            let idle = |queue: &mut Queue| !queue.released && (queue.in_call || queue.events.is_empty());
            let waited = self.changed.wait_timeout_while(lock(&self.queue), time, idle);
            let released = waited.unwrap_or_else(PoisonError::into_inner).0.released;
            let mut core = lock(&self.core);
            if released || self.is_forgotten(&core) {
                lock(&self.queue).released = true;
                return self.changed.notify_all();
            }
            let event = {
                let mut queue = lock(&self.queue);
                if queue.in_call {
                    continue;
                }
                queue.events.pop_front()
            };
            self.handle(&mut core, event, &mut Hands::default());
        }
    }

    /// It has finished, and the coordinator that could release it is gone.
    fn is_forgotten(&self, core: &Core) -> bool {
        let hold = Duration::from_millis(self.rules.hold_ms);
        core.leaving && core.alone_since.is_some_and(|since| since.elapsed() >= hold)
    }

    fn handle(&self, core: &mut Core, event: Option<Event>, hands: &mut Hands<'_>) {
        let now = self.now();
        let actions = match event {
            Some(Event::Connected) => {
                core.alone_since = None;
                core.member.connected(now)
            }
            Some(Event::Disconnected) => {
                core.alone_since.get_or_insert_with(Instant::now);
                core.member.disconnected(now);
                Vec::new()
            }
            Some(Event::Told(message)) => core.member.told(now, message),
            Some(Event::Answered(asker, reply, arrays)) => {
                if !core.member.view().is_some_and(|view| asker.is_of(view.generation)) {
                    return;
                }
                if let Some(links) = self.links() {
                    links.took(bytes(&arrays));
                }
                if let Some(range) = core.member.wanted(&reply) {
                    let n = core.member.ranges().last().map_or(0, |range| range.end);
                    if !hands.put(&reply.answer, &arrays, range, n) {
                        return log::warn!("{}: an answer of {} does not fit", self.me, reply.shard);
                    }
                }
                core.member.answered(now, &reply)
            }
            Some(Event::Confirmed(reply)) => {
                self.confirmed(&reply);
                Vec::new()
            }
            Some(Event::Asked(asker, request, arrays)) => {
                self.asked(asker, request, arrays);
                Vec::new()
            }
            Some(Event::Unreachable(holder)) => core.member.unreachable(holder),
            Some(Event::Report(bytes)) => core.member.report(bytes),
            // Who has failed has not finished.
            Some(Event::Finish) if core.leaving => Vec::new(),
            Some(Event::Finish) => {
                core.leaving = true;
                core.member.finish()
            }
            Some(Event::Fail(failure)) => {
                core.leaving = true;
                core.member.fail(failure)
            }
            None => Vec::new(),
        };
        self.perform(core, actions, hands);
        if Instant::now() >= core.next_tick {
            core.next_tick =
                Instant::now() + Duration::from_millis(self.rules.heartbeat_ms.div_ceil(2).max(1));
            let actions = core.member.tick(now);
            self.perform(core, actions, hands);
        }
    }

    fn perform(&self, core: &mut Core, actions: Vec<MemberAction>, hands: &mut Hands<'_>) {
        let Some(links) = self.links() else { return };
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                MemberAction::Tell(message) => links.tell(message),
                MemberAction::Ask { holder, request, payload } => {
                    links.ask(Origin::Member, holder, request, hands.take_out(payload));
                }
                MemberAction::Freeze(generation) => {
                    let told = self.freeze(core, links, generation);
                    actions.extend(told);
                }
                MemberAction::Apply(view) => {
                    links.view(&view);
                    for replica in &self.replicas {
                        let mut replica = lock(replica);
                        let actions = replica.view(&view);
                        self.perform_replica(actions);
                    }
                }
                MemberAction::Done => {}
                MemberAction::Released => {
                    lock(&self.queue).released = true;
                    self.changed.notify_all();
                }
            }
        }
    }

    fn freeze(&self, core: &mut Core, links: &dyn Links, generation: Generation) -> Vec<MemberAction> {
        links.freeze(generation);
        let mut status = Vec::new();
        for replica in &self.replicas {
            let mut replica = lock(replica);
            let actions = replica.freeze(generation);
            self.perform_replica(actions);
            status.extend(replica.status());
        }
        core.member.frozen(generation, status)
    }

    /// Somebody asks a replica here. Its answers are on their way when this returns.
    pub fn asked(&self, asker: Asker, request: ShardRequest, arrays: Vec<Values>) {
        let Some(index) = index(request.shard, self.replicas.len()) else {
            return log::warn!("{}: {} asks for {}, which no gang has", self.me, request.from, request.shard);
        };
        let mut replica = lock(&self.replicas[index]);
        let actions = replica.request(Caller::from(asker), request, arrays);
        self.perform_replica(actions);
    }

    /// A backup has answered a primary here.
    pub fn confirmed(&self, reply: &ShardReply) {
        let Some(index) = index(reply.shard, self.replicas.len()) else { return };
        let mut replica = lock(&self.replicas[index]);
        let actions = replica.answered(reply);
        self.perform_replica(actions);
    }

    /// While the replica is held: what it says leaves in the order in which it says it.
    fn perform_replica(&self, actions: Vec<ReplicaAction>) {
        let Some(links) = self.links() else { return };
        for action in actions {
            match action {
                ReplicaAction::Reply { to, reply, arrays } => links.reply(to.into(), reply, arrays),
                ReplicaAction::Ask { member, request, arrays } => {
                    links.ask(Origin::Replica, member, request, arrays);
                }
            }
        }
    }
}
