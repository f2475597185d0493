//! How many series a second the dist-DCA of the paper (284 time points, 6,020,381 parameters) trains on here.
//!
//! usage: `cargo run -p voxelflow-nn --example step_speed [MINIBATCH [STEPS]]`

use std::time::Instant;
use voxelflow_nn::{DistDcaConfig, Objective, device, models::dist_dca::DcaObjective};

const TIME_POINTS: usize = 284;

fn main() -> voxelflow_stage::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (minibatch, steps) = (numbers.next().unwrap_or(64), numbers.next().unwrap_or(5));
    let architecture = DistDcaConfig::default().architecture(TIME_POINTS)?;
    let mut objective = DcaObjective::new(&architecture, &device("cpu")?);
    let parameters = objective.layout().initial(0);
    let mut gradient = vec![0.0; parameters.len()];
    let series: Vec<f32> = (0..minibatch * TIME_POINTS).map(|i| (i as f32 * 0.37).sin()).collect();
    objective.gradient(&parameters, &series, &mut gradient)?;
    let mut seconds = Vec::new();
    for _ in 0..steps.max(1) {
        let clock = Instant::now();
        objective.gradient(&parameters, &series, &mut gradient)?;
        seconds.push(clock.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    println!(
        "minibatch {minibatch}: {:.1} ms a step, {:.0} series/s",
        1e3 * median,
        minibatch as f64 / median
    );
    Ok(())
}
