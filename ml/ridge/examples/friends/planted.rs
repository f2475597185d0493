//! Features and targets with a planted correlation, of any size: each target is made from its own number when it is
//! asked for, so that targets which fit neither disk nor memory can be read block by block, and twice the same.
//!
//! `y = (Σₖ cₖ x_fₖ) / s + √(1 − r²) e` over four features drawn for the target, `Σ c² = r²`, x of standard deviation s
//! and e of 1: y has a variance of 1, and its correlation with the best prediction there can be is r.
//!
//! Numbers are normal to the last bit of the Ziggurat method, from ChaCha8 in counter mode: a stream for each target.

use faer::{Mat, MatMut, MatRef};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use std::ops::Range;
use voxelflow_ridge::{Result, Targets};

/// Features of a target's signal.
const FEATURES: usize = 4;

/// Planted correlations: targets take them in turn.
pub const LEVELS: [f64; 4] = [0.0, 0.2, 0.4, 0.6];

/// The penalty that predicts best, by the choice of the features' standard deviation.
pub const BEST_ALPHA: f64 = 600.0;

/// Streams of random numbers that must not meet.
enum Stream {
    Feature = 0,
    Signal = 1,
    TrainNoise = 2,
    TestNoise = 3,
}

fn numbers(seed: u64, stream: Stream, index: usize) -> ChaCha8Rng {
    let mut numbers = ChaCha8Rng::seed_from_u64(seed);
    numbers.set_stream(4 * index as u64 + stream as u64);
    numbers
}

/// The standard deviation of features for which [`BEST_ALPHA`] is best.
///
/// With independent features a ridge prediction is best at `α = p s² σ²/v`, where v and σ² are the targets' mean variances
/// of signal and noise (the penalty of the Bayesian whose prior is what was planted).
pub fn feature_deviation(n_features: usize) -> f64 {
    let signal = LEVELS.iter().map(|r| r * r).sum::<f64>() / LEVELS.len() as f64;
    (BEST_ALPHA * signal / (1.0 - signal) / n_features as f64).sqrt()
}

/// Features `[n_samples, n_features]`.
pub fn features(seed: u64, n_samples: usize, n_features: usize) -> Mat<f32> {
    let deviation = feature_deviation(n_features) as f32;
    let mut x = Mat::zeros(n_samples, n_features);
    x.par_col_iter_mut().enumerate().for_each(|(feature, column)| {
        let mut numbers = numbers(seed, Stream::Feature, feature);
        for value in column.iter_mut() {
            let normal: f32 = StandardNormal.sample(&mut numbers);
            *value = deviation * normal;
        }
    });
    x
}

/// Targets of features, made when they are read.
pub struct Planted<'a> {
    x: MatRef<'a, f32>,
    seed: u64,
    count: usize,
    held_out: bool,
}

impl<'a> Planted<'a> {
    /// `count` targets of the samples `x`; those that are held out have noise of their own.
    pub fn new(x: MatRef<'a, f32>, seed: u64, count: usize, held_out: bool) -> Self {
        Self { x, seed, count, held_out }
    }

    /// Which features a target has, and their weights for features of standard deviation 1.
    fn signal(&self, target: usize) -> [(usize, f64); FEATURES] {
        let mut numbers = numbers(self.seed, Stream::Signal, target);
        let mut signal = [(0, 0.0); FEATURES];
        for at in 0..FEATURES {
            // Of few features one may be drawn twice; then it is drawn again.
            let mut feature = numbers.random_range(0..self.x.ncols());
            while self.x.ncols() >= FEATURES && signal[..at].iter().any(|(other, _)| *other == feature) {
                feature = numbers.random_range(0..self.x.ncols());
            }
            signal[at] = (feature, StandardNormal.sample(&mut numbers));
        }
        let length = signal.iter().map(|(_, weight)| weight * weight).sum::<f64>().sqrt();
        signal.map(|(feature, weight)| (feature, weight / length * level(target)))
    }

    /// The coefficients that were planted, by feature; none for a target that is all noise.
    #[allow(dead_code)] // the test has other measures
    pub fn coefficients(&self, target: usize) -> Option<[(usize, f64); FEATURES]> {
        let unit = 1.0 / feature_deviation(self.x.ncols());
        (level(target) > 0.0).then(|| self.signal(target).map(|(feature, weight)| (feature, weight * unit)))
    }

    fn fill(&self, target: usize, into: &mut [f32]) {
        let stream = if self.held_out { Stream::TestNoise } else { Stream::TrainNoise };
        let mut numbers = numbers(self.seed, stream, target);
        let noise = (1.0 - level(target).powi(2)).sqrt() as f32;
        for value in into.iter_mut() {
            let normal: f32 = StandardNormal.sample(&mut numbers);
            *value = noise * normal;
        }
        if level(target) == 0.0 {
            return;
        }
        let unit = 1.0 / feature_deviation(self.x.ncols());
        for (feature, weight) in self.signal(target) {
            let weight = (weight * unit) as f32;
            into.iter_mut().zip(self.x.col(feature).iter()).for_each(|(y, x)| *y += weight * x);
        }
    }
}

/// The planted correlation of a target.
pub fn level(target: usize) -> f64 {
    LEVELS[target % LEVELS.len()]
}

impl Targets<f32> for Planted<'_> {
    fn samples(&self) -> usize {
        self.x.nrows()
    }

    fn count(&self) -> usize {
        self.count
    }

    fn read(&mut self, range: Range<usize>, into: MatMut<'_, f32>) -> Result<()> {
        let this = &*self;
        into.par_col_iter_mut().enumerate().for_each(|(j, column)| match column.try_as_col_major_mut() {
            Some(column) => this.fill(range.start + j, column.as_slice_mut()),
            None => unreachable!("columns of a block of targets lie together"),
        });
        Ok(())
    }
}
