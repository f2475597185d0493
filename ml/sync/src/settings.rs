//! The settings of a gang, with the names that users write in `WITH (…)`.

mod validation;

use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range, str::FromStr};

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

/// How far ranks may drift apart: `'sync'`, `'ssp'`, `'ssp(3)'` or `'async'`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Consistency {
    /// One step for the sum of all ranks' gradients.
    #[default]
    Sync,
    /// Stale synchronous parallel (Ho et al. 2013): each push is applied when it arrives, but no rank is more than
    /// so many steps ahead of the slowest; `None`: as `staleness` says.
    Ssp(Option<u64>),
    /// Downpour (Dean et al. 2012): each push is applied when it arrives.
    Async,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Ssp(None) => f.write_str("ssp"),
            Self::Ssp(Some(steps)) => write!(f, "ssp({steps})"),
            Self::Async => f.write_str("async"),
        }
    }
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps = text.strip_prefix("ssp(").and_then(|rest| rest.strip_suffix(')'));
        match (text, steps) {
            ("sync", _) => Ok(Self::Sync),
            ("ssp", _) => Ok(Self::Ssp(None)),
            ("async", _) => Ok(Self::Async),
            (_, Some(steps)) => {
                let steps = steps.trim().parse();
                steps
                    .map(|s| Self::Ssp(Some(s)))
                    .map_err(|_| format!("`{text}` is no number of steps; write it as 'ssp(3)'"))
            }
            _ => Err(format!("`{text}` is not known; choose 'sync', 'ssp', 'ssp(3)' or 'async'")),
        }
    }
}

impl TryFrom<String> for Consistency {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Consistency> for String {
    fn from(consistency: Consistency) -> Self {
        consistency.to_string()
    }
}

/// How values travel between processes; they are added up in 32 bits in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// 32-bit floats, exact.
    #[default]
    F32,
    /// The upper half of a 32-bit float: 8 bits of precision, half the bytes.
    Bf16,
}

/// What is made of the differences that the ranks come back with after their local steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outer {
    /// The mean of the ranks' parameters, weighted by samples (local SGD, Stich 2019).
    #[default]
    Average,
    /// `w −= γ·Δ` with Δ the weighted mean of the differences.
    Sgd,
    /// Nesterov momentum on Δ (DiLoCo, Douillard et al. 2023).
    Nesterov,
}

/// Steps that each rank takes alone between two rounds, H: a number, or `'auto'`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenCount", into = "WrittenCount")]
pub enum LocalStepCount {
    /// So many; 1: each step is a round.
    Fixed(u64),
    /// From the measured ratio of rounds to steps: the first steps are rounds, then H is such that rounds cost a
    /// fourteenth of the steps ([`local_steps_for`](crate::local_steps_for)).
    Auto,
}

impl LocalStepCount {
    /// The number, if it is not to be measured.
    pub fn fixed(self) -> Option<u64> {
        match self {
            Self::Fixed(steps) => Some(steps),
            Self::Auto => None,
        }
    }
}

/// As users write it.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of steps, or 'auto'")]
enum WrittenCount {
    Steps(u64),
    Word(String),
}

impl TryFrom<WrittenCount> for LocalStepCount {
    type Error = String;

    fn try_from(written: WrittenCount) -> Result<Self, String> {
        match written {
            WrittenCount::Steps(steps) => Ok(Self::Fixed(steps)),
            WrittenCount::Word(word) if word == "auto" => Ok(Self::Auto),
            WrittenCount::Word(word) => Err(format!("`{word}` is no number of steps; write 8, or 'auto'")),
        }
    }
}

impl From<LocalStepCount> for WrittenCount {
    fn from(count: LocalStepCount) -> Self {
        count.fixed().map_or_else(|| Self::Word("auto".into()), Self::Steps)
    }
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
    /// `v = μ·v + g; w −= γ·(g + μ·v)` (Nesterov 1983, PyTorch's form).
    Nesterov,
    /// Kingma 2015 with bias correction.
    Adam,
}

/// What becomes of gradients summed over the samples of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Their mean: the step size does not depend on the number of samples.
    #[default]
    Mean,
    /// Their sum: with whole numbers below 2²⁴ every digit is exact.
    Sum,
}

/// The update rule and its constants; `g` is the mean gradient over the samples of a round (see `reduction`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimizerSettings {
    /// The update rule; default `adagrad`.
    pub optimizer: OptimizerKind,
    /// Step size γ, default 0.001. The first steps of Adagrad move every weight by ±γ, whatever the gradient: 0.01, a
    /// common default, throws an autoencoder of six million weights far off before it comes back.
    pub learning_rate: f32,
    /// ε, outside the root; 1e-10 as PyTorch's Adagrad.
    pub epsilon: f32,
    /// μ of momentum and Nesterov, β₁ of Adam; default 0.9.
    pub momentum: f32,
    /// β₂ of Adam; default 0.999.
    pub beta_2: f32,
    /// Mean (default) or sum of the gradients of a round.
    pub reduction: Reduction,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        Self {
            optimizer: OptimizerKind::Adagrad,
            learning_rate: 0.001,
            epsilon: 1e-10,
            momentum: 0.9,
            beta_2: 0.999,
            reduction: Reduction::Mean,
        }
    }
}

/// How the ranks of a gang agree on parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncSettings {
    /// Who adds up; default `parameter_service`.
    pub topology: Topology,
    /// How far ranks may drift apart; default `sync`.
    pub consistency: Consistency,
    /// ssp: steps by which the fastest rank may lead the slowest; default 3.
    pub staleness: Option<u64>,
    /// Shards of the parameter service on members of their own; 0 (default): one with every rank.
    pub parameter_servers: usize,
    /// Minibatches between two fetches of the parameters (async); default 1.
    pub n_fetch: u64,
    /// Minibatches between two pushes of the summed gradient (async); default 1.
    pub n_push: u64,
    /// λ of delay compensation (async, ssp): a gradient of old parameters is taken to the newest by
    /// `g + λ·g⊙g⊙(w_now − w_read)` (Zheng et al. 2017; 0.04 there); default 0: none.
    pub delay_compensation: f32,
    /// Minibatches that the leader trains alone before the others join; default 0.
    pub warm_up: u64,
    /// Ring: rounds between two broadcasts of rank 0's parameters; 0 (default): at each epoch's end only.
    pub broadcast_every: u64,
    /// Steps that each rank takes alone between two rounds, H; default 1: each step is a round. `'auto'`: from what
    /// steps and rounds take (sync, with `outer => 'average'`, not `deterministic`).
    pub local_steps: LocalStepCount,
    /// What is made of the ranks' differences after local steps; default `average`.
    pub outer: Outer,
    /// Step size of `sgd` (default 1) and `nesterov` (default 0.7) on the differences.
    pub outer_learning_rate: Option<f32>,
    /// μ of `nesterov` on the differences; default 0.9.
    pub outer_momentum: f32,
    /// How values travel; default: `f32` within one process, `bf16` between processes, `f32` with `deterministic`.
    pub codec: Option<Codec>,
    /// Fixed reduction order: equal bytes from equal inputs; default false.
    pub deterministic: bool,
    /// Seconds that a rank waits for its peers before it says who is missing; default 600.
    pub deadline_seconds: f64,
    /// Seconds that the ranks wait for a driver that is lost before they leave; default 60.
    pub hold_seconds: f64,
    /// Seconds between two signs of life of a member; default 0.5.
    pub heartbeat_seconds: f64,
    /// Seconds without a sign of life after which a member counts as lost; default 3.
    pub heartbeat_timeout_seconds: f64,
    /// The update rule.
    #[serde(flatten)]
    pub optimizer: OptimizerSettings,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            topology: Topology::default(),
            consistency: Consistency::default(),
            staleness: None,
            parameter_servers: 0,
            n_fetch: 1,
            n_push: 1,
            delay_compensation: 0.0,
            warm_up: 0,
            broadcast_every: 0,
            local_steps: LocalStepCount::Fixed(1),
            outer: Outer::default(),
            outer_learning_rate: None,
            outer_momentum: 0.9,
            codec: None,
            deterministic: false,
            deadline_seconds: 600.0,
            hold_seconds: 60.0,
            heartbeat_seconds: 0.5,
            heartbeat_timeout_seconds: 3.0,
            optimizer: OptimizerSettings::default(),
        }
    }
}

/// Steps that the fastest rank may lead in ssp, unless said otherwise.
const STALENESS: u64 = 3;

impl SyncSettings {
    /// Who owns what: shard `s` of the parameter service owns `shards(n, ranks)[s]` of the flat
    /// parameters. Contiguous, equal but for rounding, empty where there are fewer parameters than shards.
    pub fn shards(&self, n_parameters: usize, ranks: usize) -> Vec<Range<usize>> {
        let shards = if self.parameter_servers == 0 { ranks } else { self.parameter_servers };
        equal_ranges(n_parameters, shards)
    }

    /// Steps by which the fastest rank may lead the slowest; `None`: any number.
    pub fn max_lead(&self) -> Option<u64> {
        match self.consistency {
            Consistency::Sync => Some(0),
            Consistency::Ssp(steps) => Some(steps.or(self.staleness).unwrap_or(STALENESS)),
            Consistency::Async => None,
        }
    }

    /// How values travel within a process, or between two.
    pub fn codec(&self, between_processes: bool) -> Codec {
        match self.codec {
            Some(codec) => codec,
            None if between_processes && !self.deterministic => Codec::Bf16,
            None => Codec::F32,
        }
    }

    /// The update rule that shards, or the ranks of a ring, apply at the end of a round: with local steps the outer one.
    /// With `auto` rounds of gradients come first, so it is that of steps.
    pub fn round_optimizer(&self) -> OptimizerSettings {
        if matches!(self.local_steps, LocalStepCount::Fixed(0 | 1) | LocalStepCount::Auto) {
            return self.optimizer.clone();
        }
        let (optimizer, learning_rate) = match self.outer {
            Outer::Average => (OptimizerKind::Sgd, 1.0),
            Outer::Sgd => (OptimizerKind::Sgd, self.outer_learning_rate.unwrap_or(1.0)),
            Outer::Nesterov => (OptimizerKind::Nesterov, self.outer_learning_rate.unwrap_or(0.7)),
        };
        let momentum = self.outer_momentum;
        OptimizerSettings { optimizer, learning_rate, momentum, ..OptimizerSettings::default() }
    }
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
    use serde_json::json;

    #[test]
    fn shards_tile_the_parameters() {
        for n in [0, 1, 2, 7, 826_171] {
            for (parameter_servers, ranks) in [(0, 1), (0, 5), (1, 3), (4, 2), (5, 1)] {
                let settings = SyncSettings { parameter_servers, ..SyncSettings::default() };
                let shards = settings.shards(n, ranks);
                assert_eq!(shards.len(), if parameter_servers == 0 { ranks } else { parameter_servers });
                assert_eq!(shards[0].start, 0);
                assert_eq!(shards.last().unwrap().end, n);
                assert!(shards.windows(2).all(|w| w[0].end == w[1].start && w[0].len() - w[1].len() <= 1));
            }
        }
    }

    #[test]
    fn local_steps_are_a_number_or_auto() {
        for (written, count) in [(json!(8), LocalStepCount::Fixed(8)), (json!("auto"), LocalStepCount::Auto)]
        {
            let settings = with(&[("local_steps", written.clone())]);
            assert_eq!(settings.local_steps, count);
            assert_eq!(serde_json::to_value(&settings).unwrap()["local_steps"], written);
        }
        for (written, says) in [(json!("many"), "`many`"), (json!(-1), "'auto'"), (json!(1.5), "'auto'")] {
            let error = serde_json::from_value::<LocalStepCount>(written).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    fn with(settings: &[(&str, serde_json::Value)]) -> SyncSettings {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        serde_json::from_value(serde_json::Value::Object(settings.collect())).unwrap()
    }

    #[test]
    fn consistency_is_written_as_it_is_read() {
        for (text, consistency, lead) in [
            ("sync", Consistency::Sync, Some(0)),
            ("ssp", Consistency::Ssp(None), Some(STALENESS)),
            ("ssp(0)", Consistency::Ssp(Some(0)), Some(0)),
            ("ssp(17)", Consistency::Ssp(Some(17)), Some(17)),
            ("async", Consistency::Async, None),
        ] {
            let settings = with(&[("consistency", json!(text))]);
            assert_eq!((settings.consistency, settings.max_lead()), (consistency, lead));
            assert_eq!(serde_json::to_value(&settings).unwrap()["consistency"], json!(text));
        }
        let settings = with(&[("consistency", json!("ssp")), ("staleness", json!(5))]);
        assert_eq!(settings.max_lead(), Some(5));
        for (text, said) in
            [("ssp(-1)", "ssp(3)"), ("ssp(", "choose"), ("Sync", "choose"), ("ssp()", "ssp(3)")]
        {
            let error = text.parse::<Consistency>().unwrap_err();
            assert!(error.contains(said) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn values_travel_exactly_unless_it_is_worth_while() {
        let good = SyncSettings::default();
        assert_eq!([good.codec(false), good.codec(true)], [Codec::F32, Codec::Bf16]);
        let exact = SyncSettings { deterministic: true, ..good.clone() };
        assert_eq!([exact.codec(false), exact.codec(true)], [Codec::F32; 2]);
        let chosen = SyncSettings { codec: Some(Codec::F32), ..good };
        assert_eq!(chosen.codec(true), Codec::F32);
    }

    #[test]
    fn rounds_of_local_steps_have_a_rule_of_their_own() {
        let own = SyncSettings::default();
        assert_eq!(own.round_optimizer(), own.optimizer);
        let rule = |outer| {
            let rule = SyncSettings { local_steps: LocalStepCount::Fixed(2), outer, ..own.clone() }
                .round_optimizer();
            (rule.optimizer, rule.learning_rate)
        };
        assert_eq!(rule(Outer::Average), (OptimizerKind::Sgd, 1.0));
        assert_eq!(rule(Outer::Sgd), (OptimizerKind::Sgd, 1.0));
        assert_eq!(rule(Outer::Nesterov), (OptimizerKind::Nesterov, 0.7));
    }
}
