//! Banded fits, phase by phase.

use super::{Case, Made, number};
use faer::Mat;
use std::hint::black_box;
use voxelflow_ridge::plan::{Clock, Precision, Workload};
use voxelflow_ridge::{
    BandedRidgeCv, BandedSettings, Decomposition, Folds, Part, Result, Scalar, Score, Together, dirichlet,
};

/// More samples than features, or fewer.
pub fn workload(wide: bool) -> Workload<BandedSettings> {
    let sized = |n_samples, bands: [usize; 3], gammas, n_targets, precision| {
        let gammas = dirichlet(gammas, 3, &[1.0], 0).unwrap();
        let folds = Folds::contiguous(n_samples, 4).unwrap();
        let alphas = vec![0.1, 1.0, 100.0, 300.0, 600.0, 900.0, 1200.0];
        let settings = BandedSettings {
            alphas,
            score: Score::R2,
            alpha_per_target: !wide,
            block: 1500,
            ..BandedSettings::new(bands.to_vec(), gammas, folds)
        };
        Workload { n_samples, n_features: bands.iter().sum(), n_targets, precision, settings }
    };
    match wide {
        false => sized(2600, [250, 120, 50], 5, 4000, Precision::F32),
        true => sized(560, [700, 500, 100], 5, 2000, Precision::F64),
    }
}

/// Decompositions, and how long they took.
struct Timed<'a> {
    clock: Clock<'a>,
    seconds: f64,
}

impl<T: Scalar> Together<T> for Timed<'_> {
    fn decompose(&mut self, ridge: &BandedRidgeCv<T>, parts: &[Part]) -> Result<Vec<Decomposition<T>>> {
        let begin = (self.clock)();
        let found = parts.iter().map(|part| ridge.decompose(*part)).collect();
        self.seconds += (self.clock)() - begin;
        found
    }

    fn add_up(&mut self, _sums: &mut [f64]) -> Result<()> {
        Ok(())
    }
}

impl Case for BandedSettings {
    fn fit<T: Scalar>(of: &Workload<Self>, clock: Clock<'_>) -> Vec<f64> {
        let x = Mat::<T>::from_fn(of.n_samples, of.n_features, |i, j| T::of(number(i, j)));
        let mut targets = Made { samples: of.n_samples, count: of.n_targets, seconds: 0.0, clock };
        let begin = clock();
        let ridge = BandedRidgeCv::new(x, of.settings.clone()).unwrap();
        let features = clock();
        let mut timed = Timed { clock, seconds: 0.0 };
        let chosen = ridge.choose_together(&mut targets, &mut timed).unwrap();
        let (penalties, made) = (clock(), targets.seconds);
        ridge
            .fit(&chosen, &mut targets, |block| {
                black_box(block.weights);
                Ok(())
            })
            .unwrap();
        let coefficients = clock() - penalties - (targets.seconds - made);
        let decompositions = timed.seconds;
        vec![features - begin, decompositions, penalties - features - decompositions - made, coefficients]
    }
}
