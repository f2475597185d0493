//! Steps that stay on the device: a lone rank's updates are made where its gradients are, and the gang hears of many at
//! once.
//!
//! ```text
//!   SeriesFeed ─► room ─► update ─┐
//!                  ▲              │  STEPS times, then
//!                  └──────────────┘   w ─► GradientSync::average ─► w       so checkpoints, leases and counts are as ever
//! ```
//! With one rank the mean of the ranks' parameters is the rank's own, but for the last digit, which it takes over too:
//! where a round ends changes results by no more than that, and rounds end at the same steps whenever settings are equal.

use super::{Trainer, step::Split};
use std::time::Instant;
use voxelflow_stage::{Error, Result, TrainSettings};
use voxelflow_sync::{Consistency, Contribution, GradientSync, LocalStepCount, OptimizerState, Round};

/// Steps of a round.
const STEPS: u64 = 128;

/// Whether the settings let a rank keep its steps to itself: it is alone, and each step counts as one.
pub(super) fn may_stay(sync: &dyn GradientSync, settings: &TrainSettings) -> bool {
    let of_its_own = matches!(settings.sync.local_steps, LocalStepCount::Fixed(0 | 1) | LocalStepCount::Auto);
    sync.world() == 1 && settings.sync.consistency == Consistency::Sync && of_its_own
}

impl Trainer<'_> {
    /// Steps until the next round ends: there is no more than one where steps do not stay on the device.
    pub(super) fn steps_of_a_round(&self) -> u64 {
        if !self.on_device {
            return 1;
        }
        let settings = &self.gang.settings;
        let to_checkpoint = match settings.checkpoint_steps {
            0 => STEPS,
            every => every - self.step % every,
        };
        let to_end = settings.max_steps.map_or(STEPS, |most| most.saturating_sub(self.step));
        STEPS.min(to_checkpoint).min(to_end).max(1)
    }

    /// The rule's memory, wherever it is.
    pub(super) fn memory(&mut self) -> Result<OptimizerState> {
        match self.objective.resident() {
            Some(device) if self.loaded => device.memory(),
            _ => Ok(self.gang.sync.optimizer_state()?),
        }
    }

    /// Trains on `rows`, a minibatch each step, and tells the gang; `next` will probably be the minibatch after them.
    pub(super) fn round_on_device(&mut self, rows: &[usize], next: &[usize]) -> Result<Round> {
        let memory = if self.loaded { None } else { Some(self.gang.sync.optimizer_state()?) };
        let (minibatch, first) = (self.minibatch(), self.step);
        let Some(device) = self.objective.resident() else {
            return Err(Error::Device { reason: "it does not hold parameters".into() });
        };
        if let Some(memory) = memory {
            device.load(&self.parameters, &self.gang.settings.sync.optimizer, &memory)?;
            self.loaded = true;
        }
        let (mut splits, mut steps) = (Vec::new(), rows.chunks(minibatch).peekable());
        while let Some(rows) = steps.next() {
            self.gang.check_cancelled()?;
            let clock = Instant::now();
            let room = device.room(rows.len())?;
            let waited = clock.elapsed();
            self.feed.read(rows, room)?;
            let fed = clock.elapsed();
            self.feed.prefetch(steps.peek().copied().unwrap_or(next));
            super::step::check_rows(rows, room)?;
            device.step()?;
            let compute = waited + (clock.elapsed() - fed);
            splits.push((rows.len() as u64, Split { feed: fed - waited, compute, ..Split::default() }));
        }
        let clock = Instant::now();
        let losses = device.losses()?;
        let anchor = std::mem::take(&mut self.parameters);
        self.parameters.resize(anchor.len(), 0.0);
        device.parameters(&mut self.parameters)?;
        let computed = clock.elapsed();
        let rank = self.gang.sync.rank();
        let not_finite = |what, step| voxelflow_sync::Error::NotFinite { rank, what, step };
        if let Some(at) = losses.iter().position(|loss| !loss.is_finite()) {
            return Err(not_finite("loss", first + at as u64).into());
        }
        if !self.parameters.iter().all(|w| w.is_finite()) {
            return Err(not_finite("parameters", first + losses.len() as u64).into());
        }
        // What the gang averages are differences, times samples.
        let samples: u64 = splits.iter().map(|(samples, _)| samples).sum();
        let weight = samples as f32;
        let moved = self.gradient.iter_mut().zip(anchor.iter().zip(&self.parameters));
        moved.for_each(|(moved, (anchor, w))| *moved = (anchor - w) * weight);
        self.parameters.copy_from_slice(&anchor);
        let contribution = Contribution { gradient: &self.gradient, samples, loss: losses.iter().sum() };
        let round = self.gang.sync.average(&mut self.parameters, contribution)?;
        if samples > 0
            && let Some(device) = self.objective.resident()
        {
            device.set_parameters(&self.parameters)?;
        }
        self.samples += samples;
        let (parts, agreed) = (losses.len().max(1) as u32, clock.elapsed() - computed);
        for ((samples, mut split), loss) in splits.into_iter().zip(losses) {
            split.compute += computed / parts;
            split.sync += agreed / parts;
            self.split = split;
            self.record(&Round { samples, loss, ..round });
        }
        Ok(round)
    }
}
