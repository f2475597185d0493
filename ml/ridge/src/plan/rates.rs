//! How fast this machine is, by a short calibration: the fit's own loops and products, each of the kind that a fit has.

use super::{Precision, Work};
use crate::columns::{column_of, made, of_columns};
use crate::penalties::sums_by_penalty;
use crate::score::Sums;
use crate::spectrum::{add_square, product, threads};
use crate::targets::{TargetBlock, blocks};
use crate::{Scalar, Score};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Side};
use std::hint::black_box;
use std::time::Instant;

/// What this machine does in a second. Measured in a second or two, while nothing else should run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Multiplications and additions of a Gram matrix in f64, of the triangle that is computed.
    pub gram: f64,
    /// In f32.
    pub f32: ProductRates,
    /// In f64.
    pub f64: ProductRates,
    /// Seconds of eigendecompositions by their size, ascending. The largest ones do not fit into caches.
    pub eigen: Vec<(usize, f64)>,
    /// Multiplications and additions of sums over values, weighted for every penalty.
    pub penalties: f64,
    /// Numbers a second that a pass over a matrix writes into memory that is at hand.
    pub pass: f64,
    /// Numbers of targets that are centred.
    pub centre: f64,
    /// Numbers that scores are summed over.
    pub score: f64,
    /// Bytes of memory that the system gives, page by page.
    pub fresh: f64,
}

/// Multiplications and additions a second. How the factors lie in memory decides how fast a product is.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductRates {
    /// Of `A · B` and `Aᵀ · B`.
    pub product: f64,
    /// Of `A · Bᵀ`.
    pub outer: f64,
    /// Of the triangle of `A · Aᵀ`.
    pub square: f64,
}

/// Sizes of the matrices that are decomposed to measure.
const EIGEN_SIZES: [usize; 3] = [200, 500, 1000];
/// Penalties of a fit that is measured.
const PENALTIES: usize = 11;
/// Numbers of a matrix of 40 MB, whose memory the system gives anew every time.
const MAPPED_NUMBERS: usize = 5_000_000;

/// Tells seconds from some beginning.
pub type Clock<'a> = &'a dyn Fn() -> f64;

/// The least of some times: what is slower was disturbed.
fn least(clock: Clock<'_>, times: usize, mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let begin = clock();
        run();
        clock() - begin
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

/// Of `Aᵀ · B`.
fn product_rate<T: Scalar>(clock: Clock<'_>) -> f64 {
    let (long, small) = (matrix::<T>(500, 2000), matrix::<T>(500, 500));
    let seconds = least(clock, 3, || {
        black_box(product(long.transpose(), small.as_ref()));
    });
    2.0 * 2000.0 * 500.0 * 500.0 / seconds
}

impl ProductRates {
    fn measure<T: Scalar>(clock: Clock<'_>) -> Self {
        let long = matrix::<T>(500, 2000);
        let one = T::of(1.0);
        let operations = 2000.0 * 500.0 * 500.0;
        let mut c = Mat::zeros(500, 500);
        let other = matrix::<T>(500, 2000);
        let of_outer = least(clock, 3, || {
            matmul(c.as_mut(), Accum::Replace, long.as_ref(), other.transpose(), one, threads());
        });
        let of_square = least(clock, 3, || add_square(&mut c, long.as_ref()));
        Self {
            product: product_rate::<T>(clock),
            outer: 2.0 * operations / of_outer,
            square: operations / of_square,
        }
    }
}

impl Rates {
    /// About those of this machine, after some hundredths of a second: the rates of another one, as much faster or slower
    /// as a product is here. Says whether a fit takes so long that [`Rates::measure`] is worth its second.
    pub fn about() -> Self {
        let begin = Instant::now();
        let here = product_rate::<f64>(&|| begin.elapsed().as_secs_f64());
        // Two cores of a server of 2023.
        let there = Self {
            gram: 3.0e10,
            f32: ProductRates { product: 2.2e11, outer: 2.2e11, square: 1.8e11 },
            f64: ProductRates { product: 1.1e11, outer: 1.1e11, square: 9.5e10 },
            eigen: vec![(200, 0.006), (500, 0.048), (1000, 0.24)],
            penalties: 1.2e10,
            pass: 3e8,
            centre: 3.8e8,
            score: 1.1e9,
            fresh: 1.9e9,
        };
        let factor = here / there.f64.product;
        there.times(factor)
    }

    fn times(self, factor: f64) -> Self {
        let products = |rates: ProductRates| ProductRates {
            product: rates.product * factor,
            outer: rates.outer * factor,
            square: rates.square * factor,
        };
        Self {
            gram: self.gram * factor,
            f32: products(self.f32),
            f64: products(self.f64),
            eigen: self.eigen.into_iter().map(|(size, seconds)| (size, seconds / factor)).collect(),
            penalties: self.penalties * factor,
            pass: self.pass * factor,
            centre: self.centre * factor,
            score: self.score * factor,
            fresh: self.fresh * factor,
        }
    }

    /// Measures what a fit with eigendecompositions of matrices of up to `largest` rows needs.
    pub fn measure(largest: usize) -> Self {
        let begin = Instant::now();
        Self::measure_by(largest, &|| begin.elapsed().as_secs_f64())
    }

    /// The same by another clock, for example of the processor time of this process.
    pub fn measure_by(largest: usize, clock: Clock<'_>) -> Self {
        let rows = matrix::<f64>(2000, 500);
        let mut square = Mat::zeros(500, 500);
        let gram = 2000.0 * 500.0 * 500.0 / least(clock, 3, || add_square(&mut square, rows.transpose()));
        let eigen = |size: usize| {
            let mut square = Mat::zeros(size, size);
            add_square(&mut square, matrix::<f64>(size, size + 100).as_ref());
            let times = if size > 500 { 1 } else { 2 };
            let seconds = least(clock, times, || {
                black_box(square.self_adjoint_eigen(Side::Lower).is_ok());
            });
            (size, seconds)
        };
        // Two at least, and no more than the first that is as large as what is asked for.
        let needed = EIGEN_SIZES.iter().position(|size| *size >= largest).unwrap_or(EIGEN_SIZES.len()).max(1);
        let eigen = EIGEN_SIZES.iter().take(needed + 1).map(|size| eigen(*size)).collect();
        let shrink = vec![0.5; 500];
        let pass = least(clock, 3, || {
            black_box(made::<f64>(2000, 500, |i, j| rows[(i, j)] * shrink[j]));
        });
        let weights = matrix::<f64>(500, PENALTIES);
        let penalties = least(clock, 3, || {
            black_box(sums_by_penalty(rows.nrows(), weights.as_ref(), |j, first, into| {
                let column = column_of(rows.as_ref(), j)[first..].iter();
                into.iter_mut().zip(column).for_each(|(into, value)| *into = value * value);
            }));
        });
        let centre = least(clock, 3, || {
            for range in blocks(500, 100) {
                black_box(TargetBlock::read(&mut rows.as_ref(), range).is_ok());
            }
        });
        let score = least(clock, 3, || {
            black_box(of_columns(rows.as_ref(), |_, column| {
                let mut sums = Sums::default();
                column.iter().zip(column.iter()).for_each(|(y, p)| sums.add(*y, *p));
                sums.score(Score::R2)
            }));
        });
        let fresh = least(clock, 2, || {
            black_box(Mat::<f64>::zeros(MAPPED_NUMBERS / 1000, 1000));
        });
        Self {
            gram,
            f32: ProductRates::measure::<f32>(clock),
            f64: ProductRates::measure::<f64>(clock),
            eigen,
            penalties: 2.0 * 1e6 * PENALTIES as f64 / penalties,
            pass: 1e6 / pass,
            centre: 1e6 / centre,
            score: 1e6 / score,
            fresh: 8.0 * MAPPED_NUMBERS as f64 / fresh,
        }
    }

    /// How long `work` takes.
    pub fn seconds(&self, work: &Work, precision: Precision) -> f64 {
        let own = match precision {
            Precision::F32 => &self.f32,
            Precision::F64 => &self.f64,
        };
        let eigen: f64 = work.eigen.iter().map(|size| self.eigen_seconds(*size as f64)).sum();
        eigen
            + work.gram / self.gram
            + work.kernel / self.f64.square
            + work.product / own.product
            + work.outer / own.outer
            + work.square / own.square
            + work.wide / self.f64.product
            + work.penalties / self.penalties
            + work.pass / self.pass
            + work.centre / self.centre
            + work.score / self.score
            + work.fresh / self.fresh
    }

    /// `a·n² + b·n³` through the two next sizes that were measured, or the two largest.
    fn eigen_seconds(&self, size: f64) -> f64 {
        let next = self.eigen.iter().position(|(measured, _)| *measured as f64 >= size);
        let upper = next.unwrap_or(self.eigen.len().saturating_sub(1)).max(1);
        let (Some(small), Some(large)) = (self.eigen.get(upper - 1), self.eigen.get(upper)) else {
            return 0.0;
        };
        let per_square = |(size, seconds): &(usize, f64)| seconds / (*size as f64).powi(2);
        let (fast, slow) = (per_square(small), per_square(large));
        let (small, large) = (small.0 as f64, large.0 as f64);
        let cubic = ((slow - fast) / (large - small)).max(0.0);
        size.powi(2) * (slow + cubic * (size - large)).max(0.0)
    }
}
