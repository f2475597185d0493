//! The seam between a training loop and whoever adds up its gradients.

use crate::{Rank, Result};

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
    /// Samples of all ranks in this round (async: of this rank).
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimizerState {
    /// For example `("sum_of_squares", …)` of Adagrad.
    pub vectors: Vec<(String, Vec<f32>)>,
    /// Updates applied so far.
    pub steps: u64,
}

/// Keeps the replicas of one model in agreement. Every rank calls the same methods in the same order.
///
/// The loop of a rank:
/// ```text
/// join(parameters)                         all start from rank 0's parameters
/// warm_up × rank 0: step_alone(…)          then all: synchronise(parameters)
/// each epoch: repeat step(…) until the rank is out of rows and Round::finished
///             synchronise(parameters)
/// ```
///
/// After an error the rank has left the gang: its peers learn of it by [`crate::Error::PeerLeft`], and its own
/// further calls give the first error again. Dropping it is leaving, too.
pub trait GradientSync: Send {
    /// This rank.
    fn rank(&self) -> Rank;
    /// Number of ranks.
    fn world(&self) -> usize;
    /// Replaces `parameters` by rank 0's, with rank 0's optimizer state (`None`: fresh).
    fn join(&mut self, parameters: &mut [f32], state: Option<OptimizerState>) -> Result<()>;
    /// Brings one minibatch and leaves the new parameters in `parameters`, `[n_parameters]`.
    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round>;
    /// A step of rank 0 for which the others do not wait (warm-up).
    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round>;
    /// Barrier: flushes what was not pushed, then every rank has the same newest parameters.
    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<()>;
    /// Element-wise sum over the ranks, on every rank (validation losses, counts).
    fn sum(&mut self, values: &mut [f64]) -> Result<()>;
    /// The optimizer's memory; call it on every rank after [`Self::synchronise`].
    fn optimizer_state(&mut self) -> Result<OptimizerState>;
    /// Bytes moved so far.
    fn traffic(&self) -> Traffic;
}
