//! Rounds are closed.

use super::{Closing, NOTHING, Rounds, Verdict, out_of_order};
use crate::{
    Totals,
    protocol::{MemberId, Pace, Reason, ToMember},
};

impl Rounds {
    pub(super) fn close(
        &mut self,
        member: MemberId,
        closing: Closing,
        alone: bool,
        boundary: bool,
    ) -> Verdict {
        let sync = self.pace == Pace::Sync;
        if sync && closing.round != self.version() {
            return NOTHING;
        }
        if boundary && self.closing.is_empty() {
            // Whoever begins another round has all of the last one; so all shards have it.
            if let Some(ledger) = &mut self.ledger {
                ledger.undo = None;
            }
            return Verdict::Boundary(Vec::new());
        }
        if alone || !sync {
            return self.close_at_once(member, closing, sync);
        }
        if let Some((peer, meeting)) = self.arrived.iter().next() {
            return Verdict::Fail(out_of_order(member, "step", *peer, meeting.name()));
        }
        if self.closing.is_empty()
            && let Some(ledger) = &mut self.ledger
        {
            ledger.undo = None;
        }
        self.closing.insert(member, closing);
        if self.closing.len() < self.ranks.len() { NOTHING } else { self.close_round() }
    }

    /// All ranks have come.
    pub(super) fn close_round(&mut self) -> Verdict {
        let closing = std::mem::take(&mut self.closing);
        let Some(ledger) = &mut self.ledger else { return NOTHING };
        ledger.undo = Some(ledger.book.position().clone());
        let (round, updates) = (ledger.version, ledger.book.position().round);
        let mut totals = Totals::default();
        for (member, closing) in &closing {
            if let Err(error) = ledger.book.commit(member.rank(), &closing.taken) {
                return Verdict::Fail(Reason::Other(error.to_string()));
            }
            totals = totals.plus(Totals { samples: closing.samples, loss: closing.loss });
        }
        ledger.version += 1;
        ledger.book.count(totals, updates.saturating_add(u64::from(totals.samples > 0)));
        // Not with the last rows: those who brought them would come once more, the others not.
        let finished = totals.samples == 0;
        let position = ledger.book.position().clone();
        let told = closing.into_iter().map(|(member, closing)| {
            let lease = self.lease(member, closing.want);
            let message = ToMember::Closed {
                generation: self.generation,
                round,
                updates,
                samples: totals.samples,
                loss: totals.loss,
                finished,
                position: position.clone(),
                lease,
            };
            (member, message)
        });
        Verdict::Tell(told.collect())
    }

    /// A round of one rank.
    pub(super) fn close_at_once(&mut self, member: MemberId, closing: Closing, sync: bool) -> Verdict {
        let Some(ledger) = &mut self.ledger else { return NOTHING };
        let before = ledger.book.position().clone();
        if let Err(error) = ledger.book.commit(member.rank(), &closing.taken) {
            return Verdict::Fail(Reason::Other(error.to_string()));
        }
        let some = u64::from(closing.samples > 0);
        let round = if sync {
            before.round.saturating_add(some)
        } else {
            before.round.max(closing.round.saturating_add(some))
        };
        ledger.book.count(Totals { samples: closing.samples, loss: closing.loss }, round);
        if sync {
            ledger.undo = Some(before);
            ledger.version += 1;
            return Verdict::Tell(vec![self.closed(member, &closing)]);
        }
        self.clocks.insert(member, closing.round.saturating_add(1));
        self.closing.insert(member, closing);
        Verdict::Tell(self.let_go())
    }

    pub(super) fn closed(&mut self, member: MemberId, closing: &Closing) -> (MemberId, ToMember) {
        let lease = self.lease(member, closing.want);
        let position = self.position().cloned().unwrap_or_default();
        let message = ToMember::Closed {
            generation: self.generation,
            round: closing.round,
            updates: position.round.saturating_sub(u64::from(closing.samples > 0)),
            samples: closing.samples,
            loss: closing.loss,
            finished: closing.samples == 0,
            position,
            lease,
        };
        (member, message)
    }

    /// The clock of the slowest rank that has not come to a meeting.
    pub(super) fn slowest(&self) -> u64 {
        let training = self.clocks.iter().filter(|(rank, _)| !self.arrived.contains_key(rank));
        training.map(|(_, clock)| *clock).min().unwrap_or(u64::MAX)
    }

    /// Asynchronous modes: the ranks that may go on.
    pub(super) fn let_go(&mut self) -> Vec<(MemberId, ToMember)> {
        let lead = match self.pace {
            Pace::Bounded(lead) => lead,
            Pace::Sync | Pace::Async => u64::MAX,
        };
        let most = self.slowest().saturating_add(lead);
        let free: Vec<MemberId> =
            self.closing.iter().filter(|(_, c)| c.round < most).map(|(m, _)| *m).collect();
        let closings: Vec<_> = free.iter().filter_map(|m| Some((*m, self.closing.remove(m)?))).collect();
        closings.iter().map(|(member, closing)| self.closed(*member, closing)).collect()
    }
}
