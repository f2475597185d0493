//! Targets that stream past a back end give the model that others give.
#![allow(clippy::unwrap_used)]

use crate::{RidgeCvOptions, ranks::fit, solver::Stream};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use voxelflow_ridge::StreamedRidge;
use voxelflow_stage::{
    EpochRecord, Explained, Gang, MemoryFeed, Needs, ProgressSink, Room, SampleRun, Samples, StepRecord,
    TrainSettings,
};
use voxelflow_sync::{SyncSettings, Topology, in_process_gang};

const TARGETS: usize = 30;
const FEATURES: usize = 7;

/// Numbers between -1 and 1 that look like noise.
fn noise(n: usize) -> f32 {
    let z = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// One run of noise; target 0 is constant, and the others follow from features in part.
struct Run(Samples, MemoryFeed, MemoryFeed<f64>);

impl Run {
    fn of(count: usize, seed: usize) -> Self {
        let x = |t: usize, j: usize| noise(seed + t * FEATURES + j);
        let y = |target: usize, t: usize| match target {
            0 => 3.0,
            _ => x(t, target % FEATURES) + noise(seed + 1_000_003 + target * count + t),
        };
        let series = (0..TARGETS).flat_map(|target| (0..count).map(move |t| y(target, t))).collect();
        let features = (0..count).flat_map(|t| (0..FEATURES).map(move |j| f64::from(x(t, j)))).collect();
        let run = SampleRun { samples: count, first_rows: vec![0], ..SampleRun::default() };
        let names = (0..FEATURES).map(|j| format!("x{j}")).collect();
        let samples = Samples { features: names, runs: vec![run], groups: vec![TARGETS] };
        let features = MemoryFeed::try_new(features, FEATURES).unwrap();
        Self(samples, MemoryFeed::try_new(series, count).unwrap(), features)
    }

    fn explained(&mut self) -> Explained<'_> {
        Explained { series: &mut self.1, features: &mut self.2, samples: &self.0 }
    }
}

#[derive(Default)]
struct Planned(Mutex<Vec<Needs>>);

impl ProgressSink for Planned {
    fn planned(&self, needs: &Needs) {
        self.0.lock().unwrap().push(needs.clone());
    }
    fn step(&self, _record: &StepRecord) {}
    fn epoch(&self, _record: &EpochRecord) {}
}

type Outcome = (Vec<(String, Vec<f64>)>, Vec<u8>, Value, Vec<Needs>);

/// Numbers of the targets, the coefficients' file, the report, and what was planned.
fn fitted(options: Value, stream: Option<Stream<f64>>) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let sync = SyncSettings { topology: Topology::Ring, ..SyncSettings::default() };
    let planned = Arc::new(Planned::default());
    let mut gang = Gang {
        sync: in_process_gang(&sync, 1).unwrap().remove(0),
        settings: TrainSettings { sync, ..TrainSettings::default() },
        progress: Some(Arc::clone(&planned) as Arc<dyn ProgressSink>),
        checkpoints: None,
        output: Some(folder.path().to_owned()),
        room: Room::default(),
        cancelled: Arc::default(),
    };
    let options = RidgeCvOptions::from_options(options.as_object().unwrap()).unwrap();
    let (mut train, mut held_out) = (Run::of(90, 0), Run::of(40, 5_000_011));
    let fitted = fit(&options, train.explained(), Some(held_out.explained()), &mut gang, stream).unwrap();
    let report = std::fs::read(folder.path().join("ridge.json")).unwrap();
    let report = serde_json::from_slice(&report).unwrap();
    let file = std::fs::read(folder.path().join(crate::tensor_file::WEIGHTS)).unwrap();
    let needs = planned.0.lock().unwrap().clone();
    (fitted.model.targets().unwrap(), file, report, needs)
}

#[test]
fn targets_that_stream_past_give_what_others_give() {
    let loo = Value::from("loo");
    for (cv, scoring, own) in [
        (&loo, "r2", false),
        (&loo, "neg_mean_squared_error", false),
        (&3.into(), "r2", false),
        (&3.into(), "pearson", true),
    ] {
        let options = json!({"alphas": [0.1, 1, 10, 100], "cv": cv, "precision": "f64", "block": 8,
                             "scoring": scoring, "permutations": 9, "delays": [0, 1],
                             "alpha_per_target": own});
        let (expected, file, report, planned) = fitted(options.clone(), None);
        let stream = Stream { open: Box::new(StreamedRidge::on_cores), needs: None };
        let (found, streamed_file, streamed_report, _) = fitted(options, Some(stream));
        assert_eq!(planned[0].coefficients, [2 * FEATURES, TARGETS]);
        for ((name, expected), (_, found)) in expected.iter().zip(&found) {
            assert_eq!((expected.len(), found.len()), (TARGETS, TARGETS));
            // No stimulus is repeated.
            let nowhere = ["ceiling", "r_normalized"].contains(&name.as_str());
            assert_eq!(expected.iter().filter(|v| v.is_nan()).count() > 1, nowhere, "{name}");
            for (expected, found) in expected.iter().zip(found) {
                let equal = (expected - found).abs() <= 1e-10 * expected.abs().max(1.0);
                assert!(equal || (expected.is_nan() && found.is_nan()), "{name}: {expected} {found}");
            }
        }
        assert_eq!(file.len(), streamed_file.len());
        let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!(file[..header], streamed_file[..header]);
        let numbers = |file: &[u8]| {
            let bytes = file[header..header + 8 * 2 * FEATURES * TARGETS].as_chunks::<8>().0;
            bytes.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect::<Vec<_>>()
        };
        let (expected, found) = (numbers(&file), numbers(&streamed_file));
        assert!(expected.iter().any(|v| v.abs() > 0.1));
        for (expected, found) in expected.iter().zip(&found) {
            assert!((expected - found).abs() <= 1e-10 || (expected.is_nan() && found.is_nan()));
        }
        for name in ["n_samples", "n_features", "n_targets", "unfit", "alphas", "alpha"] {
            assert_eq!(report[name], streamed_report[name], "{name}");
        }
        assert_eq!(report["unfit"], 1);
        assert_eq!(report["ranks"][0]["decompositions"], streamed_report["ranks"][0]["decompositions"]);
    }
}
