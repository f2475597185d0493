//! Ring all-reduce of gradients over any [`Communicator`]; every rank applies the optimizer to all parameters.
//!
//! Equal inputs and a fixed order keep the replicas equal bit by bit; the broadcast of rank 0's parameters
//! (every `broadcast_every` rounds, and at each `synchronise`) guards against ranks whose machines round
//! differently.

use crate::{
    Communicator, CommunicatorExt, Contribution, Error, GradientSync, Lease, OptimizerState, Place, Position,
    Rank, ReduceOp, Reduction, Result, Round, Start, SyncSettings, Totals, Traffic,
    allotment::Allotment,
    contribution::Checked,
    optimizer::{Optimizer, reduce},
};

/// One rank of a ring.
#[derive(Debug)]
pub struct Ring<C> {
    /// `None` once this rank has failed: its peers see it gone.
    communicator: Option<C>,
    rank: Rank,
    world: usize,
    settings: SyncSettings,
    optimizer: Optimizer,
    gradient: Vec<f32>,
    rounds: u64,
    steps: u64,
    allotment: Allotment,
    /// What rank 0 did alone.
    alone: Totals,
    /// Rank 0 has stepped alone: the others lack its optimizer's memory.
    ahead: bool,
    failed: Option<Error>,
    traffic: Traffic,
}

impl<C: Communicator> Ring<C> {
    /// A rank that talks through `communicator`.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that cannot work.
    pub fn try_new(communicator: C, settings: &SyncSettings) -> Result<Self> {
        let (rank, world) = (communicator.rank(), communicator.world());
        settings.validate(world)?;
        Ok(Self {
            communicator: Some(communicator),
            rank,
            world,
            settings: settings.clone(),
            optimizer: Optimizer::new(settings.round_optimizer(), 0),
            gradient: Vec::new(),
            rounds: 0,
            steps: 0,
            allotment: Allotment::default(),
            alone: Totals::default(),
            ahead: false,
            failed: None,
            traffic: Traffic::default(),
        })
    }

    /// Runs one method; an error takes this rank out of the ring.
    fn guarded<T>(
        &mut self,
        what: &'static str,
        f: impl FnOnce(&mut Self, &mut C) -> Result<T>,
    ) -> Result<T> {
        let Some(mut communicator) = self.communicator.take() else {
            let gone = Error::PeerLeft { rank: self.rank, peer: self.rank, what };
            return Err(self.failed.clone().unwrap_or(gone));
        };
        let result = f(self, &mut communicator).map_err(|e| e.during(what));
        self.traffic = communicator.traffic();
        match &result {
            Ok(_) => self.communicator = Some(communicator),
            Err(error) => self.failed = Some(error.clone()),
        }
        result
    }

    fn check(&mut self, parameters: &[f32], contribution: &Contribution<'_>) -> Result<()> {
        let check = Checked { rank: self.rank, step: self.steps, expected: self.gradient.len() };
        self.steps += 1;
        check.contribution(parameters, contribution)
    }

    /// A round of gradients, or of differences of parameters.
    fn round(
        &mut self,
        c: &mut C,
        parameters: &mut [f32],
        contribution: &Contribution<'_>,
        differences: bool,
    ) -> Result<Round> {
        self.check(parameters, contribution)?;
        self.gradient.copy_from_slice(contribution.gradient);
        // u64 counts below 2⁵³ are exact in f64.
        let mut counts = vec![0.0; 1 + self.world];
        counts[0] = contribution.loss;
        counts[1 + self.rank.0] = contribution.samples as f64;
        c.all_reduce(ReduceOp::Sum, &mut counts)?;
        let by_rank = counts[1..].iter().map(|samples| *samples as u64);
        let (samples, loss) = (by_rank.clone().sum(), counts[0]);
        let round = self.rounds;
        self.allotment.close(round + u64::from(samples > 0), by_rank, loss);
        if samples > 0 {
            let mut gradient = std::mem::take(&mut self.gradient);
            let reduced = c.all_reduce(ReduceOp::Sum, &mut gradient);
            self.gradient = gradient;
            reduced?;
            self.apply(parameters, samples, differences);
            let every = self.settings.broadcast_every;
            if every > 0 && self.rounds.is_multiple_of(every) {
                c.broadcast(Rank(0), parameters)?;
            }
        }
        Ok(Round { round, samples, loss, staleness: 0, finished: samples == 0 })
    }

    fn apply(&mut self, parameters: &mut [f32], samples: u64, differences: bool) {
        if samples == 0 {
            return;
        }
        if differences {
            reduce(Reduction::Mean, &mut self.gradient, samples);
            parameters.iter_mut().zip(&self.gradient).for_each(|(w, difference)| *w -= difference);
        } else {
            self.optimizer.apply(parameters, &mut self.gradient, samples);
        }
        self.rounds += 1;
    }

    /// Rank 0's memory of the optimizer, everywhere.
    fn broadcast_memory(&mut self, c: &mut C) -> Result<()> {
        let steps = c.broadcast_bytes(Rank(0), self.optimizer.steps().to_le_bytes().to_vec())?;
        let steps = <[u8; 8]>::try_from(steps.as_slice()).map_err(|_| Error::Message {
            rank: self.rank,
            what: "join",
            reason: format!("a step count of {} bytes", steps.len()),
        })?;
        self.optimizer.set_steps(u64::from_le_bytes(steps));
        self.optimizer.vectors_mut().try_for_each(|vector| c.broadcast(Rank(0), vector))
    }
}

/// Rank 0's position, everywhere.
fn broadcast_position<C: Communicator>(c: &mut C, position: &Position) -> Result<Position> {
    let rank = c.rank();
    let unreadable =
        |e: postcard::Error| Error::Message { rank, what: "join", reason: format!("a position: {e}") };
    let bytes = c.broadcast_bytes(Rank(0), postcard::to_stdvec(position).map_err(unreadable)?)?;
    postcard::from_bytes(&bytes).map_err(unreadable)
}

/// Every rank learns of a length that is not rank 0's, so that none goes on alone.
fn same_lengths<C: Communicator>(c: &mut C, what: &'static str, length: usize) -> Result<()> {
    let lengths = c.all_gather((length as u64).to_le_bytes().to_vec())?;
    let mut lengths =
        lengths.iter().map(|b| b.iter().rev().fold(0_usize, |n, byte| n << 8 | usize::from(*byte)));
    let expected = lengths.next().unwrap_or(length);
    match lengths.enumerate().find(|(_, found)| *found != expected) {
        Some((rank, found)) => Err(Error::Length { rank: Rank(rank + 1), what, found, expected }),
        None => Ok(()),
    }
}

impl<C: Communicator> GradientSync for Ring<C> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn place(&self) -> Place {
        Place { index: self.rank.0, of: self.world }
    }

    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        self.guarded("join", |ring, c| {
            let n = parameters.len();
            same_lengths(c, "join", n)?;
            let settings = ring.settings.round_optimizer();
            ring.optimizer = match start.optimizer.filter(|_| ring.rank == Rank(0)) {
                Some(state) => Optimizer::restore(settings, &state, 0..n, n)?,
                None => Optimizer::new(settings, n),
            };
            let position = broadcast_position(c, &start.position)?;
            ring.gradient = vec![0.0; n];
            ring.rounds = position.round;
            ring.alone = Totals::default();
            ring.allotment = Allotment::new(ring.rank.0, ring.world, start.rows, position.clone());
            ring.broadcast_memory(c)?;
            c.broadcast(Rank(0), parameters)?;
            Ok(position)
        })
    }

    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        self.guarded("lease", |ring, _| Ok(ring.allotment.take(at_most)))
    }

    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.guarded("step", |ring, c| ring.round(c, parameters, &contribution, false))
    }

    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.guarded("average", |ring, c| ring.round(c, parameters, &contribution, true))
    }

    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.guarded("step_alone", |ring, _| {
            ring.check(parameters, &contribution)?;
            Checked::alone(ring.rank)?;
            let Contribution { samples, loss, gradient } = contribution;
            ring.gradient.copy_from_slice(gradient);
            let round = ring.rounds;
            ring.apply(parameters, samples, false);
            ring.alone = ring.alone.plus(Totals { samples, loss });
            ring.ahead = true;
            Ok(Round { round, samples, loss, staleness: 0, finished: samples == 0 })
        })
    }

    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.guarded("synchronise", |ring, c| {
            if parameters.len() != ring.gradient.len() {
                let (found, expected) = (parameters.len(), ring.gradient.len());
                return Err(Error::Length { rank: ring.rank, what: "synchronise", found, expected });
            }
            let Totals { samples, loss } = std::mem::take(&mut ring.alone);
            let mut header = [f64::from(u8::from(ring.ahead)), ring.rounds as f64, samples as f64, loss];
            c.broadcast(Rank(0), &mut header)?;
            ring.rounds = header[1] as u64;
            let alone = Totals { samples: header[2] as u64, loss: header[3] };
            if header[0] != 0.0 {
                ring.broadcast_memory(c)?;
            }
            ring.ahead = false;
            c.broadcast(Rank(0), parameters)?;
            c.barrier()?;
            Ok(ring.allotment.synchronise(ring.rounds, alone, false))
        })
    }

    fn position(&self) -> Position {
        self.allotment.position().clone()
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.guarded("sum", |_, c| {
            same_lengths(c, "sum", values.len())?;
            c.all_reduce(ReduceOp::Sum, values)
        })
    }

    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        self.guarded("optimizer_state", |ring, _| Ok(ring.optimizer.state()))
    }

    fn traffic(&self) -> Traffic {
        self.communicator.as_ref().map_or(self.traffic, Communicator::traffic)
    }

    fn communicator(&mut self) -> Result<&mut dyn Communicator> {
        match &mut self.communicator {
            Some(communicator) => Ok(communicator),
            None => {
                let gone = Error::PeerLeft { rank: self.rank, peer: self.rank, what: "communicator" };
                Err(self.failed.clone().unwrap_or(gone))
            }
        }
    }
}
