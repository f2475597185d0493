//! Features with delays: a sample is explained by those that precede it within its run.
//!
//! ```text
//!   delays [1, 2]    x₀ x₁ x₂ x₃ │ x₄ …   ─►   [0 0] [x₀ 0] [x₁ x₀] [x₂ x₁] │ [0 0] …
//! ```
//! What would lie before a run is zero, as the field has it (voxelwise modelling's delayer). Volumes that were dropped from
//! the series count: they precede others, but are no samples.

use crate::options::refused;
use faer::Mat;
use rayon::prelude::*;
use voxelflow_ridge::Scalar;
use voxelflow_stage::{Result, SampleRun, Samples, SeriesFeed};

/// Rows of features that are read at once.
const ROWS: usize = 1024;

/// The features of all samples, `[n_samples, n_features · n_delays]`: all features of the first delay, then of the next.
///
/// # Errors
/// Features that cannot be read, or that lack volumes which precede others.
pub(crate) fn delayed<T: Scalar>(
    features: &mut dyn SeriesFeed,
    samples: &Samples,
    delays: &[usize],
) -> Result<Mat<T>> {
    must_know_what_precedes(samples, delays)?;
    let own = [0];
    let delays = if delays.is_empty() { &own } else { delays };
    let (n, p) = (samples.count(), features.time_points());
    let mut x = Mat::<T>::zeros(n, p * delays.len());
    let (mut begin, mut first_sample) = (0, 0);
    for run in &samples.runs {
        let end = begin + run.feature_rows();
        let sample_of = samples_of(run, first_sample);
        for first in (begin..end).step_by(ROWS) {
            let rows: Vec<usize> = (first..end.min(first + ROWS)).collect();
            let mut values = vec![0.0; rows.len() * p];
            features.read(&rows, &mut values)?;
            x.par_col_iter_mut().enumerate().for_each(|(j, mut column)| {
                let own = values.iter().skip(j % p).step_by(p);
                let from = first - begin + delays[j / p];
                let to = sample_of.get(from..).unwrap_or_default();
                to.iter().zip(own).for_each(|(to, value)| {
                    if let Some(to) = to {
                        column[*to] = T::of(f64::from(*value));
                    }
                });
            });
        }
        begin = end;
        first_sample += run.samples;
    }
    Ok(x)
}

/// Features that were cut to the kept volumes do not say what preceded them.
///
/// # Errors
/// Delays of such features.
pub(crate) fn must_know_what_precedes(samples: &Samples, delays: &[usize]) -> Result<()> {
    let cut = samples.runs.iter().find(|run| run.features_cut);
    let Some(run) = cut.filter(|_| delays.iter().any(|delay| *delay > 0)) else { return Ok(()) };
    let reason = format!(
        "are of features of all volumes, but {} has features of the kept ones alone: take the design of the table before \
         its volumes were dropped",
        run.name
    );
    Err(refused("delays", reason))
}

/// Of each row of a run's features the sample that it is, the run's first being number `first`; none where its volume was
/// dropped.
fn samples_of(run: &SampleRun, first: usize) -> Vec<Option<usize>> {
    let mut samples = vec![None; run.feature_rows()];
    match &run.kept {
        Some(kept) if !run.features_cut => {
            let places = kept.indices().zip(first..first + run.samples);
            places.for_each(|(volume, sample)| samples[volume] = Some(sample));
        }
        _ => samples.iter_mut().zip(first..).for_each(|(to, sample)| *to = Some(sample)),
    }
    samples
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
    use voxelflow_stage::{KeptVolumes, MemoryFeed};

    #[test]
    fn volumes_that_were_dropped_precede_others() {
        let kept = KeptVolumes::of(5, &[1, 2, 4]);
        let run = |samples| SampleRun { samples, ..SampleRun::default() };
        let runs = vec![SampleRun { kept, ..run(3) }, run(2)];
        let samples = Samples { runs: runs.clone(), ..Default::default() };
        let mut feed = MemoryFeed::try_new((1..=7).map(|v| v as f32).collect(), 1).unwrap();
        let x = delayed::<f64>(&mut feed, &samples, &[0, 1]).unwrap();
        let expected = [[2., 1.], [3., 2.], [5., 4.], [6., 0.], [7., 6.]];
        assert_eq!(x, Mat::from_fn(5, 2, |i, j| expected[i][j]));
        // Features that were cut like the series have a row a sample.
        let cut = SampleRun { features_cut: true, ..runs[0].clone() };
        let samples = Samples { runs: vec![cut, run(2)], ..samples };
        let x = delayed::<f64>(&mut feed, &samples, &[]).unwrap();
        assert_eq!(x, Mat::from_fn(5, 1, |i, _| (i + 1) as f64));
    }

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
