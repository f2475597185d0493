//! The motor task: blocks of movement after a visual cue, and the responses that they call forth.

use crate::{Error, Result};
use voxelflow_signal::design::{self, DesignSettings, DriftModel, Event, FrameTimes, HrfModel};

/// Names of the six regressors, in the order of [`Design::regressors`].
pub const REGRESSORS: [&str; 6] =
    ["visual_cue", "left_hand", "right_hand", "left_foot", "right_foot", "tongue"];

/// Seconds before the first cue.
const LEAD_IN: f64 = 8.0;
/// Seconds of a cue.
const CUE: f64 = 3.0;
/// Seconds of a movement.
const MOVEMENT: f64 = 12.0;
/// Seconds of a fixation.
const FIXATION: f64 = 15.0;
/// Seconds that a response needs to rise.
const RISE: f64 = 6.0;
/// What follows what, again and again: a position in [`REGRESSORS`], or 0 for a fixation. As in the HCP,
/// a run of 204 s has two blocks of each movement and three fixations; all five come first once.
const CYCLE: [usize; 13] = [1, 4, 5, 2, 3, 0, 5, 2, 0, 3, 1, 4, 0];

/// Six responses at the time points of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// Seconds between time points.
    pub t_r: f64,
    /// Responses `[6][time_points]`, blocks convolved with SPM's HRF; 1 is the plateau of a long block.
    pub regressors: Vec<Vec<f64>>,
}

impl Design {
    /// The responses for a run of `time_points`, `t_r` seconds apart.
    ///
    /// # Errors
    /// [`Error::Setting`] for a run that ends before every movement has come once.
    pub fn try_new(time_points: usize, t_r: f64) -> Result<Self> {
        let needed = LEAD_IN + 4.0 * (CUE + MOVEMENT) + CUE + RISE;
        if (time_points as f64) * t_r < needed {
            let reason = format!(
                "{time_points} points of {t_r} s end before all movements have come once: take at least {}",
                (needed / t_r).ceil()
            );
            return Err(Error::Setting { setting: "time_points", reason });
        }
        let times = FrameTimes::try_new(time_points, t_r, 0.0)?;
        let settings = DesignSettings {
            hrf_model: HrfModel::Spm,
            drift_model: DriftModel::None,
            ..DesignSettings::default()
        };
        let respond = |blocks: &Vec<(f64, f64)>| -> Result<Vec<f64>> {
            let event = |(onset, duration): &(f64, f64)| Event {
                onset: *onset,
                duration: *duration,
                condition: None,
                modulation: 1.0,
            };
            let blocks: Vec<Event> = blocks.iter().map(event).collect();
            Ok(design::Design::try_new(&times, &blocks, &[], &settings)?.columns.swap_remove(0))
        };
        let regressors = Self::events(time_points as f64 * t_r).iter().map(respond).collect::<Result<_>>()?;
        Ok(Self { t_r, regressors })
    }

    /// Onset and duration, in seconds, of the blocks of each regressor in a run that ends at `end`. The last
    /// movement begins at least 6 s before, so that its response is seen.
    pub fn events(end: f64) -> [Vec<(f64, f64)>; 6] {
        let mut events: [Vec<(f64, f64)>; 6] = Default::default();
        let mut now = LEAD_IN;
        for block in CYCLE.into_iter().cycle() {
            if now + CUE + RISE > end {
                break;
            }
            if block == 0 {
                now += FIXATION;
                continue;
            }
            events[0].push((now, CUE));
            events[block].push((now + CUE, MOVEMENT));
            now += CUE + MOVEMENT;
        }
        events
    }

    /// Regressor `which`, with mean 0 and standard deviation 1.
    pub fn standardized(&self, which: usize) -> Vec<f64> {
        let x = &self.regressors[which];
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let deviation = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        x.iter().map(|v| (v - mean) / deviation).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_hcp_run_has_two_blocks_of_each_movement() {
        let events = Design::events(284.0 * 0.72);
        assert_eq!(events.each_ref().map(Vec::len), [10, 2, 2, 2, 2, 2]);
        assert_eq!(events[0][0], (8.0, 3.0));
        assert_eq!(events[1][0], (11.0, 12.0));
    }

    /// `nilearn.glm.first_level.hemodynamic_models.compute_regressor(…, "spm", …)` for the same blocks.
    #[test]
    fn responses_equal_nilearn() {
        let text = include_str!("../tests/fixtures/hcp_design.json");
        let fixture: serde_json::Value = serde_json::from_str(text).unwrap();
        let design = Design::try_new(284, 0.72).unwrap();
        for (name, found) in REGRESSORS.iter().zip(&design.regressors) {
            let expected: Vec<f64> = serde_json::from_value(fixture["regressors"][name].clone()).unwrap();
            assert_eq!(found.len(), expected.len());
            let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-6, "{name}: {worst}");
        }
    }

    #[test]
    fn a_run_that_is_too_short_says_how_long_it_must_be() {
        let e = Design::try_new(40, 0.72).unwrap_err();
        assert!(e.to_string().contains("at least 107") && e.is_input(), "{e}");
        for regressor in Design::try_new(107, 0.72).unwrap().regressors {
            assert!(regressor.iter().any(|x| *x > 0.05));
        }
    }
}
