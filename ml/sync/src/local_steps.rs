//! Local steps: each rank takes H steps alone, then the gang makes one of what they came back with.
//!
//! ```text
//!   w ─► rank 0: H inner steps ─► w₀ ─ n₀·(w − w₀) ─┐
//!   w ─► rank 1: H inner steps ─► w₁ ─ n₁·(w − w₁) ─┴─► GradientSync::step ─► outer rule on Δ = Σ n·(w − w_r)/Σ n ─► w
//! ```
//! With the outer rule `w −= Δ` the result is the ranks' parameters averaged, weighted by their samples: local SGD
//! (Stich 2019, "Local SGD converges fast and communicates little"). With Nesterov momentum on Δ it is DiLoCo
//! (Douillard et al. 2023, arXiv 2311.08105). A round moves as many bytes as one without local steps, so there are H
//! times fewer of them.
//!
//! The inner rule's memory stays with its rank. Where a checkpoint is taken ([`GradientSync::optimizer_state`]) and
//! where a gang goes on ([`GradientSync::join`]) the ranks' memories are averaged and everyone takes the mean: so a run
//! that is resumed has what the run that was stopped would have gone on with.
//!
//! With `local_steps => 'auto'` every step is a round at first ([`measuring`]); what steps and rounds took gives H
//! ([`choice`]). If H is 1 it stays so. Else every rank goes on with the memory that the gang's rule has by then, and
//! rounds average parameters ([`GradientSync::average`]). A checkpoint is that of a run without local steps, and a run
//! that goes on from it measures anew.

mod choice;
mod measuring;

use crate::{
    Communicator, Contribution, Error, GradientSync, Lease, LocalStepCount, OptimizerSettings,
    OptimizerState, Place, Position, Rank, Result, Round, Start, SyncSettings, Totals, Traffic,
    contribution::Checked, optimizer::Optimizer,
};
use measuring::Stopwatch;

pub use choice::{StepTiming, local_steps_for};

/// A rank that takes several steps alone between two rounds of `inner`, whose update rule is the outer one
/// ([`SyncSettings::round_optimizer`]); or, with `auto`, that of steps, as long as each is a round.
#[derive(Debug)]
pub struct LocalSteps<S> {
    inner: S,
    count: LocalStepCount,
    /// H; none while it is measured.
    every: Option<u64>,
    stopwatch: Stopwatch,
    settings: OptimizerSettings,
    optimizer: Optimizer,
    /// The parameters that the last round gave, `[n_parameters]`.
    anchor: Vec<f32>,
    /// `[n_parameters]`.
    difference: Vec<f32>,
    /// Local steps since the last round, and what was trained on in them.
    local: u64,
    totals: Totals,
    steps: u64,
    /// All ranks have stepped since they met last: else only the leader may have, alone.
    together: bool,
}

/// Prefix of the inner rule's vectors in an [`OptimizerState`].
const INNER: &str = "inner_";

impl<S: GradientSync> LocalSteps<S> {
    /// H steps alone, as `settings` say, between two rounds of `inner`.
    pub fn new(inner: S, settings: &SyncSettings) -> Self {
        Self {
            inner,
            count: settings.local_steps,
            every: settings.local_steps.fixed(),
            stopwatch: Stopwatch::default(),
            settings: settings.optimizer.clone(),
            optimizer: Optimizer::new(settings.optimizer.clone(), 0),
            anchor: Vec::new(),
            difference: Vec::new(),
            local: 0,
            totals: Totals::default(),
            steps: 0,
            together: false,
        }
    }

    /// One step of this rank's own.
    fn step_locally(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) {
        let Contribution { gradient, samples, loss } = contribution;
        self.optimizer.apply_to(parameters, gradient, samples);
        self.local += 1;
        self.totals = self.totals.plus(Totals { samples, loss });
    }

    /// Brings the difference since the last round, if there is any, to the next one.
    fn exchange(&mut self, parameters: &mut [f32], alone: bool) -> Result<Round> {
        let Totals { samples, loss } = std::mem::take(&mut self.totals);
        self.local = 0;
        let weight = samples as f32;
        for ((difference, anchor), w) in self.difference.iter_mut().zip(&self.anchor).zip(parameters.iter()) {
            *difference = (anchor - w) * weight;
        }
        parameters.copy_from_slice(&self.anchor);
        let contribution = Contribution { gradient: &self.difference, samples, loss };
        let round = match self.count {
            _ if alone => self.inner.step_alone(parameters, contribution)?,
            LocalStepCount::Fixed(_) => self.inner.step(parameters, contribution)?,
            LocalStepCount::Auto => self.inner.average(parameters, contribution)?,
        };
        self.anchor.copy_from_slice(parameters);
        Ok(round)
    }

    /// `None` if nothing is wrong with a contribution. What is wrong is refused by `inner`, so that the others learn
    /// of it.
    fn refused(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Option<Error> {
        let (rank, step) = (self.rank(), self.steps);
        self.steps += 1;
        let check = Checked { rank, step, expected: self.anchor.len() };
        let error = check.contribution(parameters, &contribution).err()?;
        match self.inner.step(parameters, contribution) {
            Err(first) if !matches!(first, Error::NotFinite { .. }) => Some(first),
            _ => Some(error),
        }
    }

    /// Averages the inner rule's memory over the ranks: over those that restored it from a checkpoint, or else over
    /// those that have stepped.
    fn average_memory(&mut self, restored: bool, steps: u64) -> Result<()> {
        let stepped = self.optimizer.steps() > 0;
        let own_steps = self.optimizer.steps() as f64;
        let mut holders = [f64::from(u8::from(restored)), f64::from(u8::from(stepped)), own_steps];
        self.inner.sum(&mut holders)?;
        let steps = match self.count {
            LocalStepCount::Fixed(every) => steps * every,
            LocalStepCount::Auto => (holders[2] / holders[1].max(1.0)) as u64,
        };
        let (counts, holders) = if holders[0] > 0.0 { (restored, holders[0]) } else { (stepped, holders[1]) };
        if holders == 0.0 {
            return Ok(());
        }
        for vector in self.optimizer.vectors_mut() {
            let weight = if counts { 1.0 / holders } else { 0.0 };
            let mut sums: Vec<f64> = vector.iter().map(|v| weight * f64::from(*v)).collect();
            self.inner.sum(&mut sums)?;
            vector.iter_mut().zip(sums).for_each(|(v, sum)| *v = sum as f32);
        }
        self.optimizer.set_steps(steps);
        Ok(())
    }

    /// Takes the inner rule's memory out of `state`; true if it was there.
    fn restore(&mut self, state: &mut Option<OptimizerState>, n: usize) -> Result<bool> {
        let (Some(state), LocalStepCount::Fixed(every)) = (state, self.count) else { return Ok(false) };
        let (inner, outer): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.vectors).into_iter().partition(|(name, _)| name.starts_with(INNER));
        state.vectors = outer;
        let vectors = inner.into_iter().map(|(name, v)| (name[INNER.len()..].to_owned(), v)).collect();
        let inner = OptimizerState { vectors, steps: state.steps * every };
        self.optimizer = Optimizer::restore(self.settings.clone(), &inner, 0..n, n)?;
        Ok(true)
    }

    /// Whether there are steps between rounds.
    fn is_local(&self) -> bool {
        self.every != Some(1) && self.every.is_some()
    }

    /// Room for local steps from `parameters` on.
    fn begin_from(&mut self, parameters: &[f32]) {
        if self.anchor.len() != parameters.len() {
            self.optimizer = Optimizer::new(self.settings.clone(), parameters.len());
        }
        self.anchor = parameters.to_vec();
        self.difference = vec![0.0; parameters.len()];
        (self.local, self.totals, self.together) = (0, Totals::default(), false);
    }
}

impl<S: GradientSync> GradientSync for LocalSteps<S> {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn world(&self) -> usize {
        self.inner.world()
    }

    fn place(&self) -> Place {
        self.inner.place()
    }

    fn join(&mut self, parameters: &mut [f32], mut start: Start) -> Result<Position> {
        if self.is_local() && self.anchor.len() != parameters.len() {
            self.begin_from(parameters);
        }
        let brought = start.position.clone();
        let restored = self.restore(&mut start.optimizer, parameters.len())?;
        let position = self.inner.join(parameters, start)?;
        self.agree()?;
        if self.is_local() {
            self.begin_from(parameters);
        }
        if position.round > 0 && self.is_local() {
            // A checkpoint that the gang did not begin with is of no use to it.
            self.average_memory(restored && position == brought, position.round)?;
        }
        Ok(position)
    }

    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        self.inner.lease(at_most)
    }

    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        if self.stopwatch.is_through() {
            self.choose(parameters)?;
        }
        let Some(every) = self.every.filter(|_| self.is_local()) else {
            return self.stopwatch.time(|| self.inner.step(parameters, contribution));
        };
        if let Some(error) = self.refused(parameters, contribution) {
            return Err(error);
        }
        self.together = true;
        if contribution.samples > 0 {
            self.step_locally(parameters, contribution);
            if self.local < every {
                let round = self.inner.position().round;
                return Ok(Round { round, samples: 0, loss: 0.0, staleness: 0, finished: false });
            }
        }
        self.exchange(parameters, false)
    }

    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        if !self.is_local() {
            return self.inner.step_alone(parameters, contribution);
        }
        if let Some(error) = self.refused(parameters, contribution) {
            return Err(error);
        }
        if !self.place().leads() {
            return self.inner.step_alone(parameters, contribution);
        }
        self.step_locally(parameters, contribution);
        self.exchange(parameters, true)
    }

    fn average(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.inner.average(parameters, contribution)
    }

    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.stopwatch.pause();
        // What the leader did alone is with the gang already.
        if std::mem::take(&mut self.together) && parameters.len() == self.anchor.len() {
            self.exchange(parameters, false)?;
        }
        let totals = self.inner.synchronise(parameters)?;
        if self.is_local() {
            self.anchor.copy_from_slice(parameters);
        }
        Ok(totals)
    }

    fn position(&self) -> Position {
        self.inner.position()
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.stopwatch.pause();
        self.inner.sum(values)
    }

    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        self.stopwatch.pause();
        let mut state = self.inner.optimizer_state()?;
        if !self.is_local() {
            return Ok(state);
        }
        match self.average_memory(false, state.steps) {
            // Without a driver nobody adds up: then the leader's memory stands for all.
            Err(error) if error.wants_join() => {}
            other => other?,
        }
        if self.count == LocalStepCount::Auto {
            return Ok(self.optimizer.state());
        }
        let own = self.optimizer.state().vectors.into_iter();
        state.vectors.extend(own.map(|(name, values)| (format!("{INNER}{name}"), values)));
        Ok(state)
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }

    fn communicator(&mut self) -> Result<&mut dyn Communicator> {
        self.inner.communicator()
    }
}

/// `sync` as it is, or with the local steps that `settings` ask for.
pub fn with_local_steps(sync: Box<dyn GradientSync>, settings: &SyncSettings) -> Box<dyn GradientSync> {
    match settings.local_steps {
        LocalStepCount::Fixed(0 | 1) => sync,
        _ => Box::new(LocalSteps::new(sync, settings)),
    }
}

#[cfg(test)]
mod tests;
