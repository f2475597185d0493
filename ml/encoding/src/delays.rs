//! Features with delays: a sample is explained by those that precede it within its run.
//!
//! ```text
//!   delays [1, 2]    x₀ x₁ x₂ x₃ │ x₄ …   ─►   [0 0] [x₀ 0] [x₁ x₀] [x₂ x₁] │ [0 0] …
//! ```
//! What would lie before a run is zero, as the field has it (voxelwise modelling's delayer). Volumes that were dropped from
//! the series count: they precede others, but are no samples.
//!
//! Columns are taken less an origin before they are rounded to the numbers of a fit: a time stamp of 1.7e9 has no seconds in
//! 32 bits. A fit to features is one to features less an origin, with another intercept.

use crate::options::refused;
use faer::{Mat, MatRef};
use rayon::prelude::*;
use voxelflow_ridge::Scalar;
use voxelflow_stage::{FeatureFeed, Result, SampleRun, Samples};

/// Rows of features that are read at once.
const ROWS: usize = 1024;

/// Features with their delays, `[n_samples, n_features · n_delays]`: all features of the first delay, then of the next.
pub(crate) struct Delayed<T> {
    /// Less `origin`.
    pub x: Mat<T>,
    /// Of each column.
    pub origin: Vec<f64>,
}

impl<T: Scalar> Delayed<T> {
    /// The features of all samples about their means.
    ///
    /// # Errors
    /// Features that cannot be read.
    pub fn of(features: &mut dyn FeatureFeed, samples: &Samples, delays: &[usize]) -> Result<Self> {
        let (n, p, n_delays) = (samples.count(), features.features(), delays.len().max(1));
        let mut sums = vec![0.0; p * n_delays];
        rows(features, (samples, delays), |chunk| {
            sums.par_iter_mut().enumerate().for_each(|(column, sum)| {
                *sum += placed(column, p, delays, chunk).map(|(_, value)| value).sum::<f64>();
            });
        })?;
        let origin = sums.into_iter().map(|sum| sum / n.max(1) as f64).collect();
        Self::about(features, samples, delays, origin)
    }

    /// The same about another origin.
    ///
    /// # Errors
    /// Features that cannot be read.
    pub fn about(
        features: &mut dyn FeatureFeed,
        samples: &Samples,
        delays: &[usize],
        origin: Vec<f64>,
    ) -> Result<Self> {
        let p = features.features();
        // What lies before a run is zero.
        let mut x = Mat::from_fn(samples.count(), origin.len(), |_, column| T::of(-origin[column]));
        rows(features, (samples, delays), |chunk| {
            x.par_col_iter_mut().zip(&origin).enumerate().for_each(|(column, (mut into, origin))| {
                for (to, value) in placed(column, p, delays, chunk) {
                    into[to] = T::of(value - origin);
                }
            });
        })?;
        Ok(Self { x, origin })
    }
}

/// Gives the rows of each run, some at a time, to `take`.
fn rows(
    features: &mut dyn FeatureFeed,
    (samples, delays): (&Samples, &[usize]),
    mut take: impl FnMut(Chunk<'_>),
) -> Result<()> {
    must_know_what_precedes(samples, delays)?;
    let (p, mut begin, mut first_sample) = (features.features(), 0, 0);
    for run in &samples.runs {
        let end = begin + run.feature_rows();
        let sample_of = samples_of(run, first_sample);
        for first in (begin..end).step_by(ROWS) {
            let rows_end = end.min(first + ROWS);
            let mut values = vec![0.0; (rows_end - first) * p];
            features.read(first..rows_end, &mut values)?;
            take(Chunk { sample_of: &sample_of, first: first - begin, values: &values });
        }
        begin = end;
        first_sample += run.samples;
    }
    Ok(())
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

/// Rows of one run's features that were read together.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    /// Of each row of the run the sample that it is; none where its volume was dropped.
    sample_of: &'a [Option<usize>],
    /// The first row that was read, counted in the run.
    first: usize,
    values: &'a [f64],
}

/// The samples to which a column of `p` features with `delays` takes values of `chunk`, and these values.
fn placed<'a>(
    column: usize,
    p: usize,
    delays: &[usize],
    chunk: Chunk<'a>,
) -> impl Iterator<Item = (usize, f64)> + use<'a> {
    let delay = delays.get(column / p).copied().unwrap_or(0);
    let own = chunk.values.iter().skip(column % p).step_by(p).copied();
    let to = chunk.sample_of.get(chunk.first + delay..).unwrap_or_default();
    to.iter().zip(own).filter_map(|(to, value)| Some(((*to)?, value)))
}

/// What `weights` `[n_columns, n_targets]`, of features less `origin`, add to the intercepts of features as they are.
pub(crate) fn at_zero<T: Scalar>(weights: MatRef<'_, T>, origin: &[f64]) -> Vec<f64> {
    let sum = |column: faer::ColRef<'_, T>| -> f64 {
        -column.iter().zip(origin).map(|(weight, origin)| weight.wide() * origin).sum::<f64>()
    };
    weights.par_col_iter().map(sum).collect()
}

/// Names of the columns of [`Delayed`].
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
        let mut feed = MemoryFeed::<f64>::try_new((1..=7).map(f64::from).collect(), 1).unwrap();
        let x = Delayed::<f64>::about(&mut feed, &samples, &[0, 1], vec![0.0; 2]).unwrap().x;
        let expected = [[2., 1.], [3., 2.], [5., 4.], [6., 0.], [7., 6.]];
        assert_eq!(x, Mat::from_fn(5, 2, |i, j| expected[i][j]));
        // The means are those of the samples.
        let origin = Delayed::<f64>::of(&mut feed, &samples, &[0, 1]).unwrap().origin;
        assert!((origin[0] - 4.6).abs() < 1e-12 && (origin[1] - 2.6).abs() < 1e-12, "{origin:?}");
        // Features that were cut like the series have a row a sample.
        let cut = SampleRun { features_cut: true, ..runs[0].clone() };
        let samples = Samples { runs: vec![cut, run(2)], ..samples };
        let x = Delayed::<f64>::about(&mut feed, &samples, &[], vec![0.0]).unwrap().x;
        assert_eq!(x, Mat::from_fn(5, 1, |i, _| (i + 1) as f64));
        assert!(Delayed::<f64>::of(&mut feed, &samples, &[1]).is_err());
    }

    fn samples(runs: &[usize]) -> Samples {
        let run = |samples: &usize| SampleRun { samples: *samples, ..Default::default() };
        Samples { runs: runs.iter().map(run).collect(), ..Default::default() }
    }

    #[test]
    fn delays_never_cross_runs() {
        let samples = samples(&[3, 2]);
        let values = vec![1., 10., 2., 20., 3., 30., 4., 40., 5., 50.];
        let mut feed = MemoryFeed::<f64>::try_new(values, 2).unwrap();
        let found = Delayed::<f64>::of(&mut feed, &samples, &[1, 2]).unwrap();
        let expected =
            [[0., 0., 0., 0.], [1., 10., 0., 0.], [2., 20., 1., 10.], [0., 0., 0., 0.], [4., 40., 0., 0.]];
        for (column, (own, origin)) in found.x.col_iter().zip(&found.origin).enumerate() {
            let mean = expected.iter().map(|row| row[column]).sum::<f64>() / 5.0;
            assert!((origin - mean).abs() < 1e-12);
            assert!(own.iter().zip(&expected).all(|(x, row)| (x + origin - row[column]).abs() < 1e-12));
        }
        let own = Delayed::<f32>::about(&mut feed, &samples, &[], vec![0.0, 40.0]).unwrap().x;
        assert_eq!((own[(4, 0)], own[(4, 1)]), (5.0, 10.0));
        assert_eq!(
            names(&["a".into(), "b".into()], &[1, 2]),
            ["a_delay1", "b_delay1", "a_delay2", "b_delay2"]
        );
        assert_eq!(names(&["a".into()], &[]), ["a"]);
        assert_eq!(feature_of("a_delay1_delay2", &[1, 2]), Some(("a_delay1", 1)));
        assert_eq!(feature_of("a_delay1", &[]), Some(("a_delay1", 0)));
        assert_eq!((feature_of("a", &[1]), feature_of("a_delay3", &[1])), (None, None));
    }

    #[test]
    fn numbers_far_from_zero_keep_their_differences() {
        let stamps: Vec<f64> = (0..3000).map(|second| 1.7e9 + f64::from(second % 7) * 0.25).collect();
        let mut feed = MemoryFeed::try_new(stamps.clone(), 1).unwrap();
        let found = Delayed::<f32>::of(&mut feed, &samples(&[3000]), &[]).unwrap();
        for (x, stamp) in found.x.col(0).iter().zip(&stamps) {
            assert!((f64::from(*x) - (stamp - found.origin[0])).abs() < 1e-6);
        }
        let weights = Mat::from_fn(1, 2, |_, j| [2.0_f32, -1.0][j]);
        assert_eq!(at_zero(weights.as_ref(), &[1.5]), [-3.0, 1.5]);
    }
}
