//! What a trainer holds of its gang, and what outlives it.

use super::node::{Event, Node};
use crate::{
    Communicator, Contribution, GradientSync, Lease, OptimizerState, Place, Position, Rank, Result, Round,
    Start, Totals, Traffic, protocol::Failure,
};
use std::{fmt, sync::Arc, time::Duration};

/// A rank's place in a gang. Dropped, the rank has finished; it still serves its shards until all have.
pub struct Membership {
    pub(super) node: Arc<Node>,
    pub(super) sync: Box<dyn GradientSync>,
}

#[cfg(test)]
impl Membership {
    /// Cuts all connections, as the end of its host would.
    pub fn severer(&self) -> impl Fn() + use<> {
        let node = Arc::clone(&self.node);
        move || node.sever()
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Membership({})", self.node.me)
    }
}

impl Membership {
    /// What outlives the trainer's part: words to the driver, and the end.
    pub fn line(&self) -> Line {
        Line { node: Arc::clone(&self.node) }
    }

    /// This rank's work is done. Waits until the gang needs it no more, as long as `time`: until then its shards
    /// are served. False: it is still needed.
    pub fn finish(self, time: Duration) -> bool {
        let line = self.line();
        drop(self);
        line.wait_released(time)
    }
}

/// A member's line to its driver.
#[derive(Clone, Debug)]
pub struct Line {
    node: Arc<Node>,
}

impl Line {
    /// Says something to the driver ([`Signal::Report`](super::Signal::Report)), in order; before the first connection
    /// too. What is on its way when a connection is lost does not come.
    pub fn report(&self, bytes: Vec<u8>) {
        self.node.post(Event::Report(bytes));
    }

    /// The rank has failed for a reason of its own; `permanent`: another attempt would fail in the same way. Comes
    /// before the [`Membership`] is dropped, which else means that the work is done.
    pub fn fail(&self, reason: String, permanent: bool, log_tail: Vec<String>) {
        self.node.post(Event::Fail(Failure { reason, permanent, log_tail }));
    }

    /// The launcher has taken the member's task away: what its trainer is in, or comes to, ends with
    /// [`Error::Cancelled`](crate::Error::Cancelled). The gang may go on with another life of the member.
    pub fn abandon(&self) {
        self.node.abandon();
    }

    /// Waits until the gang needs the member no more, as long as `time`. False: it is still needed.
    pub fn wait_released(&self, time: Duration) -> bool {
        self.node.wait_released(time)
    }
}

impl GradientSync for Membership {
    fn rank(&self) -> Rank {
        self.sync.rank()
    }
    fn world(&self) -> usize {
        self.sync.world()
    }
    fn place(&self) -> Place {
        self.sync.place()
    }
    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        self.sync.join(parameters, start)
    }
    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        self.sync.lease(at_most)
    }
    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.sync.step(parameters, contribution)
    }
    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.sync.average(parameters, contribution)
    }
    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.sync.step_alone(parameters, contribution)
    }
    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.sync.synchronise(parameters)
    }
    fn position(&self) -> Position {
        self.sync.position()
    }
    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.sync.sum(values)
    }
    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        self.sync.optimizer_state()
    }
    fn traffic(&self) -> Traffic {
        self.sync.traffic()
    }
    fn communicator(&mut self) -> Result<&mut dyn Communicator> {
        self.sync.communicator()
    }
}
