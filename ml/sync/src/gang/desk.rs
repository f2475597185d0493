//! The coordinator at work: behind a lock, driven by whoever brings a message, and by a clock.

use super::{
    links::Housemates,
    node::{Event as NodeEvent, Node},
};
use crate::{
    network::{Attendance, Outbox},
    protocol::{
        Action, Coordinator, Event, GangState, Generation, Incarnation, LinkId, MemberId, Outcome, Rules,
        ToCoordinator, ToMember,
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// What the driver is told of its gang.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A line for people.
    Note(String),
    /// Word of a trainer, as it gave it.
    Report {
        /// Whose.
        member: MemberId,
        /// What.
        bytes: Vec<u8>,
    },
    /// The launcher shall cancel the task of this life of a member.
    Cancel {
        /// The member.
        member: MemberId,
        /// The life that is fenced.
        incarnation: Incarnation,
    },
    /// The launcher shall start a new life of this member.
    Replace {
        /// The member.
        member: MemberId,
    },
    /// The gang is over.
    Ended(Outcome),
}

/// The way to a member.
enum Way {
    /// In this process.
    Here(Weak<Node>),
    /// On the control channel.
    There(Outbox),
}

#[derive(Default)]
struct Signals {
    waiting: VecDeque<Signal>,
    outcome: Option<Outcome>,
    /// Control channels that are open.
    open: usize,
}

/// The coordinator of a gang.
pub(crate) struct Desk {
    epoch: Instant,
    coordinator: Mutex<Coordinator>,
    ways: Mutex<BTreeMap<LinkId, Way>>,
    signals: Mutex<Signals>,
    changed: Condvar,
    pub housemates: Housemates,
    clock: Arc<Clock>,
    links: AtomicU64,
}

#[derive(Default)]
struct Clock {
    stopped: Mutex<bool>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals that wait for a driver which does not fetch them: then the oldest go.
const SIGNALS: usize = 10_000;

impl Desk {
    pub fn new(rules: Rules) -> Arc<Self> {
        let pause =
            Duration::from_millis((rules.heartbeat_ms / 2).min(rules.deadline_ms / 10).clamp(5, 1000));
        // Greater than any number of a driver that had the same run before.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or_default());
        let desk = Arc::new(Self {
            epoch: Instant::now(),
            coordinator: Mutex::new(Coordinator::new(rules, 0).starting_at(Generation(number))),
            ways: Mutex::default(),
            signals: Mutex::default(),
            changed: Condvar::default(),
            housemates: Housemates::default(),
            clock: Arc::default(),
            links: AtomicU64::new(0),
        });
        let (weak, clock) = (Arc::downgrade(&desk), Arc::clone(&desk.clock));
        let tick = move || {
            loop {
                let waited =
                    clock.changed.wait_timeout_while(lock(&clock.stopped), pause, |stopped| !*stopped);
                let stopped = *waited.unwrap_or_else(PoisonError::into_inner).0;
                match weak.upgrade().filter(|_| !stopped) {
                    Some(desk) => desk.handle(Event::Tick),
                    None => break,
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("gang clock".into()).spawn(tick) {
            log::error!("no thread for the clock of a gang: {e}");
        }
        desk
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A number for a link within this process.
    pub fn next_link(&self) -> u64 {
        self.links.fetch_add(1, Ordering::Relaxed)
    }

    /// A member of this process attends.
    pub fn attend(&self, link: LinkId, node: Weak<Node>) {
        lock(&self.ways).insert(link, Way::Here(node));
    }

    pub fn handle(&self, event: Event) {
        let mut coordinator = lock(&self.coordinator);
        // Until the actions are done: messages leave in the order in which they were decided.
        let actions = coordinator.handle(self.now(), event);
        actions.into_iter().for_each(|action| self.perform(action));
    }

    fn perform(&self, action: Action) {
        match action {
            Action::Send { link, message } => self.send(link, message),
            Action::Close { link } => drop(lock(&self.ways).remove(&link)),
            Action::Note(line) => {
                log::info!("{line}");
                self.signal(Signal::Note(line));
            }
            Action::Warning(line) => {
                log::warn!("{line}");
                self.signal(Signal::Note(line));
            }
            Action::Report { member, bytes } => self.signal(Signal::Report { member, bytes }),
            Action::Cancel { member, incarnation } => self.signal(Signal::Cancel { member, incarnation }),
            Action::Replace { member } => self.signal(Signal::Replace { member }),
            Action::Ended(outcome) => {
                lock(&self.signals).outcome = Some(outcome.clone());
                self.signal(Signal::Ended(outcome));
            }
        }
    }

    fn send(&self, link: LinkId, message: ToMember) {
        match lock(&self.ways).get(&link) {
            Some(Way::There(outbox)) => outbox.send(message),
            Some(Way::Here(node)) => {
                if let Some(node) = node.upgrade() {
                    node.post(NodeEvent::Told(message));
                }
            }
            None => {}
        }
    }

    fn signal(&self, signal: Signal) {
        let mut signals = lock(&self.signals);
        if signals.waiting.len() >= SIGNALS {
            signals.waiting.pop_front();
        }
        signals.waiting.push_back(signal);
        drop(signals);
        self.changed.notify_all();
    }

    /// The next signal, for which it waits as long as `time`.
    pub fn next_signal(&self, time: Duration) -> Option<Signal> {
        let empty = |signals: &mut Signals| signals.waiting.is_empty() && signals.outcome.is_none();
        let waited = self.changed.wait_timeout_while(lock(&self.signals), time, empty);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting.pop_front()
    }

    /// How the gang ended, for which it waits as long as `time`.
    pub fn outcome(&self, time: Duration) -> Option<Outcome> {
        let going_on = |signals: &mut Signals| signals.outcome.is_none();
        let waited = self.changed.wait_timeout_while(lock(&self.signals), time, going_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.outcome.clone()
    }

    /// Waits until the members have heard how it ended, and have gone; as long as `time`.
    pub fn wait_gone(&self, time: Duration) {
        let here = |signals: &mut Signals| signals.open > 0;
        drop(self.changed.wait_timeout_while(lock(&self.signals), time, here));
    }

    pub fn state(&self) -> GangState {
        lock(&self.coordinator).state()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        *lock(&self.clock.stopped) = true;
        self.clock.changed.notify_all();
    }
}

impl Attendance for Desk {
    fn opened(&self, link: LinkId, outbox: Outbox) {
        lock(&self.signals).open += 1;
        lock(&self.ways).insert(link, Way::There(outbox));
    }

    fn said(&self, link: LinkId, message: ToCoordinator) {
        self.handle(Event::Message { link, message });
    }

    fn closed(&self, link: LinkId) {
        lock(&self.ways).remove(&link);
        self.handle(Event::Lost { link });
        lock(&self.signals).open -= 1;
        self.changed.notify_all();
    }
}
