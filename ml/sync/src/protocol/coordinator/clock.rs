//! Time passes: who was silent for too long, who is missing, who keeps the others waiting.

use super::{Coordinator, Phase, Seat, Standing};
use crate::protocol::{MemberId, Reason, Rules};
use std::collections::BTreeSet;

impl Coordinator {
    pub(super) fn tick(&mut self) {
        let Rules { dead_ms, reconnect_ms, deadline_ms, boundary_ms, .. } = self.rules;
        let now = self.now;
        // A process that was stopped has heard nobody: that is not their fault.
        let gap = now.saturating_sub(self.ticked);
        self.ticked = now;
        if gap > dead_ms / 2 {
            for seat in self.seats.values_mut() {
                seat.heard = (seat.heard + gap).min(now);
                seat.lost = seat.lost.map(|lost| (lost + gap).min(now));
            }
        }
        let due = |seat: &Seat| match seat.lost {
            _ if seat.standing != Standing::Live => None,
            Some(lost) if now >= lost + reconnect_ms => Some("its connection was lost"),
            _ if now >= seat.heard + dead_ms => Some("it was silent"),
            _ => None,
        };
        // Nobody is late before the launcher has started anybody.
        if self.seats.values().all(|seat| seat.standing == Standing::Awaited)
            && let Phase::Forming { since, all_until, .. } = &mut self.phase
        {
            (*since, *all_until) = (now, now + self.rules.gather_ms);
        }
        let dead: Vec<_> = self.seats.iter().filter_map(|(m, seat)| Some((*m, due(seat)?))).collect();
        for (member, why) in dead {
            self.dead(member, why);
        }
        if let Some(member) = self.cut_off() {
            self.dead(member, "it and others cannot reach each other");
        }
        if self.boundary_since.is_some_and(|since| now >= since + boundary_ms)
            && self.phase == Phase::Training
        {
            self.boundary();
        }
        let seconds = deadline_ms as f64 / 1000.0;
        let late = match &self.phase {
            Phase::Forming { since, .. } if now >= since + deadline_ms => {
                Some(Reason::Late { what: "members".into(), seconds, missing: self.missing() })
            }
            Phase::Training => self.rounds.late(now, deadline_ms).map(|(what, missing)| Reason::Late {
                what: what.into(),
                seconds,
                missing,
            }),
            _ => None,
        };
        if let Some(reason) = late {
            self.fail(None, &reason);
        }
    }

    /// Of two members that cannot reach each other for so long that one would be known dead if it was, the one that
    /// more others are apart from; else the one with the higher number, for the leader has the lowest.
    pub(super) fn cut_off(&self) -> Option<MemberId> {
        let overdue = |since: &u64| self.now >= since + self.rules.dead_ms;
        let ((one, other), _) = self.accused.iter().find(|(_, since)| overdue(since))?;
        let apart = |member: MemberId| {
            let pairs = self.accused.keys().filter(|(a, b)| *a == member || *b == member);
            let others: BTreeSet<MemberId> = pairs.map(|(a, b)| if *a == member { *b } else { *a }).collect();
            (others.len(), member)
        };
        [*one, *other].into_iter().max_by_key(|member| apart(*member))
    }

    /// Members that are not here, or have not told what they hold.
    pub(super) fn missing(&self) -> Vec<MemberId> {
        let told = |member: &MemberId| match &self.phase {
            Phase::Forming { status, .. } => status.contains_key(member),
            _ => true,
        };
        let away = |(member, seat): (&MemberId, &Seat)| {
            (seat.standing != Standing::Live || !told(member)).then_some(*member)
        };
        self.seats.iter().filter_map(away).collect()
    }
}
