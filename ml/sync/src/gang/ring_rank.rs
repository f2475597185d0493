//! A rank of a ring in a gang with a coordinator: the ranks meet at the coordinator, then talk among themselves.
//!
//! A ring needs all its ranks. When one fails the others learn of it by their connections, and the gang is over;
//! its driver starts another from the newest checkpoint.

use super::{
    hands::Hands,
    node::{Event, Node},
};
use crate::{
    Communicator, Contribution, Error, GradientSync, Lease, OptimizerState, Place, Position, Rank, Result,
    Ring, Round, Start, SyncSettings, Totals, Traffic,
    protocol::{Call, Done, Failure, View},
};
use std::sync::Arc;

/// Makes the connections to the ranks of a view.
pub(crate) type Meet = Box<dyn FnOnce(&View) -> Result<Box<dyn Communicator>> + Send>;

/// One rank of a ring.
pub(crate) struct RingRank {
    node: Arc<Node>,
    settings: SyncSettings,
    world: usize,
    meet: Option<Meet>,
    ring: Option<Ring<Box<dyn Communicator>>>,
    failed: Option<Error>,
}

impl RingRank {
    pub fn new(node: Arc<Node>, settings: SyncSettings, world: usize, meet: Meet) -> Self {
        Self { node, settings, world, meet: Some(meet), ring: None, failed: None }
    }

    /// All ranks are at the coordinator; then each knows where the others are.
    fn gather(&mut self, n_parameters: usize, start: &Start) -> Result<Ring<Box<dyn Communicator>>> {
        let call = Call::Join {
            n_parameters,
            rows: start.rows,
            position: start.position.clone(),
            steps: 0,
            vectors: Vec::new(),
        };
        loop {
            match self.node.call(call.clone(), &mut Hands::default()) {
                Ok(Done::Joined(_)) => break,
                Ok(other) => return Err(unexpected(self.rank(), format!("the member answered {other:?}"))),
                Err(error) if error.wants_join() => {}
                Err(error) => return Err(error),
            }
        }
        let view = self.node.view().ok_or(Error::Restarted { generation: 0 })?;
        let ranks: Vec<Rank> = view.ranks().map(|member| member.rank()).collect();
        if ranks.len() != self.world {
            return Err(unexpected(
                self.rank(),
                format!("a ring of {} ranks has {}", self.world, ranks.len()),
            ));
        }
        let meet = self.meet.take().ok_or_else(|| {
            unexpected(self.rank(), "a ring that has lost a rank starts anew, with another gang".into())
        })?;
        Ring::try_new(meet(&view)?, &self.settings)
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Ring<Box<dyn Communicator>>) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = match &mut self.ring {
            Some(ring) => f(ring),
            None => Err(unexpected(self.node.me.rank(), "join comes first".into())),
        };
        result.map_err(|error| self.fail(error))
    }

    fn fail(&mut self, error: Error) -> Error {
        let error = self.first_cause(error);
        let failure = Failure { reason: error.to_string(), permanent: true, log_tail: Vec::new() };
        self.node.post(Event::Fail(failure));
        self.failed = Some(error.clone());
        self.ring = None;
        error
    }
}

impl RingRank {
    /// Peers go when the coordinator says so; if they went by themselves, this rank has seen who was the first.
    fn first_cause(&self, error: Error) -> Error {
        if !error.is_consequence() || !self.node.is_released() {
            return error;
        }
        match self.node.call(Call::Sum(Vec::new()), &mut Hands::default()) {
            Err(cause @ (Error::Cancelled | Error::Fenced { .. })) => cause,
            _ => error,
        }
    }
}

fn unexpected(rank: Rank, reason: String) -> Error {
    Error::Message { rank, what: "join", reason }
}

impl GradientSync for RingRank {
    fn rank(&self) -> Rank {
        self.node.me.rank()
    }
    fn world(&self) -> usize {
        self.world
    }
    fn place(&self) -> Place {
        Place { index: self.rank().0, of: self.world }
    }
    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.ring.is_none() {
            match self.gather(parameters.len(), &start) {
                Ok(ring) => self.ring = Some(ring),
                Err(error) => return Err(self.fail(error)),
            }
        }
        self.with(|ring| ring.join(parameters, start))
    }
    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        self.with(|ring| ring.lease(at_most))
    }
    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.with(|ring| ring.step(parameters, contribution))
    }
    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.with(|ring| ring.average(parameters, contribution))
    }
    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.with(|ring| ring.step_alone(parameters, contribution))
    }
    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.with(|ring| ring.synchronise(parameters))
    }
    fn position(&self) -> Position {
        self.ring.as_ref().map_or_else(|| self.node.position(), GradientSync::position)
    }
    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.with(|ring| ring.sum(values))
    }
    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        self.with(GradientSync::optimizer_state)
    }
    fn traffic(&self) -> Traffic {
        self.ring.as_ref().map_or_else(Traffic::default, GradientSync::traffic)
    }
    fn communicator(&mut self) -> Result<&mut dyn Communicator> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match &mut self.ring {
            Some(ring) => ring.communicator(),
            None => Err(unexpected(self.node.me.rank(), "join comes first".into())),
        }
    }
}

impl Drop for RingRank {
    fn drop(&mut self) {
        if self.failed.is_some() {
            return;
        }
        self.node.post(if std::thread::panicking() {
            let reason = format!("{} panicked", self.rank());
            Event::Fail(Failure { reason, permanent: true, log_tail: Vec::new() })
        } else {
            Event::Finish
        });
    }
}
