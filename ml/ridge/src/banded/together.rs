//! What those who share the targets do together: decompositions are of the features alone, so each is computed once.

use super::BandedRidgeCv;
use crate::{Decomposition, Result, Scalar};

/// A decomposition that is needed: under which weights, and of which fold; `None`: of all samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Position in [`BandedSettings::gammas`](super::BandedSettings::gammas).
    pub gamma: usize,
    /// Number of the fold.
    pub fold: Option<usize>,
}

/// Those who have shares of the targets and equal features and settings: all call the same in the same order.
pub trait Together<T: Scalar> {
    /// All `parts` of `ridge`, in their order, each computed by one and handed to all others
    /// ([`BandedRidgeCv::decompose`]).
    ///
    /// # Errors
    /// Matrices that do not converge; others that are lost.
    fn decompose(&mut self, ridge: &BandedRidgeCv<T>, parts: &[Part]) -> Result<Vec<Decomposition<T>>>;
    /// Replaces `sums` by the total over all shares.
    ///
    /// # Errors
    /// Others that are lost.
    fn add_up(&mut self, sums: &mut [f64]) -> Result<()>;
}

/// One who has all targets.
pub(super) struct Alone;

impl<T: Scalar> Together<T> for Alone {
    fn decompose(&mut self, ridge: &BandedRidgeCv<T>, parts: &[Part]) -> Result<Vec<Decomposition<T>>> {
        parts.iter().map(|part| ridge.decompose(*part)).collect()
    }

    fn add_up(&mut self, _sums: &mut [f64]) -> Result<()> {
        Ok(())
    }
}
