//! The fine grid that events are placed on: `numpy.linspace` as nilearn calls it, to the last bit.

use super::FrameTimes;
use crate::{Error, Result};

/// Fine bins that a design may have: 160 MB of times.
const MOST: f64 = 2e7;

/// Moments about `t_r / oversampling` apart, from `min_onset` before the first volume to one volume after the last.
pub(super) struct FineGrid {
    /// Seconds.
    pub bins: Vec<f64>,
    /// Seconds of the volumes.
    pub frames: Vec<f64>,
}

impl FineGrid {
    /// # Errors
    /// [`Error::Setting`] for a `min_onset` that asks for more bins than can be wanted.
    pub fn try_new(times: &FrameTimes, min_onset: f64, oversampling: usize) -> Result<Self> {
        let (first, last) = (times.first(), times.last());
        let volumes = times.volumes() as f64;
        let end = last * (1.0 + 1.0 / (volumes - 1.0));
        let count =
            (volumes - 1.0) / (last - first) * ((end - first - min_onset) * oversampling as f64) + 1.0;
        let count = count.round_ties_even();
        if count > MOST {
            let reason = format!(
                "{min_onset} s before the first volume, {oversampling} bins a volume and {volumes} volumes ask for \
                 {count} fine bins, over {MOST}"
            );
            return Err(Error::Setting { setting: "min_onset", reason });
        }
        let bins = linspace(first + min_onset, end, count as usize);
        Ok(Self { bins, frames: times.times().to_vec() })
    }

    /// The first bin that is not before `time`, or how many there are.
    pub fn bin_of(&self, time: f64) -> usize {
        self.bins.partition_point(|bin| *bin < time)
    }
}

/// `count` numbers from `start` to `end`, both included.
pub(super) fn linspace(start: f64, end: f64, count: usize) -> Vec<f64> {
    let steps = count.saturating_sub(1);
    let step = if steps > 0 { (end - start) / steps as f64 } else { f64::NAN };
    let mut numbers: Vec<f64> =
        (0..count).map(|n| if n == 0 { start } else { n as f64 * step + start }).collect();
    if let (Some(last), true) = (numbers.last_mut(), count > 1) {
        *last = end;
    }
    numbers
}
