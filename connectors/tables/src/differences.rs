//! Computed volumes kept in half the room: each value as the float32 by which it differs from the one before.
//!
//! A smoothed series varies by so little of its mean that rounding its values to float32 shows in the fifth digit of a
//! z-score. Its steps from volume to volume are small, and so is what rounding takes of them; each is taken from the
//! value that the steps before it lead to, so that nothing adds up.

use std::ops::Range;

/// Where the steps of every voxel begin, and how far they have come.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    first: Vec<f64>,
    reached: Vec<f64>,
}

impl Differences {
    /// Bytes for each voxel.
    pub const BYTES: usize = 16;

    /// The steps to the next volume, `[voxels]`, in their order of time.
    pub fn encode(&mut self, volume: &[f64], steps: &mut Vec<f32>) {
        if self.first.len() != volume.len() {
            self.first = volume.iter().map(|x| if x.is_finite() { *x } else { 0.0 }).collect();
            self.reached = self.first.clone();
        }
        steps.clear();
        steps.extend(volume.iter().zip(&mut self.reached).map(|(x, reached)| match x.is_finite() {
            true => {
                let step = (x - *reached) as f32;
                if step.is_finite() {
                    *reached += f64::from(step);
                }
                step
            }
            // What is not finite is no step: it is kept as it is.
            false => *x as f32,
        }));
    }

    /// The series of `voxels` from their steps, `[voxels, volumes]` row-major.
    pub fn decode(&self, voxels: Range<usize>, steps: &[f32], volumes: usize) -> Vec<f64> {
        let mut series = Vec::with_capacity(steps.len());
        for (first, steps) in self.first[voxels].iter().zip(steps.chunks_exact(volumes.max(1))) {
            let mut reached = *first;
            series.extend(steps.iter().map(|step| match step.is_finite() {
                true => {
                    reached += f64::from(*step);
                    reached
                }
                false => f64::from(*step),
            }));
        }
        series
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Series through steps and back, `[voxels][volumes]`.
    fn through(series: &[Vec<f64>]) -> Vec<f64> {
        let volumes = series[0].len();
        let (mut differences, mut steps, mut all) = (Differences::default(), Vec::new(), Vec::new());
        for t in 0..volumes {
            differences.encode(&series.iter().map(|x| x[t]).collect::<Vec<_>>(), &mut steps);
            all.push(steps.clone());
        }
        let rows: Vec<f32> = (0..series.len()).flat_map(|v| all.iter().map(move |steps| steps[v])).collect();
        differences.decode(0..series.len(), &rows, volumes)
    }

    #[test]
    fn a_bright_first_volume_costs_no_digits() {
        let series: Vec<f64> =
            (0..400).map(|t| if t < 2 { 2400.0 } else { 1000.0 + 1e-3 * f64::from(t * 37 % 101) }).collect();
        for (a, b) in through(std::slice::from_ref(&series)).iter().zip(&series).skip(3) {
            assert!((a - b).abs() < 1e-8, "{a} instead of {b}");
        }
    }

    #[test]
    fn what_is_not_finite_stays_where_it_is() {
        let series = vec![vec![f64::NAN, 5.0, f64::INFINITY, 5.25, 1e300, 6.0]];
        let found = through(&series);
        assert!(found[0].is_nan() && found[4].is_infinite());
        assert_eq!([found[1], found[2], found[3], found[5]], [5.0, f64::INFINITY, 5.25, 6.0]);
    }

    proptest! {
        /// No value is further off than float32 rounds the step that leads to it.
        #[test]
        fn errors_do_not_add_up(series in prop::collection::vec(prop::collection::vec(-1e6_f64..1e6, 30), 1..5)) {
            let found = through(&series);
            for (a, b) in found.chunks_exact(30).zip(&series) {
                for t in 0..30 {
                    let step = if t == 0 { 0.0 } else { (b[t] - a[t - 1]).abs() };
                    prop_assert!((a[t] - b[t]).abs() <= step * 6e-8 + 1e-9, "{}: {} instead of {}", t, a[t], b[t]);
                }
            }
        }
    }
}
