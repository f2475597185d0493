//! The dist-DCA against PyTorch (`integration-tests/reference/dist_dca.py`): equal weights, equal minibatches,
//! equal outputs, and equal losses at every Adagrad step.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod drawn;

use drawn::{Generator, initial};
use serde::Deserialize;
use voxelflow_nn::{DistDca, DistDcaConfig, Objective, device, models::dist_dca::DcaObjective};
use voxelflow_stage::Model;

#[derive(Deserialize)]
struct Reference {
    epsilon: f32,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    rate: f32,
    minibatch: usize,
    series: usize,
    losses: Vec<f64>,
    parameters: usize,
    hidden: usize,
    encode: Vec<f32>,
    reconstruct: Vec<f32>,
    reconstruct_plain: Vec<f32>,
    time_points: usize,
    filters: Vec<usize>,
    kernels: Vec<usize>,
    pools: usize,
    window: usize,
    switches: bool,
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
    found.iter().zip(expected).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / scale
}

#[test]
fn outputs_and_fifty_steps_equal_pytorch() {
    let text = include_str!("fixtures/dist_dca.json");
    let reference: Reference = serde_json::from_str(text).unwrap();
    assert!(reference.cases.len() >= 5);
    for case in &reference.cases {
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
        assert_eq!(architecture.parameters(), case.parameters, "{}", case.name);
        let cpu = device("cpu").unwrap();
        let mut objective = DcaObjective::new(&architecture, &cpu);
        let mut parameters = initial(&objective, 1.0);
        let mut random = Generator(2);
        let points = case.series * case.time_points;
        let series: Vec<f32> = (0..points).map(|_| (random.next() * 3f64.sqrt()) as f32).collect();

        let model = DistDca::try_new(&architecture, &parameters, &cpu).unwrap();
        let two = &series[..2 * case.time_points];
        let mut worst_output = 0f32;
        for (function, expected) in [
            ("encode", &case.encode),
            ("reconstruct", &case.reconstruct),
            ("reconstruct_plain", &case.reconstruct_plain),
        ] {
            let difference = largest_difference(&model.apply(function, two).unwrap(), expected);
            assert!(difference < 1e-5, "{}: {function} differs by {difference}", case.name);
            worst_output = worst_output.max(difference);
        }

        let mut gradient = vec![0f32; parameters.len()];
        let mut squares = vec![0f32; parameters.len()];
        let mut worst = 0f64;
        for (step, expected) in case.losses.iter().enumerate() {
            let start = step * case.minibatch % case.series * case.time_points;
            let minibatch = &series[start..start + case.minibatch * case.time_points];
            let loss =
                objective.gradient(&parameters, minibatch, &mut gradient).unwrap() / case.minibatch as f64;
            let difference = (loss - expected).abs() / expected;
            assert!(difference < 1e-3, "{}: step {step}: {loss} != {expected}", case.name);
            worst = worst.max(difference);
            for ((w, g), s) in parameters.iter_mut().zip(&gradient).zip(&mut squares) {
                let g = g / case.minibatch as f32;
                *s += g * g;
                *w -= case.rate * g / (s.sqrt() + reference.epsilon);
            }
        }
        println!(
            "{}: outputs within {worst_output:.1e} of the largest, {} losses within {worst:.1e}",
            case.name,
            case.losses.len()
        );
    }
}
