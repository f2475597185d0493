//! The losses of a dist-DCA's first steps, from given parameters, one a line: ours of
//! `integration-tests/bench/loss_curves.py`, which writes the folder and says what lies in it.
//!
//! usage: `cargo run -p voxelflow-nn --example loss_curve -- [--device cpu] FOLDER`

use serde::Deserialize;
use std::{error::Error, io::Write, path::Path};
use voxelflow_nn::{DistDcaConfig, Objective, device, models::dist_dca::DcaObjective};
use voxelflow_sync::{Optimizer, OptimizerSettings};

/// `curve.json`.
#[derive(Deserialize)]
struct Curve {
    network: DistDcaConfig,
    time_points: usize,
    steps: usize,
    minibatch: usize,
    learning_rate: f32,
    epsilon: f32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (on, folder) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [folder] => ("cpu", folder),
        ["--device", on, folder] => (on, folder),
        _ => return Err("usage: loss_curve [--device cpu] FOLDER".into()),
    };
    let folder = Path::new(folder);
    let curve: Curve = serde_json::from_slice(&std::fs::read(folder.join("curve.json"))?)?;
    let series = floats(&folder.join("series.f32"))?;
    let mut parameters = floats(&folder.join("parameters.f32"))?;
    let architecture = curve.network.architecture(curve.time_points)?;
    let mut objective = DcaObjective::new(&architecture, &device(on)?);
    let settings = OptimizerSettings {
        learning_rate: curve.learning_rate,
        epsilon: curve.epsilon,
        ..OptimizerSettings::default()
    };
    let mut optimizer = Optimizer::new(settings, parameters.len());
    let mut gradient = vec![0.0; parameters.len()];
    let minibatch = curve.minibatch * curve.time_points;
    let mut out = std::io::stdout().lock();
    for step in 0..curve.steps {
        let from = step * minibatch % series.len();
        let loss = objective.gradient(&parameters, &series[from..from + minibatch], &mut gradient)?;
        writeln!(out, "{}", loss / curve.minibatch as f64)?;
        optimizer.apply(&mut parameters, &mut gradient, curve.minibatch as u64);
    }
    Ok(())
}

fn floats(path: &Path) -> std::io::Result<Vec<f32>> {
    Ok(std::fs::read(path)?.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
