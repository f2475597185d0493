//! The settings of a gang, with the names that users write in `WITH (…)`.

use serde::{Deserialize, Serialize};

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
    /// Step size γ.
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
            learning_rate: 0.01,
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
