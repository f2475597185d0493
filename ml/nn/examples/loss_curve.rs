//! The losses of a dist-DCA's first steps, from given parameters, one a line: ours of
//! `integration-tests/bench/loss_curves.py`, which writes the folder and says what lies in it.
//!
//! usage: `cargo run -p voxelflow-nn --example loss_curve -- [--device cpu | cuda:0] [--precision f32] FOLDER`
//!
//! On a card the parameters stay there, as in training; `--precision` is that of its products.

use serde::Deserialize;
use std::{error::Error, io::Write, path::Path};
use voxelflow_nn::{DistDcaConfig, Objective, Resident, models::dist_dca::DcaObjective};
use voxelflow_stage::TrainSettings;
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

type Losses = Result<Vec<f64>, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = TrainSettings { device: "cpu".into(), ..TrainSettings::default() };
    let mut folder = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => settings.device = arguments.next().ok_or("--device: which?")?,
            "--precision" => settings.precision = Some(arguments.next().ok_or("--precision: which?")?),
            _ => folder = Some(argument),
        }
    }
    let folder = folder.ok_or("usage: loss_curve [--device cpu | cuda:0] [--precision f32] FOLDER")?;
    let folder = Path::new(&folder);
    let curve: Curve = serde_json::from_slice(&std::fs::read(folder.join("curve.json"))?)?;
    let series = floats(&folder.join("series.f32"))?;
    let parameters = floats(&folder.join("parameters.f32"))?;
    let architecture = curve.network.architecture(curve.time_points)?;
    settings.minibatch = curve.minibatch;
    settings.sync.optimizer = OptimizerSettings {
        learning_rate: curve.learning_rate,
        epsilon: curve.epsilon,
        ..OptimizerSettings::default()
    };
    let mut objective = DcaObjective::placed(&architecture, &settings)?;
    let losses = match objective.resident() {
        Some(resident) => on_card(resident, &curve, &parameters, &series)?,
        None => on_host(&mut objective, &curve, &settings, parameters, &series)?,
    };
    let mut out = std::io::stdout().lock();
    losses.into_iter().try_for_each(|loss| writeln!(out, "{}", loss / curve.minibatch as f64))?;
    Ok(())
}

/// The series of each step.
fn minibatches<'a>(curve: &Curve, series: &'a [f32]) -> impl Iterator<Item = &'a [f32]> {
    let values = curve.minibatch * curve.time_points;
    (0..curve.steps).map(move |step| {
        let from = step * values % series.len();
        &series[from..from + values]
    })
}

fn on_host(
    objective: &mut DcaObjective,
    curve: &Curve,
    settings: &TrainSettings,
    mut parameters: Vec<f32>,
    series: &[f32],
) -> Losses {
    let mut optimizer = Optimizer::new(settings.sync.optimizer.clone(), parameters.len());
    let mut gradient = vec![0.0; parameters.len()];
    let step = |minibatch: &[f32]| {
        let loss = objective.gradient(&parameters, minibatch, &mut gradient)?;
        optimizer.apply(&mut parameters, &mut gradient, curve.minibatch as u64);
        Ok(loss)
    };
    minibatches(curve, series).map(step).collect()
}

fn on_card(resident: &mut dyn Resident, curve: &Curve, parameters: &[f32], series: &[f32]) -> Losses {
    resident.load(parameters, None)?;
    let step = |minibatch: &[f32]| {
        resident.minibatch()?[..minibatch.len()].copy_from_slice(minibatch);
        resident.step(curve.minibatch)?;
        Ok(resident.step_loss()?)
    };
    minibatches(curve, series).map(step).collect()
}

fn floats(path: &Path) -> std::io::Result<Vec<f32>> {
    Ok(std::fs::read(path)?.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
