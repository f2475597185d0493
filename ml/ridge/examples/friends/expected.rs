//! What a ridge fit of planted targets must find, from the theory of random matrices and not from a fit.
//!
//! Eigenvalues of `XᵀX / (n s²)` of independent normal features follow Marchenko and Pastur's law of `γ = p / n`, whatever
//! the sample. With signals in random directions of length v^½ and noise σ², a fit of penalty `a n s²` has, in expectation,
//! `⟨b, b̂⟩ = v E[λ/(λ+a)]` and `⟨b̂, b̂⟩ = v E[λ²/(λ+a)²] + σ² γ E[λ/(λ+a)²]`, from which the correlation with samples that
//! the fit has not seen follows (Dobriban & Wager 2018, Annals of Statistics 46, 247).

use crate::planted::feature_deviation;
use std::f64::consts::PI;

/// The law's mean of `of`.
fn mean(gamma: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (low, high) = ((1.0 - gamma.sqrt()).powi(2), (1.0 + gamma.sqrt()).powi(2));
    // λ = middle − radius cos θ takes the square roots at both ends out of the integral.
    let (middle, radius) = ((low + high) / 2.0, (high - low) / 2.0);
    let steps = 20_000;
    let weighted = (0..steps).map(|step| {
        let theta = PI * (f64::from(step) + 0.5) / f64::from(steps);
        let lambda = middle - radius * theta.cos();
        of(lambda) * (radius * theta.sin()).powi(2) / (2.0 * PI * gamma * lambda)
    });
    // Where features outnumber samples, the others have λ = 0, and all that is asked here is zero for them.
    weighted.sum::<f64>() * PI / f64::from(steps)
}

/// The expected correlation of held-out samples with their predictions by a fit of `n` samples, `p` features and penalty
/// `alpha` to a target of planted correlation `r`.
pub fn correlation(n: usize, p: usize, alpha: f64, r: f64) -> f64 {
    // The intercept costs a sample.
    let n = (n - 1) as f64;
    let gamma = p as f64 / n;
    let a = alpha / (n * feature_deviation(p).powi(2));
    let (signal, noise) = (r * r, 1.0 - r * r);
    let along = signal * mean(gamma, |l| l / (l + a));
    let length = signal * mean(gamma, |l| (l / (l + a)).powi(2))
        + noise * gamma * mean(gamma, |l| l / (l + a).powi(2));
    along / length.sqrt()
}
