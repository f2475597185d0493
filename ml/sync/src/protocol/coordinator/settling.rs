//! What follows from where things stand: a view is formed, the gang ends.

use super::{Action, Coordinator, Event, Phase, Standing};
use crate::protocol::{
    FirstCause, MemberId, Outcome, Reason, Role, Stop, ToCoordinator, ToMember, View, ending::names,
};

impl Coordinator {
    /// What follows from where things stand, whatever led there.
    pub(super) fn settle(&mut self) {
        if self.phase == Phase::Ended || self.ended_by_itself() {
            return;
        }
        if self.phase == Phase::Training {
            let done = |member: MemberId| self.seats.get(&member).is_some_and(|seat| seat.finished);
            if let Some(member) = self.rounds.waits_for(done) {
                if self.rules.min_ranks == self.rules.ranks {
                    return self.fail(Some(member), &Reason::Left { member });
                }
                self.reform();
            }
        }
        self.keep_enough();
        if self.phase == Phase::Training && self.rounds.has_started() && self.has_drained() {
            self.boundary_since.get_or_insert(self.now);
        }
        if let Phase::Forming { all_until, status, .. } = &self.phase {
            let told = self.live().all(|(member, seat)| seat.link.is_some() && status.contains_key(&member));
            let all = self.now >= *all_until || self.seats.values().all(|s| s.standing != Standing::Awaited);
            if told && all && self.are_enough() {
                let status = status.clone();
                self.phase = Phase::Training;
                return self.form(&status);
            }
        }
        self.say_who_is_missing();
    }

    /// A gang with too few ranks pauses, and says so once.
    fn say_who_is_missing(&mut self) {
        let Phase::Forming { since, all_until, .. } = self.phase else { return };
        if self.now < all_until || self.are_enough() || self.paused == Some(self.generation) {
            return;
        }
        self.paused = Some(self.generation);
        let away = self
            .seats
            .iter()
            .filter(|(m, seat)| seat.standing != Standing::Live && self.rules.role(**m) == Some(Role::Rank));
        let away: Vec<MemberId> = away.map(|(member, _)| *member).collect();
        let left = (since + self.rules.deadline_ms).saturating_sub(self.now);
        self.actions.push(Action::Warning(format!(
            "the gang pauses: it trains with {} ranks or more; missing: {}; if they do not come within {} s, it fails",
            self.rules.min_ranks,
            names(&away),
            left as f64 / 1000.0
        )));
    }

    /// Everybody has finished, or those who could come are too few for good.
    pub(super) fn ended_by_itself(&mut self) -> bool {
        let ranks =
            || self.live().filter(|(m, seat)| self.rules.role(*m) == Some(Role::Rank) && !seat.draining);
        let leader = self.view.as_ref().and_then(View::leader);
        if ranks().count() > 0 && ranks().all(|(_, seat)| seat.finished) {
            match leader.filter(|l| !self.seats.get(l).is_some_and(|seat| seat.finished)) {
                None => self.end(Outcome::Finished, &Stop::Finished),
                Some(member) => {
                    let reason = format!("{member} led the gang and was lost before its work was done");
                    self.fail(Some(member), &Reason::Other(reason));
                }
            }
            return true;
        }
        let wanted = self.seats.iter().filter(|(m, _)| self.rules.role(**m) == Some(Role::Rank));
        let possible = wanted.filter(|(_, seat)| seat.standing != Standing::Gone).count();
        if possible < self.rules.min_ranks as usize {
            let gone = self.seats.iter().find(|(_, seat)| seat.standing == Standing::Gone).map(|(m, _)| *m);
            let reason =
                gone.map_or(Reason::Other("too few ranks are left".into()), |member| Reason::Left { member });
            self.fail(gone, &reason);
            return true;
        }
        false
    }

    pub(super) fn are_enough(&self) -> bool {
        let ranks = self.live().filter(|(member, _)| self.rules.role(*member) == Some(Role::Rank));
        let (mut all, mut train) = (0, 0);
        for (_, seat) in ranks.filter(|(_, seat)| !seat.draining) {
            all += 1;
            train += u32::from(!seat.finished);
        }
        all >= self.rules.min_ranks && train > 0
    }

    /// A member that is drained was kept for what it alone held, and others have that now.
    pub(super) fn has_drained(&self) -> bool {
        let Some(view) = &self.view else { return false };
        let kept = self.live().filter(|(m, seat)| seat.draining && view.attendant(*m).is_some());
        let mut kept = kept.map(|(member, _)| member);
        kept.any(|m| view.placement.holders.iter().all(|h| h.primary != m || h.backup.is_some()))
    }

    /// Nobody is drained whom the gang cannot do without.
    pub(super) fn keep_enough(&mut self) {
        let draining: Vec<MemberId> =
            self.live().filter(|(_, s)| s.draining).map(|(member, _)| member).collect();
        let stay =
            self.live().filter(|(m, s)| self.rules.role(*m) == Some(Role::Rank) && !s.draining).count();
        if draining.is_empty() || stay >= self.rules.min_ranks as usize {
            return;
        }
        for member in draining {
            let note = format!(
                "{member} is not drained: with fewer than {} ranks the gang pauses",
                self.rules.min_ranks
            );
            self.actions.push(Action::Note(note));
            if let Some(seat) = self.seats.get_mut(&member) {
                seat.draining = false;
            }
        }
    }

    pub(in crate::protocol) fn fail(&mut self, member: Option<MemberId>, reason: &Reason) {
        let cause = FirstCause { member, reason: reason.to_string(), log_tail: Vec::new() };
        let cause = self.first_cause.clone().unwrap_or(cause);
        self.end(Outcome::Failed(cause), &Stop::Failed(reason.clone()));
    }

    pub(super) fn end(&mut self, outcome: Outcome, stop: &Stop) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        let live: Vec<MemberId> = self.live().map(|(member, _)| member).collect();
        for member in live {
            self.send(member, ToMember::Stop(stop.clone()));
        }
        self.outcome = Some(outcome.clone());
        self.actions.push(Action::Ended(outcome));
    }

    /// Whoever still comes is told how it ended.
    pub(super) fn after_the_end(&mut self, event: Event) {
        let Event::Message { link, message: ToCoordinator::Hello(_) } = event else { return };
        let stop = match &self.outcome {
            Some(Outcome::Finished) => Stop::Finished,
            Some(Outcome::Failed(cause)) => Stop::Failed(Reason::Other(cause.reason.clone())),
            Some(Outcome::Cancelled) | None => Stop::Cancelled,
        };
        self.turn_away(link, stop);
    }
}
