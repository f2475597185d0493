//! Removal of a linear trend by least squares, as `nilearn.signal` and `scipy.signal.detrend` do it.

use crate::lanes::{Lanes, mean, project_out, subtract};

/// Removes mean and linear trend: `x − x̄ − r (rᵀ(x − x̄))` with `r` the centred time axis of unit norm.
#[derive(Clone, Debug, PartialEq)]
pub struct Detrend {
    axis: Vec<f64>,
}

impl Detrend {
    /// For series of `time_points`; of a single point only the mean is removed.
    pub fn new(time_points: usize) -> Self {
        let centre = (time_points.max(1) - 1) as f64 / 2.0;
        let mut axis: Vec<f64> = (0..time_points).map(|t| t as f64 - centre).collect();
        let norm = axis.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm >= f64::EPSILON {
            axis.iter_mut().for_each(|x| *x /= norm);
        }
        Self { axis }
    }

    /// Detrends a block of series, `[time_points][LANES]`.
    pub fn apply(&self, block: &mut [Lanes]) {
        subtract(block, &mean(block));
        project_out(block, &self.axis);
    }

    /// Detrends one series.
    pub fn apply_one(&self, series: &mut [f64]) {
        let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
        series.iter_mut().for_each(|x| *x -= mean);
        let dot: f64 = series.iter().zip(&self.axis).map(|(x, a)| x * a).sum();
        series.iter_mut().zip(&self.axis).for_each(|(x, a)| *x -= dot * a);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::lanes::LANES;

    #[test]
    fn a_line_becomes_zero_in_blocks_and_alone() {
        let mut one: Vec<f64> = (0..57).map(|t| 3.0 - 0.7 * f64::from(t)).collect();
        let mut block: Vec<Lanes> = one.iter().map(|x| [*x; LANES]).collect();
        let detrend = Detrend::new(57);
        detrend.apply_one(&mut one);
        detrend.apply(&mut block);
        assert!(one.iter().chain(block.iter().flatten()).all(|x| x.abs() < 1e-12));
    }
}
