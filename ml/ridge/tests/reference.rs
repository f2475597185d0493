//! Against scikit-learn and himalaya; made by `integration-tests/reference/ridge.py`.
#![allow(clippy::unwrap_used)]

use faer::{Mat, MatRef};
use serde_json::Value;
use voxelflow_ridge::{
    CrossValidation, Error, Folds, RidgeCv, RidgeFit, RidgeSettings, Score, leave_one_run_out,
};

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("fixtures/ridge.json")).unwrap()
}
fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}
fn matrix(v: &Value) -> Mat<f64> {
    let rows: Vec<Vec<f64>> = v.as_array().unwrap().iter().map(numbers).collect();
    Mat::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
}

struct Found {
    fit: RidgeFit<f64>,
    weights: Mat<f64>,
    intercepts: Vec<f64>,
}

/// Targets that are read again and those that are kept give the same.
fn run(case: &Value, settings: RidgeSettings) -> Found {
    let again = fitted(case, RidgeSettings { read_once: false, ..settings.clone() });
    let found = fitted(case, RidgeSettings { read_once: true, ..settings });
    close("penalties of targets that are kept", &found.fit.alphas, &again.fit.alphas, 0.0);
    for j in 0..found.weights.ncols() {
        let column = |m: &Mat<f64>| m.col(j).iter().copied().collect::<Vec<f64>>();
        close(
            "coefficients of targets that are kept",
            &column(&found.weights),
            &column(&again.weights),
            1e-9,
        );
    }
    close("intercepts of targets that are kept", &found.intercepts, &again.intercepts, 1e-9);
    found
}

fn fitted(case: &Value, settings: RidgeSettings) -> Found {
    let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
    let settings = RidgeSettings { alphas: numbers(&case["alphas"]), ..settings };
    let ridge = RidgeCv::new(x.clone(), settings).unwrap();
    let mut targets: MatRef<'_, f64> = y.as_ref();
    let fit = ridge.choose(&mut targets).unwrap();
    let mut weights = Mat::zeros(x.ncols(), y.ncols());
    let mut intercepts = vec![0.0; y.ncols()];
    ridge
        .fit(&fit, &mut targets, |block| {
            for (at, j) in block.range.clone().enumerate() {
                weights.col_mut(j).copy_from(block.weights.col(at));
                intercepts[j] = block.intercepts[at];
            }
            Ok(())
        })
        .unwrap();
    Found { fit, weights, intercepts }
}

fn close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= tolerance * scale, "{name}: {f} is not {e} (scale {scale})");
    }
}

fn equal(name: &str, found: &Found, expected: &Value, tolerance: f64) {
    // himalaya takes them to logarithms and back.
    close(&format!("{name}, penalties"), &found.fit.alphas, &numbers(&expected["alphas"]), 1e-12);
    let weights = matrix(&expected["coefficients"]);
    for j in 0..weights.ncols() {
        let column = |m: &Mat<f64>| m.col(j).iter().copied().collect::<Vec<f64>>();
        close(
            &format!("{name}, coefficients of target {j}"),
            &column(&found.weights),
            &column(&weights),
            tolerance,
        );
    }
    close(&format!("{name}, intercepts"), &found.intercepts, &numbers(&expected["intercepts"]), tolerance);
}

fn each(key: &str, tolerance: f64, settings: impl Fn(usize) -> RidgeSettings) {
    for case in cases() {
        let samples = case["x"].as_array().unwrap().len();
        for block in [1, 2, 1024] {
            let found = run(&case, RidgeSettings { block, ..settings(samples) });
            let name = format!("{key} of {}, blocks of {block}", case["name"]);
            equal(&name, &found, &case[key], tolerance);
            match &case[key]["best_score"] {
                Value::Array(scores) => {
                    close(&name, &found.fit.best_scores, &numbers(&scores.clone().into()), tolerance)
                }
                Value::Number(score) => {
                    let best = found.fit.mean_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    close(&name, &[best], &[score.as_f64().unwrap()], tolerance);
                }
                _ => {}
            }
        }
    }
}

fn folds(samples: usize) -> CrossValidation {
    CrossValidation::Folds(Folds::contiguous(samples, 5).unwrap())
}

#[test]
fn leave_one_out_with_one_penalty_is_scikit_learn_s() {
    each("loo", 1e-6, |_| RidgeSettings::default());
}

#[test]
fn leave_one_out_with_a_penalty_for_each_target_is_scikit_learn_s() {
    each("loo_per_target", 1e-6, |_| RidgeSettings { alpha_per_target: true, ..RidgeSettings::default() });
}

#[test]
fn leave_one_out_by_r2_is_scikit_learn_s() {
    each("loo_r2", 1e-6, |_| RidgeSettings { score: Score::R2, ..RidgeSettings::default() });
}

#[test]
fn folds_are_scikit_learn_s() {
    each("folds", 1e-6, |n| RidgeSettings { cv: folds(n), score: Score::R2, ..RidgeSettings::default() });
}

#[test]
fn folds_with_a_penalty_for_each_target_are_himalaya_s() {
    each("himalaya", 1e-4, |n| RidgeSettings {
        cv: folds(n),
        alpha_per_target: true,
        ..RidgeSettings::default()
    });
    each("himalaya_shared", 1e-4, |n| RidgeSettings { cv: folds(n), ..RidgeSettings::default() });
}

#[test]
fn a_run_is_predicted_by_the_others_without_its_neighbours() {
    for case in cases() {
        let runs: Vec<usize> = numbers(&case["runs"]["runs"]).iter().map(|r| *r as usize).collect();
        let cv = CrossValidation::Folds(leave_one_run_out(&runs, 2).unwrap());
        let scores: Vec<Vec<f64>> = case["runs"]["scores"].as_array().unwrap().iter().map(numbers).collect();
        let found = run(&case, RidgeSettings { cv, score: Score::Pearson, ..RidgeSettings::default() });
        let mean: Vec<f64> = scores.iter().map(|s| s.iter().sum::<f64>() / s.len() as f64).collect();
        close(&format!("runs of {}", case["name"]), &found.fit.mean_scores, &mean, 1e-6);
    }
}

#[test]
fn targets_that_cannot_be_fitted_are_counted_and_touch_no_other() {
    let case = &cases()[0];
    let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
    let odd = Mat::from_fn(y.nrows(), y.ncols() + 2, |i, j| match j {
        0 => 4.2,
        1 => {
            if i == 3 {
                f64::NAN
            } else {
                i as f64
            }
        }
        _ => y[(i, j - 2)],
    });
    for (cv, per_target, score) in [
        (CrossValidation::LeaveOneOut, false, Score::R2),
        (CrossValidation::LeaveOneOut, false, Score::NegMeanSquaredError),
        (CrossValidation::LeaveOneOut, true, Score::NegMeanSquaredError),
        (folds(x.nrows()), false, Score::R2),
        (folds(x.nrows()), true, Score::Pearson),
    ] {
        let settings = RidgeSettings {
            alphas: vec![0.1, 1.0, 100.0],
            cv,
            score,
            alpha_per_target: per_target,
            block: 3,
            ..RidgeSettings::default()
        };
        let ridge = RidgeCv::new(x.clone(), settings).unwrap();
        let alone = ridge.choose(&mut y.as_ref()).unwrap();
        let found = ridge.choose(&mut odd.as_ref()).unwrap();
        assert_eq!((found.unfit, alone.unfit), (vec![0, 1], vec![]));
        assert!(found.alphas[..2].iter().all(|a| a.is_nan()));
        assert_eq!(found.alphas[2..], alone.alphas);
        close("mean scores", &found.mean_scores, &alone.mean_scores, 1e-12);
    }
}

#[test]
fn a_duplicated_feature_with_a_tiny_penalty_is_refused_with_one_that_does() {
    let case = &cases()[0];
    let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
    let twice = Mat::from_fn(x.nrows(), x.ncols() + 1, |i, j| x[(i, j.min(x.ncols() - 1))]);
    let with = |alpha: f64| RidgeSettings { alphas: vec![1.0, alpha], ..RidgeSettings::default() };
    let Err(Error::Condition { alpha, smallest, condition, narrow: false }) =
        RidgeCv::new(twice.clone(), with(1e-12))
    else {
        panic!("a condition of 1e18 was taken")
    };
    assert!(alpha == 1e-12 && condition > 1e12, "{condition}");
    let ridge = RidgeCv::new(twice.clone(), with(smallest * 1.01)).unwrap();
    assert!(ridge.choose(&mut y.as_ref()).is_ok());
    assert!(RidgeCv::new(x.clone(), with(1e-12)).is_ok());
}

#[test]
fn wrong_inputs_are_named() {
    let case = &cases()[0];
    let x = matrix(&case["x"]);
    let message = |x: &Mat<f64>, settings: RidgeSettings| match RidgeCv::new(x.clone(), settings) {
        Ok(_) => panic!("it was taken"),
        Err(e) => e.to_string(),
    };
    let default = RidgeSettings::default;
    assert!(message(&x, RidgeSettings { alphas: vec![], ..default() }).contains("alphas"));
    assert!(message(&x, RidgeSettings { alphas: vec![1.0, -1.0], ..default() }).contains("-1"));
    let mut broken = x.clone();
    broken[(4, 2)] = f64::INFINITY;
    assert!(message(&broken, default()).contains("feature 2 is inf in sample 4"));
    assert!(leave_one_run_out(&[1, 1, 1], 0).unwrap_err().to_string().contains("two runs"));
    assert!(Folds::contiguous(3, 4).is_err() && Folds::contiguous(3, 1).is_err());
    let cv = |runs: &[usize], gap: usize| CrossValidation::Folds(leave_one_run_out(runs, gap).unwrap());
    let halves: Vec<usize> = (0..60).map(|sample| sample / 30).collect();
    assert!(message(&x, RidgeSettings { cv: cv(&halves, 40), ..default() }).contains("a smaller gap"));
    assert!(
        message(&x, RidgeSettings { cv: cv(&[0, 0, 1], 0), ..default() }).contains("3 samples, expected 60")
    );
    let short = Mat::<f64>::zeros(5, 2);
    let e = RidgeCv::new(x.clone(), default()).unwrap().choose(&mut short.as_ref()).unwrap_err();
    assert_eq!(e, Error::Samples { what: "a target", found: 5, expected: 60 });
}

#[test]
fn one_penalty_by_leave_one_out_gives_the_score_of_every_target_if_asked() {
    for case in cases() {
        let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
        for (score, read_once) in [
            (Score::R2, false),
            (Score::R2, true),
            (Score::NegMeanSquaredError, false),
            (Score::NegMeanSquaredError, true),
        ] {
            let settings = RidgeSettings {
                alphas: numbers(&case["alphas"]),
                score,
                block: 2,
                read_once,
                target_scores: true,
                ..RidgeSettings::default()
            };
            let ridge = RidgeCv::new(x.clone(), settings.clone()).unwrap();
            let fit = ridge.choose(&mut y.as_ref()).unwrap();
            let mut found = Vec::new();
            let take = |block: voxelflow_ridge::Coefficients<f64>| {
                found.extend(block.scores);
                Ok(())
            };
            ridge.fit(&fit, &mut y.as_ref(), take).unwrap();
            // A penalty of its own for each, of which there is one.
            let alone = RidgeSettings { alphas: vec![fit.alphas[0]], alpha_per_target: true, ..settings };
            let alone = RidgeCv::new(x.clone(), alone).unwrap().choose(&mut y.as_ref()).unwrap();
            close("scores", &found, &alone.best_scores, 1e-9);
            assert!(fit.best_scores.is_empty());
        }
    }
}
