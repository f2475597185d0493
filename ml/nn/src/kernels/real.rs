//! The element types that kernels are written for: f32, and f64 for gradient checks and reference values.

use super::{tile::Tiled, transpose::Transposed};
use std::ops::{Add, AddAssign, Mul, Neg, Sub};

/// A floating-point type with tiles.
pub trait Real:
    Tiled
    + Transposed
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + PartialOrd
    + Send
    + Sync
    + 'static
{
    /// The nearest value.
    fn of(value: f64) -> Self;
    /// The same value.
    fn wide(self) -> f64;
    fn tanh(self) -> Self;
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn tanh(self) -> Self {
        self.tanh()
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
    fn tanh(self) -> Self {
        self.tanh()
    }
}
