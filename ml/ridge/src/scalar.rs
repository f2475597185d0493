//! The numbers that products are made of.

use crate::columns::each_column;
use faer::traits::RealField;
use faer::{Mat, MatRef};

/// `f32` or `f64`: the type of features, targets and large products. Decompositions are in `f64` for both.
pub trait Scalar: RealField + Copy + Send + Sync + 'static {
    /// The distance from 1 to the next number.
    const EPSILON: f64;
    /// The nearest number.
    fn of(value: f64) -> Self;
    /// Exactly.
    fn wide(self) -> f64;
    /// `a` in 64 bits: itself, or a copy in `scratch`.
    fn widened<'a>(a: MatRef<'a, Self>, scratch: &'a mut Mat<f64>) -> MatRef<'a, f64>;
}

impl Scalar for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn widened<'a>(a: MatRef<'a, Self>, scratch: &'a mut Mat<f64>) -> MatRef<'a, f64> {
        resized(scratch, a.nrows(), a.ncols());
        each_column(scratch, |j, to| {
            to.iter_mut().zip(a.col(j).iter()).for_each(|(to, from)| *to = from.wide());
        });
        scratch.as_ref()
    }
}

impl Scalar for f64 {
    const EPSILON: f64 = f64::EPSILON;
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    fn widened<'a>(a: MatRef<'a, Self>, _scratch: &'a mut Mat<f64>) -> MatRef<'a, f64> {
        a
    }
}

/// Makes `matrix` as large as that, if it is not: memory that the system gives anew is slow.
pub(crate) fn resized<T: Scalar>(matrix: &mut Mat<T>, rows: usize, columns: usize) {
    if (matrix.nrows(), matrix.ncols()) != (rows, columns) {
        *matrix = Mat::zeros(rows, columns);
    }
}
