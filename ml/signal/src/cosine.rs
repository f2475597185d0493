//! Slow drifts as a discrete cosine basis (DCT-II), as in SPM and `nilearn.signal.create_cosine_drift`.

use crate::{CleanSettings, Error, Result, preparation::repetition_time};

/// The drifts slower than `high_pass` hertz of a run of `time_points` volumes, `t_r` seconds apart.
///
/// Column `k` of `K = min(n − 1, ⌊2 n · high_pass · t_r⌋)` is `√(2/n) · cos(π/n · (t + ½) · k)`. The result is
/// column-major, `[K][time_points]`, without the constant that nilearn appends.
///
/// # Errors
/// A `high_pass` at or over half the sampling rate, where nothing would be left of a series.
pub fn create_cosine_drift(high_pass: f64, time_points: usize, t_r: f64) -> Result<Vec<Vec<f64>>> {
    let n = time_points as f64;
    cosines(high_pass, time_points, (n - 1.0) * t_r / (n - 1.0))
}

/// The same for volumes whose mean distance is `dt` seconds: rounding may decide whether one more cosine is slow enough.
pub(crate) fn cosines(high_pass: f64, time_points: usize, dt: f64) -> Result<Vec<Vec<f64>>> {
    if time_points < 2 {
        let step = "a cosine filter".to_owned();
        return Err(Error::TooShort { time_points, minimum: 2, step });
    }
    let n = time_points as f64;
    if !(high_pass > 0.0 && high_pass * dt < 0.5) {
        let reason = format!(
            "{high_pass} Hz must be over 0 and under half the sampling rate, {} Hz for t_r {dt} s",
            0.5 / dt
        );
        return Err(Error::Setting { setting: "high_pass", reason });
    }
    let order = ((2.0 * n * high_pass * dt).floor() as usize).min(time_points - 1);
    let normaliser = (2.0 / n).sqrt();
    Ok((1..=order)
        .map(|k| {
            (0..time_points)
                .map(|t| normaliser * (std::f64::consts::PI / n * (t as f64 + 0.5) * k as f64).cos())
                .collect()
        })
        .collect())
}

/// The drifts of the cosine filter over all volumes of the run.
pub(crate) fn drifts(settings: &CleanSettings, volumes: usize, t_r: Option<f64>) -> Result<Vec<Vec<f64>>> {
    if settings.low_pass.is_some() {
        let reason =
            "a cosine filter has no low_pass; leave it out or take filter => 'butterworth'".to_owned();
        return Err(Error::Setting { setting: "low_pass", reason });
    }
    let Some(high_pass) = settings.high_pass else {
        let reason =
            "a cosine filter needs the frequency, in hertz, under which drifts are removed".to_owned();
        return Err(Error::Setting { setting: "high_pass", reason });
    };
    create_cosine_drift(high_pass, volumes, repetition_time(t_r, "cosine")?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_basis_is_orthonormal_and_as_large_as_the_cut_asks() {
        let basis = create_cosine_drift(0.01, 200, 2.0).unwrap();
        assert_eq!(basis.len(), 8);
        for (i, a) in basis.iter().enumerate() {
            for (j, b) in basis.iter().enumerate() {
                let dot: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum();
                assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-12);
            }
        }
        assert!(create_cosine_drift(0.008, 20, 2.0).unwrap().is_empty());
    }

    #[test]
    fn a_cut_that_leaves_nothing_is_refused() {
        let e = create_cosine_drift(0.3, 200, 2.0).unwrap_err();
        assert!(e.to_string().contains("0.25 Hz"), "{e}");
        assert!(create_cosine_drift(f64::NAN, 200, 2.0).is_err());
    }
}
