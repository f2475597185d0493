//! Why runs are left out whole: volumes split at random flatter a model of data in which there is nothing to find.
//!
//!     cargo run -p voxelflow-ridge --example leakage
//!
//! Features and responses are made apart from each other, so the truth is r = 0. Both are slow, as stimuli and BOLD are:
//! a volume that is left out at random has neighbours in the training set that look like it, in the features and in the
//! responses, and a fit that knows the neighbours seems to predict it. Nothing of a run that is left out whole is known.

use faer::Mat;
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use voxelflow_ridge::{CrossValidation, Result, RidgeCv, RidgeSettings, Score, leave_one_run_out};

const RUNS: usize = 4;
const VOLUMES: usize = 150;
const FEATURES: usize = 120;
const TARGETS: usize = 60;

/// `[RUNS · VOLUMES, columns]`: each column a slow series that starts anew in every run.
fn slow(columns: usize, memory: f64, random: &mut ChaCha8Rng) -> Mat<f64> {
    let mut m = Mat::from_fn(RUNS * VOLUMES, columns, |_, _| random.random_range(-1.0..1.0));
    for mut column in m.col_iter_mut() {
        for i in 1..RUNS * VOLUMES {
            // A first volume keeps nothing but gets the variance that the others grow into.
            let new_run = i % VOLUMES == 0;
            column[i] = if new_run { 4.0 * column[i] } else { column[i] + memory * column[i - 1] };
        }
    }
    m
}

/// Mean r over targets by cross-validation over `parts`, the part of each sample, with the best penalty.
fn mean_r(x: &Mat<f64>, y: &Mat<f64>, parts: &[usize]) -> Result<f64> {
    let settings = RidgeSettings {
        alphas: vec![0.1, 1.0, 10.0, 100.0, 1000.0],
        cv: CrossValidation::Folds(leave_one_run_out(parts, 0)?),
        score: Score::Pearson,
        ..RidgeSettings::default()
    };
    let fit = RidgeCv::new(x.clone(), settings)?.choose(&mut y.as_ref())?;
    Ok(fit.mean_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// Mean r of volumes split at random and of whole runs left out. The truth of both is 0.
pub fn scores() -> Result<(f64, f64)> {
    let random = &mut ChaCha8Rng::seed_from_u64(1);
    let (x, y) = (slow(FEATURES, 0.97, random), slow(TARGETS, 0.97, random));
    let runs: Vec<usize> = (0..RUNS * VOLUMES).map(|i| i / VOLUMES).collect();
    let at_random: Vec<usize> = runs.iter().map(|_| random.random_range(0..RUNS)).collect();
    Ok((mean_r(&x, &y, &at_random)?, mean_r(&x, &y, &runs)?))
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let (leaky, honest) = scores()?;
    println!("responses that have nothing to do with the features: the true r is 0");
    println!("volumes split at random:  mean r {leaky:.3}");
    println!("runs left out whole:      mean r {honest:.3}");
    Ok(())
}
