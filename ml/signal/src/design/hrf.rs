//! Haemodynamic responses as differences of gamma densities.
//!
//! Source: SPM (`spm_hrf.m`); G. H. Glover, "Deconvolution of impulse response in event-related BOLD fMRI",
//! NeuroImage 9 (1999); nilearn `hemodynamic_models`, whose grid, shift and normalisation are kept.

use super::{DesignSettings, fine_grid::linspace};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Seconds of a response.
const LENGTH: f64 = 32.0;
/// Seconds by which the time derivative differs.
const TIME_STEP: f64 = 0.1;
/// Step of the dispersion derivative.
const DISPERSION_STEP: f64 = 0.01;

/// What an event calls forth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HrfModel {
    /// Glover's response.
    #[default]
    #[serde(rename = "glover")]
    Glover,
    /// With its derivative in time.
    #[serde(rename = "glover + derivative")]
    GloverDerivative,
    /// With its derivatives in time and in the peak's dispersion.
    #[serde(rename = "glover + derivative + dispersion")]
    GloverDispersion,
    /// SPM's response.
    #[serde(rename = "spm")]
    Spm,
    /// With its derivative in time.
    #[serde(rename = "spm + derivative")]
    SpmDerivative,
    /// With its derivatives in time and in the peak's dispersion.
    #[serde(rename = "spm + derivative + dispersion")]
    SpmDispersion,
    /// A finite impulse response: a regressor for each delay.
    #[serde(rename = "fir")]
    Fir,
    /// The events as they are.
    #[serde(rename = "none")]
    None,
}

/// What events are convolved with: zeros for `delay` fine bins, then `values`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kernel {
    /// What is appended to the condition's name.
    pub suffix: String,
    pub delay: usize,
    pub values: Vec<f64>,
}

impl HrfModel {
    /// The kernels of this model on bins of `t_r / oversampling` seconds.
    pub(super) fn kernels(self, t_r: f64, settings: &DesignSettings) -> Result<Vec<Kernel>> {
        let oversampling = settings.oversampling;
        let kernel = |suffix: &str, values| Kernel { suffix: suffix.into(), delay: 0, values };
        let (gammas, derivatives) = match self {
            Self::Glover => (Gammas::GLOVER, 0),
            Self::GloverDerivative => (Gammas::GLOVER, 1),
            Self::GloverDispersion => (Gammas::GLOVER, 2),
            Self::Spm => (Gammas::SPM, 0),
            Self::SpmDerivative => (Gammas::SPM, 1),
            Self::SpmDispersion => (Gammas::SPM, 2),
            Self::Fir => {
                let volume = |delay: &usize| Kernel {
                    suffix: format!("_delay_{delay}"),
                    delay: delay * oversampling,
                    values: vec![1.0 / oversampling as f64; oversampling],
                };
                return Ok(settings.fir_delays.iter().map(volume).collect());
            }
            Self::None => return Ok(vec![kernel("", vec![1.0])]),
        };
        let dt = t_r / oversampling as f64;
        let mut kernels = vec![kernel("", gammas.response(dt, 0.0)?)];
        if derivatives > 0 {
            let later = gammas.response(dt, TIME_STEP)?;
            kernels.push(kernel("_derivative", slope(&kernels[0].values, &later, TIME_STEP)));
        }
        if derivatives > 1 {
            let (narrow, wide) = gammas.dispersed();
            let values = slope(&narrow.response(dt, 0.0)?, &wide.response(dt, 0.0)?, DISPERSION_STEP);
            kernels.push(kernel("_dispersion", values));
        }
        Ok(kernels)
    }
}

fn slope(a: &[f64], b: &[f64], step: f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| 1.0 / step * (a - b)).collect()
}

/// A peak and an undershoot.
#[derive(Clone, Copy)]
struct Gammas {
    /// Seconds to the peak, seconds to the undershoot.
    delay: f64,
    undershoot: f64,
    dispersion: f64,
    undershoot_dispersion: f64,
    /// Of the undershoot to the peak.
    ratio: f64,
}

impl Gammas {
    const SPM: Self =
        Self { delay: 6.0, undershoot: 16.0, dispersion: 1.0, undershoot_dispersion: 1.0, ratio: 0.167 };
    const GLOVER: Self =
        Self { delay: 6.0, undershoot: 12.0, dispersion: 0.9, undershoot_dispersion: 0.9, ratio: 0.48 };

    /// The two whose difference is the dispersion derivative. nilearn leaves the undershoot's dispersion at 1 in
    /// both, also for Glover's response.
    fn dispersed(self) -> (Self, Self) {
        let narrow = Self { undershoot_dispersion: 1.0, ..self };
        (narrow, Self { dispersion: self.dispersion + DISPERSION_STEP, ..narrow })
    }

    /// The response to an impulse at `onset` seconds, on bins of `dt` seconds; it sums to 1.
    fn response(self, dt: f64, onset: f64) -> Result<Vec<f64>> {
        let count = (LENGTH / dt).round_ties_even() as usize;
        let density = |time: f64, delay: f64, dispersion: f64| {
            gamma_density((time - dt) / dispersion, delay / dispersion) / dispersion
        };
        let mut values: Vec<f64> = linspace(0.0, LENGTH, count)
            .into_iter()
            .map(|time| {
                let time = time - onset;
                density(time, self.delay, self.dispersion)
                    - self.ratio * density(time, self.undershoot, self.undershoot_dispersion)
            })
            .collect();
        let sum: f64 = values.iter().sum();
        if !(sum.is_finite() && sum > 0.0) {
            let reason = format!("bins of {dt} s are too wide to hold a response of {LENGTH} s");
            return Err(Error::Setting { setting: "oversampling", reason });
        }
        values.iter_mut().for_each(|value| *value /= sum);
        Ok(values)
    }
}

/// Density of the gamma distribution of `shape` and scale 1 at `x`: x^(k−1) · e^(−x) / Γ(k).
fn gamma_density(x: f64, shape: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    ((shape - 1.0) * x.ln() - x - libm::lgamma(shape)).exp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kernels(model: HrfModel, t_r: f64, oversampling: usize) -> Vec<Kernel> {
        model.kernels(t_r, &DesignSettings { oversampling, ..DesignSettings::default() }).unwrap()
    }

    #[test]
    fn the_sum_is_one_and_the_peak_after_five_seconds() {
        for model in [HrfModel::Spm, HrfModel::Glover] {
            let [kernel] = &kernels(model, 0.72, 50)[..] else { panic!("one kernel") };
            assert!((kernel.values.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let values = &kernel.values;
            let peak = (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap();
            assert!((peak as f64 * 0.72 / 50.0 - 5.0).abs() < 0.1, "{model:?}: {peak}");
        }
    }

    /// What nilearn prints for `spm_hrf(2, 1, 20)` and `glover_hrf(2, 1, 20)`, on the grid of 20 s.
    #[test]
    fn values_equal_nilearn() {
        let expected = [
            (Gammas::SPM, [0.0, 0.0, 0.161, 0.443, 0.335, 0.139, 0.022, -0.028, -0.04, -0.033]),
            (Gammas::GLOVER, [0.0, 0.0, 0.226, 0.741, 0.5, 0.037, -0.181, -0.176, -0.103, -0.045]),
        ];
        for (gammas, expected) in expected {
            let at = |time: f64, delay: f64, width: f64| {
                gamma_density((time - 2.0) / width, delay / width) / width
            };
            let values: Vec<f64> = linspace(0.0, 20.0, 10)
                .into_iter()
                .map(|t| {
                    at(t, gammas.delay, gammas.dispersion)
                        - gammas.ratio * at(t, gammas.undershoot, gammas.undershoot_dispersion)
                })
                .collect();
            let sum: f64 = values.iter().sum();
            for (a, b) in values.iter().zip(expected) {
                assert!((a / sum - b).abs() < 6e-4, "{values:?}");
            }
        }
    }

    #[test]
    fn a_grid_too_coarse_for_a_response_is_refused() {
        let settings = DesignSettings { oversampling: 1, ..DesignSettings::default() };
        assert!(HrfModel::Spm.kernels(40.0, &settings).is_err());
        assert!(HrfModel::Spm.kernels(1e9, &settings).is_err());
    }
}
