//! How members and gangs end, and why.

use super::identity::MemberId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a member goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Leave {
    /// Its work is done.
    Finished,
    /// It was asked to.
    Stopped,
    /// It failed.
    Failed(Failure),
}

/// Why a member failed, with the end of its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// One sentence.
    pub reason: String,
    /// Every member would fail in the same way (settings, data): restarts are of no use.
    pub permanent: bool,
    /// Last lines of its log.
    pub log_tail: Vec<String>,
}

/// Why a member is asked to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stop {
    /// Another life of the same member, or a newer view, has taken its place.
    Fenced,
    /// Somebody cancelled the run.
    Cancelled,
    /// Drained: the round is closed, the place is wanted.
    Drained,
    /// The gang has failed.
    Failed(Reason),
    /// All ranks have finished.
    Finished,
}

/// Why a gang fails, as far as its members can be told apart by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// A member left although the others need it.
    Left {
        /// The member.
        member: MemberId,
    },
    /// Members did not come in time.
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: f64,
        /// Who is missing.
        missing: Vec<MemberId>,
    },
    /// A member brought another number of values (or rows) than the others.
    Length {
        /// The member.
        member: MemberId,
        /// To what.
        what: String,
        /// What it brought.
        found: u64,
        /// What the others brought.
        expected: u64,
    },
    /// Two members called different methods.
    Order {
        /// The member that came second.
        member: MemberId,
        /// What it called.
        called: String,
        /// The member that came first.
        peer: MemberId,
        /// What that one called.
        peer_called: String,
    },
    /// Anything else, in one sentence.
    Other(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left { member } => write!(f, "{member} has left the gang, which needs it"),
            Self::Late { what, seconds, missing } => {
                write!(f, "waited {seconds} s for {what}; missing: {}", names(missing))
            }
            Self::Length { member, what, found, expected } => {
                write!(f, "{member} brought {found} values to {what}, expected {expected}")
            }
            Self::Order { member, called, peer, peer_called } => {
                write!(f, "{member} called {called} while {peer} called {peer_called}")
            }
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

/// Members in words.
pub(crate) fn names(members: &[MemberId]) -> String {
    members.iter().map(MemberId::to_string).collect::<Vec<_>>().join(", ")
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// All ranks finished.
    Finished,
    /// Somebody cancelled it.
    Cancelled,
    /// It failed.
    Failed(FirstCause),
}

/// What failed first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstCause {
    /// The member that failed; none for a deadline of the whole gang.
    pub member: Option<MemberId>,
    /// One sentence: what is wrong, who is missing, what to do.
    pub reason: String,
    /// Last lines of that member's log.
    pub log_tail: Vec<String>,
}
