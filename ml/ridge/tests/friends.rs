//! Targets with planted correlations that stream past, as `examples/friends` has them at a whole brain's size.
#![allow(clippy::unwrap_used)]

#[path = "../examples/friends/expected.rs"]
mod expected;
#[path = "../examples/friends/planted.rs"]
mod planted;

use faer::Mat;
use planted::{BEST_ALPHA, LEVELS, Planted};
use voxelflow_ridge::{
    Coefficients, HeldOut, RidgeCv, RidgeFit, RidgeSettings, Score, StreamedRidge, Targets,
};

const SAMPLES: usize = 600;
const HELD_OUT: usize = 800;
const FEATURES: usize = 48;
const TARGETS: usize = 500;
const ALPHAS: [f64; 11] = [0.1, 1.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 900.0, 1000.0, 1200.0];

fn settings(block: usize) -> RidgeSettings {
    RidgeSettings { alphas: ALPHAS.to_vec(), block, ..RidgeSettings::default() }
}

struct Found {
    fit: RidgeFit<f32>,
    weights: Mat<f32>,
    intercepts: Vec<f64>,
    correlations: Vec<f64>,
}

fn gather(into: &mut (Mat<f32>, Vec<f64>), block: Coefficients<f32>) {
    into.0.subcols_mut(block.range.start, block.range.len()).copy_from(&block.weights);
    into.1.extend(block.intercepts);
}

fn streamed(settings: RidgeSettings) -> Found {
    let x = planted::features(7, SAMPLES + HELD_OUT, FEATURES);
    let (seen, held_out) = x.as_ref().split_at_row(SAMPLES);
    let mut ridge = StreamedRidge::on_cores(seen, settings).unwrap();
    let mut targets = Planted::new(seen, 7, TARGETS, false);
    let mut others = Planted::new(held_out, 7, TARGETS, true);
    let fit = ridge.choose(&mut targets).unwrap();
    let mut all = (Mat::zeros(FEATURES, TARGETS), Vec::new());
    let held_out = HeldOut { features: held_out, targets: &mut others };
    let take = |block| {
        gather(&mut all, block);
        Ok(())
    };
    let correlations = ridge.fit(&fit, &mut targets, Some(held_out), take).unwrap();
    let names: Vec<_> = ridge.steps().iter().map(|step| step.name).collect();
    assert_eq!(names, ["decomposition", "targets", "scores", "coefficients"]);
    assert!(ridge.steps().iter().all(|s| s.waiting >= 0.0 && s.waiting <= s.seconds));
    Found { fit, weights: all.0, intercepts: all.1, correlations }
}

fn close(what: &str, a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what} {i}: {a} and {b}");
    }
}

fn flat(weights: &Mat<f32>) -> Vec<f64> {
    weights.col_iter().flat_map(|c| c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>()).collect()
}

#[test]
fn the_planted_penalty_and_correlations_are_recovered() {
    let found = streamed(settings(64));
    assert!(found.fit.alphas.iter().all(|alpha| *alpha == BEST_ALPHA), "{}", found.fit.alphas[0]);
    for (at, level) in LEVELS.iter().enumerate() {
        let own: Vec<f64> = found.correlations.iter().skip(at).step_by(LEVELS.len()).copied().collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let expected = expected::correlation(SAMPLES, FEATURES, BEST_ALPHA, *level);
        // Each of the 125 is known to 1/√800.
        assert!((mean - expected).abs() < 0.012, "planted {level}: {mean}, expected {expected}");
        assert!(expected <= *level, "{expected} of {level}: no fit predicts better than the truth");
    }
}

#[test]
fn a_stream_gives_what_ridge_cv_gives() {
    let x = planted::features(7, SAMPLES + HELD_OUT, FEATURES);
    let seen = x.as_ref().subrows(0, SAMPLES);
    for score in [Score::NegMeanSquaredError, Score::R2] {
        let settings = RidgeSettings { score, ..settings(64) };
        let direct = RidgeCv::new(seen.to_owned(), settings.clone()).unwrap();
        let mut targets = Planted::new(seen, 7, TARGETS, false);
        let fit = direct.choose(&mut targets).unwrap();
        let mut all = (Mat::zeros(FEATURES, TARGETS), Vec::new());
        let take = |block| {
            gather(&mut all, block);
            Ok(())
        };
        direct.fit(&fit, &mut targets, take).unwrap();
        let found = streamed(settings);
        assert_eq!(found.fit.alphas, fit.alphas);
        close("scores", &found.fit.mean_scores, &fit.mean_scores, 1e-6);
        close("weights", &flat(&found.weights), &flat(&all.0), 1e-4);
        close("intercepts", &found.intercepts, &all.1, 1e-5);
    }
}

#[test]
fn results_do_not_depend_on_the_size_of_blocks() {
    let whole = streamed(settings(TARGETS));
    for block in [1, 33, 499, 10_000] {
        let found = streamed(settings(block));
        assert_eq!(found.fit.alphas, whole.fit.alphas);
        close("scores", &found.fit.mean_scores, &whole.fit.mean_scores, 1e-5);
        close("weights", &flat(&found.weights), &flat(&whole.weights), 1e-4);
        close("correlations", &found.correlations, &whole.correlations, 1e-4);
    }
}

#[test]
fn targets_are_the_same_whoever_reads_them() {
    let x = planted::features(3, 4000, 8);
    let mut planted = Planted::new(x.as_ref(), 3, 40, false);
    let mut whole = Mat::<f32>::zeros(4000, 40);
    planted.read(0..40, whole.as_mut()).unwrap();
    let mut part = Mat::<f32>::zeros(4000, 7);
    planted.read(21..28, part.as_mut()).unwrap();
    assert_eq!(part.as_ref(), whole.subcols(21, 7));
    // A mean of 0 and a variance of 1, with the noise of 4,000 samples; no two alike.
    for column in whole.col_iter() {
        let mean = column.iter().map(|v| f64::from(*v)).sum::<f64>() / 4000.0;
        let variance = column.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!(mean.abs() < 0.08 && (variance - 1.0).abs() < 0.12, "{mean} {variance}");
    }
    assert_ne!(whole.col(0), whole.col(4));
}

#[test]
fn what_a_stream_cannot_serve_is_refused() {
    let x = planted::features(3, 40, 8);
    let with =
        |settings: RidgeSettings| StreamedRidge::on_cores(x.as_ref(), settings).err().unwrap().to_string();
    let per_target = with(RidgeSettings { alpha_per_target: true, ..settings(8) });
    assert!(
        per_target.contains("alpha_per_target") && per_target.contains("device => 'cpu'"),
        "{per_target}"
    );
    let pearson = with(RidgeSettings { score: Score::Pearson, ..settings(8) });
    assert!(pearson.contains("'r2'"), "{pearson}");
}
