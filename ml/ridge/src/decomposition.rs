//! The eigendecompositions of a fit, as pieces of work: who computes one hands it to all others.
//!
//! ```text
//!   rows 0..a ─► gram ─┐                     ┌─► decompose(0): all samples  ─┐
//!   rows a..n ─► gram ─┴─ summed ─► Gram ────┼─► decompose(1): fold 0        ├─► RidgeCv on every rank
//!                                            └─► decompose(2): fold 1 …     ─┘
//! ```

use crate::folds::FoldRows;
use crate::settings::validate;
use crate::spectrum::{Spectrum, centred, gram};
use crate::{CrossValidation, Error, Result, RidgeCv, RidgeSettings, Scalar};
use faer::Mat;
use std::ops::Range;

/// Centred features and their folds, before anything is decomposed.
pub struct Prepared<T> {
    pub(crate) settings: RidgeSettings,
    /// Samples and features.
    shape: [usize; 2],
    pub(crate) x: Mat<T>,
    pub(crate) means: Vec<f64>,
    pub(crate) folds: Vec<FoldRows>,
}

/// Eigenvalues and the basis in which a ridge fit is diagonal, of all samples or of a fold's training samples.
#[derive(Clone, Debug)]
pub struct Decomposition<T> {
    pub(crate) spectrum: Spectrum<T>,
    /// Samples in the basis: all for leave-one-out, those that a fold holds out, of which those that it predicts come first;
    /// none where they are not needed.
    pub(crate) z: Mat<T>,
}

/// A decomposition as plain numbers, to be sent.
#[derive(Clone, Debug)]
pub struct DecompositionParts<T> {
    /// Eigenvalues, ascending.
    pub values: Vec<f64>,
    /// Whether features outnumber samples.
    pub wide: bool,
    /// `[n_features, n_values]`.
    pub basis: Mat<T>,
    /// `[n_samples, n_values]`.
    pub z: Mat<T>,
}

impl<T> Decomposition<T> {
    /// As plain numbers.
    pub fn into_parts(self) -> DecompositionParts<T> {
        let Spectrum { values, basis, wide } = self.spectrum;
        DecompositionParts { values, wide, basis, z: self.z }
    }
}

impl<T> From<DecompositionParts<T>> for Decomposition<T> {
    fn from(parts: DecompositionParts<T>) -> Self {
        let DecompositionParts { values, wide, basis, z } = parts;
        Self { spectrum: Spectrum { values, basis, wide }, z }
    }
}

impl<T: Scalar> Prepared<T> {
    /// Centres the features `x`, `[n_samples, n_features]`, in their memory.
    ///
    /// # Errors
    /// Features that are not finite; settings out of range; folds that do not fit the samples.
    pub fn new(x: Mat<T>, settings: RidgeSettings) -> Result<Self> {
        validate(x.as_ref(), &settings)?;
        let (x, means) = centred(x)?;
        let folds = match &settings.cv {
            CrossValidation::LeaveOneOut => Vec::new(),
            CrossValidation::Folds(folds) => FoldRows::all(x.nrows(), folds)?,
        };
        Ok(Self { settings, shape: [x.nrows(), x.ncols()], x, means, folds })
    }

    /// `[n_samples, n_features]`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// How many decompositions a fit needs: one of all samples, and one of each fold.
    pub fn decompositions(&self) -> usize {
        1 + self.folds.len()
    }

    /// Whether any of them starts from the Gram matrix: not where features outnumber all samples.
    pub fn needs_gram(&self) -> bool {
        self.shape[0] >= self.shape[1]
    }

    /// What the samples `rows` add to the Gram matrix of the centred features, `[n_features, n_features]`.
    pub fn gram(&self, rows: Range<usize>) -> Mat<f64> {
        gram(self.x.subrows(rows.start, rows.len()))
    }

    /// Number `number` of the decompositions: 0 is that of all samples. `whole`: the Gram matrix, where one is needed.
    ///
    /// # Errors
    /// A matrix that does not converge; [`Error::Samples`] for a number that there is not.
    pub fn decompose(&self, number: usize, whole: Option<&Mat<f64>>) -> Result<Decomposition<T>> {
        let x = self.x.as_ref();
        match number.checked_sub(1) {
            None => {
                let spectrum = match whole.filter(|_| self.needs_gram()) {
                    Some(whole) => Spectrum::of_gram(whole)?,
                    None => Spectrum::of(x)?,
                };
                let z = match self.settings.cv {
                    CrossValidation::LeaveOneOut => spectrum.project(x),
                    CrossValidation::Folds(_) => Mat::zeros(0, 0),
                };
                Ok(Decomposition { spectrum, z })
            }
            Some(fold) => {
                let (found, expected) = (number, self.decompositions());
                let fold = self.folds.get(fold).ok_or(Error::Samples { what: "cv", found, expected })?;
                fold.decompose(x, whole)
            }
        }
    }

    /// The features, from who decomposes nothing any more: a fit by leave-one-out needs them in the basis only, and what others
    /// send of that may take their memory. Nothing for folds, whose fits need them.
    pub fn spare_features(&mut self) -> Option<Mat<T>> {
        (self.settings.cv == CrossValidation::LeaveOneOut).then(|| std::mem::replace(&mut self.x, Mat::new()))
    }

    /// A fit, ready for targets.
    ///
    /// # Errors
    /// Penalties too small for these features: [`Error::Condition`]. Other than all decompositions, in their order.
    pub fn with(self, mut decompositions: Vec<Decomposition<T>>) -> Result<RidgeCv<T>> {
        let (found, expected) = (decompositions.len(), self.decompositions());
        if found != expected {
            return Err(Error::Samples { what: "the list of decompositions", found, expected });
        }
        // Whoever has the decompositions of others says the same as they.
        decompositions.iter().try_for_each(|own| own.spectrum.check(&self.settings.alphas))?;
        let of_folds = decompositions.split_off(1);
        match decompositions.pop() {
            Some(whole) => Ok(RidgeCv::from_parts(self, whole, of_folds)),
            None => Err(Error::Samples { what: "the list of decompositions", found, expected }),
        }
    }
}
