//! What people want to know of a gang.

use super::{Coordinator, Phase, Seat, Standing};
use crate::protocol::{Generation, MemberId, Role};

/// What people want to know of a gang.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct GangState {
    /// `forming`, `training` or `ended`.
    pub phase: String,
    /// Number of the membership.
    pub generation: Generation,
    /// Passes over the rows that are done.
    pub epoch: u64,
    /// Rounds that are closed.
    pub round: u64,
    /// Samples of this pass.
    pub samples: u64,
    /// Every wanted member.
    pub members: Vec<MemberState>,
    /// What is waited for; none: nothing.
    pub waiting: Option<String>,
    /// Whom for.
    pub waiting_for: Vec<MemberId>,
}

/// What people want to know of a member.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MemberState {
    /// Which.
    pub member: MemberId,
    /// What it does.
    pub role: Role,
    /// `awaited`, `live`, `dead` or `gone`; `finished`, `draining`, `disconnected` for a live one.
    pub standing: String,
    /// Where.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Since it was heard.
    pub silent_ms: u64,
    /// Lives that have ended.
    pub ended_lives: u32,
}

impl Coordinator {
    /// Who is in, which round is open, who is waited for.
    pub fn state(&self) -> GangState {
        let (phase, waiting, waiting_for) = match &self.phase {
            Phase::Forming { .. } => ("forming", Some("members"), self.missing()),
            Phase::Training => match self.rounds.open() {
                Some((what, missing)) => ("training", Some(what), missing),
                None => ("training", None, Vec::new()),
            },
            Phase::Ended => ("ended", None, Vec::new()),
        };
        let position = self.rounds.position();
        GangState {
            phase: phase.into(),
            generation: self.generation,
            epoch: position.map_or(0, |p| p.epoch),
            round: position.map_or(0, |p| p.round),
            samples: position.map_or(0, |p| p.totals.samples),
            members: self.seats.iter().map(|(member, seat)| self.member_state(*member, seat)).collect(),
            waiting: waiting.map(str::to_owned),
            waiting_for,
        }
    }

    fn member_state(&self, member: MemberId, seat: &Seat) -> MemberState {
        let standing = match seat.standing {
            Standing::Awaited => "awaited",
            Standing::Live if seat.link.is_none() => "disconnected",
            Standing::Live if seat.finished => "finished",
            Standing::Live if seat.draining => "draining",
            Standing::Live => "live",
            Standing::Dead => "dead",
            Standing::Gone => "gone",
        };
        MemberState {
            member,
            role: self.rules.role(member).unwrap_or(Role::Rank),
            standing: standing.into(),
            host: seat.hello.as_ref().map(|h| h.host.clone()).unwrap_or_default(),
            pid: seat.hello.as_ref().map_or(0, |h| h.pid),
            silent_ms: self.now.saturating_sub(seat.heard),
            ended_lives: seat.ended_lives,
        }
    }
}
