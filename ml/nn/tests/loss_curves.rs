//! The losses of 300 Adagrad steps on series with structure against PyTorch's, in 32 bits, at every step
//! (`integration-tests/reference/loss_curves.py`). The paper's own network: `integration-tests/bench/loss_curves.py`.
#![allow(clippy::unwrap_used)]

mod drawn;

use drawn::{Generator, initial};
use serde::Deserialize;
use voxelflow_nn::{DistDcaConfig, Objective, device, models::dist_dca::DcaObjective};
use voxelflow_sync::{Optimizer, OptimizerSettings};

#[derive(Deserialize)]
struct Reference {
    epsilon: f32,
    gain: f64,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    rate: f32,
    minibatch: usize,
    series: usize,
    losses: Vec<f64>,
    time_points: usize,
    hidden: usize,
    filters: Vec<usize>,
    kernels: Vec<usize>,
    pools: usize,
    window: usize,
    switches: bool,
}

/// `structured_series` of the reference script, operation by operation.
fn structured_series(series: usize, time_points: usize) -> Vec<f32> {
    let mut random = Generator(2);
    let mut values = Vec::new();
    for _ in 0..series {
        let amplitude = 2.0 * random.next();
        let half = 4 + ((random.next() + 1.0) * 8.0) as usize;
        let shift = ((random.next() + 1.0) * 16.0) as usize;
        let mut noise = 0.0;
        let row: Vec<f64> = (0..time_points)
            .map(|t| {
                noise = 0.7 * noise + random.next();
                let block = if ((t + shift) / half).is_multiple_of(2) { 1.0 } else { -1.0 };
                noise + amplitude * block
            })
            .collect();
        let mean = row.iter().fold(0.0, |sum, v| sum + v) / time_points as f64;
        let squares = row.iter().fold(0.0, |sum, v| sum + (v - mean) * (v - mean));
        let deviation = (squares / time_points as f64).sqrt();
        values.extend(row.into_iter().map(|v| ((v - mean) / deviation) as f32));
    }
    values
}

#[test]
fn every_loss_of_three_hundred_steps_is_pytorch_s() {
    let reference: Reference = serde_json::from_str(include_str!("fixtures/loss_curves.json")).unwrap();
    assert_eq!(reference.cases.len(), 2);
    for case in &reference.cases {
        assert_eq!(case.losses.len(), 300);
        let config = DistDcaConfig {
            hidden: Some(case.hidden),
            filters: case.filters.clone(),
            kernels: case.kernels.clone(),
            pools: case.pools,
            pool_window: case.window,
            switches: case.switches,
            ..DistDcaConfig::default()
        };
        let architecture = config.architecture(case.time_points).unwrap();
        let mut objective = DcaObjective::new(&architecture, &device("cpu").unwrap());
        let mut parameters = initial(&objective, reference.gain);
        let series = structured_series(case.series, case.time_points);
        let settings = OptimizerSettings {
            learning_rate: case.rate,
            epsilon: reference.epsilon,
            ..OptimizerSettings::default()
        };
        let mut optimizer = Optimizer::new(settings, parameters.len());
        let mut gradient = vec![0f32; parameters.len()];
        let minibatch = case.minibatch * case.time_points;
        let mut worst = (0f64, 0);
        for (step, expected) in case.losses.iter().enumerate() {
            let from = step * minibatch % series.len();
            let loss = objective.gradient(&parameters, &series[from..from + minibatch], &mut gradient);
            let loss = loss.unwrap() / case.minibatch as f64;
            let difference = (loss - expected).abs() / expected;
            assert!(difference <= 1e-3, "{}: step {step}: {loss} != {expected}", case.name);
            if difference > worst.0 {
                worst = (difference, step);
            }
            optimizer.apply(&mut parameters, &mut gradient, case.minibatch as u64);
        }
        // The network learns: the curve is not that of a standstill.
        assert!(case.losses[299] < 0.97 * case.losses[0], "{}", case.name);
        println!("{}: 300 losses within {:.1e} (step {})", case.name, worst.0, worst.1);
    }
}
