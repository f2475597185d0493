//! Scores of every penalty beside refits, for features whose eigenvalues are alike, zero, or far apart: where sums over
//! pairs of them could lose digits.
#![allow(clippy::unwrap_used)]

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use voxelflow_ridge::{CrossValidation, Folds, RidgeCv, RidgeSettings, Scalar, Score, pearson, r2};

const ALPHAS: [f64; 5] = [0.5, 20.0, 1e3, 1e7, 1e18];
const TARGETS: usize = 4;

/// Numbers between -1 and 1 without a pattern.
fn noise(seed: usize, i: usize, j: usize) -> f64 {
    ((seed * 7919 + i * 131 + j * 1009 + 1) as f64 * 12.9898).sin() * 43_758.545_3 % 1.0
}

/// Features, each by what its spectrum is like.
fn features() -> Vec<(&'static str, Mat<f64>)> {
    let (n, p) = (40, 12);
    let plain = Mat::from_fn(n, p, |i, j| noise(1, i, j));
    let whitened = {
        let means: Vec<f64> = plain.col_iter().map(|c| c.iter().sum::<f64>() / n as f64).collect();
        let q = Mat::from_fn(n, p, |i, j| plain[(i, j)] - means[j]).qr().compute_thin_Q();
        Mat::from_fn(n, p, |i, j| 7.0 * q[(i, j)])
    };
    vec![
        ("plain", plain.clone()),
        ("whitened", whitened),
        ("duplicated", Mat::from_fn(n, p, |i, j| plain[(i, j % 4)])),
        ("decaying", Mat::from_fn(n, p, |i, j| plain[(i, j)] * 12.0 * 0.3_f64.powi(j as i32))),
        ("one_hot", Mat::from_fn(n, p, |i, j| if i % p == j { 1.0 } else { 0.0 })),
        ("wide", Mat::from_fn(n, 70, |i, j| noise(2, i, j))),
        ("wide_duplicated", Mat::from_fn(n, 70, |i, j| noise(2, i, j % 9))),
    ]
}

fn targets(x: &Mat<f64>) -> Mat<f64> {
    Mat::from_fn(x.nrows(), TARGETS, |i, t| {
        let signal: f64 = (0..x.ncols()).map(|j| x[(i, j)] * noise(3, j, t)).sum();
        50.0 + signal + 2.0 * noise(4, i, t)
    })
}

/// What a fit of the samples that are not `held` says of those that are, about the mean of the others: actual, predicted.
fn refit(x: &Mat<f64>, y: &Mat<f64>, held: &[usize], alpha: f64) -> Vec<(Vec<f64>, Vec<f64>)> {
    let train: Vec<usize> = (0..x.nrows()).filter(|i| !held.contains(i)).collect();
    let mean = |of: &Mat<f64>, j: usize| train.iter().map(|i| of[(*i, j)]).sum::<f64>() / train.len() as f64;
    let x_means: Vec<f64> = (0..x.ncols()).map(|j| mean(x, j)).collect();
    let y_means: Vec<f64> = (0..y.ncols()).map(|j| mean(y, j)).collect();
    let about = |of: &Mat<f64>, at: &[usize], means: &[f64]| {
        Mat::from_fn(at.len(), means.len(), |i, j| of[(at[i], j)] - means[j])
    };
    let (a, b) = (about(x, &train, &x_means), about(y, &train, &y_means));
    let penalty = Mat::from_fn(x.ncols(), x.ncols(), |i, j| if i == j { alpha } else { 0.0 });
    let weights = (a.transpose() * &a + penalty).llt(Side::Lower).unwrap().solve(a.transpose() * b);
    let predicted = about(x, held, &x_means) * weights;
    let actual = about(y, held, &y_means);
    let column = |of: &Mat<f64>, t: usize| of.col(t).iter().copied().collect::<Vec<f64>>();
    (0..y.ncols()).map(|t| (column(&actual, t), column(&predicted, t))).collect()
}

/// The score of each penalty and target.
fn refitted(x: &Mat<f64>, y: &Mat<f64>, folds: &[Vec<usize>], score: Score) -> Vec<Vec<f64>> {
    let of = |actual: &[f64], predicted: &[f64]| match score {
        Score::R2 => r2(actual, predicted),
        Score::Pearson => pearson(actual, predicted),
        Score::NegMeanSquaredError => {
            -actual.iter().zip(predicted).map(|(y, p)| (y - p).powi(2)).sum::<f64>() / actual.len() as f64
        }
    };
    let of_alpha = |alpha: &f64| {
        let all: Vec<_> = folds.iter().map(|held| refit(x, y, held, *alpha)).collect();
        let mean =
            |t: usize| all.iter().map(|fold| of(&fold[t].0, &fold[t].1)).sum::<f64>() / all.len() as f64;
        (0..y.ncols()).map(mean).collect()
    };
    ALPHAS.iter().map(of_alpha).collect()
}

fn found<T: Scalar>(x: &Mat<f64>, y: &Mat<f64>, cv: &CrossValidation, score: Score) -> Vec<f64> {
    let narrow = |of: &Mat<f64>| Mat::from_fn(of.nrows(), of.ncols(), |i, j| T::of(of[(i, j)]));
    let settings = RidgeSettings {
        alphas: ALPHAS.to_vec(),
        cv: cv.clone(),
        score,
        block: 3,
        ..RidgeSettings::default()
    };
    let (x, y) = (narrow(x), narrow(y));
    RidgeCv::new(x.clone(), settings).unwrap().choose(&mut y.as_ref()).unwrap().mean_scores
}

#[test]
fn scores_are_those_of_refits_whatever_the_spectrum() {
    for (name, x) in features() {
        let y = targets(&x);
        let n = x.nrows();
        let each: Vec<Vec<usize>> = (0..n).map(|i| vec![i]).collect();
        let five: Vec<Vec<usize>> = (0..5).map(|f| (f * n / 5..(f + 1) * n / 5).collect()).collect();
        let by_fold = CrossValidation::Folds(Folds::contiguous(n, 5).unwrap());
        let mse = Score::NegMeanSquaredError;
        for (cv, folds, score) in [
            (&CrossValidation::LeaveOneOut, &each, mse),
            (&by_fold, &five, mse),
            (&by_fold, &five, Score::R2),
            (&by_fold, &five, Score::Pearson),
        ] {
            let expected = refitted(&x, &y, folds, score);
            let (wide, narrow) = (found::<f64>(&x, &y, cv, score), found::<f32>(&x, &y, cv, score));
            for (a, expected) in expected.iter().enumerate() {
                let expected = expected.iter().sum::<f64>() / TARGETS as f64;
                let title = format!("{name}, {score:?}, {} folds, alpha {}", folds.len(), ALPHAS[a]);
                let apart = |found: f64| (found - expected).abs() / expected.abs().max(1e-2);
                assert!(apart(wide[a]) < 1e-7, "{title}: {} instead of {expected}", wide[a]);
                assert!(apart(narrow[a]) < 2e-3, "{title}, f32: {} instead of {expected}", narrow[a]);
            }
        }
    }
}
