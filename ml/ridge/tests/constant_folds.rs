//! Targets that are constant, or nearly so, in some folds, against scikit-learn; made by
//! `integration-tests/reference/ridge_folds.py`.
#![allow(clippy::unwrap_used)]

use faer::Mat;
use serde_json::Value;
use voxelflow_ridge::{
    BandedRidgeCv, BandedSettings, CrossValidation, Folds, RidgeCv, RidgeSettings, Scalar, Score,
    StreamedRidge, target_scores,
};

const SCORES: [(Score, &str); 3] =
    [(Score::R2, "r2"), (Score::Pearson, "pearson"), (Score::NegMeanSquaredError, "neg_mean_squared_error")];

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/folds.json")).unwrap()
}

/// Null is NaN.
fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
}

fn matrix<T: Scalar>(v: &Value) -> Mat<T> {
    let rows: Vec<Vec<f64>> = v.as_array().unwrap().iter().map(numbers).collect();
    Mat::from_fn(rows.len(), rows[0].len(), |i, j| T::of(rows[i][j]))
}

fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let equal = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
    assert!(equal || found.is_nan() && expected.is_nan(), "{what}: {found}, scikit-learn {expected}");
}

fn of_ridge<T: Scalar>(tolerance: f64) {
    let case = fixture();
    let (x, y) = (matrix::<T>(&case["x"]), matrix::<T>(&case["y"]));
    let (alphas, k) = (numbers(&case["alphas"]), case["folds"].as_u64().unwrap() as usize);
    for (score, name) in SCORES {
        let expected = &case["scores"][name];
        for (block, per_target) in [(3, false), (1024, false), (1024, true)] {
            let settings = RidgeSettings {
                alphas: alphas.clone(),
                cv: CrossValidation::Folds(Folds::contiguous(x.nrows(), k).unwrap()),
                score,
                block,
                alpha_per_target: per_target,
                ..RidgeSettings::default()
            };
            let mut streamed = StreamedRidge::on_cores(x.as_ref(), settings.clone()).unwrap();
            let ridge = RidgeCv::new(x.clone(), settings).unwrap();
            for fit in [ridge.choose(&mut y.as_ref()).unwrap(), streamed.choose(&mut y.as_ref()).unwrap()] {
                assert!(fit.unfit.is_empty());
                for (a, (found, mean)) in
                    fit.mean_scores.iter().zip(numbers(&expected["mean_scores"])).enumerate()
                {
                    close(&format!("{name} of penalty {a}"), *found, mean, tolerance);
                }
                for (target, scores) in expected["scores"].as_array().unwrap().iter().enumerate() {
                    let what = format!("{name} of {}", case["names"][target]);
                    let scores = numbers(scores);
                    if per_target {
                        let best = scores.iter().copied().fold(f64::NAN, f64::max);
                        close(&what, fit.best_scores[target], best, tolerance);
                        continue;
                    }
                    let alpha = expected["alpha"].as_f64().unwrap();
                    assert_eq!(fit.alphas[target], alpha, "{what}");
                    let at = alphas.iter().position(|own| *own == alpha).unwrap();
                    close(&what, fit.best_scores[target], scores[at], tolerance);
                }
            }
        }
    }
}

#[test]
fn folds_in_which_a_target_is_constant_have_no_say() {
    of_ridge::<f64>(1e-9);
    of_ridge::<f32>(2e-4);
}

fn of_bands<T: Scalar>(tolerance: f64) {
    let case = fixture();
    let (x, y) = (matrix::<T>(&case["x"]), matrix::<T>(&case["y"]));
    let k = case["folds"].as_u64().unwrap() as usize;
    let bands: Vec<usize> = numbers(&case["bands"]).iter().map(|size| *size as usize).collect();
    let gammas: Vec<Vec<f64>> = case["gammas"].as_array().unwrap().iter().map(numbers).collect();
    for (score, name) in &SCORES[..2] {
        let settings = |alpha_per_target| BandedSettings {
            alphas: numbers(&case["alphas"]),
            score: *score,
            alpha_per_target,
            ..BandedSettings::new(bands.clone(), gammas.clone(), Folds::contiguous(x.nrows(), k).unwrap())
        };
        let fit = BandedRidgeCv::new(x.clone(), settings(true)).unwrap().choose(&mut y.as_ref()).unwrap();
        let shared = BandedRidgeCv::new(x.clone(), settings(false)).unwrap().choose(&mut y.as_ref()).unwrap();
        assert!(fit.unfit.is_empty() && shared.unfit.is_empty());
        for (target, best) in case["banded"][name].as_array().unwrap().iter().enumerate() {
            let what = format!("{name} of bands, {}", case["names"][target]);
            let expected = best["score"].as_f64().unwrap_or(f64::NAN);
            close(&what, fit.scores[target], expected, tolerance);
            assert_eq!(shared.scores[target].is_nan(), expected.is_nan(), "{what}");
            assert!(shared.scores[target].is_nan() || shared.scores[target] <= expected + tolerance);
            // A fit to a constant is one, whatever the weights.
            if case["names"][target] != "late" {
                assert_eq!(fit.gammas[target], best["gamma"].as_u64().map(|gamma| gamma as usize), "{what}");
            }
            if let Some(alpha) = best["alpha"].as_f64().filter(|_| case["names"][target] != "late") {
                assert_eq!(fit.alphas[target], alpha, "{what}");
            }
        }
    }
}

#[test]
fn bands_are_chosen_by_the_folds_in_which_a_target_varies() {
    of_bands::<f64>(1e-9);
    of_bands::<f32>(2e-4);
}

#[test]
fn held_out_targets_that_are_constant_beside_their_scale_have_no_score() {
    let noise = |i: usize| ((i as f64 + 1.0) * 12.9898).sin();
    let actual = Mat::from_fn(20, 4, |i, j| [noise(i), 7.0, 7.0 + 1e-6 * noise(i), 1e-6 * noise(i)][j]);
    let predicted = Mat::from_fn(20, 4, |i, _| noise(i) + 0.1 * noise(3 * i));
    let found = target_scores(actual.as_ref(), predicted.as_ref(), &[0.0; 4], &[1.0; 4]);
    assert!(found[0].r > 0.9 && found[0].r2 > 0.9);
    for score in &found[1..] {
        assert!(score.r.is_nan() && score.r2.is_nan() && score.mean_squared_error > 0.1, "{score:?}");
    }
    // Small numbers alone are none.
    assert!(target_scores(actual.as_ref(), predicted.as_ref(), &[0.0; 4], &[])[3].r > 0.9);
}

#[test]
fn scores_keep_their_digits_beside_a_large_intercept() {
    let varying = |i: usize| 1e-3 * ((i * i) as f64 * 0.37).sin();
    let noise = |i: usize| 1e-3 * (i as f64 * 1.7).cos();
    let (n, baseline) = (80, 1_000.0);
    let predicted = Mat::from_fn(n, 1, |i, _| varying(i) as f32);
    let actual = Mat::from_fn(n, 1, |i, _| (varying(i) + noise(i)) as f32);
    let series = |of: &Mat<f32>| of.col(0).iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
    let (y, p) = (series(&actual), series(&predicted));
    // The intercept is of the fitted runs; the baseline of these is another.
    let found = target_scores(actual.as_ref(), predicted.as_ref(), &[baseline], &[1e-6])[0];
    assert!((found.r - voxelflow_ridge::pearson(&y, &p)).abs() < 1e-12, "{found:?}");
    let shifted: Vec<f64> = p.iter().map(|value| value + baseline).collect();
    let expected = voxelflow_ridge::r2(&y, &shifted);
    assert!((found.r2 / expected - 1.0).abs() < 1e-9, "{found:?} {expected}");
}
