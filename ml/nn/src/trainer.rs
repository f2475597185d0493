//! The loop of one rank: rows in, gradients to the gang, parameters back.
//!
//! ```text
//!   SeriesFeed ─ lease, permutation ─► minibatch ─► Objective::gradient ─► GradientSync::step ─► parameters
//!                                          ▲                                                        │
//!                                          └────────────────── next minibatch ◄────────────────────┘
//! ```
//! Every rank makes the same calls in the same order; a rank without a lease brings zero samples until the round says
//! that the epoch is finished. A rank without peers whose device keeps the parameters trains there ([`resident`]). When the gang changes, all of its ranks, old and new, take up from the position that
//! `join` gives: nothing below depends on what only one of them knows.

mod epoch;
mod resident;
mod step;

use crate::{
    checkpoint::{Checkpoint, Checkpoints},
    objective::Objective,
    visits::Visits,
};
use std::time::Instant;
use step::Split;
use voxelflow_stage::{Error, Gang, History, Result, SeriesFeed};
use voxelflow_sync::{Consistency, Position, Start};

/// What training gives, the same parameters on every rank.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The flat parameter vector.
    pub parameters: Vec<f32>,
    /// What training did.
    pub history: History,
}

/// Trains `objective` as one rank of `gang`. `feed` and `validation` hold the rows of all ranks. `identity` names the
/// model and its options: a checkpoint of another identity is not resumed from.
///
/// Warm-up steps count among `max_steps`; in async and ssp mode each rank counts its own steps.
///
/// # Errors
/// Series of another length than the objective's, no rows at all, a value that is not finite, ranks that are lost,
/// storage that fails, cancellation.
pub fn train(
    objective: &mut dyn Objective,
    identity: &serde_json::Value,
    feed: &mut dyn SeriesFeed,
    validation: Option<&mut dyn SeriesFeed>,
    gang: &mut Gang,
) -> Result<Trained> {
    let cancelled = gang.cancelled.clone();
    // The lifetime of the feed behind the reference is shortened to that of the others.
    let validation = validation.map(|feed| feed as &mut dyn SeriesFeed);
    let result = Trainer::try_new(objective, identity, feed, validation, gang).and_then(Trainer::run);
    // A peer that stopped because of the same cancellation looks as if it were lost.
    match result {
        Err(Error::Sync(voxelflow_sync::Error::Cancelled)) => Err(Error::Cancelled),
        Err(Error::Sync(_)) if cancelled.load(std::sync::atomic::Ordering::Relaxed) => Err(Error::Cancelled),
        other => other,
    }
}

struct Trainer<'a> {
    objective: &'a mut dyn Objective,
    feed: &'a mut dyn SeriesFeed,
    validation: Option<&'a mut dyn SeriesFeed>,
    gang: &'a mut Gang,
    checkpoints: Option<Checkpoints>,
    visits: Visits,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    series: Vec<f32>,
    /// Parameters stay on the device: the gang counts rounds, and agrees on a token instead.
    stays: bool,
    token: [f32; 1],
    /// Rows that lie in the device's next minibatch already.
    ahead: Vec<usize>,
    history: History,
    /// Where the gang stood at the last join or synchronisation.
    position: Position,
    /// The gang has no parameters that this rank could take over.
    lost: bool,
    /// Rounds done, warm-up included (async, ssp: steps of this rank).
    step: u64,
    /// Samples that this rank trained on, since it started.
    samples: u64,
    /// Times of the steps since the last record.
    split: Split,
    /// When the epoch began.
    began: Instant,
}

impl<'a> Trainer<'a> {
    fn try_new(
        objective: &'a mut dyn Objective,
        identity: &serde_json::Value,
        feed: &'a mut dyn SeriesFeed,
        validation: Option<&'a mut dyn SeriesFeed>,
        gang: &'a mut Gang,
    ) -> Result<Self> {
        let time_points = objective.time_points();
        let wrong = |reason: String| Error::Data { what: "training rows".into(), reason };
        if feed.time_points() != time_points {
            let found = feed.time_points();
            return Err(wrong(format!("series of {found} points, the model takes {time_points}")));
        }
        if feed.rows() == 0 {
            return Err(wrong("there are none; check the filter of ON (…)".into()));
        }
        let configuration = configuration_hash(identity, time_points, gang)?;
        let checkpoints = gang.checkpoints.as_deref();
        let checkpoints =
            checkpoints.map(|f| Checkpoints::new(f, configuration, &gang.settings, objective.layout()));
        let n = objective.layout().parameters();
        let stays = resident::possible(objective, gang);
        Ok(Self {
            stays,
            token: [0.0],
            ahead: Vec::new(),
            visits: Visits::new(feed.rows(), &gang.settings),
            objective,
            feed,
            validation,
            gang,
            checkpoints,
            parameters: Vec::new(),
            gradient: vec![0.0; if stays { 1 } else { n }],
            series: Vec::new(),
            history: History::default(),
            position: Position::default(),
            lost: true,
            step: 0,
            samples: 0,
            split: Split::default(),
            began: Instant::now(),
        })
    }

    /// Joins and trains, again after every change of the gang.
    fn run(mut self) -> Result<Trained> {
        loop {
            match self.join().and_then(|()| self.go_on()) {
                Err(Error::Sync(error)) if error.wants_join() => {
                    self.lost |= error == voxelflow_sync::Error::StateLost;
                    if matches!(error, voxelflow_sync::Error::DriverLost { .. }) && self.in_rounds() {
                        // What cannot be written now is written by the next checkpoint, if there is one.
                        let _ = self.save();
                    }
                }
                other => return other,
            }
        }
    }

    /// Takes over the gang's parameters and position; the leader of a gang that begins, or has lost them, brings
    /// those of the newest checkpoint, or initial ones.
    fn join(&mut self) -> Result<()> {
        self.gang.check_cancelled()?;
        let mut start = Start::fresh(self.feed.rows());
        let was_lost = self.lost;
        if was_lost {
            self.parameters = self.objective.initial(self.gang.settings.seed);
            let checkpoints = self.checkpoints.as_mut().filter(|_| self.gang.sync.place().leads());
            if let Some(found) = checkpoints.map(Checkpoints::newest).transpose()?.flatten() {
                self.parameters = found.parameters;
                start.optimizer = Some(found.optimizer);
                start.position = found.position;
            }
        }
        self.position = if self.stays {
            self.join_with_token(start, was_lost)?
        } else {
            self.gang.sync.join(&mut self.parameters, start)?
        };
        self.lost = false;
        self.split = Split::default();
        self.began = Instant::now();
        let round = self.position.round;
        if round > 0 && self.history.steps.is_empty() {
            self.history = self.checkpoints.as_ref().and_then(|c| c.history(round)).unwrap_or_default();
        }
        if self.in_rounds() || was_lost {
            self.step = round;
            self.history.steps.retain(|record| record.step < round);
            self.history.epochs.retain(|record| record.epoch < self.position.epoch);
        } else {
            self.step = self.step.max(round);
        }
        if was_lost {
            self.tell_start();
        }
        Ok(())
    }

    /// From the position to the end of the training.
    fn go_on(&mut self) -> Result<Trained> {
        if self.position.round == 0 {
            self.history.initial_loss = self.initial_loss()?;
        }
        self.warm_up()?;
        loop {
            if self.position.at_epoch_start() && self.position.epoch > 0 {
                self.close_epoch()?;
            }
            if self.position.epoch >= self.gang.settings.epochs || self.enough() {
                return self.finish();
            }
            self.epoch()?;
            self.synchronise()?;
        }
    }

    /// True when all ranks count the same rounds.
    fn in_rounds(&self) -> bool {
        self.gang.settings.sync.consistency == Consistency::Sync
    }

    /// True once `max_steps` rounds are done.
    fn enough(&self) -> bool {
        self.gang.settings.max_steps.is_some_and(|most| self.step >= most)
    }

    fn minibatch(&self) -> usize {
        self.gang.settings.minibatch.max(1)
    }

    /// Samples of the passes that are left, of all ranks.
    fn tell_start(&self) {
        let Some(progress) = self.progress() else { return };
        let settings = &self.gang.settings;
        let passes = settings.epochs.saturating_sub(self.position.epoch);
        let of_a_round = (self.minibatch() * self.gang.sync.world()) as u64;
        let rounds = settings.max_steps.map_or(u64::MAX, |most| most.saturating_sub(self.step));
        let rows = (self.feed.rows() as u64).saturating_mul(passes);
        progress.started(rows.min(rounds.saturating_mul(of_a_round)));
    }

    fn synchronise(&mut self) -> Result<()> {
        let own = if self.stays { &mut self.token[..] } else { &mut self.parameters };
        self.gang.sync.synchronise(own)?;
        self.position = self.gang.sync.position();
        Ok(())
    }

    fn keeps_checkpoints(&self) -> bool {
        self.gang.settings.checkpoint_every > 0 || self.gang.settings.checkpoint_steps > 0
    }

    /// A checkpoint of where the gang stands. Every rank calls it; the leader writes.
    fn save(&mut self) -> Result<()> {
        let optimizer = if self.stays { self.fetch()? } else { self.gang.sync.optimizer_state()? };
        let Some(checkpoints) = self.checkpoints.as_mut().filter(|_| self.gang.sync.place().leads()) else {
            return Ok(());
        };
        checkpoints.write(Checkpoint {
            position: self.gang.sync.position(),
            parameters: self.parameters.clone(),
            optimizer,
            history: self.history.clone(),
        })
    }

    /// What every rank did, on every rank.
    fn finish(&mut self) -> Result<Trained> {
        if self.stays {
            self.fetch_parameters()?;
        }
        let (rank, world) = (self.gang.sync.rank().0, self.gang.sync.world());
        let mut sums = vec![0.0; 2 * world];
        sums[rank] = self.samples as f64;
        sums[world + rank] = self.gang.sync.traffic().sent as f64;
        self.gang.sync.sum(&mut sums)?;
        let counts: Vec<u64> = sums.iter().map(|v| *v as u64).collect();
        self.history.samples_per_rank = counts[..world].to_vec();
        self.history.bytes_sent_per_rank = counts[world..].to_vec();
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.flush()?;
        }
        let (parameters, history) = (std::mem::take(&mut self.parameters), std::mem::take(&mut self.history));
        Ok(Trained { parameters, history })
    }

    fn progress(&self) -> Option<&dyn voxelflow_stage::ProgressSink> {
        self.gang.progress.as_deref().filter(|_| self.gang.sync.place().leads())
    }
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
