//! Slow drifts of the signal, without the constant.

use super::{DesignSettings, DriftModel, FrameTimes, orthogonal::orthogonalize};
use crate::{Result, cosine::cosines};

/// The drifts of the model, `[K][volumes]`.
pub(super) fn drifts(times: &FrameTimes, settings: &DesignSettings) -> Result<Vec<Vec<f64>>> {
    match settings.drift_model {
        DriftModel::Cosine => cosines(settings.high_pass, times.volumes(), times.mean_step()),
        DriftModel::Polynomial => Ok(polynomials(times, settings.drift_order)),
        DriftModel::None => Ok(Vec::new()),
    }
}

/// `(t / t_last)^k` for `k` from 1 to `order`, each orthogonal to the constant and to those before it.
fn polynomials(times: &FrameTimes, order: usize) -> Vec<Vec<f64>> {
    let mut powers: Vec<Vec<f64>> = (0..=order)
        .map(|k| times.times().iter().map(|t| (t / times.last()).powi(k as i32)).collect())
        .collect();
    orthogonalize(&mut powers);
    powers.split_off(1)
}
