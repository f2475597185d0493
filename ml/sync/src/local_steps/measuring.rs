//! `auto`: steps and rounds are timed, then all ranks take the same H.

use super::{
    LocalSteps,
    choice::{StepTiming, local_steps_for},
};
use crate::{GradientSync, LocalStepCount, Result, optimizer::Optimizer};
use std::time::Instant;

/// Rounds that warm up: connections, caches, the clocks of processors.
const WARM_UP: usize = 2;
/// Rounds that count.
const MEASURED: usize = 10;

/// Times steps that are rounds.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    /// The end of the round before, unless something else has come since.
    since: Option<Instant>,
    timings: Vec<StepTiming>,
    stopped: bool,
}

impl Stopwatch {
    /// One round.
    pub fn time<T>(&mut self, round: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.stopped {
            return round();
        }
        let began = Instant::now();
        let result = round()?;
        let ended = Instant::now();
        if let Some(since) = self.since.replace(ended) {
            let seconds = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64();
            self.timings.push(StepTiming { compute: seconds(since, began), round: seconds(began, ended) });
        }
        Ok(result)
    }

    /// Something else comes, that is no part of a step. All ranks call it in the same place.
    pub fn pause(&mut self) {
        self.since = None;
    }

    /// Enough is measured.
    pub fn is_through(&self) -> bool {
        !self.stopped && self.timings.len() >= WARM_UP + MEASURED
    }

    #[cfg(test)]
    pub fn measured(&mut self, timing: StepTiming) {
        self.timings = vec![timing; WARM_UP + MEASURED];
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn stop(&mut self) {
        *self = Self { stopped: true, ..Self::default() };
    }
}

impl<S: GradientSync> LocalSteps<S> {
    /// All ranks tell what they measured, and take the same H. A gang that changes meanwhile agrees anew when it joins.
    pub(super) fn choose(&mut self, parameters: &[f32]) -> Result<()> {
        let (rank, world) = (self.rank().0, self.world());
        let mut table = vec![0.0; world * 2 * MEASURED];
        let own = self.stopwatch.timings.iter().skip(WARM_UP).flat_map(|t| [t.compute, t.round]);
        let place = table.iter_mut().skip(rank * 2 * MEASURED).take(2 * MEASURED);
        place.zip(own).for_each(|(place, value)| *place = value);
        self.inner.sum(&mut table)?;
        // Ranks that are lost have told nothing.
        let told: Vec<&[f64]> = table
            .chunks_exact(2 * MEASURED)
            .filter(|rank| rank.iter().any(|seconds| *seconds > 0.0))
            .collect();
        let timing =
            |rank: &&[f64], round: usize| StepTiming { compute: rank[2 * round], round: rank[2 * round + 1] };
        let of_round = |round| told.iter().map(|rank| timing(rank, round)).collect();
        let rounds: Vec<Vec<StepTiming>> = (0..MEASURED).map(of_round).collect();
        let every = local_steps_for(&rounds);
        log::info!("local_steps => 'auto': {every} after {MEASURED} rounds");
        if every > 1 {
            let (state, n) = (self.inner.optimizer_state()?, parameters.len());
            self.begin_from(parameters);
            self.optimizer = Optimizer::restore(self.settings.clone(), &state, 0..n, n)?;
        }
        self.every = Some(every);
        self.stopwatch.stop();
        Ok(())
    }

    /// A gang that has joined: whoever knows H tells the others; if nobody does, it is measured.
    pub(super) fn agree(&mut self) -> Result<()> {
        if self.count != LocalStepCount::Auto {
            return Ok(());
        }
        let mut known = self.every.map_or([0.0; 2], |every| [every as f64, 1.0]);
        self.inner.sum(&mut known)?;
        let [steps, ranks] = known;
        self.every = (ranks > 0.0).then(|| (steps / ranks) as u64);
        match self.every {
            Some(_) => self.stopwatch.stop(),
            None => self.stopwatch.restart(),
        }
        Ok(())
    }
}
