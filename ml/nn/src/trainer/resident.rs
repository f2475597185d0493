//! Training where the parameters stay on a device: a rank without peers needs nobody to add up its gradients.
//!
//! The gang still leases rows, closes rounds and says where training stands, so that checkpoints, epochs and restarts are
//! those of any other training; the vector that it agrees on is a token of one value. Parameters and the optimizer's
//! memory come from the device for checkpoints and at the end. While a step computes, the rows of the next are read.
//!
//! A gang that changes between a step and its round (a driver that was lost) leases that minibatch again: the device has
//! then taken it twice.

use super::Trainer;
use crate::objective::{Objective, Resident};
use std::time::Instant;
use voxelflow_stage::{Error, Gang, Result};
use voxelflow_sync::{Consistency, Contribution, LocalStepCount, OptimizerState, Position, Round, Start};

/// True if this rank has no peers, no servers but itself, and an objective whose device keeps parameters.
pub(super) fn possible(objective: &mut dyn Objective, gang: &Gang) -> bool {
    let sync = &gang.settings.sync;
    gang.sync.world() == 1
        && sync.consistency == Consistency::Sync
        && sync.local_steps == LocalStepCount::Fixed(1)
        && sync.parameter_servers == 0
        && objective.resident().is_some()
}

fn missing() -> Error {
    Error::Data { what: "training".into(), reason: "the device keeps no parameters".into() }
}

impl Trainer<'_> {
    fn device(&mut self) -> Result<&mut dyn Resident> {
        self.objective.resident().ok_or_else(missing)
    }

    /// Joins the gang with the token; what was lost is loaded onto the device.
    pub(super) fn join_with_token(&mut self, mut start: Start, was_lost: bool) -> Result<Position> {
        let optimizer = start.optimizer.take();
        let position = self.gang.sync.join(&mut self.token, start)?;
        if was_lost {
            let parameters = std::mem::take(&mut self.parameters);
            let loaded = self.device()?.load(&parameters, optimizer.as_ref());
            self.parameters = parameters;
            loaded?;
        }
        self.ahead.clear();
        Ok(position)
    }

    /// As [`Self::step`] with everything on the device.
    pub(super) fn step_there(&mut self, rows: &[usize], next: &[usize], alone: bool) -> Result<Round> {
        self.gang.check_cancelled()?;
        let clock = Instant::now();
        let mut feeding = clock.elapsed();
        let mut loss = 0.0;
        if !rows.is_empty() {
            if self.ahead != rows {
                self.read_ahead(rows)?;
            }
            feeding = clock.elapsed();
            self.ahead.clear();
            self.device()?.step(rows.len())?;
            if !next.is_empty() {
                self.read_ahead(next)?;
            }
            loss = self.device()?.step_loss()?;
        }
        if !loss.is_finite() {
            self.series.resize(rows.len() * self.objective.time_points(), 0.0);
            self.feed.read(rows, &mut self.series)?;
            self.check_finite(rows, loss)?;
        }
        let computed = clock.elapsed();
        let contribution = Contribution { gradient: &[0.0], samples: rows.len() as u64, loss };
        let round = match alone {
            true => self.gang.sync.step_alone(&mut self.token, contribution)?,
            false => self.gang.sync.step(&mut self.token, contribution)?,
        };
        self.samples += rows.len() as u64;
        self.split.feed += feeding;
        self.split.compute += computed - feeding;
        self.split.sync += clock.elapsed() - computed;
        if round.samples > 0 {
            self.record(&round);
        }
        Ok(round)
    }

    /// Reads `rows` to where the device takes its next minibatch from.
    fn read_ahead(&mut self, rows: &[usize]) -> Result<()> {
        let values = rows.len() * self.objective.time_points();
        let into = self.objective.resident().ok_or_else(missing)?.minibatch()?;
        self.feed.read(rows, &mut into[..values])?;
        self.device()?.send(rows.len())?;
        rows.clone_into(&mut self.ahead);
        Ok(())
    }

    /// The parameters as they are on the device.
    pub(super) fn fetch_parameters(&mut self) -> Result<()> {
        let mut parameters = std::mem::take(&mut self.parameters);
        let fetched = self.device()?.parameters(&mut parameters);
        self.parameters = parameters;
        fetched
    }

    /// The parameters, and the optimizer's memory.
    pub(super) fn fetch(&mut self) -> Result<OptimizerState> {
        self.fetch_parameters()?;
        self.device()?.optimizer_state()
    }
}
