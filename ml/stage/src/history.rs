//! What training did, step by step: the material of loss curves and step splits.

use serde::{Deserialize, Serialize};

/// One round as rank 0 saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Epoch, from 0 (warm-up counts to epoch 0).
    pub epoch: u64,
    /// Round, from 0.
    pub step: u64,
    /// Samples of the round.
    pub samples: u64,
    /// Mean loss per sample.
    pub loss: f64,
    /// Updates by others since the parameters were read.
    pub staleness: u64,
    /// Seconds spent reading rows.
    pub feed_seconds: f64,
    /// Seconds spent in forward and backward.
    pub compute_seconds: f64,
    /// Seconds spent on agreeing (sending, waiting, receiving).
    pub sync_seconds: f64,
}

/// One epoch, all ranks together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Samples trained on, all ranks.
    pub samples: u64,
    /// Mean training loss per sample.
    pub loss: f64,
    /// Mean loss per validation sample, if there is validation data.
    pub validation_loss: Option<f64>,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// What training did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Mean loss per sample before the first step, on (a bounded number of) training rows.
    pub initial_loss: f64,
    /// Rounds in order.
    pub steps: Vec<StepRecord>,
    /// Epochs in order.
    pub epochs: Vec<EpochRecord>,
    /// Samples each rank trained on, by rank.
    pub samples_per_rank: Vec<u64>,
    /// Bytes each rank sent, by rank.
    pub bytes_sent_per_rank: Vec<u64>,
}

impl History {
    /// Mean training loss of the last epoch; before any, the initial loss.
    pub fn last_loss(&self) -> f64 {
        self.epochs.last().map_or(self.initial_loss, |e| e.loss)
    }
}
