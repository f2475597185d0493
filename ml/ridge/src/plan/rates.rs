//! How fast this machine is, by a short calibration.

use super::{Precision, Work};
use crate::score::Sums;
use crate::spectrum::{add_square, product};
use crate::{Scalar, Score};
use faer::{Mat, Side};
use std::hint::black_box;
use std::time::Instant;

/// What this machine does in a second. Measured in about a second, while nothing else should run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Multiplications and additions of a Gram matrix in f64.
    pub gram: f64,
    /// Of products in f32.
    pub product_f32: f64,
    /// Of products in f64.
    pub product_f64: f64,
    /// Seconds of eigendecompositions of two sizes, the smaller one first.
    pub eigen: [(usize, f64); 2],
    /// Numbers a second that a pass over a matrix writes.
    pub pass: f64,
    /// Numbers a second that scores are summed over.
    pub score: f64,
}

/// The least of some times: what is slower was disturbed.
fn least(times: usize, mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let clock = Instant::now();
        run();
        clock.elapsed().as_secs_f64()
    };
    (0..times).map(time).fold(f64::INFINITY, f64::min)
}

/// Numbers without a pattern that an eigendecomposition could profit from, as of splitmix64.
fn matrix<T: Scalar>(rows: usize, columns: usize) -> Mat<T> {
    Mat::from_fn(rows, columns, |i, j| {
        let mut bits = (i as u64 * 4_000_037 + j as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        T::of(((bits ^ (bits >> 31)) >> 40) as f64 / (1_u64 << 23) as f64 - 1.0)
    })
}

fn product_rate<T: Scalar>() -> f64 {
    let (a, b) = (matrix::<T>(2000, 500), matrix::<T>(500, 500));
    let seconds = least(3, || {
        black_box(product(a.as_ref(), b.as_ref()));
    });
    2.0 * 2000.0 * 500.0 * 500.0 / seconds
}

impl Rates {
    /// Measures them.
    pub fn measure() -> Self {
        let a = matrix::<f64>(500, 2000);
        let mut square = Mat::zeros(500, 500);
        let gram = 2000.0 * 500.0 * 500.0 / least(3, || add_square(&mut square, a.as_ref()));
        let eigen = |size: usize| {
            let square = {
                let mut square = Mat::zeros(size, size);
                add_square(&mut square, matrix::<f64>(size, size + 100).as_ref());
                square
            };
            let seconds = least(2, || {
                black_box(square.self_adjoint_eigen(Side::Lower).is_ok());
            });
            (size, seconds)
        };
        let shrink = vec![0.5; 1000];
        let pass = least(3, || {
            black_box(Mat::<f64>::from_fn(1000, 1000, |i, j| a[(j % 500, i)] * shrink[i]));
        });
        let column: Vec<f64> = (0..200_000).map(f64::from).collect();
        let score = least(3, || {
            let mut sums = Sums::default();
            column.iter().zip(&column).for_each(|(y, p)| sums.add(*y, *p));
            black_box(sums.score(Score::R2));
        });
        Self {
            gram,
            product_f32: product_rate::<f32>(),
            product_f64: product_rate::<f64>(),
            eigen: [eigen(200), eigen(500)],
            pass: 1e6 / pass,
            score: 2e5 / score,
        }
    }

    /// How long `work` takes.
    pub fn seconds(&self, work: &Work, precision: Precision) -> f64 {
        let product = match precision {
            Precision::F32 => self.product_f32,
            Precision::F64 => self.product_f64,
        };
        let eigen: f64 = work.eigen.iter().map(|size| self.eigen_seconds(*size as f64)).sum();
        work.gram / self.gram
            + work.product / product
            + eigen
            + work.pass / self.pass
            + work.score / self.score
    }

    /// `a·n² + b·n³` through the two that were measured.
    fn eigen_seconds(&self, size: f64) -> f64 {
        let [(small, fast), (large, slow)] = self.eigen;
        let (small, large) = (small as f64, large as f64);
        let (fast, slow) = (fast / small.powi(2), slow / large.powi(2));
        let cubic = ((slow - fast) / (large - small)).max(0.0);
        let square = (slow - cubic * large).max(0.0);
        size.powi(2) * (square + cubic * size)
    }
}
