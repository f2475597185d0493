//! When the volumes of a run were taken.

use crate::{Error, Result};

/// Moments that the volumes of a run stand for, in seconds from the beginning of its first volume:
/// `start_time + n · t_r`.
///
/// After slice timing correction all slices stand for the reference time, which fMRIPrep writes into the sidecar as
/// `StartTime` (half a `t_r` unless told otherwise); without correction the first slice was taken at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameTimes {
    times: Vec<f64>,
    step: f64,
}

impl FrameTimes {
    /// # Errors
    /// [`Error::TooShort`] for under two volumes, [`Error::Setting`] for a `t_r` (seconds) that is not positive or a
    /// `start_time` (seconds) that is negative.
    pub fn try_new(volumes: usize, t_r: f64, start_time: f64) -> Result<Self> {
        if volumes < 2 {
            return Err(Error::TooShort { time_points: volumes, minimum: 2, step: "a design".into() });
        }
        if !(t_r.is_finite() && t_r > 0.0) {
            return Err(Error::Setting { setting: "t_r", reason: format!("{t_r} s must be over 0") });
        }
        if !(start_time.is_finite() && start_time >= 0.0) {
            let reason = format!("{start_time} s must be 0 or more, and is mostly under t_r");
            return Err(Error::Setting { setting: "start_time", reason });
        }
        let times: Vec<f64> = (0..volumes).map(|n| start_time + n as f64 * t_r).collect();
        let step = times.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        if step <= 0.0 {
            let reason = format!("{t_r} s is too small beside a start_time of {start_time} s");
            return Err(Error::Setting { setting: "t_r", reason });
        }
        Ok(Self { times, step })
    }

    /// Seconds, `[volumes]`.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// How many there are, at least two.
    pub fn volumes(&self) -> usize {
        self.times.len()
    }

    /// The first.
    pub(super) fn first(&self) -> f64 {
        self.times[0]
    }

    /// The last.
    pub(super) fn last(&self) -> f64 {
        self.times[self.times.len() - 1]
    }

    /// The smallest difference of two in a row: `t_r` but for rounding, and what nilearn takes for it.
    pub(super) fn step(&self) -> f64 {
        self.step
    }

    /// The mean difference: `t_r` but for rounding.
    pub(super) fn mean_step(&self) -> f64 {
        (self.last() - self.first()) / (self.times.len() as f64 - 1.0)
    }
}
