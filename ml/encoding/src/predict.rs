//! Series that a fitted model predicts from features: block of targets by block, so that its coefficients stay in their
//! file.
//!
//! ```text
//!   features of a run [n, p] ─► delays ─► columns in the order of ridge.json [n, p · n_delays] ─┐
//!   coefficients of a block of targets, read from the file ─────────────────────────────────────┴─► series
//! ```

use crate::{
    FittedEncoding,
    delays::{Delayed, at_zero, feature_of},
    message::Number,
    report::REPORT,
    tensor_file::TensorFile,
};
use faer::Mat;
use serde::Deserialize;
use std::{collections::HashMap, fmt, fs, ops::Range};
use voxelflow_ridge::{Coefficients, predict};
use voxelflow_stage::{Error, MemoryFeed, Predictor, Result, SampleRun, Samples};
use voxelflow_sync::Element;

/// The part of `ridge.json` that is read.
#[derive(Deserialize)]
struct Report {
    features: Vec<String>,
    #[serde(default)]
    run_samples: Vec<usize>,
}

/// A model that predicts.
#[derive(Clone, Debug)]
pub(crate) struct Prediction {
    stage: &'static str,
    file: TensorFile,
    features: Vec<String>,
    delays: Vec<usize>,
    /// Of each column of the coefficients its number among the features with their delays.
    columns: Vec<usize>,
    intercepts: Vec<f64>,
    run_samples: Option<usize>,
}

impl Prediction {
    /// # Errors
    /// A folder whose `ridge.json` is missing or does not name the columns of the coefficients.
    pub fn of(model: &FittedEncoding) -> Result<Self> {
        let file = model.file.clone();
        let path = file.folder().join(REPORT);
        let unreadable = |reason: &dyn fmt::Display| Error::Folder {
            path: path.display().to_string(),
            reason: format!("{reason}; it names the features to predict from, train the model again"),
        };
        let text = fs::read(&path).map_err(|e| unreadable(&e))?;
        let report: Report = serde_json::from_slice(&text).map_err(|e| unreadable(&e))?;
        let delays = model.options.get("delays").cloned().unwrap_or_default();
        let delays: Option<Vec<usize>> = serde_json::from_value(delays).map_err(|e| unreadable(&e))?;
        let delays = delays.unwrap_or_default();
        let (features, columns) = columns_of(&report.features, &delays)
            .filter(|(_, columns)| columns.len() == file.features)
            .ok_or_else(|| unreadable(&"its names are not those of the coefficients"))?;
        let run_samples = report.run_samples.first().copied();
        let run_samples = run_samples.filter(|first| report.run_samples.iter().all(|own| own == first));
        let intercepts = file.column("intercept")?;
        Ok(Self { stage: model.stage, file, features, delays, columns, intercepts, run_samples })
    }

    fn refused(&self, reason: String) -> Error {
        Error::Data { what: self.stage.into(), reason }
    }

    /// The features of a run as the coefficients have them.
    fn arranged<T: Number>(&self, run: &[f64]) -> Result<Delayed<T>> {
        let p = self.features.len();
        let mut feed = MemoryFeed::try_new(run.to_vec(), p)?;
        let samples = SampleRun { samples: run.len() / p.max(1), ..SampleRun::default() };
        let samples = Samples { runs: vec![samples], ..Samples::default() };
        let found = Delayed::<T>::of(&mut feed, &samples, &self.delays)?;
        if self.columns.iter().enumerate().all(|(at, column)| at == *column) {
            return Ok(found);
        }
        let Delayed { x, origin } = found;
        let origin = self.columns.iter().map(|column| origin[*column]).collect();
        Ok(Delayed { x: Mat::from_fn(x.nrows(), x.ncols(), |i, j| x[(i, self.columns[j])]), origin })
    }

    fn predict_as<T: Number>(&self, runs: &[&[f64]], range: Range<usize>) -> Result<Vec<Vec<f32>>> {
        let p = self.file.features;
        let values = self.file.read_coefficients::<T>(range.start, range.len())?;
        let weights = Mat::from_fn(p, range.len(), |i, j| values[j * p + i]);
        drop(values);
        let own = self.intercepts[range.clone()].to_vec();
        let mut block = Coefficients { range, weights, intercepts: Vec::new(), scores: Vec::new() };
        let series = |run: &&[f64]| {
            let Delayed { x, origin } = self.arranged(run)?;
            let at_zero = at_zero(block.weights.as_ref(), &origin);
            block.intercepts = own.iter().zip(at_zero).map(|(own, more)| own - more).collect();
            let predicted = predict(x.as_ref(), &block);
            Ok(predicted.col_iter().flat_map(|own| own.iter().map(|value| value.wide() as f32)).collect())
        };
        runs.iter().map(series).collect()
    }
}

/// The features that `columns` are made of, and of each column its number among those with their delays; none where
/// columns are no such thing.
fn columns_of(columns: &[String], delays: &[usize]) -> Option<(Vec<String>, Vec<usize>)> {
    let (mut features, mut numbers) = (Vec::new(), HashMap::new());
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let (feature, delay) = feature_of(column, delays)?;
        let number = *numbers.entry(feature).or_insert_with(|| {
            features.push(feature.to_owned());
            features.len() - 1
        });
        places.push((delay, number));
    }
    let found: Vec<usize> = places.iter().map(|(delay, number)| delay * features.len() + number).collect();
    let mut each = found.clone();
    each.sort_unstable();
    let all = features.len() * delays.len().max(1);
    each.into_iter().eq(0..all).then_some((features, found))
}

impl Predictor for Prediction {
    fn features(&self) -> &[String] {
        &self.features
    }

    fn longest_delay(&self) -> usize {
        self.delays.iter().copied().max().unwrap_or(0)
    }

    fn run_samples(&self) -> Option<usize> {
        self.run_samples
    }

    fn targets(&self) -> usize {
        self.file.targets
    }

    fn bytes_per_target(&self) -> usize {
        self.file.features * self.file.width
    }

    fn predict(&self, runs: &[&[f64]], targets: Range<usize>) -> Result<Vec<Vec<f32>>> {
        if targets.start > targets.end || targets.end > self.file.targets {
            let (from, to, all) = (targets.start, targets.end, self.file.targets);
            return Err(self.refused(format!("it has {all} targets, not those from {from} to {to}")));
        }
        match self.file.width == f64::BYTES {
            true => self.predict_as::<f64>(runs, targets),
            false => self.predict_as::<f32>(runs, targets),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// A model of two targets, y = 2·a(t−1) − b(t) + 10 and one that could not be fitted.
    fn model(folder: &std::path::Path, columns: &[&str], coefficients: &[f32]) -> FittedEncoding {
        let file =
            TensorFile::new::<f32>(folder, [2, columns.len()], vec!["intercept".into(), "alpha".into()]);
        file.create::<f32>().unwrap();
        let opened = file.open().unwrap();
        let none = vec![f32::NAN; columns.len()];
        file.write_coefficients(&opened, 0, &[coefficients, &none].concat()).unwrap();
        file.write_column(&opened, "intercept", 0, &[10.0, f64::NAN]).unwrap();
        let report = json!({"features": columns, "run_samples": [3, 3]});
        fs::write(folder.join(REPORT), report.to_string()).unwrap();
        let options = json!({"delays": [0, 1]}).as_object().unwrap().clone();
        FittedEncoding { stage: "ridge_cv", options, file }
    }

    #[test]
    fn columns_count_by_their_names_and_delays_stay_in_runs() {
        let cases: [(&[&str], &[f32], &[&str]); 2] = [
            // All features of a delay, then of the next.
            (&["a_delay0", "b_delay0", "a_delay1", "b_delay1"], &[0.0, -1.0, 2.0, 0.0], &["a", "b"]),
            // Band by band.
            (&["b_delay0", "b_delay1", "a_delay0", "a_delay1"], &[-1.0, 0.0, 0.0, 2.0], &["b", "a"]),
        ];
        for (columns, coefficients, features) in cases {
            let folder = tempfile::tempdir().unwrap();
            let found = Prediction::of(&model(folder.path(), columns, coefficients)).unwrap();
            assert_eq!(found.features(), features);
            assert_eq!((found.longest_delay(), found.run_samples(), found.targets()), (1, Some(3), 2));
            let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
            let first = if features[0] == "a" { [a, b] } else { [b, a] };
            let run: Vec<f64> = (0..3).flat_map(|t| first.map(|of| of[t])).collect();
            let predicted = found.predict(&[&run, &run[4..]], 0..2).unwrap();
            assert_eq!(predicted[0][..3], [6.0, 7.0, 8.0]);
            assert_eq!(predicted[1][0], 4.0, "nothing comes from another run");
            assert!(predicted[0][3..].iter().all(|value| value.is_nan()));
            assert_eq!((predicted[0].len(), predicted[1].len()), (6, 2));
            assert!(found.predict(&[&run], 1..3).unwrap_err().is_input());
            assert!(found.predict(&[&run[..5]], 0..1).is_err());
        }
    }

    #[test]
    fn columns_without_names_or_with_those_of_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let columns = ["a_delay0", "b_delay0", "a_delay1", "b_delay1"];
        let model = model(folder.path(), &columns, &[0.0; 4]);
        for report in [
            json!({"n_features": 4}),
            json!({"features": ["a_delay0", "a_delay1"]}),
            json!({"features": ["a_delay0", "b_delay0", "a_delay1", "a_delay1"]}),
            json!({"features": ["a", "b", "c", "d"]}),
        ] {
            fs::write(folder.path().join(REPORT), report.to_string()).unwrap();
            let error = Prediction::of(&model).unwrap_err();
            assert!(error.is_input() && error.to_string().contains("ridge.json"), "{error}");
        }
    }
}
