//! Sums over the targets of all ranks, and what they say of a fit: its history.

use std::time::Instant;
use voxelflow_ridge::{Score, TargetScores};
use voxelflow_stage::{EpochRecord, History, Result};
use voxelflow_sync::{Communicator, CommunicatorExt, ReduceOp};

/// Sums over targets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Targets that cannot be fitted.
    pub unfit: f64,
    /// Variances of those that can.
    pub variance: f64,
    /// Targets with held-out scores, and the sums of these.
    scored: f64,
    r: f64,
    r2: f64,
    squared_error: f64,
}

impl Totals {
    /// Of so many targets that cannot be fitted, and of others with this variance.
    pub fn of(unfit: usize, variance: f64) -> Self {
        Self { unfit: unfit as f64, variance, ..Self::default() }
    }

    /// Takes the held-out scores of a target, if it has all.
    pub fn add(&mut self, score: &TargetScores) {
        if score.r.is_finite() && score.r2.is_finite() {
            self.scored += 1.0;
            self.r += score.r;
            self.r2 += score.r2;
            self.squared_error += score.mean_squared_error;
        }
    }

    /// Of all ranks.
    ///
    /// # Errors
    /// Ranks that are lost.
    pub fn summed(self, c: &mut dyn Communicator) -> Result<Self> {
        let mut all = [self.unfit, self.variance, self.scored, self.r, self.r2, self.squared_error];
        c.all_reduce(ReduceOp::Sum, &mut all)?;
        let [unfit, variance, scored, r, r2, squared_error] = all;
        Ok(Self { unfit, variance, scored, r, r2, squared_error })
    }

    /// A fit's one epoch over `rows` series: `best` is the mean score by which it was chosen; `held_out`: there are runs
    /// that it has not seen.
    pub fn epoch(
        &self,
        scoring: Score,
        best: f64,
        rows: usize,
        held_out: bool,
        clock: Instant,
    ) -> EpochRecord {
        EpochRecord {
            epoch: 0,
            samples: rows as u64,
            loss: loss_of(scoring, best),
            validation_loss: held_out.then(|| self.validation_loss(scoring)),
            seconds: clock.elapsed().as_secs_f64(),
        }
    }

    /// The history of a fit of `targets`.
    pub fn history(
        &self,
        scoring: Score,
        epoch: EpochRecord,
        targets: usize,
        samples_per_rank: Vec<u64>,
    ) -> History {
        let fitted = (targets as f64 - self.unfit).max(1.0);
        let initial_loss = match scoring {
            Score::NegMeanSquaredError => self.variance / fitted,
            Score::R2 | Score::Pearson => 1.0,
        };
        History { initial_loss, epochs: vec![epoch], samples_per_rank, ..History::default() }
    }

    fn validation_loss(&self, scoring: Score) -> f64 {
        let scored = self.scored.max(1.0);
        match scoring {
            Score::R2 => 1.0 - self.r2 / scored,
            Score::Pearson => 1.0 - self.r / scored,
            Score::NegMeanSquaredError => self.squared_error / scored,
        }
    }
}

/// A loss for a score: less is better, and 1 is what the mean of a target scores by R² and r.
fn loss_of(scoring: Score, score: f64) -> f64 {
    match scoring {
        _ if !score.is_finite() => 1.0,
        Score::R2 | Score::Pearson => 1.0 - score,
        Score::NegMeanSquaredError => -score,
    }
}
