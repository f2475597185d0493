//! The stage `ridge_cv` on a card beside the same on the cores: plans, seconds, and how far the models are apart.
//!
//! ```text
//! card_encoding [DEVICE] [SAMPLES] [FEATURES] [TARGETS] [OPTIONS]        cuda:0 3000 1000 20000 '{"cv": "loo"}', if not given
//! ```
//! Samples are in four runs; options are those of the stage, as JSON.

use serde_json::{Value, json};
use std::{env, error::Error as StdError, sync::Arc, time::Instant};
use voxelflow_encoding::RidgeCvKind;
use voxelflow_stage::{
    EpochRecord, Explained, Gang, MemoryFeed, Needs, ProgressSink, Room, SampleRun, Samples, StageKind,
    StepRecord, TrainSettings,
};
use voxelflow_sync::{SyncSettings, Topology, in_process_gang};

type Outcome<T> = Result<T, Box<dyn StdError>>;

/// Runs of the samples.
const RUNS: usize = 4;

/// Numbers between -1 and 1 that look like noise.
fn noise(n: usize) -> f32 {
    let z = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Runs of noise in which targets follow from features in part.
struct Runs(Samples, MemoryFeed, MemoryFeed<f64>);

impl Runs {
    fn of([count, features, targets]: [usize; 3], seed: usize) -> Outcome<Self> {
        let length = count / RUNS;
        let x = |t: usize, j: usize| noise(seed + t * features + j);
        let y = |target: usize, t: usize| x(t, target % features) + noise(seed / 2 + target * count + t);
        let row = |row: usize| (0..length).map(move |t| y(row % targets, row / targets * length + t));
        let series = (0..RUNS * targets).flat_map(row).collect();
        let rows = (0..RUNS * length).flat_map(|t| (0..features).map(move |j| f64::from(x(t, j)))).collect();
        let run = |number: usize| SampleRun {
            name: format!("run {number}"),
            samples: length,
            first_rows: vec![number * targets],
            ..SampleRun::default()
        };
        let names = (0..features).map(|j| format!("x{j}")).collect();
        let samples = Samples { features: names, runs: (0..RUNS).map(run).collect(), groups: vec![targets] };
        Ok(Self(samples, MemoryFeed::try_new(series, length)?, MemoryFeed::try_new(rows, features)?))
    }

    fn explained(&mut self) -> Explained<'_> {
        Explained { series: &mut self.1, features: &mut self.2, samples: &self.0 }
    }
}

struct Told;

impl ProgressSink for Told {
    fn planned(&self, needs: &Needs) {
        println!("  planned: {needs}");
    }
    fn step(&self, _record: &StepRecord) {}
    fn epoch(&self, record: &EpochRecord) {
        println!("  loss {:.12}, validation {:?}", record.loss, record.validation_loss);
    }
}

/// What is logged, the plan and the steps among it, on standard output.
struct Log;

impl log::Log for Log {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        println!("  {}", record.args());
    }
    fn flush(&self) {}
}

fn fitted(
    device: &str,
    precision: &str,
    sizes: [usize; 3],
    given: &Value,
) -> Outcome<Vec<(String, Vec<f64>)>> {
    println!("{device}, {precision}, {given}:");
    let mut options = json!({"alphas": [1, 10, 100, 1000, 10000], "cv": "loo", "precision": precision});
    let (all, given) = (options.as_object_mut().ok_or("options")?, given.as_object().ok_or("options")?);
    all.extend(given.clone());
    let estimator = RidgeCvKind.estimator(all)?;
    let folder = tempfile::tempdir()?;
    let sync = SyncSettings { topology: Topology::Ring, ..SyncSettings::default() };
    let mut gang = Gang {
        sync: in_process_gang(&sync, 1)?.remove(0),
        settings: TrainSettings { device: device.into(), sync, ..TrainSettings::default() },
        progress: Some(Arc::new(Told)),
        checkpoints: None,
        output: Some(folder.path().to_owned()),
        room: Room::default(),
        cancelled: Arc::default(),
    };
    estimator.check(sizes[0], &gang.settings)?;
    let [samples, features, targets] = sizes;
    let mut train = Runs::of(sizes, 0)?;
    let mut held_out = Runs::of([samples / 10, features, targets], 1 << 40)?;
    let clock = Instant::now();
    let fitted = estimator.fit_features(train.explained(), Some(held_out.explained()), &mut gang)?;
    println!("  {:.2} s", clock.elapsed().as_secs_f64());
    Ok(fitted.model.targets()?)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let device = arguments.first().map_or("cuda:0", String::as_str);
    let size = |at: usize, default: usize| arguments.get(at).map_or(Ok(default), |size| size.parse());
    let sizes = [size(1, 3000)?, size(2, 1000)?, size(3, 20_000)?];
    let options: Value = arguments.get(4).map_or(Ok(json!({})), |options| serde_json::from_str(options))?;
    log::set_logger(&Log).map_err(|e| e.to_string())?;
    log::set_max_level(log::LevelFilter::Info);
    for precision in ["f64", "f32"] {
        let of = |device| fitted(device, precision, sizes, &options);
        let (cores, card) = (of("cpu")?, of(device)?);
        for ((name, cores), (_, card)) in cores.iter().zip(&card) {
            let apart = cores.iter().zip(card).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!(
                "{precision} {name:>10}: at most {apart:.3e} apart, the first {} and {}",
                cores[0], card[0]
            );
        }
    }
    Ok(())
}
