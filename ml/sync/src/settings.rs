//! The settings of a gang, with the names that users write in `WITH (…)`.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Who adds up the gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// Shards of a parameter service own the parameters and apply the optimizer.
    #[default]
    ParameterService,
    /// Reduce-scatter and all-gather around a ring; every rank applies the optimizer.
    Ring,
}

/// How far ranks may drift apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// One step for the sum of all ranks' gradients.
    #[default]
    Sync,
    /// Downpour: each push is applied when it arrives.
    Async,
}

/// The update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// `G += g²; w −= γ·g/(√G + ε)` (Duchi 2011).
    #[default]
    Adagrad,
    /// `w −= γ·g`.
    Sgd,
    /// `v = μ·v + g; w −= γ·v` (Polyak 1964, PyTorch's form).
    Momentum,
    /// Kingma 2015 with bias correction.
    Adam,
}

/// The update rule and its constants; `g` is the mean gradient over the samples of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimizerSettings {
    /// The update rule.
    pub optimizer: OptimizerKind,
    /// Step size γ. The first steps of Adagrad move every weight by ±γ, whatever the gradient: 0.01, a common
    /// default, throws an autoencoder of six million weights far off before it comes back.
    pub learning_rate: f32,
    /// ε, outside the root; 1e-10 as PyTorch's Adagrad.
    pub epsilon: f32,
    /// μ of momentum, β₁ of Adam.
    pub momentum: f32,
    /// β₂ of Adam.
    pub beta_2: f32,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        Self {
            optimizer: OptimizerKind::Adagrad,
            learning_rate: 0.001,
            epsilon: 1e-10,
            momentum: 0.9,
            beta_2: 0.999,
        }
    }
}

/// How the ranks of a gang agree on parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncSettings {
    /// Who adds up.
    pub topology: Topology,
    /// How far ranks may drift apart.
    pub consistency: Consistency,
    /// Shards of the parameter service.
    pub parameter_servers: usize,
    /// Minibatches between two fetches of the parameters (async).
    pub n_fetch: u64,
    /// Minibatches between two pushes of the summed gradient (async).
    pub n_push: u64,
    /// Minibatches that rank 0 trains alone before the others join.
    pub warm_up: u64,
    /// Ring: rounds between two broadcasts of rank 0's parameters; 0: at each epoch's end only.
    pub broadcast_every: u64,
    /// Fixed reduction order: equal bytes from equal inputs.
    pub deterministic: bool,
    /// Seconds that a rank waits for its peers before it says who is missing.
    pub deadline_seconds: f64,
    /// The update rule.
    #[serde(flatten)]
    pub optimizer: OptimizerSettings,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            topology: Topology::default(),
            consistency: Consistency::default(),
            parameter_servers: 1,
            n_fetch: 1,
            n_push: 1,
            warm_up: 0,
            broadcast_every: 0,
            deterministic: false,
            deadline_seconds: 600.0,
            optimizer: OptimizerSettings::default(),
        }
    }
}

impl SyncSettings {
    /// Who owns what: shard `s` of the parameter service owns `shards(n)[s]` of the flat
    /// parameters. Contiguous, equal but for rounding, empty where there are fewer parameters than shards.
    pub fn shards(&self, n_parameters: usize) -> Vec<Range<usize>> {
        equal_ranges(n_parameters, self.parameter_servers)
    }

    /// Whether a gang of `ranks` can work with these settings.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the first setting that cannot work.
    pub fn validate(&self, ranks: usize) -> Result<()> {
        let at_least_one = [
            ("ranks", ranks as u64),
            ("parameter_servers", self.parameter_servers as u64),
            ("n_fetch", self.n_fetch),
            ("n_push", self.n_push),
        ];
        for (name, value) in at_least_one {
            ensure(value >= 1, name, || "must be at least 1, got 0".into())?;
        }
        let deadline = self.deadline_seconds;
        ensure(deadline > 0.0 && deadline <= MAX_DEADLINE, "deadline_seconds", || {
            format!("must be above 0 and at most {MAX_DEADLINE} s, got {deadline}")
        })?;
        let of_asynchronous = self.consistency == Consistency::Async;
        ensure(!(of_asynchronous && self.topology == Topology::Ring), "consistency", || {
            "a ring adds up in rounds, so it is always `sync`; take topology => 'parameter_service' for `async`".into()
        })?;
        ensure(!(of_asynchronous && self.deterministic), "deterministic", || {
            "`async` applies pushes as they arrive; take consistency => 'sync' for equal bytes".into()
        })?;
        self.optimizer.validate()
    }
}

/// A year: longer deadlines are taken for a slip, and would overflow the clock.
const MAX_DEADLINE: f64 = 365.0 * 24.0 * 3600.0;

impl OptimizerSettings {
    fn validate(&self) -> Result<()> {
        let Self { learning_rate, epsilon, momentum, beta_2, .. } = *self;
        ensure(learning_rate.is_finite() && learning_rate > 0.0, "learning_rate", || {
            format!("must be a number above 0, got {learning_rate}")
        })?;
        ensure(epsilon.is_finite() && epsilon > 0.0, "epsilon", || {
            format!("must be a number above 0, got {epsilon}")
        })?;
        for (name, value) in [("momentum", momentum), ("beta_2", beta_2)] {
            ensure((0.0..1.0).contains(&value), name, || {
                format!("must be at least 0 and below 1, got {value}")
            })?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, name: &'static str, reason: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Setting { name, reason: reason() }) }
}

/// `0..n` cut into `parts` contiguous ranges whose lengths differ by at most one, longer ones first.
pub fn equal_ranges(n: usize, parts: usize) -> Vec<Range<usize>> {
    let parts = parts.max(1);
    let (short, longer) = (n / parts, n % parts);
    let start = |part: usize| part * short + part.min(longer);
    (0..parts).map(|part| start(part)..start(part + 1)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn shards_tile_the_parameters() {
        for n in [0, 1, 2, 7, 826_171] {
            for parameter_servers in 1..6 {
                let shards = SyncSettings { parameter_servers, ..SyncSettings::default() }.shards(n);
                assert_eq!(shards.len(), parameter_servers);
                assert_eq!(shards[0].start, 0);
                assert_eq!(shards.last().unwrap().end, n);
                assert!(shards.windows(2).all(|w| w[0].end == w[1].start && w[0].len() - w[1].len() <= 1));
            }
        }
    }

    #[test]
    fn a_setting_that_cannot_work_is_named() {
        let good = SyncSettings::default();
        assert_eq!(good.validate(1), Ok(()));
        let with_rate = |learning_rate| SyncSettings {
            optimizer: OptimizerSettings { learning_rate, ..OptimizerSettings::default() },
            ..SyncSettings::default()
        };
        let ring = SyncSettings { topology: Topology::Ring, consistency: Consistency::Async, ..good.clone() };
        let unordered = SyncSettings { deterministic: true, consistency: Consistency::Async, ..good.clone() };
        let cases = [
            (good.clone(), 0, "ranks"),
            (SyncSettings { parameter_servers: 0, ..good.clone() }, 1, "parameter_servers"),
            (SyncSettings { n_fetch: 0, ..good.clone() }, 1, "n_fetch"),
            (SyncSettings { n_push: 0, ..good.clone() }, 1, "n_push"),
            (SyncSettings { deadline_seconds: f64::NAN, ..good.clone() }, 1, "deadline_seconds"),
            (with_rate(0.0), 1, "learning_rate"),
            (with_rate(f32::INFINITY), 1, "learning_rate"),
            (ring, 2, "consistency"),
            (unordered, 2, "deterministic"),
        ];
        for (settings, ranks, name) in cases {
            let error = settings.validate(ranks).unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
            assert!(error.is_input());
        }
    }
}
