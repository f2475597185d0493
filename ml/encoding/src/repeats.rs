//! Runs in which the same was seen or heard: what their series have in common is what a model could predict.
//!
//! Held-out runs that repeat a stimulus give a ceiling and r as a share of it. Where only training runs repeat one, the
//! ceiling is theirs, and there is no share: `CC_norm` (Schoppe et al. 2016) divides r with the mean of the repeats by the
//! `CC_max` of the same repeats. The signal power of another stimulus is another, r in runs that were shown once has the
//! noise of one run and not of a mean, and r in the training runs themselves would be that of a fit to their noise.

use crate::{message::Number, options::of_ridge, targets::read_columns};
use faer::{Mat, MatRef};
use serde::Serialize;
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};
use voxelflow_ridge::{NoiseCeiling, Targets, noise_ceiling};
use voxelflow_stage::{Error, Result, Samples, SeriesFeed};

/// Whose repeats a ceiling is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CeilingOf {
    HeldOutRuns,
    TrainingRuns,
}

impl CeilingOf {
    /// Of the held-out runs, if they have repeats; of the training runs that do.
    pub fn either(held_out: bool, training: Option<&TrainingRepeats>) -> Option<Self> {
        match held_out {
            true => Some(Self::HeldOutRuns),
            false => training.map(|_| Self::TrainingRuns),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::HeldOutRuns => "held-out",
            Self::TrainingRuns => "training",
        }
    }
}

/// Fewer say nothing of a variance.
const LEAST_SAMPLES: usize = 3;

/// Samples of runs by repeat: `[n_repeats][n_samples]`. The samples of a repeat are those of one run of each stimulus
/// that was repeated, stimulus after stimulus.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repeats(Vec<Vec<usize>>);

impl Repeats {
    /// Those of `samples`, the runs `which`; none where no stimulus was repeated.
    ///
    /// # Errors
    /// Repeats of unlike length; stimuli that were repeated unlike often.
    pub fn of(samples: &Samples, which: CeilingOf) -> Result<Option<Self>> {
        let refused = |reason: String| Error::Data { what: "stimulus".into(), reason };
        let mut stimuli: Vec<(&str, Vec<(usize, usize)>)> = Vec::new();
        let mut begin = 0;
        for run in &samples.runs {
            if let Some(stimulus) = &run.stimulus {
                match stimuli.iter_mut().find(|(name, _)| name == stimulus) {
                    Some((_, runs)) => runs.push((begin, run.samples)),
                    None => stimuli.push((stimulus, vec![(begin, run.samples)])),
                }
            }
            begin += run.samples;
        }
        stimuli.retain(|(_, runs)| runs.len() > 1);
        let Some((first, runs)) = stimuli.first() else { return Ok(None) };
        let mut repeats = vec![Vec::new(); runs.len()];
        for (name, own) in &stimuli {
            if own.len() != runs.len() {
                return Err(refused(format!(
                    "{first} has {} {} runs and {name} has {}: a ceiling needs stimuli that were repeated equally \
                     often; leave `stimulus` null in runs that are too many",
                    runs.len(),
                    which.name(),
                    own.len()
                )));
            }
            let lengths = own.iter().map(|(_, length)| *length);
            if let (Some(least), Some(most)) = (lengths.clone().min(), lengths.max())
                && least != most
            {
                return Err(refused(format!(
                    "runs of {name} have {least} and {most} samples: repeats are of one length"
                )));
            }
            let mut kept = samples.runs.iter().filter(|run| run.stimulus.as_deref() == Some(*name));
            let first = kept.next().map(|run| &run.kept);
            if kept.any(|run| Some(&run.kept) != first) {
                return Err(refused(format!(
                    "runs of {name} have lost different volumes: repeats are of the same ones"
                )));
            }
            for (repeat, (begin, length)) in repeats.iter_mut().zip(own) {
                repeat.extend(*begin..begin + length);
            }
        }
        Ok(Some(Self(repeats)))
    }

    /// `CC_max` and `CC_norm` of each target of `actual` and `predicted`, both `[n_samples, n_targets]`: the largest r that
    /// any prediction can have with the mean of the repeats, and r of this prediction with it as a share of that. NaN for
    /// targets that cannot be fitted, and of the second where there is no signal.
    ///
    /// # Errors
    /// Fewer than three samples.
    pub fn ceiling<T: Number>(&self, actual: &Mat<T>, predicted: &Mat<T>) -> Result<(Vec<f64>, Vec<f64>)> {
        let found = self.common(actual.ncols(), |i, j| actual[(i, j)].wide())?;
        let count = self.0.len() as f64;
        let mean = |of: &Mat<T>, j: usize| -> Vec<f64> {
            let samples = self.0.first().map_or(0, Vec::len);
            (0..samples)
                .map(|i| self.0.iter().map(|own| of[(own[i], j)].wide()).sum::<f64>() / count)
                .collect()
        };
        let normalized =
            (0..actual.ncols()).map(|j| found.cc_norm(j, &mean(predicted, j), &mean(actual, j))).collect();
        Ok((found.cc_max, normalized))
    }

    /// What the repeats of `targets` have in common; `value`: of a sample and a target.
    fn common(&self, targets: usize, value: impl Fn(usize, usize) -> f64) -> Result<NoiseCeiling> {
        let rows = |own: &Vec<usize>| Mat::from_fn(own.len(), targets, |i, j| value(own[i], j));
        let parts: Vec<Mat<f64>> = self.0.iter().map(rows).collect();
        let mut views: Vec<MatRef<'_, f64>> = parts.iter().map(|part| part.as_ref()).collect();
        let mut repeats: Vec<&mut dyn Targets<f64>> = views.iter_mut().map(|view| view as _).collect();
        // A stimulus that is repeated has two runs at least, so there always is a ceiling.
        Ok(noise_ceiling(&mut repeats, targets.max(1)).map_err(of_ridge)?.unwrap_or_default())
    }
}

/// Training runs that repeat a stimulus, where held-out runs repeat none.
#[derive(Clone, Debug)]
pub(crate) struct TrainingRepeats {
    /// Of these runs only.
    samples: Samples,
    repeats: Repeats,
}

impl TrainingRepeats {
    /// Bytes of each sample and target while a block is looked at: as it was read, as numbers of the repeats, and the
    /// solver's copy of these.
    pub const BYTES: usize = 4 + 8 + 8;

    /// Those of `train`, where `held_out` repeats nothing.
    ///
    /// # Errors
    /// As [`Repeats::of`].
    pub fn of(train: &Samples, held_out: Option<&Samples>) -> Result<Option<Self>> {
        let repeated = |samples: &Samples, run: usize| {
            let name = &samples.runs[run].stimulus;
            name.is_some() && samples.runs.iter().filter(|other| other.stimulus == *name).count() > 1
        };
        if held_out.is_some_and(|samples| (0..samples.runs.len()).any(|run| repeated(samples, run))) {
            return Ok(None);
        }
        let runs = (0..train.runs.len()).filter(|run| repeated(train, *run));
        let runs = runs.map(|run| train.runs[run].clone()).collect();
        let samples = Samples { runs, ..train.clone() };
        let repeats = Repeats::of(&samples, CeilingOf::TrainingRuns)?;
        let repeats = repeats.filter(|repeats| repeats.0.iter().all(|own| own.len() >= LEAST_SAMPLES));
        Ok(repeats.map(|repeats| Self { samples, repeats }))
    }

    /// The same for a fit, which needs no ceiling: `rank` 0 says why repeats give none.
    pub fn where_known(train: &Samples, held_out: Option<&Samples>, rank: usize) -> Option<Self> {
        let found = Self::of(train, held_out);
        found.unwrap_or_else(|e| {
            if rank == 0 {
                log::warn!("the training runs give no noise ceiling: {e}");
            }
            None
        })
    }

    /// Samples of all repeats.
    pub fn count(&self) -> usize {
        self.samples.count()
    }

    /// `CC_max` of the targets `share`, `block` at a time, given to `take` with the number of the first.
    ///
    /// # Errors
    /// Series that cannot be read; cancellation; those of `take`.
    pub fn ceilings(
        &self,
        series: &mut dyn SeriesFeed,
        share: Range<usize>,
        block: usize,
        cancelled: &AtomicBool,
        mut take: impl FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<()> {
        let n = self.count();
        for first in share.clone().step_by(block.max(1)) {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let targets = first..share.end.min(first + block.max(1));
            let mut values = Mat::<f32>::zeros(n, targets.len());
            read_columns(series, &self.samples, targets.clone(), values.as_mut())?;
            let found = self.repeats.common(targets.len(), |i, j| f64::from(values[(i, j)]))?;
            take(first, &found.cc_max)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use voxelflow_stage::SampleRun;

    fn samples(runs: &[(usize, &str)]) -> Samples {
        let run = |(samples, stimulus): &(usize, &str)| SampleRun {
            samples: *samples,
            stimulus: Some((*stimulus).to_owned()).filter(|name| !name.is_empty()),
            ..Default::default()
        };
        Samples { runs: runs.iter().map(run).collect(), ..Default::default() }
    }

    fn held_out(runs: &[(usize, &str)]) -> Result<Option<Repeats>> {
        Repeats::of(&samples(runs), CeilingOf::HeldOutRuns)
    }

    #[test]
    fn runs_of_one_stimulus_are_its_repeats() {
        let found = held_out(&[(3, "a"), (2, "b"), (3, ""), (2, "b"), (1, "c"), (3, "a")]).unwrap();
        assert_eq!(found, Some(Repeats(vec![vec![0, 1, 2, 3, 4], vec![11, 12, 13, 8, 9]])));
        assert_eq!(held_out(&[(3, "a"), (2, "b")]).unwrap(), None);
        assert_eq!(held_out(&[(3, ""), (3, "")]).unwrap(), None);
        let unlike = held_out(&[(3, "a"), (2, "a")]).unwrap_err();
        assert!(
            unlike.is_input() && unlike.to_string().contains("runs of a have 2 and 3 samples"),
            "{unlike}"
        );
        let often = held_out(&[(3, "a"), (3, "a"), (3, "a"), (3, "b"), (3, "b")]).unwrap_err();
        assert!(often.to_string().contains("a has 3 held-out runs and b has 2"), "{often}");
    }

    /// A value of run 0 to 3: two repeats of two stimuli, of which target 1 has noise alone.
    fn value(run: usize, t: usize, target: usize) -> f32 {
        let noise =
            |n: usize| ((n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 24) as f32;
        let signal = if target == 1 { 0.0 } else { noise((run % 2) * 7_919 + t) };
        2.0 * signal + noise(1_000_003 + (run * 131 + t) * 17 + target)
    }

    #[test]
    fn training_runs_have_the_ceiling_that_their_repeats_say() {
        const LENGTH: usize = 40;
        const TARGETS: usize = 5;
        // A run between them that is no repeat, and two runs that are one row a target.
        let mut train = samples(&[(LENGTH, "a"), (LENGTH, "b"), (LENGTH, "c"), (LENGTH, "a"), (LENGTH, "b")]);
        let rows = [0, 1, 3, 2, 2];
        for (number, run) in train.runs.iter_mut().enumerate() {
            run.first_rows = vec![rows[number] * TARGETS];
            run.offset = if number == 4 { LENGTH } else { 0 };
        }
        train.groups = vec![TARGETS];
        let mut series = vec![0.0; 4 * TARGETS * 2 * LENGTH];
        for (of, run, half) in [(0, 0, 0), (1, 1, 0), (2, 2, 0), (2, 3, 1)] {
            for target in 0..TARGETS {
                let begin = ((of * TARGETS + target) * 2 + half) * LENGTH;
                (0..LENGTH).for_each(|t| series[begin + t] = value(run, t, target));
            }
        }
        let mut feed = voxelflow_stage::MemoryFeed::try_new(series, 2 * LENGTH).unwrap();
        let others = samples(&[(9, "d"), (9, "e")]);
        let found = TrainingRepeats::of(&train, Some(&others)).unwrap().unwrap();
        assert_eq!(found.count(), 4 * LENGTH);

        // The formula of Sahani & Linden and Schoppe et al., on the two repeats of both stimuli, one after the other.
        let variance = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
        };
        let expected: Vec<f64> = (0..TARGETS)
            .map(|target| {
                let of = |repeat: usize| -> Vec<f64> {
                    let both = [2 * repeat, 2 * repeat + 1].into_iter();
                    both.flat_map(|run| (0..LENGTH).map(move |t| f64::from(value(run, t, target)))).collect()
                };
                let (one, two) = (of(0), of(1));
                let sum: Vec<f64> = one.iter().zip(&two).map(|(a, b)| a + b).collect();
                let power = (variance(&sum) - variance(&one) - variance(&two)) / 2.0;
                (power.max(0.0) / (variance(&sum) / 4.0)).sqrt()
            })
            .collect();
        assert!(expected[0] > 0.8 && expected[1] < 0.5, "{expected:?}");
        // Shares of one, two and four ranks, in blocks that do not divide them: the same bits.
        for ranks in [1, 2, 4] {
            let mut ceilings = [f64::NAN; TARGETS];
            for share in voxelflow_sync::equal_ranges(TARGETS, ranks) {
                let take = |first: usize, own: &[f64]| {
                    ceilings[first..first + own.len()].copy_from_slice(own);
                    Ok(())
                };
                found.ceilings(&mut feed, share, 2, &AtomicBool::new(false), take).unwrap();
            }
            for (found, expected) in ceilings.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-12, "{ranks} ranks: {found}, the formula {expected}");
            }
        }
    }

    #[test]
    fn held_out_repeats_come_first_and_odd_ones_of_training_stop_nothing() {
        let twice = samples(&[(9, "a"), (9, "a")]);
        let found =
            |train: &Samples, held_out: Option<&Samples>| TrainingRepeats::where_known(train, held_out, 0);
        assert!(found(&twice, None).is_some());
        assert!(found(&twice, Some(&samples(&[(9, "b"), (9, "b")]))).is_none());
        for odd in [
            samples(&[(9, "a"), (8, "a")]),
            samples(&[(9, "a"), (9, "a"), (9, "b"), (9, "b"), (9, "b")]),
            samples(&[(2, "a"), (2, "a")]),
            samples(&[(9, "a"), (9, "b")]),
        ] {
            assert!(found(&odd, None).is_none());
        }
        let text = TrainingRepeats::of(&samples(&[(9, "a"), (8, "a")]), None).unwrap_err().to_string();
        assert!(text.contains("runs of a have 8 and 9 samples"), "{text}");
    }
}
