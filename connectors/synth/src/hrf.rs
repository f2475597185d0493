//! The haemodynamic response of SPM, as nilearn computes it.

/// SPM's response: a difference of gamma densities, peak after 6 s and undershoot after 16 s of ratio
/// 0.167, shifted by `dt = t_r / oversampling` seconds, on `linspace(0, length, length / dt)`, summing to 1
/// (nilearn `hemodynamic_models.spm_hrf`).
pub fn spm_hrf(t_r: f64, oversampling: usize, length: f64) -> Vec<f64> {
    let dt = t_r / oversampling as f64;
    let points = (length / dt).round_ties_even() as usize;
    let step = length / points.saturating_sub(1).max(1) as f64;
    let mut response: Vec<f64> = (0..points)
        .map(|n| {
            let t = n as f64 * step - dt;
            gamma_density(t, 6) - 0.167 * gamma_density(t, 16)
        })
        .collect();
    let sum: f64 = response.iter().sum();
    response.iter_mut().for_each(|h| *h /= sum);
    response
}

/// Density of the gamma distribution of whole `shape` and scale 1 at `x`: x^(k−1)·e^(−x) / (k−1)!.
fn gamma_density(x: f64, shape: u32) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let log_factorial: f64 = (1..shape).map(|n| f64::from(n).ln()).sum();
    (f64::from(shape - 1) * x.ln() - x - log_factorial).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_nilearn() {
        let expected = [0.0, 0.0, 0.161, 0.443, 0.335, 0.139, 0.022, -0.028, -0.04, -0.033];
        let found = spm_hrf(2.0, 1, 20.0);
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 6e-4, "{found:?}");
        }
    }

    #[test]
    fn the_sum_is_one_and_the_peak_after_five_seconds() {
        let hrf = spm_hrf(0.72, 50, 32.0);
        assert!((hrf.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let peak = (0..hrf.len()).max_by(|a, b| hrf[*a].total_cmp(&hrf[*b])).unwrap_or(0);
        assert!((peak as f64 * 0.72 / 50.0 - 5.0).abs() < 0.1);
    }
}
