//! Runs in which the same was seen or heard: what their series have in common is what a model could predict.

use crate::{message::Number, options::of_ridge};
use faer::{Mat, MatRef};
use voxelflow_ridge::{NoiseCeiling, Targets, noise_ceiling};
use voxelflow_stage::{Error, Result, Samples};

/// Samples of held-out runs by repeat: `[n_repeats][n_samples]`. The samples of a repeat are those of one run of each
/// stimulus that was repeated, stimulus after stimulus.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repeats(Vec<Vec<usize>>);

impl Repeats {
    /// Those of `samples`; none where no stimulus was repeated.
    ///
    /// # Errors
    /// Repeats of unlike length; stimuli that were repeated unlike often.
    pub fn of(samples: &Samples) -> Result<Option<Self>> {
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
                    "{first} has {} held-out runs and {name} has {}: a ceiling needs stimuli that were repeated equally \
                     often; leave `stimulus` null in runs that are too many",
                    runs.len(),
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
        let rows =
            |own: &Vec<usize>| Mat::from_fn(own.len(), actual.ncols(), |i, j| actual[(own[i], j)].wide());
        let parts: Vec<Mat<f64>> = self.0.iter().map(rows).collect();
        let mut views: Vec<MatRef<'_, f64>> = parts.iter().map(|part| part.as_ref()).collect();
        let mut targets: Vec<&mut dyn Targets<f64>> = views.iter_mut().map(|view| view as _).collect();
        let found: Option<NoiseCeiling> =
            noise_ceiling(&mut targets, actual.ncols().max(1)).map_err(of_ridge)?;
        let Some(found) = found else {
            let none = vec![f64::NAN; actual.ncols()];
            return Ok((none.clone(), none));
        };
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

    #[test]
    fn runs_of_one_stimulus_are_its_repeats() {
        let found =
            Repeats::of(&samples(&[(3, "a"), (2, "b"), (3, ""), (2, "b"), (1, "c"), (3, "a")])).unwrap();
        assert_eq!(found, Some(Repeats(vec![vec![0, 1, 2, 3, 4], vec![11, 12, 13, 8, 9]])));
        assert_eq!(Repeats::of(&samples(&[(3, "a"), (2, "b")])).unwrap(), None);
        assert_eq!(Repeats::of(&samples(&[(3, ""), (3, "")])).unwrap(), None);
        let unlike = Repeats::of(&samples(&[(3, "a"), (2, "a")])).unwrap_err();
        assert!(
            unlike.is_input() && unlike.to_string().contains("runs of a have 2 and 3 samples"),
            "{unlike}"
        );
        let often = Repeats::of(&samples(&[(3, "a"), (3, "a"), (3, "a"), (3, "b"), (3, "b")])).unwrap_err();
        assert!(often.to_string().contains("a has 3 held-out runs and b has 2"), "{often}");
    }
}
