//! The numbers that products are made of.

use faer::traits::RealField;

/// `f32` or `f64`: the type of features, targets and large products. Decompositions are in `f64` for both.
pub trait Scalar: RealField + Copy + Send + Sync + 'static {
    /// The distance from 1 to the next number.
    const EPSILON: f64;
    /// The nearest number.
    fn of(value: f64) -> Self;
    /// Exactly.
    fn wide(self) -> f64;
}

impl Scalar for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    fn of(value: f64) -> Self {
        value as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Scalar for f64 {
    const EPSILON: f64 = f64::EPSILON;
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}
