//! The settings of a design, with nilearn's names and defaults.

use super::HrfModel;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Slow drifts of the signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriftModel {
    /// A discrete cosine basis of all frequencies under `high_pass`.
    #[default]
    Cosine,
    /// Powers of time up to `drift_order`, each orthogonal to those before it.
    Polynomial,
    /// Only the constant.
    None,
}

/// How a design is made; the names and defaults of `nilearn.glm.first_level.make_first_level_design_matrix`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DesignSettings {
    /// The haemodynamic response that events call forth.
    pub hrf_model: HrfModel,
    /// Slow drifts.
    pub drift_model: DriftModel,
    /// Drifts under this frequency, in hertz, are modelled (cosine).
    pub high_pass: f64,
    /// Highest power of time (polynomial).
    pub drift_order: usize,
    /// Delays, in volumes, of a finite impulse response.
    pub fir_delays: Vec<usize>,
    /// Seconds, at most 0, before the first volume: what is over by then is not considered.
    pub min_onset: f64,
    /// Fine bins of a volume.
    pub oversampling: usize,
}

impl Default for DesignSettings {
    fn default() -> Self {
        Self {
            hrf_model: HrfModel::default(),
            drift_model: DriftModel::default(),
            high_pass: 0.01,
            drift_order: 1,
            fir_delays: vec![0],
            min_onset: -24.0,
            oversampling: 50,
        }
    }
}

impl DesignSettings {
    /// Whether a design of `volumes` can be made with these settings.
    ///
    /// # Errors
    /// [`Error::Setting`], the first that cannot be used.
    pub fn validate(&self, volumes: usize) -> Result<()> {
        let refuse = |setting, reason: String| Err(Error::Setting { setting, reason });
        if self.oversampling == 0 || self.oversampling > 10_000 {
            return refuse(
                "oversampling",
                format!("{} must be from 1 to 10,000 fine bins a volume", self.oversampling),
            );
        }
        if !(self.min_onset.is_finite() && self.min_onset <= 0.0) {
            let reason = format!("{} must be 0 or negative: seconds before the first volume", self.min_onset);
            return refuse("min_onset", reason);
        }
        if self.drift_model == DriftModel::Polynomial && self.drift_order >= volumes {
            let reason = format!("{} must be under the {volumes} volumes of the run", self.drift_order);
            return refuse("drift_order", reason);
        }
        if self.hrf_model == HrfModel::Fir {
            let fault = self.fir_delays.iter().enumerate().find_map(|(at, delay)| match delay {
                _ if *delay >= volumes => {
                    Some(format!("{delay} is not under the {volumes} volumes of the run"))
                }
                _ if self.fir_delays[..at].contains(delay) => Some(format!("{delay} stands there twice")),
                _ => None,
            });
            if let Some(reason) = fault {
                return refuse("fir_delays", reason);
            }
            if self.fir_delays.is_empty() {
                return refuse("fir_delays", "it is empty; give delays in volumes, such as [0, 1, 2]".into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let good = DesignSettings::default();
        good.validate(100).unwrap();
        let fir = DesignSettings { hrf_model: HrfModel::Fir, ..good.clone() };
        let polynomial = DesignSettings { drift_model: DriftModel::Polynomial, ..good.clone() };
        let cases = [
            (DesignSettings { oversampling: 0, ..good.clone() }, "oversampling"),
            (DesignSettings { min_onset: 1.0, ..good.clone() }, "min_onset"),
            (DesignSettings { min_onset: f64::NAN, ..good }, "min_onset"),
            (DesignSettings { drift_order: 100, ..polynomial }, "drift_order"),
            (DesignSettings { fir_delays: vec![], ..fir.clone() }, "fir_delays"),
            (DesignSettings { fir_delays: vec![2, 3, 2], ..fir.clone() }, "fir_delays"),
            (DesignSettings { fir_delays: vec![0, 100], ..fir }, "fir_delays"),
        ];
        for (settings, name) in cases {
            assert_eq!(settings.validate(100).unwrap_err().setting(), Some(name));
        }
    }
}
