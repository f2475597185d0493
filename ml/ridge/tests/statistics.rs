//! Banded fits, splits, ceilings and false discoveries against himalaya, voxelwise_tutorials and scipy, and penalties
//! against further searches of scikit-learn; made by `integration-tests/reference/ridge_statistics.py`.
#![allow(clippy::unwrap_used)]

use faer::{Mat, MatRef};
use serde_json::Value;
use voxelflow_ridge::{
    BandedRidgeCv, BandedSettings, CrossValidation, Folds, RidgeCv, RidgeSettings, Score, Targets, dirichlet,
    false_discovery, leave_one_run_out, noise_ceiling, split_scores,
};

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/statistics.json")).unwrap()
}
fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
}
fn rows(v: &Value) -> Vec<Vec<f64>> {
    v.as_array().unwrap().iter().map(numbers).collect()
}
fn matrix(v: &Value) -> Mat<f64> {
    let rows = rows(v);
    Mat::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
}
fn close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let scale = expected.iter().filter(|v| v.is_finite()).fold(1e-300, |m: f64, v| m.max(v.abs()));
    for (f, e) in found.iter().zip(expected) {
        let same = f.is_nan() && e.is_nan() || (f - e).abs() <= tolerance * scale;
        assert!(same, "{name}: {f} is not {e} (scale {scale})");
    }
}
fn columns(m: MatRef<'_, f64>) -> Vec<f64> {
    m.col_iter().flat_map(|c| c.iter().copied().collect::<Vec<_>>()).collect()
}

fn banded_settings(case: &Value, folds: Folds) -> BandedSettings {
    let bands = numbers(&case["bands"]).iter().map(|b| *b as usize).collect();
    BandedSettings {
        alphas: numbers(&case["alphas"]),
        alpha_per_target: case["alpha_per_target"].as_bool().unwrap(),
        score: if case["score"] == "r2" { Score::R2 } else { Score::NegMeanSquaredError },
        ..BandedSettings::new(bands, rows(&case["gammas"]), folds)
    }
}

#[test]
fn banded_fits_are_himalaya_s_whatever_the_blocks() {
    for (name, case) in fixture()["banded"].as_object().unwrap() {
        let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
        for (block, gammas_at_once) in [(1, 1), (2, 4), (1024, 3), (4, 100)] {
            let folds = Folds::contiguous(x.nrows(), 4).unwrap();
            let settings = BandedSettings { block, gammas_at_once, ..banded_settings(case, folds) };
            let (gammas, wide) = (settings.gammas.clone(), name.starts_with("wide"));
            assert_eq!(wide, x.nrows() < x.ncols(), "{name} takes the other form");
            let ridge = BandedRidgeCv::new(x.clone(), settings).unwrap();
            let fit = ridge.choose(&mut y.as_ref()).unwrap();
            let deltas = Mat::from_fn(gammas[0].len(), y.ncols(), |band, j| {
                (gammas[fit.gammas[j].unwrap()][band] / fit.alphas[j]).ln()
            });
            let name = format!("{name}, blocks of {block}");
            close(
                &format!("{name}, deltas"),
                &columns(deltas.as_ref()),
                &columns(matrix(&case["deltas"]).as_ref()),
                1e-8,
            );
            close(&format!("{name}, scores"), &fit.scores, &numbers(&case["best"]), 1e-6);
            close(&format!("{name}, mean scores"), &fit.mean_scores, &numbers(&case["mean_scores"]), 1e-6);
            let mut weights = Mat::zeros(x.ncols(), y.ncols());
            let mut intercepts = vec![f64::NAN; y.ncols()];
            ridge
                .fit(&fit, &mut y.as_ref(), |found| {
                    assert!(found.targets.len() <= block);
                    for (at, j) in found.targets.iter().enumerate() {
                        weights.col_mut(*j).copy_from(found.weights.col(at));
                        intercepts[*j] = found.intercepts[at];
                    }
                    Ok(())
                })
                .unwrap();
            let expected = matrix(&case["coefficients"]);
            close(
                &format!("{name}, coefficients"),
                &columns(weights.as_ref()),
                &columns(expected.as_ref()),
                1e-6,
            );
            close(&format!("{name}, intercepts"), &intercepts, &numbers(&case["intercepts"]), 1e-6);
            let (x, y) = (matrix(&case["x_test"]), matrix(&case["y_test"]));
            let bands: Vec<usize> = numbers(&case["bands"]).iter().map(|b| *b as usize).collect();
            let split = split_scores(x.as_ref(), &bands, weights.as_ref(), y.as_ref()).unwrap();
            let parts = |key: &str| rows(&case[key]).concat();
            close(&format!("{name}, R² split"), &split.r2.concat(), &parts("r2_split"), 1e-6);
            close(&format!("{name}, r split"), &split.pearson.concat(), &parts("pearson_split"), 1e-6);
            let whole = |j: usize| split.r2.iter().map(|band| band[j]).sum();
            let whole: Vec<f64> = (0..y.ncols()).map(whole).collect();
            close(&format!("{name}, R²"), &whole, &numbers(&case["r2"]), 1e-6);
        }
    }
}

#[test]
fn banded_fits_in_f32_choose_what_f64_chooses() {
    let all = fixture();
    for name in ["tall", "wide"] {
        let case = &all["banded"][name];
        let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
        let narrow = |m: &Mat<f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| m[(i, j)] as f32);
        let (x, y) = (narrow(&x), narrow(&y));
        let folds = Folds::contiguous(x.nrows(), 4).unwrap();
        let ridge = BandedRidgeCv::new(x.clone(), banded_settings(case, folds)).unwrap();
        let fit = ridge.choose(&mut y.as_ref()).unwrap();
        close(name, &fit.scores, &numbers(&case["best"]), 1e-4);
    }
}

#[test]
fn a_target_that_cannot_be_fitted_has_no_bands_and_touches_no_other() {
    let all = fixture();
    for name in ["tall", "tall_shared", "wide"] {
        let case = &all["banded"][name];
        let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
        let odd = Mat::from_fn(y.nrows(), y.ncols() + 2, |i, j| match j {
            0 => 4.2,
            1 => [i as f64, f64::NAN][usize::from(i == 3)],
            _ => y[(i, j - 2)],
        });
        let folds = || Folds::contiguous(x.nrows(), 4).unwrap();
        let settings = BandedSettings { block: 3, ..banded_settings(case, folds()) };
        let ridge = BandedRidgeCv::new(x.clone(), settings).unwrap();
        let (alone, found) =
            (ridge.choose(&mut y.as_ref()).unwrap(), ridge.choose(&mut odd.as_ref()).unwrap());
        assert_eq!((&found.unfit[..], &found.gammas[..2]), (&[0, 1][..], &[None, None][..]));
        assert!(found.alphas[..2].iter().chain(&found.scores[..2]).all(|v| v.is_nan()));
        assert_eq!((&found.gammas[2..], &found.alphas[2..]), (&alone.gammas[..], &alone.alphas[..]));
        close(name, &found.mean_scores, &alone.mean_scores, 1e-12);
        let mut seen = 0;
        ridge
            .fit(&found, &mut odd.as_ref(), |block| {
                assert!(block.weights.col_iter().all(|c| c.iter().all(|w| w.is_finite())));
                seen += block.targets.len();
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, y.ncols());
    }
}

#[test]
fn a_band_of_weight_zero_has_coefficients_of_zero() {
    let all = fixture();
    for name in ["tall", "wide"] {
        let case = &all["banded"][name];
        let (x, y) = (matrix(&case["x"]), matrix(&case["y"]));
        let folds = Folds::contiguous(x.nrows(), 4).unwrap();
        let settings = BandedSettings { gammas: vec![vec![0.5, 0.0, 0.5]], ..banded_settings(case, folds) };
        let bands = settings.bands.clone();
        let ridge = BandedRidgeCv::new(x.clone(), settings).unwrap();
        let fit = ridge.choose(&mut y.as_ref()).unwrap();
        let found = |block: voxelflow_ridge::BandedCoefficients<f64>| {
            let (middle, all) = (block.weights.subrows(bands[0], bands[1]), &block.weights);
            assert!(middle.col_iter().all(|c| c.iter().all(|w| *w == 0.0)));
            assert!(all.col_iter().all(|c| c.iter().all(|w| w.is_finite()) && c.iter().any(|w| *w != 0.0)));
            Ok(())
        };
        ridge.fit(&fit, &mut y.as_ref(), found).unwrap();
    }
}

#[test]
fn weights_lie_on_the_simplex_and_follow_their_seed() {
    let gammas = dirichlet(200, 3, &[0.1, 1.0], 7).unwrap();
    assert_eq!((gammas.len(), &gammas[0]), (200, &vec![1.0 / 3.0; 3]));
    assert!(
        gammas.iter().all(|g| (g.iter().sum::<f64>() - 1.0).abs() < 1e-12 && g.iter().all(|g| *g >= 0.0))
    );
    // Draws of 0.1 (the second, the fourth, …: the first is equal weights) lean to corners, those of 1 do not.
    let share = |odd: usize| {
        let largest = gammas.iter().skip(2 - odd).step_by(2).map(|g| g.iter().copied().fold(0.0, f64::max));
        largest.filter(|largest| *largest > 0.95).count()
    };
    assert!(share(0) > 3 * share(1) || share(1) > 3 * share(0), "{} and {}", share(0), share(1));
    assert_eq!(gammas, dirichlet(200, 3, &[0.1, 1.0], 7).unwrap());
    assert_ne!(gammas, dirichlet(200, 3, &[0.1, 1.0], 8).unwrap());
    assert!(dirichlet(3, 2, &[0.0], 1).is_err() && dirichlet(3, 2, &[], 1).is_err());
}

#[test]
fn wrong_bands_and_weights_are_named() {
    let x = Mat::from_fn(20, 4, |i, j| ((i * 7 + j * 3) % 11) as f64 + (i * j) as f64 * 0.1);
    let folds = || Folds::contiguous(20, 4).unwrap();
    let message = |settings: BandedSettings| match BandedRidgeCv::new(x.clone(), settings) {
        Ok(_) => panic!("it was taken"),
        Err(e) => e.to_string(),
    };
    let new = BandedSettings::new;
    assert!(
        message(new(vec![3, 2], vec![vec![1.0, 1.0]], folds()))
            .contains("5 features in 2 bands, and there are 4")
    );
    assert!(message(new(vec![4, 0], vec![vec![1.0, 1.0]], folds())).starts_with("bands"));
    assert!(message(new(vec![3, 1], vec![], folds())).starts_with("gammas: there are none"));
    assert!(message(new(vec![3, 1], vec![vec![1.0]], folds())).contains("a weight for each of the 2 bands"));
    assert!(message(new(vec![3, 1], vec![vec![0.0, 0.0]], folds())).starts_with("gammas: number 0"));
    assert!(message(new(vec![3, 1], vec![vec![-1.0, 2.0]], folds())).starts_with("gammas: number 0"));
    let no_alphas = BandedSettings { alphas: vec![], ..new(vec![3, 1], vec![vec![1.0, 1.0]], folds()) };
    assert!(message(no_alphas).starts_with("alphas"));
    let other = new(vec![3, 1], vec![vec![1.0, 1.0]], Folds::contiguous(19, 4).unwrap());
    assert!(message(other).contains("19 samples, expected 20"));
}

#[test]
fn penalties_are_scikit_learn_s_by_every_search() {
    for (name, case) in fixture()["further"].as_object().unwrap() {
        let (x, y, runs) = (matrix(&case["x"]), matrix(&case["y"]), numbers(&case["runs"]));
        let runs: Vec<usize> = runs.iter().map(|r| *r as usize).collect();
        let five = || CrossValidation::Folds(Folds::contiguous(x.nrows(), 5).unwrap());
        let by_run = || CrossValidation::Folds(leave_one_run_out(&runs, 0).unwrap());
        let loo = || CrossValidation::LeaveOneOut;
        let mse = Score::NegMeanSquaredError;
        for (key, cv, score, alpha_per_target) in [
            ("loo", loo(), mse, false),
            ("loo_per_target", loo(), mse, true),
            ("loo_search", loo(), mse, false),
            ("folds_r2", five(), Score::R2, false),
            ("folds_pearson", five(), Score::Pearson, false),
            ("folds_per_target", five(), Score::R2, true),
            ("runs_r2", by_run(), Score::R2, false),
            ("runs_pearson", by_run(), Score::Pearson, false),
            ("runs_per_target", by_run(), Score::R2, true),
        ] {
            let name = format!("{name}, {key}");
            let settings = RidgeSettings {
                alphas: numbers(&case["alphas"]),
                cv,
                score,
                alpha_per_target,
                block: 3,
                ..RidgeSettings::default()
            };
            let ridge = RidgeCv::new(x.clone(), settings).unwrap();
            let fit = ridge.choose(&mut y.as_ref()).unwrap();
            let expected = &case[key];
            assert_eq!(fit.alphas, numbers(&expected["alphas"]), "{name}");
            if let Some(scores) = expected.get("mean_scores") {
                close(&name, &fit.mean_scores, &numbers(scores), 1e-6);
            }
            let (mut weights, mut intercepts) = (Vec::new(), Vec::new());
            let take = |block: voxelflow_ridge::Coefficients<f64>| {
                weights.extend(columns(block.weights.as_ref()));
                intercepts.extend(block.intercepts);
                Ok(())
            };
            ridge.fit(&fit, &mut y.as_ref(), take).unwrap();
            close(&name, &weights, &columns(matrix(&expected["coefficients"]).as_ref()), 1e-6);
            close(&name, &intercepts, &numbers(&expected["intercepts"]), 1e-6);
        }
    }
}

#[test]
fn noise_ceilings_are_those_of_their_formulas_whatever_the_blocks() {
    for (name, case) in fixture()["ceiling"].as_object().unwrap() {
        let repeats: Vec<Mat<f64>> = case["data"].as_array().unwrap().iter().map(matrix).collect();
        for block in [1, 2, 100] {
            let mut views: Vec<MatRef<'_, f64>> = repeats.iter().map(|m| m.as_ref()).collect();
            let mut views: Vec<&mut dyn Targets<f64>> = views.iter_mut().map(|v| v as _).collect();
            let found = noise_ceiling(&mut views, block).unwrap().unwrap();
            close(&format!("{name}, SP"), &found.signal_power, &numbers(&case["signal_power"]), 1e-9);
            close(&format!("{name}, CC_max"), &found.cc_max, &numbers(&case["cc_max"]), 1e-9);
            let ev = numbers(&case["explainable_variance"]);
            close(&format!("{name}, explainable variance"), &found.explainable_variance, &ev, 1e-9);
            close(&format!("{name}, split half"), &found.split_half, &numbers(&case["split_half"]), 1e-9);
            let predicted = matrix(&case["predicted"]);
            let norm: Vec<f64> = (0..predicted.ncols())
                .map(|j| {
                    let mean: Vec<f64> = (0..predicted.nrows())
                        .map(|i| repeats.iter().map(|r| r[(i, j)]).sum::<f64>() / repeats.len() as f64)
                        .collect();
                    found.cc_norm(j, &predicted.col(j).iter().copied().collect::<Vec<_>>(), &mean)
                })
                .collect();
            close(&format!("{name}, CC_norm"), &norm, &numbers(&case["cc_norm"]), 1e-9);
        }
    }
}

#[test]
fn without_repeats_a_noise_ceiling_is_unavailable_and_unlike_repeats_are_refused() {
    let once = Mat::from_fn(10, 3, |i, j| ((i * 5 + j * 3) % 7) as f64);
    let ceiling = |others: &[&Mat<f64>]| {
        let mut views: Vec<MatRef<'_, f64>> = others.iter().map(|m| m.as_ref()).collect();
        noise_ceiling(&mut views.iter_mut().map(|v| v as _).collect::<Vec<&mut dyn Targets<f64>>>(), 8)
    };
    assert_eq!(ceiling(&[]).unwrap(), None);
    assert_eq!(ceiling(&[&once]).unwrap(), None);
    let shorter = once.as_ref().subrows(0, 9).to_owned();
    assert!(ceiling(&[&once, &shorter]).unwrap_err().to_string().contains("9 samples, expected 10"));
    let fewer = once.as_ref().subcols(0, 2).to_owned();
    assert!(ceiling(&[&once, &fewer]).unwrap_err().to_string().contains("the same targets"));
    let odd = Mat::from_fn(10, 3, |i, j| match j {
        0 => 1.5,
        1 if i == 2 => f64::NAN,
        _ => once[(i, j)],
    });
    let found = ceiling(&[&once, &odd]).unwrap().unwrap();
    assert!(found.cc_max[..2].iter().chain(&found.split_half[..2]).all(|v| v.is_nan()));
    // A repeat that is the same to the last digit leaves no noise.
    close("same", &[found.cc_max[2], found.explainable_variance[2], found.split_half[2]], &[1.0; 3], 1e-9);
}

#[test]
fn false_discoveries_are_scipy_s_and_nan_is_no_test() {
    let case = &fixture()["false_discovery"];
    let (mut p, expected) = (numbers(&case["p"]), numbers(&case["q"]));
    close("q", &false_discovery(&p), &expected, 1e-12);
    p.insert(4, f64::NAN);
    let found = false_discovery(&p);
    assert!(found[4].is_nan());
    close("q around NaN", &[&found[..4], &found[5..]].concat(), &expected, 1e-12);
    assert!(false_discovery(&[]).is_empty());
}
