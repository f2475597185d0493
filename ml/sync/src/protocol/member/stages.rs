//! How a call goes from stage to stage.
//!
//! | call | stages |
//! |---|---|
//! | join | View, (leader that brings: Installing,) Joining, Fetching |
//! | lease | Answer, unless one is at hand |
//! | step, sync | Closing: told to the coordinator, pushed, fetched, all at once |
//! | step, else | Pushing, Closing, Fetching (the latter every `n_push` and `n_fetch` steps) |
//! | synchronise | Pushing what is left, Closing, Meeting, Fetching, (not sync: Fetched) |
//! | sum | Meeting |
//! | optimizer_state | Fetching |
//! | step, sync, coordinator lost | Recovering |

use super::{Call, Done, Member, MemberAction, Payload, Stage};
use crate::{
    Error, Lease, Rank, Round, Totals,
    protocol::{
        Answer, Ask, Begin, Meeting, Refusal, ShardId, ShardReply, ShardRequest, Stamp, ToCoordinator, View,
        Wanted,
    },
};
use std::ops::Range;

impl Member {
    pub(super) fn enter(&mut self, stage: Stage) {
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
            (Stage::Pushing, Call::Step { samples, loss, alone, .. }) => {
                self.enter_pushing(samples, loss, alone)
            }
            (Stage::Pushing, _) => {
                if self.unpushed.samples > 0 {
                    let samples = self.unpushed.samples;
                    self.push_all(samples, false);
                }
            }
            (Stage::Closing, Call::Step { samples, loss, alone, differences }) => {
                self.enter_closing(Totals { samples, loss }, alone, differences);
            }
            (Stage::Closing, _) => self.tell_unpushed(),
            (Stage::Fetching, Call::State) => {
                let wanted = self.wanted_version();
                self.ask_all(|_| Ask::State(wanted), |_| Payload::Nothing);
            }
            (Stage::Fetching, Call::Join { .. }) => {
                // The view's, until all ranks have it; the leader may be ahead by steps alone, which all others take
                // up when they synchronise.
                self.ask_all(|_| Ask::Fetch(Wanted::Newest), |_| Payload::Nothing);
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

    pub(super) fn enter_view(&mut self) {
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

    pub(super) fn enter_lease(&mut self, at_most: usize) {
        self.want = at_most;
        if self.nothing_left || !self.granted.is_empty() || at_most == 0 {
            let lease = self.next_lease(at_most);
            return self.over(Ok(Done::Leased(lease)));
        }
        self.tell(ToCoordinator::Take { generation: self.generation, at_most: at_most as u64 });
    }

    pub(super) fn next_lease(&mut self, at_most: usize) -> Option<Lease> {
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

    pub(super) fn enter_pushing(&mut self, samples: u64, loss: f64, alone: bool) {
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

    pub(super) fn push_all(&mut self, samples: u64, alone: bool) {
        self.seq += 1;
        let (round, seq, read) = (self.version, self.seq, self.read.clone());
        self.ask_all(
            |shard| {
                let read = read.get(shard.index()).map_or(0, |(version, _)| *version);
                Ask::Push { round, seq, samples, read, alone, differences: false }
            },
            Payload::Gradient,
        );
    }

    pub(super) fn enter_closing(&mut self, brought: Totals, alone: bool, differences: bool) {
        if !self.is_sync() {
            return self.tell_unpushed();
        }
        let taken = std::mem::take(&mut self.taken);
        let Totals { samples, loss } = brought;
        self.close(samples, loss, taken, alone);
        let round = self.version;
        self.seq += 1;
        let seq = self.seq;
        let push = Ask::Push { round, seq, samples, read: round, alone, differences };
        self.ask_all(|_| push.clone(), Payload::Gradient);
        self.ask_all(|_| Ask::Fetch(Wanted::Version(round + 1)), |_| Payload::Nothing);
    }

    /// Asynchronous modes: what was pushed just now counts.
    pub(super) fn tell_unpushed(&mut self) {
        let (totals, taken) = if self.is_flushed() {
            (std::mem::take(&mut self.unpushed), std::mem::take(&mut self.taken))
        } else {
            (Totals::default(), Vec::new())
        };
        self.close(totals.samples, totals.loss, taken, false);
    }

    /// Asynchronous modes: the gradients of all steps so far are on the shards.
    pub(super) fn is_flushed(&self) -> bool {
        match self.open.as_ref().map(|open| &open.call) {
            Some(Call::Step { alone, .. }) => *alone || self.steps.is_multiple_of(self.settings.n_push),
            _ => true,
        }
    }

    pub(super) fn close(&mut self, samples: u64, loss: f64, taken: Vec<Lease>, alone: bool) {
        let at_hand: usize = self.granted.iter().map(Lease::len).sum();
        let want = if self.nothing_left || alone { 0 } else { self.want.saturating_sub(at_hand) as u64 };
        let (generation, round) = (self.generation, self.version);
        self.tell(ToCoordinator::Closing { generation, round, samples, loss, taken, alone, want });
    }

    pub(super) fn arrive(&mut self, meeting: Meeting) {
        self.tell(ToCoordinator::Arrive { generation: self.generation, meeting });
    }

    pub(super) fn wanted_version(&self) -> Wanted {
        if self.is_sync() { Wanted::Version(self.version) } else { Wanted::Newest }
    }

    /// Asks every primary, starting at another one than the other ranks.
    pub(super) fn ask_all(
        &mut self,
        ask: impl Fn(ShardId) -> Ask,
        payload: impl Fn(Range<usize>) -> Payload,
    ) {
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
    pub(super) fn go_on(&mut self) {
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

    pub(super) fn finish_round(&mut self) {
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
