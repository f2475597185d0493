//! Does training on this machine's cards give what training on the CPU gives, and how fast is the whole loop?
//!
//! usage: `cargo run -p voxelflow-nn --example card_training -- …`
//! - `same [DEVICE]`: a small autoencoder on the CPU, on the device (`cuda:0`, or `cuda:0,1`) with its parameters resident
//!   there, and there with vectors of the host (as ranks with peers train); then 2 epochs of it resumed there and on
//!   `cuda:0` from a checkpoint after one. Exits with 1 if they differ.
//! - `speed ROWS EPOCHS MINIBATCH [PRECISION [DEVICE]]`: series/s of the paper's size, rows in memory, every minibatch drawn
//!   from all.

#![allow(clippy::unwrap_used)] // a program of ours

use std::{path::Path, sync::Arc, time::Instant};
use voxelflow_nn::{DistDcaConfig, DistDcaEstimator};
use voxelflow_stage::{Estimator, Fitted, Gang, MemoryFeed, Room, TrainSettings};
use voxelflow_sync::{Consistency, in_process_gang};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse::<usize>().ok());
    match arguments.first().map(String::as_str) {
        Some("speed") => {
            let (rows, epochs) = (number(1).unwrap_or(100_000), number(2).unwrap_or(2));
            let device = arguments.get(5).map_or("cuda:0", String::as_str);
            speed(rows, epochs as u64, number(3).unwrap_or(1600), arguments.get(4).cloned(), device);
        }
        _ => same(arguments.get(1).map_or("cuda:0", String::as_str)),
    }
}

fn feed(rows: usize, time_points: usize) -> MemoryFeed {
    let wave = |row: usize, t: usize| {
        let rate = 0.02 + 0.3 * ((row * 7919 % 1000) as f32 / 1000.0);
        (rate * t as f32 + row as f32).sin() * 1.2 + 0.3 * ((row * 31 + t * 17) as f32).sin()
    };
    let values = (0..rows).flat_map(|row| (0..time_points).map(move |t| wave(row, t))).collect();
    MemoryFeed::try_new(values, time_points).unwrap()
}

fn fit(
    config: &DistDcaConfig,
    settings: &TrainSettings,
    feed: &mut MemoryFeed,
    folder: Option<&Path>,
) -> Fitted {
    let mut gang = Gang {
        sync: in_process_gang(&settings.sync, 1).unwrap().remove(0),
        settings: settings.clone(),
        progress: None,
        checkpoints: folder.map(Path::to_owned),
        output: None,
        room: Room::default(),
        cancelled: Arc::default(),
    };
    let mut validation = feed.clone();
    let estimator = DistDcaEstimator { config: config.clone() };
    estimator.fit(feed, Some(&mut validation), &mut gang).unwrap()
}

fn same(device: &str) {
    let config = DistDcaConfig {
        hidden: Some(8),
        filters: vec![8, 16],
        kernels: vec![7, 5],
        pools: 2,
        ..Default::default()
    };
    let mut rows = feed(1000, 40);
    let mut settings = TrainSettings { minibatch: 64, epochs: 2, ..TrainSettings::default() };
    let on_cpu = fit(&config, &settings, &mut rows, None);
    settings.device = device.into();
    settings.precision = Some("f32".into());
    let resident = fit(&config, &settings, &mut rows, None);
    // One rank that may drift from nobody is the same training, by vectors of the host.
    let mut by_vectors = settings.clone();
    by_vectors.sync.consistency = Consistency::Async;
    let by_vectors = fit(&config, &by_vectors, &mut rows, None);
    let mut stopped_and_resumed = |device: &str| {
        let folder = tempfile::tempdir().unwrap();
        fit(&config, &TrainSettings { epochs: 1, ..settings.clone() }, &mut rows, Some(folder.path()));
        let elsewhere = TrainSettings { device: device.into(), ..settings.clone() };
        fit(&config, &elsewhere, &mut rows, Some(folder.path()))
    };
    let (resumed, resumed_on_one) = (stopped_and_resumed(device), stopped_and_resumed("cuda:0"));

    let mut failed = false;
    let others = [
        ("resident", &resident),
        ("by vectors", &by_vectors),
        ("resumed", &resumed),
        ("resumed on cuda:0", &resumed_on_one),
    ];
    for (name, other) in others {
        let (steps, expected) = (&other.history.steps, &on_cpu.history.steps);
        let apart = |a: f64, b: f64| (a - b).abs() / b;
        let worst = steps.iter().zip(expected).map(|(a, b)| apart(a.loss, b.loss)).fold(0.0, f64::max);
        let last = (other.history.epochs.last().unwrap(), on_cpu.history.epochs.last().unwrap());
        let validation = apart(last.0.validation_loss.unwrap(), last.1.validation_loss.unwrap());
        let samples = other.history.samples_per_rank.clone();
        let good = steps.len() == expected.len() && worst < 1e-3 && validation < 1e-3;
        failed |= !good;
        println!(
            "{name}: {} steps, losses apart by {worst:.1e} at most, validation {validation:.1e}, samples {samples:?}{}",
            steps.len(),
            if good { "" } else { " WRONG" }
        );
    }
    println!(
        "cpu: losses {:.4} to {:.4}",
        on_cpu.history.steps[0].loss,
        on_cpu.history.steps.last().unwrap().loss
    );
    std::process::exit(i32::from(failed));
}

fn speed(rows: usize, epochs: u64, minibatch: usize, precision: Option<String>, device: &str) {
    let mut rows = feed(rows, 284);
    let settings =
        TrainSettings { minibatch, epochs, device: device.into(), precision, ..TrainSettings::default() };
    let clock = Instant::now();
    let fitted = fit(&DistDcaConfig::default(), &settings, &mut rows, None);
    let whole = clock.elapsed().as_secs_f64();
    let steps = &fitted.history.steps;
    // The first steps open the card and capture graphs.
    let steady = &steps[steps.len() / 4..];
    let sum = |f: &dyn Fn(&voxelflow_stage::StepRecord) -> f64| steady.iter().map(f).sum::<f64>();
    let (feed, compute, sync) =
        (sum(&|s| s.feed_seconds), sum(&|s| s.compute_seconds), sum(&|s| s.sync_seconds));
    let samples: u64 = steady.iter().map(|s| s.samples).sum();
    println!(
        "{} steps in {whole:.1} s in all; steady: {:.0} series/s; of a step {:.3} ms feed, {:.3} ms compute, {:.3} ms rounds; loss {:.3} to {:.3}",
        steps.len(),
        samples as f64 / (feed + compute + sync),
        1e3 * feed / steady.len() as f64,
        1e3 * compute / steady.len() as f64,
        1e3 * sync / steady.len() as f64,
        steps[0].loss,
        steps[steps.len() - 1].loss
    );
}
