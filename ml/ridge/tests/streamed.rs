//! Targets that stream past and are validated by folds: what [`RidgeCv`] finds with the same.
#![allow(clippy::unwrap_used)]

use faer::Mat;
use voxelflow_ridge::{
    Coefficients, CrossValidation, Folds, RidgeCv, RidgeFit, RidgeSettings, Score, StreamedRidge,
    leave_one_run_out,
};

const SAMPLES: usize = 90;
const TARGETS: usize = 21;

/// Numbers between -1 and 1 without a pattern.
fn noise(n: usize) -> f64 {
    ((n as f64 + 1.0) * 12.9898).sin() * 43_758.545_3 % 1.0
}

/// Targets follow from features in part; 3 is constant, 5 is not finite, and 7 is constant in the second third.
fn data(features: usize) -> (Mat<f64>, Mat<f64>) {
    let x = Mat::from_fn(SAMPLES, features, |i, j| 5.0 + noise(i * features + j));
    let y = Mat::from_fn(SAMPLES, TARGETS, |i, j| match (i, j) {
        (_, 3) => 2.5,
        (10, 5) => f64::NAN,
        (30..60, 7) => 1.0,
        _ => 3.0 * x[(i, j % features)] + noise(100_003 + j * SAMPLES + i),
    });
    (x, y)
}

struct Found {
    fit: RidgeFit<f64>,
    weights: Mat<f64>,
    intercepts: Vec<f64>,
}

impl Found {
    fn of(fit: RidgeFit<f64>, features: usize) -> Self {
        Self { fit, weights: Mat::zeros(features, TARGETS), intercepts: Vec::new() }
    }

    fn take(&mut self, block: Coefficients<f64>) {
        self.weights.subcols_mut(block.range.start, block.range.len()).copy_from(&block.weights);
        self.intercepts.extend(block.intercepts);
    }
}

fn close(what: &str, found: impl IntoIterator<Item = f64>, expected: impl IntoIterator<Item = f64>) {
    let (found, expected): (Vec<_>, Vec<_>) = (found.into_iter().collect(), expected.into_iter().collect());
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (a, b)) in found.iter().zip(&expected).enumerate() {
        let equal = (a - b).abs() <= 1e-9 * b.abs().max(1.0) || (a.is_nan() && b.is_nan());
        assert!(equal, "{what} {at}: {a} and {b}");
    }
}

fn values(matrix: &Mat<f64>) -> Vec<f64> {
    matrix.col_iter().flat_map(|column| column.iter().copied().collect::<Vec<_>>()).collect()
}

#[test]
fn folds_of_a_stream_choose_and_fit_as_ridge_cv_does() {
    let runs: Vec<usize> = (0..SAMPLES).map(|sample| sample / 30).collect();
    let cases = [
        (12, Folds::contiguous(SAMPLES, 4).unwrap(), Score::R2, false),
        (12, leave_one_run_out(&runs, 3).unwrap(), Score::NegMeanSquaredError, false),
        (12, leave_one_run_out(&runs, 2).unwrap(), Score::R2, true),
        (12, Folds::contiguous(SAMPLES, 3).unwrap(), Score::Pearson, true),
        // Features outnumber the samples, of folds alone and of all.
        (75, leave_one_run_out(&runs, 1).unwrap(), Score::R2, false),
        (140, Folds::contiguous(SAMPLES, 3).unwrap(), Score::Pearson, false),
    ];
    for (features, folds, score, alpha_per_target) in cases {
        let (x, y) = data(features);
        let settings = RidgeSettings {
            alphas: vec![0.1, 1.0, 10.0, 100.0],
            cv: CrossValidation::Folds(folds),
            score,
            alpha_per_target,
            block: 4,
            ..RidgeSettings::default()
        };
        let direct = RidgeCv::new(x.clone(), settings.clone()).unwrap();
        let mut expected = Found::of(direct.choose(&mut y.as_ref()).unwrap(), features);
        let fit = expected.fit.clone();
        let take = |block| {
            expected.take(block);
            Ok(())
        };
        direct.fit(&fit, &mut y.as_ref(), take).unwrap();

        let mut stream = StreamedRidge::on_cores(x.as_ref(), settings).unwrap();
        let mut found = Found::of(stream.choose(&mut y.as_ref()).unwrap(), features);
        let fit = found.fit.clone();
        let take = |block| {
            found.take(block);
            Ok(())
        };
        stream.fit(&fit, &mut y.as_ref(), None, take).unwrap();

        assert_eq!(found.fit.unfit, [3, 5]);
        close("penalties", found.fit.alphas, expected.fit.alphas);
        close("mean scores", found.fit.mean_scores, expected.fit.mean_scores);
        close("best scores", found.fit.best_scores, expected.fit.best_scores);
        close("weights", values(&found.weights), values(&expected.weights));
        close("intercepts", found.intercepts, expected.intercepts);
        assert!(values(&found.weights).iter().any(|weight| weight.abs() > 0.1));
    }
}
