//! Coefficients under the weights and penalties that were chosen.

use super::{Alone, BandedFit, BandedRidgeCv, Part, Together};
use crate::columns::{made, of_columns};
use crate::folds::cross;
use crate::spectrum::{Spectrum, narrowed, product};
use crate::targets::{TargetBlock, check_samples};
use crate::{Decomposition, Result, Scalar, Targets};
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
        take: impl FnMut(BandedCoefficients<T>) -> Result<()>,
    ) -> Result<()> {
        self.fit_together(fit, targets, &mut Alone, take)
    }

    /// As [`Self::fit`] of a share of the targets, where `together` shares decompositions.
    ///
    /// # Errors
    /// As [`Self::fit`]; what `together` says.
    pub fn fit_together(
        &self,
        fit: &BandedFit,
        targets: &mut dyn Targets<T>,
        together: &mut dyn Together<T>,
        mut take: impl FnMut(BandedCoefficients<T>) -> Result<()>,
    ) -> Result<()> {
        check_samples(targets, self.x.nrows())?;
        // All shares decompose what any of them has chosen.
        let mut counts = vec![0.0; self.settings.gammas.len()];
        fit.gammas.iter().flatten().for_each(|gamma| counts[*gamma] += 1.0);
        together.add_up(&mut counts)?;
        let chosen: Vec<Part> = counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0.0)
            .map(|(gamma, _)| Part { gamma, fold: None })
            .collect();
        for parts in chosen.chunks(self.settings.gammas_at_once.max(1)) {
            for (part, whole) in parts.iter().zip(together.decompose(self, parts)?) {
                self.fit_under(part.gamma, whole, fit, targets, &mut take)?;
            }
        }
        Ok(())
    }

    /// The targets whose weights are `gamma`.
    fn fit_under(
        &self,
        gamma: usize,
        whole: Decomposition<T>,
        fit: &BandedFit,
        targets: &mut dyn Targets<T>,
        take: &mut impl FnMut(BandedCoefficients<T>) -> Result<()>,
    ) -> Result<()> {
        let own: Vec<usize> =
            (0..fit.gammas.len()).filter(|target| fit.gammas[*target] == Some(gamma)).collect();
        let Spectrum { basis, values, .. } = whole.spectrum;
        for chunk in own.chunks(self.settings.block.max(1)) {
            let block = TargetBlock::gather(targets, &stretches(chunk))?;
            let m = match self.gram {
                Some(_) => product(basis.transpose(), cross(self.x.as_ref(), &block).as_ref()),
                None => product(basis.transpose(), block.values.as_ref()),
            };
            let shrunk = made(m.nrows(), m.ncols(), |i, j| {
                T::of(m[(i, j)].wide() / (values[i] + fit.alphas[chunk[j]]))
            });
            let mut weights = product(basis.as_ref(), shrunk.as_ref());
            if self.gram.is_none() {
                let scales = self.settings.scales(&self.settings.gammas[gamma]);
                weights = product(self.x.transpose(), weights.as_ref());
                for column in weights.col_iter_mut() {
                    column.iter_mut().zip(&scales).for_each(|(w, s)| *w = T::of(w.wide() * s * s));
                }
            }
            let intercepts = of_columns(weights.as_ref(), |j, weights| {
                block.means[j] - weights.iter().zip(&self.means).map(|(w, m)| w.wide() * m).sum::<f64>()
            });
            take(BandedCoefficients { targets: chunk.to_vec(), weights, intercepts })?;
        }
        Ok(())
    }

    /// All samples under γ: a basis of features (`D·V`) or, where features outnumber samples, of samples, and λ.
    pub(super) fn whole(&self, gamma: &[f64]) -> Result<Decomposition<T>> {
        let spectrum = match &self.gram {
            None => Spectrum::<T>::of_gram(&self.kernel(gamma).unwrap_or_else(|| Mat::zeros(0, 0)))?,
            Some(gram) => {
                let scales = self.settings.scales(gamma);
                let scaled = made(gram.nrows(), gram.ncols(), |i, j| gram[(i, j)] * scales[i] * scales[j]);
                let mut found = Spectrum::<f64>::of_gram(&scaled)?;
                for column in found.basis.col_iter_mut() {
                    column.iter_mut().zip(&scales).for_each(|(v, s)| *v *= s);
                }
                let Spectrum { values, basis, wide } = found;
                Spectrum { values, basis: narrowed(basis.as_ref()), wide }
            }
        };
        Ok(Decomposition { spectrum, z: Mat::zeros(0, 0) })
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
