//! How good predictions are. Each score is its own thing: r, the coefficient of determination R², the mean squared error.

use crate::columns::{each_column, of_columns};
use crate::spectrum::product;
use crate::{Coefficients, Scalar};
use faer::{ColRef, Mat, MatRef};
use serde::{Deserialize, Serialize};

/// What decides between penalties. A larger score is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Minus the mean squared error: targets of large variance count more where one penalty is shared.
    #[default]
    NegMeanSquaredError,
    /// `R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)²`.
    R2,
    /// Pearson's r between y and ŷ.
    Pearson,
}

/// Samples of a target whose standard deviation is this part of that of the whole target, or less, are constant: R² and r of
/// them are those of rounding.
const FLAT: f64 = 1e-5;
/// The same of variances.
pub(crate) const FLAT_VARIANCE: f64 = FLAT * FLAT;

/// The variance up to which samples of a target count as constant, of a target that has `variance` as a whole and whose largest
/// number is so large, in numbers that are `epsilon` apart.
pub(crate) fn flat(variance: f64, largest: f64, epsilon: f64) -> f64 {
    (variance * FLAT_VARIANCE).max((largest * epsilon).powi(2))
}

/// R² of `predicted`; NaN for a constant `actual`.
pub fn r2(actual: &[f64], predicted: &[f64]) -> f64 {
    let mean = mean_of(actual);
    about((actual, mean), (predicted, mean)).map_or(f64::NAN, |sums| sums.score(Score::R2))
}

/// Pearson's r; NaN where either is constant.
pub fn pearson(actual: &[f64], predicted: &[f64]) -> f64 {
    // Predictions of a huge penalty vary little beside their mean: each is taken about its own.
    let sums = about((actual, mean_of(actual)), (predicted, mean_of(predicted)));
    sums.map_or(f64::NAN, |sums| sums.pearson())
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Sums of both, each about its origin; none where `actual`, which has its mean, is constant.
fn about((actual, mean): (&[f64], f64), (predicted, origin): (&[f64], f64)) -> Option<Sums> {
    let mut sums = Sums::default();
    actual.iter().zip(predicted).for_each(|(a, p)| sums.add(a - mean, p - origin));
    (sums.variance() > flat(0.0, mean.abs(), f64::EPSILON)).then_some(sums)
}

/// What all scores follow from, over the samples of one target. Values should be centred at least roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub n: f64,
    /// Of the target and its prediction,
    pub y: f64,
    pub p: f64,
    /// and of their squares and products.
    pub yy: f64,
    pub pp: f64,
    pub yp: f64,
}

impl Sums {
    pub fn add(&mut self, y: f64, p: f64) {
        self.n += 1.0;
        self.y += y;
        self.p += p;
        self.yy += y * y;
        self.pp += p * p;
        self.yp += y * p;
    }

    pub fn score(&self, score: Score) -> f64 {
        let residual = self.yy - 2.0 * self.yp + self.pp;
        match score {
            Score::NegMeanSquaredError => -residual / self.n,
            Score::R2 => 1.0 - residual / (self.yy - self.y * self.y / self.n),
            Score::Pearson => self.pearson(),
        }
    }

    /// Of the target.
    pub fn variance(&self) -> f64 {
        (self.yy - self.y * self.y / self.n) / self.n
    }

    fn pearson(&self) -> f64 {
        let covariance = self.yp - self.y * self.p / self.n;
        let (y, p) = (self.yy - self.y * self.y / self.n, self.pp - self.p * self.p / self.n);
        covariance / (y * p).sqrt()
    }
}

/// How well one target is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetScores {
    /// Pearson's r; NaN where the target or its prediction is constant beside its scale, or not finite.
    pub r: f64,
    /// R²; NaN where the target is constant beside its scale, or not finite.
    pub r2: f64,
    /// Mean of `(y − ŷ)²`.
    pub mean_squared_error: f64,
}

/// What `coefficients` predict from the features `x`, `[n_samples, n_features]`: `[n_samples, n_targets]`.
pub fn predict<T: Scalar>(x: MatRef<'_, T>, coefficients: &Coefficients<T>) -> Mat<T> {
    let mut predicted = predict_without_intercept(x, coefficients);
    each_column(&mut predicted, |target, column| {
        let intercept = coefficients.intercepts.get(target).copied().unwrap_or(f64::NAN);
        column.iter_mut().for_each(|value| *value = T::of(value.wide() + intercept));
    });
    predicted
}

/// As [`predict`], but for the intercepts: beside a large one the digits of what varies would be lost.
pub fn predict_without_intercept<T: Scalar>(x: MatRef<'_, T>, coefficients: &Coefficients<T>) -> Mat<T> {
    product(x, coefficients.weights.as_ref())
}

/// How well targets are predicted, each by itself: by `varying`, `[n_samples, n_targets]` as `actual` is, and the intercept of
/// each. `variances`: of each target in the samples that it was fitted to, beside which one that is constant here shows; 0 where
/// that is not known.
pub fn target_scores<T: Scalar>(
    actual: MatRef<'_, T>,
    varying: MatRef<'_, T>,
    intercepts: &[f64],
    variances: &[f64],
) -> Vec<TargetScores> {
    let each = |target: usize, varying: ColRef<'_, T>| {
        let actual = actual.col(target);
        let actual: Vec<f64> = actual.iter().map(|v| v.wide()).collect();
        let count = actual.len().max(1) as f64;
        // Each about its mean: series of images are far from zero, and predictions may be far from them.
        let mean = actual.iter().sum::<f64>() / count;
        let center = varying.iter().map(|v| v.wide()).sum::<f64>() / count;
        let off = mean - center - intercepts.get(target).copied().unwrap_or(f64::NAN);
        let (mut sums, mut residual) = (Sums::default(), 0.0);
        for (y, p) in actual.iter().zip(varying.iter()) {
            let (y, p) = (y - mean, p.wide() - center);
            sums.add(y, p);
            residual += (y - p + off).powi(2);
        }
        let known = variances.get(target).copied().unwrap_or(0.0);
        let constant = sums.variance() <= flat(known, mean.abs(), T::EPSILON);
        let unless_constant = |score: f64| if constant { f64::NAN } else { score };
        TargetScores {
            r: unless_constant(sums.pearson()),
            r2: unless_constant(1.0 - residual / count / sums.variance()),
            mean_squared_error: residual / count,
        }
    };
    of_columns(varying, each)
}
