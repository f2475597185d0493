//! Features with delays: a sample is explained by those that precede it within its run.
//!
//! ```text
//!   delays [1, 2]    x₀ x₁ x₂ x₃ │ x₄ …   ─►   [0 0] [x₀ 0] [x₁ x₀] [x₂ x₁] │ [0 0] …
//! ```
//! What would lie before a run is zero, as the field has it (voxelwise modelling's delayer).

use faer::Mat;
use rayon::prelude::*;
use voxelflow_ridge::Scalar;
use voxelflow_stage::{Result, Samples, SeriesFeed};

/// Rows of features that are read at once.
const ROWS: usize = 1024;

/// The features of all samples, `[n_samples, n_features · n_delays]`: all features of the first delay, then of the next.
///
/// # Errors
/// Features that cannot be read.
pub(crate) fn delayed<T: Scalar>(
    features: &mut dyn SeriesFeed,
    samples: &Samples,
    delays: &[usize],
) -> Result<Mat<T>> {
    let own = [0];
    let delays = if delays.is_empty() { &own } else { delays };
    let (n, p) = (samples.count(), features.time_points());
    let mut x = Mat::<T>::zeros(n, p * delays.len());
    let mut begin = 0;
    for run in &samples.runs {
        let end = begin + run.samples;
        for first in (begin..end).step_by(ROWS) {
            let rows: Vec<usize> = (first..end.min(first + ROWS)).collect();
            let mut values = vec![0.0; rows.len() * p];
            features.read(&rows, &mut values)?;
            x.par_col_iter_mut().enumerate().for_each(|(j, mut column)| {
                let own = values.iter().skip(j % p).step_by(p);
                let to = rows.iter().map(|row| row + delays[j / p]).take_while(|to| *to < end);
                to.zip(own).for_each(|(to, value)| column[to] = T::of(f64::from(*value)));
            });
        }
        begin = end;
    }
    Ok(x)
}

/// Names of the columns of [`delayed`].
pub(crate) fn names(features: &[String], delays: &[usize]) -> Vec<String> {
    if delays.is_empty() {
        return features.to_vec();
    }
    let each =
        delays.iter().flat_map(|delay| features.iter().map(move |name| format!("{name}_delay{delay}")));
    each.collect()
}

/// The feature that a column of [`names`] is of, and the delay's place among `delays`.
pub(crate) fn feature_of<'a>(column: &'a str, delays: &[usize]) -> Option<(&'a str, usize)> {
    if delays.is_empty() {
        return Some((column, 0));
    }
    let (feature, delay) = column.rsplit_once("_delay")?;
    let delay: usize = delay.parse().ok()?;
    Some((feature, delays.iter().position(|own| *own == delay)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use voxelflow_stage::{MemoryFeed, SampleRun};

    #[test]
    fn delays_never_cross_runs() {
        let run = |samples| SampleRun { samples, ..Default::default() };
        let samples = Samples { runs: vec![run(3), run(2)], ..Default::default() };
        let mut feed = MemoryFeed::try_new(vec![1., 10., 2., 20., 3., 30., 4., 40., 5., 50.], 2).unwrap();
        let x = delayed::<f64>(&mut feed, &samples, &[1, 2]).unwrap();
        let expected =
            [[0., 0., 0., 0.], [1., 10., 0., 0.], [2., 20., 1., 10.], [0., 0., 0., 0.], [4., 40., 0., 0.]];
        assert_eq!(x, Mat::from_fn(5, 4, |i, j| expected[i][j]));
        let own = delayed::<f32>(&mut feed, &samples, &[]).unwrap();
        assert_eq!((own[(4, 0)], own[(4, 1)]), (5.0, 50.0));
        assert_eq!(
            names(&["a".into(), "b".into()], &[1, 2]),
            ["a_delay1", "b_delay1", "a_delay2", "b_delay2"]
        );
        assert_eq!(names(&["a".into()], &[]), ["a"]);
        assert_eq!(feature_of("a_delay1_delay2", &[1, 2]), Some(("a_delay1", 1)));
        assert_eq!(feature_of("a_delay1", &[]), Some(("a_delay1", 0)));
        assert_eq!((feature_of("a", &[1]), feature_of("a_delay3", &[1])), (None, None));
    }
}
