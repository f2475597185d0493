//! Which settings cannot work, and why.

use super::{
    Codec, Consistency, LocalStepCount, OptimizerKind, OptimizerSettings, Outer, SyncSettings, Topology,
};
use crate::{Error, Result};

impl SyncSettings {
    /// Whether a gang of `ranks` can work with these settings.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the first setting that cannot work.
    pub fn validate(&self, ranks: usize) -> Result<()> {
        let at_least_one = [
            ("ranks", ranks as u64),
            ("n_fetch", self.n_fetch),
            ("n_push", self.n_push),
            ("local_steps", self.local_steps.fixed().unwrap_or(1)),
        ];
        for (name, value) in at_least_one {
            ensure(value >= 1, name, || "must be at least 1, got 0".into())?;
        }
        self.validate_times()?;
        self.validate_pace()?;
        self.validate_local_steps()?;
        ensure(!(self.deterministic && self.codec == Some(Codec::Bf16)), "codec", || {
            "`bf16` rounds what travels, so that results depend on who sends; take codec => 'f32' with deterministic".into()
        })?;
        self.optimizer.validate()
    }

    /// Settings that change nothing beside the others, by name, and why.
    pub fn without_effect(&self) -> Vec<(&'static str, String)> {
        let (ring, sync) = (self.topology == Topology::Ring, self.consistency == Consistency::Sync);
        let optimizer = self.optimizer.optimizer;
        let with_momentum = [OptimizerKind::Momentum, OptimizerKind::Nesterov, OptimizerKind::Adam];
        let with_epsilon = [OptimizerKind::Adagrad, OptimizerKind::Adam];
        let local = self.local_steps != LocalStepCount::Fixed(1);
        let rules = [
            ("n_fetch", sync, "is for consistency => 'async'; in `sync` every round fetches"),
            ("n_push", sync, "is for consistency => 'async'; in `sync` every round pushes"),
            ("parameter_servers", ring, "is for topology => 'parameter_service'; a ring has no shards"),
            ("broadcast_every", !ring, "is for topology => 'ring'"),
            (
                "codec",
                ring && self.codec == Some(Codec::Bf16),
                "`bf16` is for topology => 'parameter_service'; a ring adds up float32",
            ),
            (
                "outer_momentum",
                !local || self.outer != Outer::Nesterov,
                "is for outer => 'nesterov' with local_steps",
            ),
            (
                "momentum",
                !with_momentum.contains(&optimizer),
                "is for the optimizers momentum, nesterov and adam",
            ),
            ("beta_2", optimizer != OptimizerKind::Adam, "is for the optimizer adam"),
            ("epsilon", !with_epsilon.contains(&optimizer), "is for the optimizers adagrad and adam"),
        ];
        let idle = rules.into_iter().filter(|(_, idle, _)| *idle);
        idle.map(|(name, _, reason)| (name, reason.to_owned())).collect()
    }

    fn validate_times(&self) -> Result<()> {
        let times = [
            ("deadline_seconds", self.deadline_seconds),
            ("hold_seconds", self.hold_seconds),
            ("heartbeat_seconds", self.heartbeat_seconds),
            ("heartbeat_timeout_seconds", self.heartbeat_timeout_seconds),
        ];
        for (name, seconds) in times {
            ensure(seconds > 0.0 && seconds <= LONGEST, name, || {
                format!("must be above 0 and at most {LONGEST} s, got {seconds}")
            })?;
        }
        let (beat, timeout) = (self.heartbeat_seconds, self.heartbeat_timeout_seconds);
        ensure(timeout >= 2.0 * beat, "heartbeat_timeout_seconds", || {
            format!(
                "must be at least twice heartbeat_seconds ({beat} s), got {timeout} s: one late sign of life is no loss"
            )
        })
    }

    fn validate_pace(&self) -> Result<()> {
        let in_rounds = self.consistency == Consistency::Sync;
        let ssp = matches!(self.consistency, Consistency::Ssp(_));
        let consistency = self.consistency;
        ensure(in_rounds || self.topology != Topology::Ring, "consistency", || {
            format!(
                "a ring adds up in rounds, so it is always `sync`; take topology => 'parameter_service' for `{consistency}`"
            )
        })?;
        ensure(in_rounds || !self.deterministic, "deterministic", || {
            format!(
                "`{consistency}` applies pushes as they arrive; take consistency => 'sync' for equal bytes"
            )
        })?;
        if let Some(staleness) = self.staleness {
            ensure(ssp, "staleness", || format!("is for consistency => 'ssp', not for `{consistency}`"))?;
            let other = match consistency {
                Consistency::Ssp(Some(steps)) if steps != staleness => Some(steps),
                _ => None,
            };
            ensure(other.is_none(), "staleness", || {
                format!("says {staleness}, but consistency says `{consistency}`")
            })?;
        }
        for (name, value) in [("n_fetch", self.n_fetch), ("n_push", self.n_push)] {
            ensure(!ssp || value == 1, name, || "must be 1 with `ssp`, which counts every step".into())?;
        }
        let lambda = self.delay_compensation;
        ensure(lambda.is_finite() && lambda >= 0.0, "delay_compensation", || {
            format!("must be a number of at least 0, got {lambda}")
        })?;
        ensure(lambda == 0.0 || !in_rounds, "delay_compensation", || {
            "is for `async` and `ssp`: in `sync` no gradient is late".into()
        })?;
        ensure(lambda == 0.0 || self.local_steps == LocalStepCount::Fixed(1), "delay_compensation", || {
            "is for gradients, not for the differences that local_steps bring".into()
        })
    }

    fn validate_local_steps(&self) -> Result<()> {
        let auto = self.local_steps == LocalStepCount::Auto;
        ensure(!auto || self.consistency == Consistency::Sync, "local_steps", || {
            "`auto` measures rounds; take a number, or consistency => 'sync'".into()
        })?;
        ensure(!(auto && self.deterministic), "local_steps", || {
            "`auto` depends on what steps and rounds take; take a number with deterministic".into()
        })?;
        ensure(!auto || self.outer == Outer::Average, "outer", || {
            "`auto` averages; take a number of local_steps for another".into()
        })?;
        let local = self.local_steps != LocalStepCount::Fixed(1);
        let outer = self.outer_learning_rate;
        ensure(local || (self.outer == Outer::Average && outer.is_none()), "outer", || {
            "is for local_steps above 1".into()
        })?;
        ensure(outer.is_none() || self.outer != Outer::Average, "outer_learning_rate", || {
            "an average has none; take outer => 'sgd' or 'nesterov'".into()
        })?;
        ensure(outer.is_none_or(|rate| rate.is_finite() && rate > 0.0), "outer_learning_rate", || {
            format!("must be a number above 0, got {}", outer.unwrap_or_default())
        })?;
        ensure((0.0..1.0).contains(&self.outer_momentum), "outer_momentum", || {
            format!("must be at least 0 and below 1, got {}", self.outer_momentum)
        })?;
        for (name, value) in [("n_fetch", self.n_fetch), ("n_push", self.n_push)] {
            ensure(!local || value == 1, name, || {
                "must be 1 with local_steps, which say when to fetch and push".into()
            })?;
        }
        Ok(())
    }
}

/// A year: longer times are taken for a slip, and would overflow the clock.
const LONGEST: f64 = 365.0 * 24.0 * 3600.0;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_setting_that_cannot_work_is_named() {
        let good = SyncSettings::default();
        assert_eq!(good.validate(1), Ok(()));
        let with = |name: &str, value: serde_json::Value| -> SyncSettings {
            serde_json::from_value(json!({ name: value })).unwrap()
        };
        let cases = [
            (good.clone(), 0, "ranks"),
            (with("n_fetch", json!(0)), 1, "n_fetch"),
            (with("n_push", json!(0)), 1, "n_push"),
            (with("deadline_seconds", json!(-1.0)), 1, "deadline_seconds"),
            (SyncSettings { deadline_seconds: f64::NAN, ..good.clone() }, 1, "deadline_seconds"),
            (with("hold_seconds", json!(0)), 1, "hold_seconds"),
            (with("heartbeat_seconds", json!(1e12)), 1, "heartbeat_seconds"),
            (with("heartbeat_timeout_seconds", json!(0.6)), 1, "heartbeat_timeout_seconds"),
            (with("learning_rate", json!(0)), 1, "learning_rate"),
            (with("learning_rate", json!(1e300)), 1, "learning_rate"),
            (with("local_steps", json!(0)), 1, "local_steps"),
            (with("outer", json!("nesterov")), 1, "outer"),
            (with("outer_learning_rate", json!(0.5)), 1, "outer"),
            (with("outer_momentum", json!(1)), 1, "outer_momentum"),
            (with("staleness", json!(2)), 1, "staleness"),
            (with("delay_compensation", json!(0.1)), 1, "delay_compensation"),
        ];
        for (settings, ranks, name) in cases {
            refused(&settings, ranks, name);
        }
    }

    #[test]
    fn settings_that_do_not_go_together_are_named() {
        let cases = [
            (json!({"topology": "ring", "consistency": "async"}), "consistency"),
            (json!({"topology": "ring", "consistency": "ssp(3)"}), "consistency"),
            (json!({"deterministic": true, "consistency": "async"}), "deterministic"),
            (json!({"deterministic": true, "consistency": "ssp"}), "deterministic"),
            (json!({"deterministic": true, "codec": "bf16"}), "codec"),
            (json!({"consistency": "async", "staleness": 2}), "staleness"),
            (json!({"consistency": "ssp(3)", "staleness": 2}), "staleness"),
            (json!({"consistency": "ssp", "n_push": 2}), "n_push"),
            (json!({"consistency": "async", "delay_compensation": -0.1}), "delay_compensation"),
            (
                json!({"consistency": "async", "delay_compensation": 0.1, "local_steps": 2}),
                "delay_compensation",
            ),
            (json!({"consistency": "async", "n_fetch": 2, "local_steps": 2}), "n_fetch"),
            (json!({"local_steps": "auto", "consistency": "async"}), "local_steps"),
            (json!({"local_steps": "auto", "consistency": "ssp"}), "local_steps"),
            (json!({"local_steps": "auto", "deterministic": true}), "local_steps"),
            (json!({"local_steps": "auto", "outer": "nesterov"}), "outer"),
            (json!({"local_steps": 2, "outer_learning_rate": 0.5}), "outer_learning_rate"),
            (json!({"local_steps": 2, "outer": "sgd", "outer_learning_rate": 0}), "outer_learning_rate"),
        ];
        for (settings, name) in cases {
            refused(&serde_json::from_value(settings).unwrap(), 2, name);
        }
        for good in [
            json!({"consistency": "ssp(3)", "staleness": 3}),
            json!({"consistency": "async", "n_push": 4, "delay_compensation": 0.04}),
            json!({"local_steps": 8, "outer": "nesterov", "outer_learning_rate": 0.7, "topology": "ring"}),
            json!({"local_steps": "auto", "topology": "ring"}),
            json!({"deterministic": true, "codec": "f32", "parameter_servers": 2}),
        ] {
            assert_eq!(serde_json::from_value::<SyncSettings>(good).unwrap().validate(2), Ok(()));
        }
    }

    #[test]
    fn a_setting_that_changes_nothing_is_named() {
        for (others, idle) in [
            (json!({}), vec!["n_fetch", "n_push", "broadcast_every", "outer_momentum", "momentum", "beta_2"]),
            (json!({"optimizer": "adam"}), vec!["n_fetch", "n_push", "broadcast_every", "outer_momentum"]),
            (
                json!({"consistency": "async", "optimizer": "sgd"}),
                vec!["broadcast_every", "outer_momentum", "momentum", "beta_2", "epsilon"],
            ),
            (
                json!({"topology": "ring", "codec": "bf16", "optimizer": "nesterov"}),
                vec![
                    "n_fetch",
                    "n_push",
                    "parameter_servers",
                    "codec",
                    "outer_momentum",
                    "beta_2",
                    "epsilon",
                ],
            ),
            (
                json!({"topology": "ring", "codec": "f32", "local_steps": 4, "outer": "nesterov", "optimizer": "adam"}),
                vec!["n_fetch", "n_push", "parameter_servers"],
            ),
        ] {
            let settings: SyncSettings = serde_json::from_value(others.clone()).unwrap();
            let found: Vec<&str> = settings.without_effect().iter().map(|(name, _)| *name).collect();
            assert_eq!(found, idle, "{others}");
        }
    }

    fn refused(settings: &SyncSettings, ranks: usize, name: &str) {
        let error = settings.validate(ranks).unwrap_err();
        assert!(error.to_string().contains(&format!("`{name}`")), "{name}: {error}");
        assert!(error.is_input());
    }
}
