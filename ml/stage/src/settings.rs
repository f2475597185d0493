//! The settings of `TRAIN … WITH (…)`: those of the loop and, flattened, those of the gang.

use serde::{Deserialize, Serialize};
use voxelflow_sync::SyncSettings;

/// How a stage is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainSettings {
    /// Replicas that train.
    pub ranks: usize,
    /// Series per rank and step.
    pub minibatch: usize,
    /// Passes over the data.
    pub epochs: u64,
    /// Stop after this many rounds, if given, even within an epoch.
    pub max_steps: Option<u64>,
    /// Shuffle the rows of each block (of a rank's, as the training began) anew in every epoch.
    pub shuffle: bool,
    /// Seed of weights and shuffles.
    pub seed: u64,
    /// Epochs between two checkpoints; 0: none but the final model.
    pub checkpoint_every: u64,
    /// Rounds between two checkpoints within an epoch; 0: none there. Needs consistency => 'sync'.
    pub checkpoint_steps: u64,
    /// `cpu`, or `cuda` where built for it.
    pub device: String,
    /// How the ranks agree.
    #[serde(flatten)]
    pub sync: SyncSettings,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            ranks: 1,
            minibatch: 256,
            epochs: 1,
            max_steps: None,
            shuffle: true,
            seed: 0,
            checkpoint_every: 1,
            checkpoint_steps: 0,
            device: "cpu".into(),
            sync: SyncSettings::default(),
        }
    }
}
