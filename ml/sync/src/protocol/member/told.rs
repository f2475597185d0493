//! What comes from the coordinator, and what follows from its silence.

use super::{Call, Done, Member, MemberAction, Open, Stage};
use crate::{
    Error, Position, Round,
    protocol::{Generation, Leave, MemberId, Passed, Reason, Role, Stop, ToCoordinator, ToMember, View},
};

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

    pub(super) fn is_current(&self, generation: Generation) -> bool {
        self.view.is_some() && generation == self.generation
    }

    pub(super) fn freeze(&mut self, generation: Generation) {
        if generation < self.generation {
            return;
        }
        self.generation = generation;
        self.driver_lost = false;
        self.view = None;
        self.actions.push(MemberAction::Freeze(generation));
        self.interrupt(Error::Restarted { generation: generation.0 });
    }

    pub(super) fn take_view(&mut self, view: View) {
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

    pub(super) fn stop(&mut self, stop: Stop) {
        let rank = self.id().rank();
        let error = match stop {
            // A new life of a rank that was lost comes when the others have finished without it.
            Stop::Finished if self.hello.role == Role::Rank && self.leaving.is_none() => {
                Error::Fenced { rank, generation: self.generation.0 }
            }
            Stop::Finished => return self.actions.push(MemberAction::Released),
            Stop::Fenced => Error::Fenced { rank, generation: self.generation.0 },
            Stop::Cancelled | Stop::Drained => Error::Cancelled,
            Stop::Failed(reason) => self.reason(reason),
        };
        self.fail_with(error);
        self.tell(ToCoordinator::Leave(Leave::Stopped));
        self.actions.push(MemberAction::Released);
    }

    pub(super) fn reason(&self, reason: Reason) -> Error {
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

    pub(super) fn started(&mut self, position: Position) {
        let Some(open) = self.open.as_mut().filter(|open| open.stage == Stage::Joining) else { return };
        open.position = Some(position.clone());
        let view_version = self.view.as_ref().map_or(0, |view| view.version);
        self.version = if self.is_sync() { view_version } else { position.round };
        self.position = position;
        // From now on the trainer's values are overwritten.
        self.brings = false;
        self.enter(Stage::Fetching);
    }

    pub(super) fn closed(&mut self, message: ToMember) {
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

    pub(super) fn passed(&mut self, meeting: Passed) {
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

    pub(super) fn driver_is_lost(&mut self, for_long: bool) {
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

    pub(super) fn driver_is_late(&self) -> Error {
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
