//! The seam between a training loop and whoever adds up its gradients.

use crate::{Communicator, Error, Lease, Place, Position, Rank, Result, Totals};
use serde::{Deserialize, Serialize};

/// What one rank brings to a round. A rank that has no rows left brings zero samples.
#[derive(Clone, Copy, Debug)]
pub struct Contribution<'a> {
    /// Gradient summed (not averaged) over the samples, `[n_parameters]`.
    pub gradient: &'a [f32],
    /// Number of samples in the sum.
    pub samples: u64,
    /// Loss summed over the samples.
    pub loss: f64,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Number of this update, from 0 (async: the version of the parameters that were read).
    pub round: u64,
    /// Samples of all ranks in this round (async: of this rank); 0 also for a local step that is no round yet.
    pub samples: u64,
    /// Loss summed over those samples.
    pub loss: f64,
    /// Updates by others between this rank's read and its push (0 in sync mode).
    pub staleness: u64,
    /// True when a rank that brought no samples need not come again in this epoch:
    /// at once in async mode, when no rank had any in sync mode.
    pub finished: bool,
}

/// Bytes that this rank moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to peers or shards.
    pub sent: u64,
    /// Bytes received from peers or shards.
    pub received: u64,
}

/// The optimizer's memory, for checkpoints: named vectors of `[n_parameters]` and the step count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// For example `("sum_of_squares", …)` of Adagrad.
    pub vectors: Vec<(String, Vec<f32>)>,
    /// Updates applied so far.
    pub steps: u64,
}

/// What a rank brings to [`GradientSync::join`] besides parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// The optimizer's memory; `None`: fresh.
    pub optimizer: Option<OptimizerState>,
    /// Where to go on from.
    pub position: Position,
    /// Rows to train on, all ranks together; the same on all ranks.
    pub rows: usize,
}

impl Start {
    /// The start of a training on `rows`.
    pub fn fresh(rows: usize) -> Self {
        Self { rows, ..Self::default() }
    }
}

/// Keeps the replicas of one model in agreement. Every rank calls the same methods in the same order.
///
/// The loop of a rank:
/// ```text
/// join(parameters, start) → position       all go on from where the gang is; at its start, from the leader's
/// warm_up × leader: step_alone(…)          then all: synchronise(parameters)
/// each epoch: repeat { lease(…) → rows → gradient → step(…) }
///                    until there was no lease and Round::finished
///             synchronise(parameters) → totals
/// ```
///
/// Errors of which [`Error::wants_join`](crate::Error::wants_join) is true are no end: the gang has changed, and the
/// rank calls [`Self::join`] again. What it does after that must follow from the position alone: another rank may
/// have joined only now. After any other error the rank has left the gang: its peers learn of it, and its own further
/// calls give the first error again. Dropping it is leaving, too.
pub trait GradientSync: Send {
    /// This rank.
    fn rank(&self) -> Rank;
    /// Number of ranks, those included that are lost.
    fn world(&self) -> usize;
    /// This rank's place among those that train now.
    fn place(&self) -> Place;
    /// Replaces `parameters` by those of the gang and gives its position. A gang that begins, or that has lost its
    /// state ([`Error::StateLost`](crate::Error::StateLost)), takes the leader's parameters and `start`; in one that
    /// goes on only `start.rows` counts.
    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position>;
    /// The next rows of this rank, at most `at_most`; `None`: nothing is left for it now (rows of a rank that is lost
    /// may come back). They count as done with the next [`Self::step`].
    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>>;
    /// Brings one minibatch and leaves the new parameters in `parameters`, `[n_parameters]`.
    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round>;
    /// As [`Self::step`], but `contribution.gradient` is what the rank's parameters lie below those of the last round,
    /// times its samples: the new parameters are the mean of the ranks', and the update rule is not asked. Sync mode only.
    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round>;
    /// A step of the leader for which the others do not wait (warm-up); it does not count as an epoch's.
    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round>;
    /// Barrier: flushes what was not pushed, then every rank has the same newest parameters. Ends the epoch, unless
    /// no row of it was leased (warm-up); gives what all ranks did since the last one ended.
    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals>;
    /// Where the gang stands after the last round that this rank took part in (async and ssp: after the last
    /// [`Self::synchronise`]).
    fn position(&self) -> Position;
    /// Element-wise sum over the ranks that train now, on every rank (validation losses, counts).
    fn sum(&mut self, values: &mut [f64]) -> Result<()>;
    /// The optimizer's memory at [`Self::position`]; every rank calls it.
    fn optimizer_state(&mut self) -> Result<OptimizerState>;
    /// Bytes moved so far.
    fn traffic(&self) -> Traffic;
    /// Messages between the ranks themselves, after [`Self::join`]: for stages that agree on other things than
    /// parameters. A gang of topology ring has them.
    ///
    /// # Errors
    /// [`Error::Setting`] in other topologies; the first error of a rank that has failed.
    fn communicator(&mut self) -> Result<&mut dyn Communicator> {
        let reason = "must be 'ring' for a stage whose ranks talk to each other".to_owned();
        Err(Error::Setting { name: "topology", reason })
    }
}

impl<S: GradientSync + ?Sized> GradientSync for Box<S> {
    fn rank(&self) -> Rank {
        (**self).rank()
    }
    fn world(&self) -> usize {
        (**self).world()
    }
    fn place(&self) -> Place {
        (**self).place()
    }
    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        (**self).join(parameters, start)
    }
    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        (**self).lease(at_most)
    }
    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        (**self).step(parameters, contribution)
    }
    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        (**self).average(parameters, contribution)
    }
    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        (**self).step_alone(parameters, contribution)
    }
    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        (**self).synchronise(parameters)
    }
    fn position(&self) -> Position {
        (**self).position()
    }
    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        (**self).sum(values)
    }
    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        (**self).optimizer_state()
    }
    fn traffic(&self) -> Traffic {
        (**self).traffic()
    }
    fn communicator(&mut self) -> Result<&mut dyn Communicator> {
        (**self).communicator()
    }
}
