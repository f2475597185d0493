//! A rank of a gang with a parameter service, as a [`GradientSync`].

use super::{
    hands::Hands,
    node::{Event, Node},
};
use crate::{
    Consistency, Contribution, Error, GradientSync, Lease, OptimizerState, Place, Position, Rank, Result,
    Round, Start, SyncSettings, Totals, Traffic,
    contribution::Checked,
    protocol::{Call, Done, Failure},
};
use std::sync::Arc;

/// One rank's side of a parameter service, within a process or over a network.
#[derive(Debug)]
pub(crate) struct ServiceRank {
    node: Arc<Node>,
    rank: Rank,
    world: usize,
    in_rounds: bool,
    n_parameters: usize,
    /// Asynchronous modes: gradients of steps that were not pushed; empty: none.
    unpushed: Vec<f32>,
    steps: u64,
    failed: Option<Error>,
}

impl ServiceRank {
    pub fn new(node: Arc<Node>, settings: &SyncSettings, world: usize) -> Self {
        let rank = node.me.rank();
        let in_rounds = settings.consistency == Consistency::Sync;
        Self { node, rank, world, in_rounds, n_parameters: 0, unpushed: Vec::new(), steps: 0, failed: None }
    }

    fn call(&mut self, call: Call, hands: &mut Hands<'_>) -> Result<Done> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.node.call(call, hands);
        if let Err(error) = &result
            && !error.wants_join()
        {
            self.failed = Some(error.clone());
        }
        result
    }

    /// This rank's own fault: it leaves the gang, and the others learn why.
    fn fail<T>(&mut self, error: Error) -> Result<T> {
        let failure = Failure { reason: error.to_string(), permanent: true, log_tail: Vec::new() };
        self.node.post(Event::Fail(failure));
        self.failed = Some(error.clone());
        Err(error)
    }

    fn checked(&mut self, parameters: &[f32], contribution: &Contribution<'_>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let check = Checked { rank: self.rank, step: self.steps, expected: self.n_parameters };
        self.steps += 1;
        match check.contribution(parameters, contribution) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    fn same_length(&mut self, found: usize, what: &'static str) -> Result<()> {
        let expected = self.n_parameters;
        if found == expected || self.failed.is_some() {
            return Ok(());
        }
        self.fail(Error::Length { rank: self.rank, what, found, expected })
    }

    fn unexpected<T>(&mut self, what: &'static str, done: &Done) -> Result<T> {
        self.fail(Error::Message { rank: self.rank, what, reason: format!("the member answered {done:?}") })
    }

    fn stepped(
        &mut self,
        parameters: &mut [f32],
        contribution: Contribution<'_>,
        (alone, differences): (bool, bool),
    ) -> Result<Round> {
        let Contribution { gradient, samples, loss } = contribution;
        let call = Call::Step { samples, loss, alone, differences };
        let is_sync = self.in_rounds;
        let pushes = is_sync || (samples > 0 && (alone || self.node.pushes_next()));
        let mut unpushed = std::mem::take(&mut self.unpushed);
        if !is_sync && samples > 0 && (!pushes || !unpushed.is_empty()) {
            // Downpour (Dean et al. 2012): gradients add up between two pushes.
            unpushed.resize(gradient.len(), 0.0);
            unpushed.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
        }
        let gradient = if unpushed.is_empty() { gradient } else { &unpushed };
        let mut hands = Hands { parameters: Some(parameters), gradient, ..Hands::default() };
        let done = self.call(call, &mut hands)?;
        if !pushes {
            self.unpushed = unpushed;
        }
        match done {
            Done::Stepped(round) => Ok(round),
            other => self.unexpected("step", &other),
        }
    }
}

impl GradientSync for ServiceRank {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn place(&self) -> Place {
        self.node.place()
    }

    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        let n_parameters = parameters.len();
        let Start { optimizer, position, rows } = start;
        let odd = optimizer.iter().flat_map(|s| &s.vectors).find(|(_, v)| v.len() != n_parameters);
        if let Some((_, vector)) = odd {
            let (found, what) = (vector.len(), "the optimizer's state");
            return self.fail(Error::Length { rank: self.rank, what, found, expected: n_parameters });
        }
        self.n_parameters = n_parameters;
        self.unpushed = Vec::new();
        let steps = optimizer.as_ref().map_or(0, |state| state.steps);
        let vectors = optimizer.iter().flat_map(|s| &s.vectors).map(|(name, _)| name.clone()).collect();
        let call = Call::Join { n_parameters, rows, position, steps, vectors };
        let mut hands =
            Hands { parameters: Some(parameters), optimizer: optimizer.as_ref(), ..Hands::default() };
        match self.call(call, &mut hands)? {
            Done::Joined(position) => Ok(position),
            other => self.unexpected("join", &other),
        }
    }

    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        match self.call(Call::Lease { at_most }, &mut Hands::default())? {
            Done::Leased(lease) => Ok(lease),
            other => self.unexpected("lease", &other),
        }
    }

    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.checked(parameters, &contribution)?;
        self.stepped(parameters, contribution, (false, false))
    }

    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.checked(parameters, &contribution)?;
        if !self.in_rounds {
            let reason = "parameters are averaged in rounds; take consistency => 'sync'".into();
            return self.fail(Error::Setting { name: "local_steps", reason });
        }
        self.stepped(parameters, contribution, (false, true))
    }

    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.checked(parameters, &contribution)?;
        if !self.node.place().leads() {
            let reason = format!("only the leading rank trains alone, not {}", self.rank);
            return self.fail(Error::Setting { name: "warm_up", reason });
        }
        self.stepped(parameters, contribution, (true, false))
    }

    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.same_length(parameters.len(), "synchronise")?;
        let unpushed = std::mem::take(&mut self.unpushed);
        let mut hands = Hands { parameters: Some(parameters), gradient: &unpushed, ..Hands::default() };
        match self.call(Call::Synchronise, &mut hands)? {
            Done::Synchronised(totals) => Ok(totals),
            other => self.unexpected("synchronise", &other),
        }
    }

    fn position(&self) -> Position {
        self.node.position()
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        match self.call(Call::Sum(values.to_vec()), &mut Hands::default())? {
            Done::Summed(sums) if sums.len() == values.len() => {
                values.copy_from_slice(&sums);
                Ok(())
            }
            other => self.unexpected("sum", &other),
        }
    }

    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        let mut hands = Hands::default();
        match self.call(Call::State, &mut hands)? {
            Done::State { steps, .. } => Ok(OptimizerState { steps, ..hands.memory }),
            other => self.unexpected("optimizer_state", &other),
        }
    }

    fn traffic(&self) -> Traffic {
        self.node.traffic()
    }
}

impl Drop for ServiceRank {
    fn drop(&mut self) {
        if std::thread::panicking() && self.failed.is_none() {
            let reason = format!("{} panicked", self.rank);
            self.node.post(Event::Fail(Failure { reason, permanent: true, log_tail: Vec::new() }));
        } else if self.failed.is_none() {
            self.node.post(Event::Finish);
        }
    }
}
