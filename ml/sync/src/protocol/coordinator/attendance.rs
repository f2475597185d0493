//! Members come, go and die.

use super::{Action, Coordinator, LinkId, Phase, Standing};
use crate::protocol::{Failure, FirstCause, Generation, Hello, Leave, MemberId, Reason, Stop, ToMember};

impl Coordinator {
    pub(super) fn hello(&mut self, link: LinkId, hello: Hello) {
        let member = hello.member;
        if hello.run != self.rules.run {
            return self.turn_away(link, Stop::Fenced);
        }
        let role = self.rules.role(member);
        let Some(seat) = self.seats.get_mut(&member).filter(|_| role == Some(hello.role)) else {
            let reason = format!("{member} as {:?} is not wanted in this gang", hello.role);
            return self.turn_away(link, Stop::Failed(Reason::Other(reason)));
        };
        let known = seat.hello.as_ref().map(|h| h.incarnation);
        if known.is_some_and(|known| hello.incarnation < known) || seat.standing == Standing::Gone {
            return self.turn_away(link, Stop::Fenced);
        }
        let is_new = known != Some(hello.incarnation);
        let known_view = hello.generation;
        let old_link = seat.link.take();
        let replaced = is_new && seat.standing == Standing::Live;
        if replaced {
            seat.ended_lives += 1;
        }
        let too_often = is_new && seat.ended_lives > self.rules.max_rank_restarts;
        if too_often {
            seat.standing = Standing::Gone;
        } else {
            if is_new {
                (seat.finished, seat.draining) = (false, false);
                let here = format!("{member} has come: process {} on {}", hello.pid, hello.host);
                self.actions.push(Action::Note(here));
            }
            seat.standing = Standing::Live;
            (seat.heard, seat.lost, seat.link) = (self.now, None, Some(link));
            seat.hello = Some(hello);
            self.links.insert(link, member);
        }
        if let Some(old) = old_link.filter(|old| *old != link) {
            self.links.remove(&old);
            if is_new {
                self.actions.push(Action::Send { link: old, message: ToMember::Stop(Stop::Fenced) });
            }
            self.actions.push(Action::Close { link: old });
        }
        if too_often {
            let reason =
                format!("{member} has been started more than {} times", self.rules.max_rank_restarts + 1);
            self.turn_away(link, Stop::Failed(Reason::Other(reason)));
        }
        self.catch_up(known_view);
        self.welcome(member, is_new && !replaced);
    }

    /// A coordinator that was started again meets members that have seen newer views than its own: its next one must
    /// be newer still.
    fn catch_up(&mut self, seen: Generation) {
        let never = self.view.is_none() && seen != Generation::default();
        if seen < self.generation || (seen == self.generation && !never) {
            return;
        }
        self.generation = seen;
        if self.phase == Phase::Training {
            return self.reform();
        }
        self.generation = seen.next();
        if let Phase::Forming { status, .. } = &mut self.phase {
            status.clear();
        }
        self.freeze_all();
    }

    /// A member is here, by a new connection.
    pub(super) fn welcome(&mut self, member: MemberId, late: bool) {
        if let Phase::Forming { status, .. } = &mut self.phase {
            // What it has told by another connection, it tells again.
            status.remove(&member);
            let generation = self.generation;
            return self.send(member, ToMember::Freeze { generation });
        }
        let in_view = self.view.as_ref().is_some_and(|view| view.attendant(member).is_some());
        if late || !in_view { self.want_boundary(false) } else { self.reform() }
    }

    pub(super) fn turn_away(&mut self, link: LinkId, stop: Stop) {
        self.links.remove(&link);
        self.actions.push(Action::Send { link, message: ToMember::Stop(stop) });
        self.actions.push(Action::Close { link });
    }

    pub(super) fn lost(&mut self, link: LinkId) {
        let Some(member) = self.links.remove(&link) else { return };
        let Some(seat) = self.seats.get_mut(&member).filter(|seat| seat.link == Some(link)) else { return };
        seat.link = None;
        seat.lost = Some(self.now);
        if seat.standing == Standing::Live {
            // What was on its way is lost: the view is over, whether the member comes back or not.
            self.reform();
        }
    }

    pub(super) fn leave(&mut self, member: MemberId, leave: Leave) {
        match leave {
            Leave::Finished => {
                if let Some(seat) = self.seats.get_mut(&member) {
                    seat.finished = true;
                }
                if let Phase::Forming { .. } = self.phase {
                    self.settle();
                }
            }
            Leave::Stopped => self.remove(member, Standing::Gone),
            Leave::Failed(failure) => self.failed(member, failure),
        }
    }

    pub(super) fn failed(&mut self, member: MemberId, failure: Failure) {
        let Failure { reason, permanent, log_tail } = failure;
        self.actions.push(Action::Warning(format!("{member} failed: {reason}")));
        self.first_cause.get_or_insert(FirstCause { member: Some(member), reason, log_tail });
        if permanent {
            return self.fail(Some(member), &Reason::Left { member });
        }
        self.bury(member);
    }

    /// A member is taken for dead: whatever it still says is refused.
    pub(super) fn dead(&mut self, member: MemberId, why: &str) {
        let Some(seat) = self.seats.get(&member) else { return };
        self.actions.push(Action::Warning(format!("{member} is lost: {why}")));
        if let Some(hello) = &seat.hello {
            let incarnation = hello.incarnation;
            self.actions.push(Action::Cancel { member, incarnation });
        }
        self.bury(member);
    }

    /// A life has ended; another may come.
    pub(super) fn bury(&mut self, member: MemberId) {
        let most = self.rules.max_rank_restarts;
        let Some(seat) = self.seats.get_mut(&member) else { return };
        seat.ended_lives += 1;
        let again = seat.ended_lives <= most && !seat.draining;
        self.remove(member, if again { Standing::Dead } else { Standing::Gone });
        if again {
            self.actions.push(Action::Replace { member });
        }
    }

    pub(super) fn remove(&mut self, member: MemberId, standing: Standing) {
        let Some(seat) = self.seats.get_mut(&member) else { return };
        seat.standing = standing;
        seat.lost = None;
        if let Some(link) = seat.link.take() {
            self.links.remove(&link);
            // One that was only cut off or stopped for a while may come back: it finds its connection closed.
            if standing == Standing::Gone {
                self.actions.push(Action::Send { link, message: ToMember::Stop(Stop::Fenced) });
            }
            self.actions.push(Action::Close { link });
        }
        if let Phase::Forming { status, .. } = &mut self.phase {
            status.remove(&member);
        }
        if self.view.as_ref().is_some_and(|view| view.attendant(member).is_some()) {
            self.reform();
        }
    }
}
