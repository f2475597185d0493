//! The settings of `TRAIN … WITH (…)`: those of the loop and, flattened, those of the gang.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use voxelflow_sync::{Consistency, SyncSettings};

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
    /// Epochs between two checkpoints; default 1; 0: none at the end of epochs.
    pub checkpoint_every: u64,
    /// Rounds between two checkpoints within an epoch; 0: none there. Needs consistency => 'sync'.
    pub checkpoint_steps: u64,
    /// Checkpoints that are kept, the newest; default 2.
    pub checkpoint_keep: usize,
    /// `cpu` (default), or `cuda:0` and so on: a card of the machine that a rank is on; `cuda:0,1`: several of them.
    pub device: String,
    /// How exact a card's products are: `f32`, `tf32` or `bf16` (default: activations and factors in bfloat16; sums,
    /// parameters and what the optimizer remembers in float32). On the CPU all is float32.
    pub precision: Option<String>,
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
            checkpoint_keep: 2,
            device: "cpu".into(),
            precision: None,
            sync: SyncSettings::default(),
        }
    }
}

/// Where a rank computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All cores of the process.
    Cpu,
    /// These cards of the machine, counted from 0: at least one, and none twice.
    Cards(Vec<usize>),
}

impl Placement {
    /// What the setting `device` says. Whether such cards are there is known only on the machine of a rank, when it starts.
    ///
    /// # Errors
    /// Another name, or a card that is named twice.
    pub fn of(device: &str) -> Result<Self> {
        let refused = |reason| Error::OptionValue { what: "TRAIN".into(), option: "device".into(), reason };
        device.parse().map_err(refused)
    }
}

/// `cpu`; `cuda:0`, `cuda:1` and so on, or `cuda` for the first; `cuda:0,1` for several cards at once.
impl FromStr for Placement {
    /// What is wrong with the name, and what would be right.
    type Err = String;

    fn from_str(device: &str) -> Result<Self, String> {
        let cards = match device.split_once(':') {
            None if device == "cpu" => return Ok(Self::Cpu),
            None if device == "cuda" => Some(vec![0]),
            Some(("cuda", numbers)) => numbers.split(',').map(number).collect(),
            _ => None,
        };
        let Some(cards) = cards else {
            return Err(format!(
                "`{device}` is not a device; the devices are: cpu, and NVIDIA's cards: cuda:0, cuda:1, …, or cuda:0,1 \
                 for both"
            ));
        };
        let twice = cards.iter().enumerate().find(|(i, card)| cards[..*i].contains(card));
        match twice {
            Some((_, card)) => Err(format!("`{device}` names cuda:{card} twice; name every card once")),
            None => Ok(Self::Cards(cards)),
        }
    }
}

/// A card's number: digits, without a sign.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl TrainSettings {
    /// Whether a gang can be trained with these settings.
    ///
    /// # Errors
    /// The first setting that cannot work, by name.
    pub fn validate(&self) -> Result<()> {
        let refuse = |option: &str, reason: &str| {
            Err(Error::OptionValue { what: "TRAIN".into(), option: option.into(), reason: reason.into() })
        };
        if self.minibatch == 0 {
            return refuse("minibatch", "must be at least 1 series, got 0");
        }
        if let Some(precision) = &self.precision {
            if !["f32", "tf32", "bf16"].contains(&precision.as_str()) {
                let reason = format!("`{precision}` is none; they are: f32, tf32, bf16");
                return refuse("precision", &reason);
            }
            if self.device == "cpu" && precision != "f32" {
                return refuse("precision", "is 'f32' on the CPU; 'tf32' and 'bf16' need device => 'cuda:0'");
            }
        }
        if self.checkpoint_keep == 0 {
            return refuse(
                "checkpoint_keep",
                "must be at least 1; take checkpoint_every => 0 for no checkpoints",
            );
        }
        if self.checkpoint_steps > 0 && self.sync.consistency != Consistency::Sync {
            return refuse(
                "checkpoint_steps",
                "needs consistency => 'sync': between epochs other ranks are never at the same step",
            );
        }
        Ok(self.sync.validate(self.ranks)?)
    }

    /// Settings that change nothing beside the others, by name, and why: who writes one of them means something else.
    pub fn without_effect(&self) -> Vec<(&'static str, String)> {
        let mut found = self.sync.without_effect();
        if self.checkpoint_every == 0 && self.checkpoint_steps == 0 {
            found.push((
                "checkpoint_keep",
                "there are no checkpoints; leave it out, or write checkpoint_every".into(),
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn devices_are_the_processor_or_cards_each_named_once() {
        for name in
            ["tpu", "cuda:", "cuda:x", "cpu:0", "", "cuda:0,", "cuda:,1", "cuda:0, 1", "cuda:+1", "cuda:0-1"]
        {
            let e = Placement::of(name).unwrap_err();
            assert!(e.is_input() && e.to_string().contains("cuda:0"), "{e}");
        }
        assert_eq!(Placement::of("cpu").unwrap(), Placement::Cpu);
        for (name, cards) in [
            ("cuda", vec![0]),
            ("cuda:3", vec![3]),
            ("cuda:0,1", vec![0, 1]),
            ("cuda:2,0,11", vec![2, 0, 11]),
        ] {
            assert_eq!(Placement::of(name).unwrap(), Placement::Cards(cards));
        }
        for name in ["cuda:1,1", "cuda:0,1,2,1", "cuda:01,1"] {
            let e = Placement::of(name).unwrap_err();
            assert!(e.is_input() && e.to_string().contains("cuda:1 twice"), "{e}");
        }
    }

    #[test]
    fn what_cannot_work_is_named() {
        let good = TrainSettings::default();
        good.validate().unwrap();
        let asynchronous = SyncSettings { consistency: Consistency::Async, ..SyncSettings::default() };
        let cases = [
            (TrainSettings { minibatch: 0, ..good.clone() }, "minibatch"),
            (TrainSettings { checkpoint_keep: 0, ..good.clone() }, "checkpoint_keep"),
            (TrainSettings { checkpoint_steps: 5, sync: asynchronous, ..good.clone() }, "checkpoint_steps"),
            (TrainSettings { ranks: 0, ..good.clone() }, "ranks"),
        ];
        for (settings, name) in cases {
            let error = settings.validate().unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        }
        TrainSettings { checkpoint_steps: 5, ..good.clone() }.validate().unwrap();
        assert_eq!(good.without_effect().iter().filter(|(name, _)| *name == "checkpoint_keep").count(), 0);
        let none = TrainSettings { checkpoint_every: 0, ..good };
        assert!(none.without_effect().iter().any(|(name, _)| *name == "checkpoint_keep"));
    }
}
