//! One minibatch: rows, gradient, and the round that it is part of.

use super::Trainer;
use std::time::{Duration, Instant};
use voxelflow_stage::{Error, Result, StepRecord};
use voxelflow_sync::{Contribution, Round};

/// Where the time of a step goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    pub feed: Duration,
    pub compute: Duration,
    pub sync: Duration,
}

impl Trainer<'_> {
    /// One minibatch, and the round that it is part of; `next` will probably be the minibatch after it.
    pub(super) fn step(&mut self, rows: &[usize], next: &[usize], alone: bool) -> Result<Round> {
        if self.stays {
            return self.step_there(rows, next, alone);
        }
        self.gang.check_cancelled()?;
        let clock = Instant::now();
        self.series.resize(rows.len() * self.objective.time_points(), 0.0);
        self.feed.read(rows, &mut self.series)?;
        let fed = clock.elapsed();
        self.feed.prefetch(next);
        let loss = if rows.is_empty() {
            self.gradient.fill(0.0);
            0.0
        } else {
            self.objective.gradient(&self.parameters, &self.series, &mut self.gradient)?
        };
        self.check_finite(rows, loss)?;
        let computed = clock.elapsed();
        let contribution = Contribution { gradient: &self.gradient, samples: rows.len() as u64, loss };
        let round = if alone {
            self.gang.sync.step_alone(&mut self.parameters, contribution)?
        } else {
            self.gang.sync.step(&mut self.parameters, contribution)?
        };
        self.samples += rows.len() as u64;
        self.split.feed += fed;
        self.split.compute += computed - fed;
        self.split.sync += clock.elapsed() - computed;
        if round.samples > 0 {
            self.record(&round);
        }
        Ok(round)
    }

    pub(super) fn record(&mut self, round: &Round) {
        let split = std::mem::take(&mut self.split);
        let record = StepRecord {
            epoch: self.position.epoch,
            step: self.step,
            samples: round.samples,
            loss: round.loss / round.samples as f64,
            staleness: round.staleness,
            feed_seconds: split.feed.as_secs_f64(),
            compute_seconds: split.compute.as_secs_f64(),
            sync_seconds: split.sync.as_secs_f64(),
        };
        self.step += 1;
        self.history.steps.push(record);
        if let Some(progress) = self.progress() {
            progress.step(&record);
        }
    }

    /// A NaN would spread to every rank with the next update, so it stops here, with its cause if that is a row.
    pub(super) fn check_finite(&self, rows: &[usize], loss: f64) -> Result<()> {
        let gradient_is_finite = || self.gradient.iter().all(|g| g.is_finite());
        if loss.is_finite() && gradient_is_finite() {
            return Ok(());
        }
        let rank = self.gang.sync.rank();
        let time_points = self.objective.time_points();
        if let Some(at) = self.series.iter().position(|v| !v.is_finite()) {
            let row = rows.get(at / time_points).copied().unwrap_or_default();
            let reason = format!(
                "row {row} is not finite at time point {}; drop such series, or repair them, before training",
                at % time_points
            );
            return Err(Error::Data { what: "training rows".into(), reason });
        }
        let what = if loss.is_finite() { "gradient" } else { "loss" };
        Err(voxelflow_sync::Error::NotFinite { rank, what, step: self.step }.into())
    }
}
