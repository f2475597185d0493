//! What a trainer calls, what comes of it, and what the transport has to do for it.

use crate::{
    Lease, Position, Round, Totals,
    protocol::{Generation, MemberId, ShardRequest, ToCoordinator, View},
};
use std::ops::Range;

/// What a trainer calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// [`GradientSync::join`](crate::GradientSync::join).
    Join {
        /// Length of the parameters.
        n_parameters: usize,
        /// Rows of the whole training set.
        rows: usize,
        /// Where the parameters stand, if they are needed.
        position: Position,
        /// Updates that the optimizer has seen.
        steps: u64,
        /// Names of its vectors; empty: fresh.
        vectors: Vec<String>,
    },
    /// [`GradientSync::lease`](crate::GradientSync::lease).
    Lease {
        /// Visits, at most.
        at_most: usize,
    },
    /// [`GradientSync::step`](crate::GradientSync::step), `step_alone`, `average`.
    Step {
        /// Samples in the gradient.
        samples: u64,
        /// Loss summed over them.
        loss: f64,
        /// `step_alone`.
        alone: bool,
        /// `average`.
        differences: bool,
    },
    /// [`GradientSync::synchronise`](crate::GradientSync::synchronise).
    Synchronise,
    /// [`GradientSync::sum`](crate::GradientSync::sum).
    Sum(Vec<f64>),
    /// [`GradientSync::optimizer_state`](crate::GradientSync::optimizer_state).
    State,
}

impl Call {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Join { .. } => "join",
            Self::Lease { .. } => "lease",
            Self::Step { .. } => "step",
            Self::Synchronise => "synchronise",
            Self::Sum(_) => "sum",
            Self::State => "optimizer_state",
        }
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// Of [`Call::Join`]: the position that the parameters stand for.
    Joined(Position),
    /// Of [`Call::Lease`].
    Leased(Option<Lease>),
    /// Of [`Call::Step`].
    Stepped(Round),
    /// Of [`Call::Synchronise`].
    Synchronised(Totals),
    /// Of [`Call::Sum`].
    Summed(Vec<f64>),
    /// Of [`Call::State`]: the vectors came with the answers.
    State {
        /// Updates that the optimizer has seen.
        steps: u64,
        /// Names of its vectors.
        vectors: Vec<String>,
    },
}

/// What a member wants done, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberAction {
    /// Say this to the coordinator; without a connection, drop it.
    Tell(ToCoordinator),
    /// Ask the holder of a shard. Ask again, in the same order, what was not answered when a connection is lost, until
    /// the next [`MemberAction::Freeze`].
    Ask {
        /// Whom.
        holder: MemberId,
        /// The header.
        request: ShardRequest,
        /// What follows it.
        payload: Payload,
    },
    /// [`Replica::freeze`](crate::protocol::Replica::freeze) all replicas here, then tell [`Member::frozen`](super::Member::frozen) what they hold.
    Freeze(Generation),
    /// [`Replica::view`](crate::protocol::Replica::view) on all replicas here.
    Apply(View),
    /// The call is over: [`Member::outcome`](super::Member::outcome).
    Done,
    /// The gang needs this member no more, or is lost for good.
    Released,
}

/// The values that follow a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    Nothing,
    /// This range of the gradient: of the step, or (asynchronous modes) of all steps that were not pushed yet.
    Gradient(Range<usize>),
    /// This range of the parameters and of the optimizer's vectors that the trainer joins with.
    Start(Range<usize>),
}
