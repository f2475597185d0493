//! The loop of one rank: rows in, gradients to the gang, parameters back.
//!
//! ```text
//!   SeriesFeed ─ permutation ─► minibatch ─► Objective::gradient ─► GradientSync::step ─► parameters
//!                                   ▲                                                         │
//!                                   └─────────────────── next minibatch ◄────────────────────┘
//! ```
//! Every rank makes the same calls in the same order; a rank that is out of rows brings zero samples until the
//! round says that the epoch is finished.

use crate::{
    checkpoint::{Checkpoint, CheckpointFolder},
    objective::Objective,
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;
use voxelflow_stage::{EpochRecord, Error, Gang, History, Result, SeriesFeed, StepRecord};
use voxelflow_sync::{Contribution, OptimizerState, Round};

/// Rows, over all ranks, that the loss before the first step is taken of.
const INITIAL_ROWS: usize = 1024;
/// Rows evaluated at once.
const EVALUATION_ROWS: usize = 256;

/// What training gives, the same parameters on every rank.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The flat parameter vector.
    pub parameters: Vec<f32>,
    /// What training did.
    pub history: History,
}

/// Trains `objective` on this rank's rows. `identity` names the model and its options: a checkpoint of another
/// identity is not resumed from.
///
/// Warm-up steps count among `max_steps`; in async mode each rank counts its own steps.
///
/// # Errors
/// Series of another length than the objective's, a gang without any rows, a value that is not finite, ranks that
/// are lost, storage that fails, cancellation.
pub fn train(
    objective: &mut dyn Objective,
    identity: &serde_json::Value,
    feed: &mut dyn SeriesFeed,
    validation: Option<&mut dyn SeriesFeed>,
    gang: &mut Gang,
) -> Result<Trained> {
    let cancelled = gang.cancelled.clone();
    let result = Trainer::start(objective, identity, feed, gang).and_then(|trainer| trainer.run(validation));
    // A peer that stopped because of the same cancellation looks as if it were lost.
    match result {
        Err(Error::Sync(_)) if cancelled.load(std::sync::atomic::Ordering::Relaxed) => Err(Error::Cancelled),
        other => other,
    }
}

struct Trainer<'a> {
    objective: &'a mut dyn Objective,
    feed: &'a mut dyn SeriesFeed,
    gang: &'a mut Gang,
    checkpoints: Option<CheckpointFolder>,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    series: Vec<f32>,
    history: History,
    /// Epochs done.
    epoch: u64,
    /// Rounds done, warm-up included.
    step: u64,
    /// Samples that this rank trained on, since it started.
    samples: u64,
}

impl<'a> Trainer<'a> {
    /// Joins the gang with fresh parameters, or with those of a checkpoint that rank 0 found.
    fn start(
        objective: &'a mut dyn Objective,
        identity: &serde_json::Value,
        feed: &'a mut dyn SeriesFeed,
        gang: &'a mut Gang,
    ) -> Result<Self> {
        let time_points = objective.time_points();
        if feed.time_points() != time_points {
            let reason = format!("series of {} points, the model takes {time_points}", feed.time_points());
            return Err(Error::Data { what: "training rows".into(), reason });
        }
        let leads = gang.sync.rank().0 == 0;
        let configuration = configuration_hash(identity, time_points, gang)?;
        let checkpoints = gang.checkpoints.as_deref().filter(|_| leads);
        let checkpoints = checkpoints.map(|f| CheckpointFolder::new(f, configuration, gang.settings.seed));
        let found = checkpoints.as_ref().map(|c| c.newest(objective.layout())).transpose()?.flatten();
        let n = objective.layout().parameters();
        let resumed = found.is_some();
        let found = found.unwrap_or_else(|| Checkpoint {
            epoch: 0,
            step: 0,
            parameters: objective.layout().initial(gang.settings.seed),
            optimizer: OptimizerState::default(),
            history: History::default(),
        });
        let mut parameters = found.parameters;
        gang.sync.join(&mut parameters, resumed.then_some(found.optimizer))?;
        // Where rank 0 stands, the others stand too.
        let mut position = if leads { [found.epoch as f64, found.step as f64] } else { [0.0; 2] };
        gang.sync.sum(&mut position)?;
        let [epoch, step] = position.map(|v| v as u64);
        let mut trainer = Self {
            objective,
            feed,
            gang,
            checkpoints,
            parameters,
            gradient: vec![0.0; n],
            series: Vec::new(),
            history: found.history,
            epoch,
            step,
            samples: 0,
        };
        trainer.require_rows()?;
        if step == 0 {
            trainer.history.initial_loss = trainer.initial_loss()?;
        }
        Ok(trainer)
    }

    fn run(mut self, mut validation: Option<&mut dyn SeriesFeed>) -> Result<Trained> {
        let warm_up = self.gang.settings.sync.warm_up;
        let mut warm = Totals::default();
        if self.step == 0 && warm_up > 0 {
            warm = self.warm_up(warm_up)?;
        }
        while self.epoch < self.gang.settings.epochs && !self.enough() {
            let started = Instant::now();
            let trained = self.epoch(std::mem::take(&mut warm))?;
            self.gang.sync.synchronise(&mut self.parameters)?;
            self.close_epoch(started, trained, &mut validation)?;
            self.epoch += 1;
            self.checkpoint()?;
        }
        self.finish()
    }

    /// True once `max_steps` rounds are done.
    fn enough(&self) -> bool {
        self.gang.settings.max_steps.is_some_and(|most| self.step >= most)
    }

    fn require_rows(&mut self) -> Result<()> {
        let mut rows = [self.feed.rows() as f64];
        self.gang.sync.sum(&mut rows)?;
        if rows[0] > 0.0 {
            if let Some(progress) = self.progress() {
                progress.started(self.expected_samples(rows[0] as u64));
            }
            return Ok(());
        }
        Err(Error::Data {
            what: "training rows".into(),
            reason: "there are none; check the filter of ON (…)".into(),
        })
    }

    /// Samples of the passes that are left, of all ranks.
    fn expected_samples(&self, rows: u64) -> u64 {
        let settings = &self.gang.settings;
        let passes = settings.epochs.saturating_sub(self.epoch);
        let of_a_round = (settings.minibatch.max(1) * self.gang.sync.world()) as u64;
        let rounds = settings.max_steps.map_or(u64::MAX, |most| most.saturating_sub(self.step));
        rows.saturating_mul(passes).min(rounds.saturating_mul(of_a_round))
    }

    /// Mean loss on a bounded number of rows, spread over the ranks.
    fn initial_loss(&mut self) -> Result<f64> {
        let rows = self.feed.rows().min(INITIAL_ROWS.div_ceil(self.gang.sync.world()));
        let loss = evaluate(self.objective, &self.parameters, self.feed, rows, &mut self.series)?;
        let mut sums = [loss, rows as f64];
        self.gang.sync.sum(&mut sums)?;
        Ok(sums[0] / sums[1])
    }

    /// Rank 0 trains alone, the others wait.
    fn warm_up(&mut self, steps: u64) -> Result<Totals> {
        let steps = self.gang.settings.max_steps.map_or(steps, |most| steps.min(most));
        let mut totals = Totals::default();
        let minibatch = self.gang.settings.minibatch.max(1);
        if self.gang.sync.rank().0 == 0 && self.feed.rows() > 0 {
            let mut pass = 0;
            let mut order: Vec<usize> = Vec::new();
            for _ in 0..steps {
                if order.is_empty() {
                    order = self.permutation(u64::MAX - pass);
                    pass += 1;
                }
                let rows: Vec<usize> = order.drain(..minibatch.min(order.len())).collect();
                self.step(&rows, true, &mut totals)?;
            }
        }
        self.gang.sync.synchronise(&mut self.parameters)?;
        let mut done = [totals.samples.min(1) as f64 * self.step as f64];
        self.gang.sync.sum(&mut done)?;
        self.step = done[0] as u64;
        Ok(totals)
    }

    /// One pass over this rank's rows, until no rank has any.
    fn epoch(&mut self, mut totals: Totals) -> Result<Totals> {
        let order = self.permutation(self.epoch);
        let mut minibatches = order.chunks(self.gang.settings.minibatch.max(1));
        while !self.enough() {
            let rows = minibatches.next().unwrap_or_default();
            let round = self.step(rows, false, &mut totals)?;
            if rows.is_empty() && round.finished {
                break;
            }
        }
        Ok(totals)
    }

    /// One minibatch, and the round that it is part of.
    fn step(&mut self, rows: &[usize], alone: bool, totals: &mut Totals) -> Result<Round> {
        self.gang.check_cancelled()?;
        let clock = Instant::now();
        self.series.resize(rows.len() * self.objective.time_points(), 0.0);
        self.feed.read(rows, &mut self.series)?;
        let fed = clock.elapsed();
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
        totals.loss += loss;
        totals.samples += rows.len() as u64;
        self.samples += rows.len() as u64;
        if round.samples > 0 {
            let record = StepRecord {
                epoch: self.epoch,
                step: self.step,
                samples: round.samples,
                loss: round.loss / round.samples as f64,
                staleness: round.staleness,
                feed_seconds: fed.as_secs_f64(),
                compute_seconds: (computed - fed).as_secs_f64(),
                sync_seconds: (clock.elapsed() - computed).as_secs_f64(),
            };
            self.step += 1;
            self.history.steps.push(record);
            if let Some(progress) = self.progress() {
                progress.step(&record);
            }
        }
        Ok(round)
    }

    /// A NaN would spread to every rank with the next update, so it stops here, with its cause if that is a row.
    fn check_finite(&self, rows: &[usize], loss: f64) -> Result<()> {
        let gradient_is_finite = || self.gradient.iter().all(|g| g.is_finite());
        if loss.is_finite() && gradient_is_finite() {
            return Ok(());
        }
        let rank = self.gang.sync.rank();
        let time_points = self.objective.time_points();
        if let Some(at) = self.series.iter().position(|v| !v.is_finite()) {
            let row = rows.get(at / time_points).copied().unwrap_or_default();
            let reason = format!(
                "row {row} of {rank} is not finite at time point {}; drop such series, or repair them, before training",
                at % time_points
            );
            return Err(Error::Data { what: "training rows".into(), reason });
        }
        let what = if loss.is_finite() { "gradient" } else { "loss" };
        Err(voxelflow_sync::Error::NotFinite { rank, what, step: self.step }.into())
    }

    fn close_epoch(
        &mut self,
        started: Instant,
        trained: Totals,
        validation: &mut Option<&mut dyn SeriesFeed>,
    ) -> Result<()> {
        let mut sums = [trained.loss, trained.samples as f64, 0.0, 0.0];
        if let Some(feed) = validation {
            let rows = feed.rows();
            sums[2] = evaluate(self.objective, &self.parameters, *feed, rows, &mut self.series)?;
            sums[3] = rows as f64;
        }
        self.gang.sync.sum(&mut sums)?;
        let record = EpochRecord {
            epoch: self.epoch,
            samples: sums[1] as u64,
            loss: sums[0] / sums[1].max(1.0),
            validation_loss: (sums[3] > 0.0).then(|| sums[2] / sums[3]),
            seconds: started.elapsed().as_secs_f64(),
        };
        self.history.epochs.push(record);
        if let Some(progress) = self.progress() {
            progress.epoch(&record);
        }
        Ok(())
    }

    /// An epoch that `max_steps` cut short is not written: its remaining rows could not be resumed with.
    fn checkpoint(&mut self) -> Result<()> {
        let every = self.gang.settings.checkpoint_every;
        if every == 0 || !self.epoch.is_multiple_of(every) || self.enough() {
            return Ok(());
        }
        // A collective: every rank calls it, whoever writes.
        let optimizer = self.gang.sync.optimizer_state()?;
        let Some(folder) = &self.checkpoints else { return Ok(()) };
        let checkpoint = Checkpoint {
            epoch: self.epoch,
            step: self.step,
            parameters: self.parameters.clone(),
            optimizer,
            history: self.history.clone(),
        };
        folder.write(self.objective.layout(), &checkpoint)
    }

    /// What every rank did, on every rank.
    fn finish(mut self) -> Result<Trained> {
        let (rank, world) = (self.gang.sync.rank().0, self.gang.sync.world());
        let mut sums = vec![0.0; 2 * world];
        sums[rank] = self.samples as f64;
        sums[world + rank] = self.gang.sync.traffic().sent as f64;
        self.gang.sync.sum(&mut sums)?;
        let counts: Vec<u64> = sums.iter().map(|v| *v as u64).collect();
        self.history.samples_per_rank = counts[..world].to_vec();
        self.history.bytes_sent_per_rank = counts[world..].to_vec();
        Ok(Trained { parameters: self.parameters, history: self.history })
    }

    fn progress(&self) -> Option<&dyn voxelflow_stage::ProgressSink> {
        self.gang.progress.as_deref().filter(|_| self.gang.sync.rank().0 == 0)
    }

    /// The order of this rank's rows in a pass.
    fn permutation(&self, pass: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.feed.rows()).collect();
        if self.gang.settings.shuffle {
            let mut hasher = blake3::Hasher::new();
            for part in [self.gang.settings.seed, self.gang.sync.rank().0 as u64, pass] {
                hasher.update(&part.to_le_bytes());
            }
            order.shuffle(&mut ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()));
        }
        order
    }
}

/// Sums over this rank's samples.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    loss: f64,
    samples: u64,
}

/// The loss summed over the first `rows` of `feed`.
fn evaluate(
    objective: &mut dyn Objective,
    parameters: &[f32],
    feed: &mut dyn SeriesFeed,
    rows: usize,
    series: &mut Vec<f32>,
) -> Result<f64> {
    let mut sum = 0.0;
    for start in (0..rows).step_by(EVALUATION_ROWS) {
        let chunk: Vec<usize> = (start..rows.min(start + EVALUATION_ROWS)).collect();
        series.resize(chunk.len() * objective.time_points(), 0.0);
        feed.read(&chunk, series)?;
        sum += objective.loss(parameters, series)?;
    }
    Ok(sum)
}

/// A hash of all that must be equal for a run to go on where another stopped. The number of epochs and of ranks may
/// change, and how the ranks agree.
fn configuration_hash(identity: &serde_json::Value, time_points: usize, gang: &Gang) -> Result<String> {
    let s = &gang.settings;
    let text = serde_json::json!({
        "model": identity,
        "time_points": time_points,
        "minibatch": s.minibatch,
        "shuffle": s.shuffle,
        "seed": s.seed,
        "warm_up": s.sync.warm_up,
        "optimizer": s.sync.optimizer,
    });
    Ok(blake3::hash(text.to_string().as_bytes()).to_hex().to_string())
}
