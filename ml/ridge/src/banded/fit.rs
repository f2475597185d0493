//! Coefficients under the weights and penalties that were chosen.

use super::{BandedFit, BandedRidgeCv};
use crate::folds::cross;
use crate::spectrum::{Spectrum, narrowed, product};
use crate::targets::{TargetBlock, check_samples};
use crate::{Result, Scalar, Targets};
use faer::Mat;
use std::ops::Range;

/// Coefficients of targets that share their weights γ.
#[derive(Clone, Debug)]
pub struct BandedCoefficients<T> {
    /// Which targets these are, ascending.
    pub targets: Vec<usize>,
    /// `[n_features, n_targets]`, of the features as they were given.
    pub weights: Mat<T>,
    /// Of each target.
    pub intercepts: Vec<f64>,
}

impl<T: Scalar> BandedRidgeCv<T> {
    /// Fits all samples with what `fit` chose; `take` gets the coefficients of targets of equal weights, a block at a
    /// time. Every target is read once; those that cannot be fitted are not read.
    ///
    /// # Errors
    /// Targets that cannot be read; what `take` says.
    pub fn fit(
        &self,
        fit: &BandedFit,
        targets: &mut dyn Targets<T>,
        mut take: impl FnMut(BandedCoefficients<T>) -> Result<()>,
    ) -> Result<()> {
        check_samples(targets, self.x.nrows())?;
        for at in 0..self.settings.gammas.len() {
            let own: Vec<usize> =
                (0..fit.gammas.len()).filter(|target| fit.gammas[*target] == Some(at)).collect();
            if own.is_empty() {
                continue;
            }
            let (basis, values) = self.whole(&self.settings.gammas[at])?;
            for chunk in own.chunks(self.settings.block.max(1)) {
                let block = TargetBlock::gather(targets, &stretches(chunk))?;
                let m = match self.gram {
                    Some(_) => product(basis.transpose(), cross(self.x.as_ref(), &block).as_ref()),
                    None => product(basis.transpose(), block.values.as_ref()),
                };
                let shrunk = Mat::from_fn(m.nrows(), m.ncols(), |i, j| {
                    T::of(m[(i, j)].wide() / (values[i] + fit.alphas[chunk[j]]))
                });
                let mut weights = product(basis.as_ref(), shrunk.as_ref());
                if self.gram.is_none() {
                    let scales = self.settings.scales(&self.settings.gammas[at]);
                    weights = product(self.x.transpose(), weights.as_ref());
                    for column in weights.col_iter_mut() {
                        column.iter_mut().zip(&scales).for_each(|(w, s)| *w = T::of(w.wide() * s * s));
                    }
                }
                let intercept = |j: usize| {
                    let offset: f64 = weights.col(j).iter().zip(&self.means).map(|(w, m)| w.wide() * m).sum();
                    block.means[j] - offset
                };
                let intercepts = (0..weights.ncols()).map(intercept).collect();
                take(BandedCoefficients { targets: chunk.to_vec(), weights, intercepts })?;
            }
        }
        Ok(())
    }

    /// All samples under γ: a basis of features (`D·V`) or, where features outnumber samples, of samples, and λ.
    fn whole(&self, gamma: &[f64]) -> Result<(Mat<T>, Vec<f64>)> {
        let Some(gram) = &self.gram else {
            let found = Spectrum::<T>::of_gram(&self.kernel(gamma).unwrap_or_else(|| Mat::zeros(0, 0)))?;
            return Ok((found.basis, found.values));
        };
        let scales = self.settings.scales(gamma);
        let scaled = Mat::from_fn(gram.nrows(), gram.ncols(), |i, j| gram[(i, j)] * scales[i] * scales[j]);
        let mut found = Spectrum::<f64>::of_gram(&scaled)?;
        for column in found.basis.col_iter_mut() {
            column.iter_mut().zip(&scales).for_each(|(v, s)| *v *= s);
        }
        Ok((narrowed(found.basis.as_ref()), found.values))
    }
}

/// The stretches without gaps that make up `targets`, ascending.
fn stretches(targets: &[usize]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for target in targets {
        match found.last_mut() {
            Some(last) if last.end == *target => last.end += 1,
            _ => found.push(*target..target + 1),
        }
    }
    found
}
