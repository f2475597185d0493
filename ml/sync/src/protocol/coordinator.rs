//! The coordinator of a gang as a state machine: events come in, actions go out. No clock, no threads, no sockets.
//!
//! ```text
//!              all live members have told what they hold, and they are enough
//!   Forming ──────────────────────────────────────────────────────────────────► Training
//!      ▲    Freeze ► Status … View                                                 │
//!      └───────────────────────────────────────────────────────────────────────────┘
//!        a member dies, loses its connection, leaves, is drained, or a late one waits at a round's boundary
//! ```
//! Whatever changes the membership leads through `Forming`; there is no other recovery. A round that not all shards
//! have is undone then, with the rows that it was computed on.
//!
//! # Two views of a member
//! The launcher (the scheduler of the cluster) sees tasks, slowly; the coordinator sees heartbeats, fast. Membership
//! is the coordinator's alone; the launcher's word only shortens a wait.
//!
//! | coordinator says | launcher says | what happens |
//! |---|---|---|
//! | waited for | bound | wait for `Hello`; after `deadline_ms` fail, naming who is missing |
//! | alive | running | – |
//! | alive | task failed, executor lost | nothing while it is connected and heard; else dead at once |
//! | alive | task rebound | the new life's `Hello` (a greater incarnation) replaces the old one, which is fenced |
//! | connection lost | running | the view freezes; back within `reconnect_ms` as the same life: it goes on; else dead |
//! | dead (silent for `dead_ms`) | running | [`Action::Cancel`] its task, and [`Action::Replace`] while it has lives left |
//! | dead | failed, rebound | wait for the new life; below `min_ranks` the gang pauses until `deadline_ms` |
//! | dead, heard again | running | the same life comes back at a round's boundary, with nothing that it held; an older life is fenced |
//! | failed (`Leave`) | ended well | [`Action::Replace`] while it has lives left; a permanent failure ends the gang |
//! | alive, but another member cannot reach it | running | after `dead_ms` the one that more others are apart from is taken for dead |
//! | left (finished, drained) | ended well | – |
//! | out of lives | any | the gang goes on without it, or fails with the first cause if it is below `min_ranks` for good |

mod attendance;
mod clock;
mod settling;
mod state;

pub use state::{GangState, MemberState};

use super::{
    Attendant, Generation, Hello, Incarnation, MemberId, Outcome, ReplicaStatus, Role, Rules, Stop,
    ToCoordinator, ToMember, View,
    ending::FirstCause,
    rounds::{Rounds, Verdict},
};
use std::collections::BTreeMap;

/// A connection, as the transport numbers them; a number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// What the coordinator is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A member has said something.
    Message {
        /// By this connection.
        link: LinkId,
        /// What it said.
        message: ToCoordinator,
    },
    /// A connection is lost.
    Lost {
        /// Which.
        link: LinkId,
    },
    /// The run shall end now.
    Cancel,
    /// This member (none: all) shall go at the next boundary of a round.
    Drain(Option<MemberId>),
    /// The launcher says that the tasks of these members are gone.
    TasksLost(Vec<MemberId>),
    /// Time has passed.
    Tick,
}

/// What the coordinator wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Say this.
    Send {
        /// By this connection.
        link: LinkId,
        /// What.
        message: ToMember,
    },
    /// Close a connection after what was sent.
    Close {
        /// Which.
        link: LinkId,
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
    /// Word of a trainer for the driver.
    Report {
        /// Whose.
        member: MemberId,
        /// As it came.
        bytes: Vec<u8>,
    },
    /// A line for people.
    Note(String),
    /// A line for people who look at nothing else: somebody is lost, or waited for.
    Warning(String),
    /// The gang is over.
    Ended(Outcome),
}

/// What is known of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    pub hello: Option<Hello>,
    pub link: Option<LinkId>,
    /// When it was heard last.
    heard: u64,
    /// When its connection was lost.
    lost: Option<u64>,
    pub standing: Standing,
    /// Its work is done; it still serves its shards.
    pub finished: bool,
    pub draining: bool,
    /// Lives that have ended.
    ended_lives: u32,
}

/// Whether a member counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not heard of yet.
    #[default]
    Awaited,
    /// Heard of.
    Live,
    /// Lost; may come back.
    Dead,
    /// Will not come back.
    Gone,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Forming { since: u64, all_until: u64, status: BTreeMap<MemberId, Vec<ReplicaStatus>> },
    Training,
    Ended,
}

/// The coordinator of one gang.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) rules: Rules,
    now: u64,
    ticked: u64,
    pub(super) generation: Generation,
    pub(super) seats: BTreeMap<MemberId, Seat>,
    links: BTreeMap<LinkId, MemberId>,
    phase: Phase,
    pub(super) view: Option<View>,
    pub(super) rounds: Rounds,
    /// Members of the view that others cannot reach: by whom, whom, since when.
    accused: BTreeMap<(MemberId, MemberId), u64>,
    /// Since when somebody waits for a round's boundary.
    boundary_since: Option<u64>,
    /// The membership for which it was said that the gang pauses.
    paused: Option<Generation>,
    stop_at_boundary: bool,
    first_cause: Option<FirstCause>,
    outcome: Option<Outcome>,
    pub(super) actions: Vec<Action>,
}

impl Coordinator {
    /// A coordinator that waits for its members from `now` (milliseconds of a clock that never goes back).
    pub fn new(rules: Rules, now: u64) -> Self {
        let seats = rules.members().map(|member| (member, Seat::default())).collect();
        let phase = Phase::Forming { since: now, all_until: now + rules.gather_ms, status: BTreeMap::new() };
        Self {
            rounds: Rounds::new(&rules),
            rules,
            now,
            ticked: now,
            generation: Generation(1),
            seats,
            links: BTreeMap::new(),
            phase,
            view: None,
            accused: BTreeMap::new(),
            boundary_since: None,
            paused: None,
            stop_at_boundary: false,
            first_cause: None,
            outcome: None,
            actions: Vec::new(),
        }
    }

    /// The same, for a driver that is started again with the run of an earlier one: its views need greater numbers than
    /// any that the earlier one gave, such as the time of day.
    #[must_use]
    pub fn starting_at(mut self, generation: Generation) -> Self {
        self.generation = self.generation.max(generation);
        self
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The membership that trains, or trained last.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Takes an event at time `now` and says what is to be done, in order.
    pub fn handle(&mut self, now: u64, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        if self.phase == Phase::Ended {
            self.after_the_end(event);
            return std::mem::take(&mut self.actions);
        }
        match event {
            Event::Message { link, message } => self.message(link, message),
            Event::Lost { link } => self.lost(link),
            Event::Cancel => self.end(Outcome::Cancelled, &Stop::Cancelled),
            Event::Drain(None) => self.want_boundary(true),
            Event::Drain(Some(member)) => {
                if let Some(seat) = self.seats.get_mut(&member) {
                    seat.draining = true;
                }
                self.keep_enough();
                if self.seats.get(&member).is_some_and(|seat| seat.draining) {
                    self.want_boundary(false);
                }
            }
            Event::TasksLost(members) => {
                for member in members {
                    if self
                        .seats
                        .get(&member)
                        .is_some_and(|s| s.standing == Standing::Live && s.link.is_none())
                    {
                        self.dead(member, "its task has ended");
                    }
                }
            }
            Event::Tick => self.tick(),
        }
        self.settle();
        std::mem::take(&mut self.actions)
    }

    /// The same as [`Event::Tick`]; call it at least every `heartbeat_ms`.
    pub fn tick_at(&mut self, now: u64) -> Vec<Action> {
        self.handle(now, Event::Tick)
    }

    fn message(&mut self, link: LinkId, message: ToCoordinator) {
        let hello = match message {
            ToCoordinator::Hello(hello) => return self.hello(link, hello),
            other => other,
        };
        let Some(member) = self.links.get(&link).copied() else {
            return self.actions.push(Action::Close { link });
        };
        if let Some(seat) = self.seats.get_mut(&member) {
            seat.heard = self.now;
        }
        match hello {
            ToCoordinator::Hello(_) => {}
            ToCoordinator::Heartbeat => self.send(member, ToMember::Heartbeat),
            ToCoordinator::Status { generation, replicas } => {
                if let Phase::Forming { status, .. } = &mut self.phase
                    && generation == self.generation
                {
                    status.insert(member, replicas);
                }
            }
            ToCoordinator::Unreachable { generation, member: other } => {
                if self.phase == Phase::Training && generation == self.generation && member != other {
                    self.accused.entry((member, other)).or_insert(self.now);
                }
            }
            ToCoordinator::Report(bytes) => self.actions.push(Action::Report { member, bytes }),
            ToCoordinator::Leave(leave) => self.leave(member, leave),
            call => self.call(member, call),
        }
    }

    /// What ranks say while they train.
    fn call(&mut self, member: MemberId, call: ToCoordinator) {
        if self.phase != Phase::Training {
            return;
        }
        let verdict = self.rounds.call(self.now, member, call, self.boundary_since.is_some());
        match verdict {
            Verdict::Tell(told) => {
                for (member, message) in told {
                    self.send(member, message);
                }
            }
            Verdict::Boundary(told) => {
                for (member, message) in told {
                    self.send(member, message);
                }
                self.boundary();
            }
            Verdict::Fail(reason) => self.fail(None, &reason),
        }
    }

    /// Somebody wants to come or go between two rounds.
    fn want_boundary(&mut self, stop: bool) {
        self.stop_at_boundary |= stop;
        self.boundary_since.get_or_insert(self.now);
        if self.phase != Phase::Training || !self.rounds.has_started() {
            self.boundary();
        }
    }

    fn boundary(&mut self) {
        self.boundary_since = None;
        if self.stop_at_boundary {
            return self.end(Outcome::Cancelled, &Stop::Drained);
        }
        self.reform();
    }

    /// The view is over: its members freeze and tell what they hold.
    fn reform(&mut self) {
        if self.phase != Phase::Training {
            return;
        }
        self.generation = self.generation.next();
        self.boundary_since = None;
        self.accused.clear();
        self.phase = Phase::Forming { since: self.now, all_until: self.now, status: BTreeMap::new() };
        self.freeze_all();
    }

    fn freeze_all(&mut self) {
        let generation = self.generation;
        let live: Vec<MemberId> = self.live().map(|(member, _)| member).collect();
        for member in live {
            self.send(member, ToMember::Freeze { generation });
        }
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (MemberId, &Seat)> {
        self.seats.iter().filter(|(_, s)| s.standing == Standing::Live).map(|(member, seat)| (*member, seat))
    }

    pub(super) fn send(&mut self, member: MemberId, message: ToMember) {
        // Without a connection there will be another view.
        if let Some(link) = self.seats.get(&member).and_then(|seat| seat.link) {
            self.actions.push(Action::Send { link, message });
        }
    }

    /// Who is in, for a view.
    pub(super) fn attendants(&self) -> Vec<Attendant> {
        let attendant = |(member, seat): (MemberId, &Seat)| {
            let hello = seat.hello.as_ref()?;
            let (incarnation, role, address) = (hello.incarnation, hello.role, hello.address);
            // One that has finished, or is drained, only serves its shards.
            let role = if seat.finished || seat.draining { Role::Shards } else { role };
            Some(Attendant { member, incarnation, role, address, host: hello.host.clone() })
        };
        self.live().filter_map(attendant).collect()
    }
}
