//! What comes around the steps of an epoch: the loss before the first, warm-up, leases, what an epoch gave.

use super::Trainer;
use crate::objective::Objective;
use std::{ops::Range, time::Instant};
use voxelflow_stage::{EpochRecord, Result, SeriesFeed};

/// Rows, over all ranks, that the loss before the first step is taken of.
const INITIAL_ROWS: usize = 1024;
/// Rows evaluated at once.
const EVALUATION_ROWS: usize = 256;

impl Trainer<'_> {
    /// Mean loss on a bounded number of rows, spread over the ranks.
    pub(super) fn initial_loss(&mut self) -> Result<f64> {
        let place = self.gang.sync.place();
        let share = place.share(self.feed.rows());
        let rows = share.start..share.end.min(share.start + INITIAL_ROWS.div_ceil(place.of));
        let n = rows.len();
        let at_once = self.stays.then(|| self.minibatch());
        let loss = evaluate(self.objective, (&self.parameters, at_once), self.feed, rows, &mut self.series)?;
        let mut sums = [loss, n as f64];
        self.gang.sync.sum(&mut sums)?;
        Ok(sums[0] / sums[1])
    }

    /// The leader trains alone, the others wait.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        let settings = &self.gang.settings;
        let steps = settings.max_steps.map_or(settings.sync.warm_up, |most| settings.sync.warm_up.min(most));
        let begun = self.position.epoch > 0 || !self.position.at_epoch_start();
        if begun || self.position.round >= steps {
            return Ok(());
        }
        let place = self.gang.sync.place();
        if place.leads() {
            for step in self.position.round..steps {
                let rows = self.visits.of_warm_up(step, place.of, self.minibatch());
                if !rows.is_empty() {
                    self.step(&rows, &[], true)?;
                }
            }
        }
        self.synchronise()?;
        self.step = self.position.round;
        Ok(())
    }

    /// The leases of an epoch, until no rank has any.
    pub(super) fn epoch(&mut self) -> Result<()> {
        self.began = Instant::now();
        let every = self.gang.settings.checkpoint_steps;
        loop {
            if self.enough() {
                return if self.in_rounds() && self.keeps_checkpoints() { self.save() } else { Ok(()) };
            }
            let lease = self.gang.sync.lease(self.minibatch())?;
            let rows = lease.as_ref().map(|lease| self.visits.of(lease)).unwrap_or_default();
            let minibatch = self.minibatch();
            let next = lease.map(|lease| self.visits.after(&lease, minibatch)).unwrap_or_default();
            let round = self.step(&rows, &next, false)?;
            if rows.is_empty() && round.finished {
                return Ok(());
            }
            if every > 0 && self.in_rounds() && round.samples > 0 && self.step.is_multiple_of(every) {
                self.save()?;
            }
        }
    }

    /// What the epoch before gave. Comes at the start of the next one, so that a gang that changes in the middle of it
    /// does it again as a whole.
    pub(super) fn close_epoch(&mut self) -> Result<()> {
        let epoch = self.position.epoch - 1;
        let mut sums = [0.0; 2];
        let at_once = self.stays.then(|| self.minibatch());
        if let Some(feed) = &mut self.validation {
            let rows = self.gang.sync.place().share(feed.rows());
            sums[1] = rows.len() as f64;
            let parameters = (&self.parameters[..], at_once);
            sums[0] = evaluate(self.objective, parameters, *feed, rows, &mut self.series)?;
            self.gang.sync.sum(&mut sums)?;
        }
        let known = self.history.epochs.iter().any(|record| record.epoch == epoch);
        if !known {
            let trained = self.position.previous;
            let record = EpochRecord {
                epoch,
                samples: trained.samples,
                loss: trained.loss / (trained.samples as f64).max(1.0),
                validation_loss: (sums[1] > 0.0).then(|| sums[0] / sums[1]),
                seconds: self.began.elapsed().as_secs_f64(),
            };
            self.history.epochs.push(record);
            if let Some(progress) = self.progress() {
                progress.epoch(&record);
            }
        }
        let every = self.gang.settings.checkpoint_every;
        // An epoch that `max_steps` cut short was saved where it was cut.
        if every > 0 && self.position.epoch.is_multiple_of(every) && !self.enough() {
            self.save()?;
        }
        Ok(())
    }
}

/// The loss summed over `rows` of `feed`: with these parameters, or with those on the device, so many rows at once.
fn evaluate(
    objective: &mut dyn Objective,
    (parameters, at_once): (&[f32], Option<usize>),
    feed: &mut dyn SeriesFeed,
    rows: Range<usize>,
    series: &mut Vec<f32>,
) -> Result<f64> {
    let mut sum = 0.0;
    let most = at_once.unwrap_or_default().max(EVALUATION_ROWS);
    for start in rows.clone().step_by(most) {
        let chunk: Vec<usize> = (start..rows.end.min(start + most)).collect();
        series.resize(chunk.len() * objective.time_points(), 0.0);
        feed.read(&chunk, series)?;
        sum += match at_once.and_then(|_| objective.resident()) {
            Some(device) => device.evaluate(series)?,
            None => objective.loss(parameters, series)?,
        };
    }
    Ok(sum)
}
