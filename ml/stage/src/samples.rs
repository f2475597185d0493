//! Series that are explained by features: which samples there are, and where the series of each target lie in a feed.
//!
//! ```text
//!   features   run 1: volumes 0..121 │ run 2: volumes 0..121 │ …          a row a volume, run after run; those that were
//!                                                                         dropped from the series are no samples
//!   feed       run 1: targets 0..t   │ run 2: targets 0..t   │ …          a row a target and run; or, where runs were
//!                                                                         joined, a row a target and all runs in it
//! ```

use crate::{Error, FeatureFeed, KeptVolumes, Result, SeriesFeed};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The samples of a fit, and the rows of its targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Names of the features, as many as a row of features has values.
    pub features: Vec<String>,
    /// Runs, in the order of their samples.
    pub runs: Vec<SampleRun>,
    /// Targets of each group: voxels of one subject in one space.
    pub groups: Vec<usize>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRun {
    /// As messages name it.
    pub name: String,
    /// Samples of it.
    pub samples: usize,
    /// Where its samples begin within a series of the feed.
    pub offset: usize,
    /// Of each group the row of its first target; the others follow.
    pub first_rows: Vec<usize>,
    /// What was seen or heard: runs of one stimulus are its repeats. `None`: not said.
    pub stimulus: Option<String>,
    /// The volumes of the run that its samples are, where some were dropped.
    pub kept: Option<KeptVolumes>,
    /// Whether the features were cut to these volumes too: what preceded one that follows a gap is not known then.
    pub features_cut: bool,
}

impl SampleRun {
    /// Rows of its features: one for each volume of the run, or for each sample.
    pub fn feature_rows(&self) -> usize {
        match &self.kept {
            Some(kept) if !self.features_cut => kept.stored(),
            _ => self.samples,
        }
    }
}

impl Samples {
    /// Samples of all runs.
    pub fn count(&self) -> usize {
        self.runs.iter().map(|run| run.samples).sum()
    }

    /// Targets of all groups.
    pub fn targets(&self) -> usize {
        self.groups.iter().sum()
    }

    /// Rows of `run` that hold the targets `range`.
    pub fn rows(&self, run: &SampleRun, range: Range<usize>) -> Vec<usize> {
        let mut rows = Vec::with_capacity(range.len());
        let mut first = 0;
        for (targets, row) in self.groups.iter().zip(&run.first_rows) {
            let own = range.start.clamp(first, first + targets)..range.end.clamp(first, first + targets);
            rows.extend(own.map(|target| row + target - first));
            first += targets;
        }
        rows
    }

    /// Reads the series of the targets `range`, run by run: `take` gets the first sample of the run, where its samples lie
    /// within a series, and the series, target by target, `[range.len(), feed.time_points()]` row-major.
    ///
    /// # Errors
    /// Rows that cannot be read, or that are shorter than their samples.
    pub fn read_runs(
        &self,
        feed: &mut dyn SeriesFeed,
        range: Range<usize>,
        mut take: impl FnMut(usize, Range<usize>, &[f32]),
    ) -> Result<()> {
        let points = feed.time_points();
        let mut series = vec![0.0; range.len() * points];
        let mut read: Vec<usize> = Vec::new();
        let mut before = 0;
        for run in &self.runs {
            let rows = self.rows(run, range.clone());
            let within = run.offset..run.offset + run.samples;
            if rows.len() != range.len() || within.end > points {
                let reason = format!("series of {points} points do not hold its {} samples", run.samples);
                return Err(Error::Data { what: run.name.clone(), reason });
            }
            // Runs that were joined lie in the same rows.
            if rows != read {
                feed.read(&rows, &mut series)?;
                read = rows;
            }
            take(before, within, &series);
            before += run.samples;
        }
        Ok(())
    }
}

/// Series to be explained, and the features to explain them with.
pub struct Explained<'a> {
    /// The series of the targets.
    pub series: &'a mut dyn SeriesFeed,
    /// Features, [`SampleRun::feature_rows`] of each run, run after run.
    pub features: &'a mut dyn FeatureFeed,
    /// Which samples, and where the targets lie.
    pub samples: &'a Samples,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::MemoryFeed;

    fn run(name: &str, offset: usize, first_rows: &[usize]) -> SampleRun {
        let (name, first_rows) = (name.into(), first_rows.to_vec());
        SampleRun { name, samples: 2, offset, first_rows, ..SampleRun::default() }
    }

    /// Target by target.
    fn read(samples: &Samples, feed: &mut MemoryFeed, range: Range<usize>) -> Result<Vec<f32>> {
        let (count, points) = (samples.count(), feed.time_points());
        let mut all = vec![0.0; range.len() * count];
        samples.read_runs(feed, range, |before, within, series| {
            for (into, series) in all.chunks_exact_mut(count).zip(series.chunks_exact(points)) {
                into[before..before + within.len()].copy_from_slice(&series[within.clone()]);
            }
        })?;
        Ok(all)
    }

    #[test]
    fn targets_are_put_together_from_the_rows_of_their_runs() {
        // Two subjects, of 2 and 1 voxels, with two runs each: rows in the order of subject, run, voxel.
        let values: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let mut feed = MemoryFeed::try_new(values.clone(), 2).unwrap();
        let samples = Samples {
            features: vec!["x".into()],
            runs: vec![run("1", 0, &[0, 4]), run("2", 0, &[2, 5])],
            groups: vec![2, 1],
        };
        assert_eq!((samples.count(), samples.targets()), (4, 3));
        let all = read(&samples, &mut feed, 0..3).unwrap();
        assert_eq!(all, [0., 1., 4., 5., 2., 3., 6., 7., 8., 9., 10., 11.]);
        assert_eq!(read(&samples, &mut feed, 1..3).unwrap(), all[4..]);
        // Runs that were joined: one row a target.
        let mut joined = MemoryFeed::try_new(values, 4).unwrap();
        let samples =
            Samples { runs: vec![run("1", 0, &[0]), run("2", 2, &[0])], groups: vec![3], ..samples };
        let all = read(&samples, &mut joined, 0..3).unwrap();
        assert_eq!(all, [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.]);
        let short = Samples { runs: vec![run("2", 3, &[0])], ..samples };
        assert!(read(&short, &mut joined, 0..1).unwrap_err().to_string().contains("2 samples"));
    }
}
