//! Cross-validation over folds: the Gram matrix of a training set is that of all samples less what is held out.

use crate::columns::{made, of_columns};
use crate::decomposition::Decomposition;
use crate::fold_sums::FoldTargets;
use crate::spectrum::{Spectrum, gram, product};
use crate::targets::TargetBlock;
use crate::{Error, Result, Scalar};
use faer::{Mat, MatRef};
use serde::{Deserialize, Serialize};

/// Which samples are validated by which fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folds {
    n_samples: usize,
    /// Of each fold: samples that are predicted, ascending, and those besides that its fit does not see.
    folds: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Folds {
    /// `k` folds of neighbouring samples, as equal as can be, the first ones longer (scikit-learn's `KFold`).
    ///
    /// # Errors
    /// Fewer than two folds, or more than samples.
    pub fn contiguous(n_samples: usize, k: usize) -> Result<Self> {
        if k < 2 || k > n_samples {
            let reason = format!("{k} folds of {n_samples} samples; give a number from 2 to {n_samples}");
            return Err(Error::Setting { option: "cv", reason });
        }
        let (size, longer) = (n_samples / k, n_samples % k);
        let mut start = 0;
        let folds = (0..k).map(|fold| {
            let held: Vec<usize> = (start..start + size + usize::from(fold < longer)).collect();
            start += held.len();
            (held, Vec::new())
        });
        Ok(Self { n_samples, folds: folds.collect() })
    }

    /// Of each fold: samples that are predicted, ascending, and those besides that its fit does not see.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[usize], &[usize])> {
        self.folds.iter().map(|(held, besides)| (held.as_slice(), besides.as_slice()))
    }

    pub(crate) fn check(&self, n_samples: usize) -> Result<()> {
        if self.n_samples != n_samples {
            return Err(Error::Samples { what: "cv", found: self.n_samples, expected: n_samples });
        }
        for (fold, (held, besides)) in self.folds.iter().enumerate() {
            let left = n_samples - held.len() - besides.len();
            if left < 2 {
                let reason = format!(
                    "fold {fold} holds {} samples out, with {} beside them, and trains on {left}; give longer runs, or \
                     a smaller gap",
                    held.len(),
                    besides.len()
                );
                return Err(Error::Setting { option: "cv", reason });
            }
        }
        Ok(())
    }
}

/// A fold a run: a fit sees neither the run nor, of other runs, the `gap` samples that lie next to it in time.
///
/// Neighbouring volumes are alike, so folds that split runs at random flatter a model.
///
/// # Errors
/// Fewer than two runs.
pub fn leave_one_run_out(runs: &[usize], gap: usize) -> Result<Folds> {
    let mut names: Vec<usize> = runs.to_vec();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        let reason =
            "'run' needs two runs or more; give a number of folds, or 'loo', where there is one".into();
        return Err(Error::Setting { option: "cv", reason });
    }
    let fold = |run: &usize| {
        let held: Vec<usize> = (0..runs.len()).filter(|sample| runs[*sample] == *run).collect();
        let near = |sample: &usize| {
            let window = sample.saturating_sub(gap)..runs.len().min(sample + gap + 1);
            runs[*sample] != *run && runs[window].contains(run)
        };
        (held, (0..runs.len()).filter(near).collect())
    };
    Ok(Folds { n_samples: runs.len(), folds: names.iter().map(fold).collect() })
}

/// The samples of a fold, ready for blocks of targets.
pub(crate) struct FoldRows<T> {
    held: Vec<usize>,
    out: Vec<usize>,
    /// Of the training samples, about the mean of all.
    mean: Vec<f64>,
    n_train: usize,
    /// Rows held out, about the mean of all.
    x_out: Mat<T>,
}

/// Rows of `x`.
pub(crate) fn rows<T: Scalar>(x: MatRef<'_, T>, at: &[usize]) -> Mat<T> {
    made(at.len(), x.ncols(), |i, j| x[(at[i], j)])
}

impl<T: Scalar> FoldRows<T> {
    /// All folds over centred features.
    pub fn all(x: MatRef<'_, T>, folds: &Folds) -> Result<Vec<Self>> {
        folds.check(x.nrows())?;
        Ok(folds.folds.iter().map(|(held, besides)| Self::of(x, held, besides)).collect())
    }

    fn of(x: MatRef<'_, T>, held: &[usize], besides: &[usize]) -> Self {
        let out: Vec<usize> = held.iter().chain(besides).copied().collect();
        let n_train = x.nrows() - out.len();
        let x_out = rows(x, &out);
        // All samples sum to zero, so the training samples sum to minus the others.
        let mean =
            x_out.col_iter().map(|c| -c.iter().map(|v| v.wide()).sum::<f64>() / n_train as f64).collect();
        Self { held: held.to_vec(), out, mean, n_train, x_out }
    }

    /// Training samples are fewer than features: the Gram matrix of all samples is of no use.
    pub fn is_wide(&self) -> bool {
        self.n_train < self.x_out.ncols()
    }

    /// Decomposes the training samples of `x`. `whole`: the Gram matrix of all samples, unless the fold is wide.
    pub fn decompose(&self, x: MatRef<'_, T>, whole: Option<&Mat<f64>>) -> Result<Decomposition<T>> {
        let spectrum = match whole.filter(|_| !self.is_wide()) {
            Some(whole) => {
                let away = gram(self.x_out.as_ref());
                let n = self.n_train as f64;
                let train = made(x.ncols(), x.ncols(), |i, j| {
                    whole[(i, j)] - away[(i, j)] - n * self.mean[i] * self.mean[j]
                });
                Spectrum::of_gram(&train)?
            }
            None => {
                let mut is_out = vec![false; x.nrows()];
                self.out.iter().for_each(|sample| is_out[*sample] = true);
                let train: Vec<usize> = (0..x.nrows()).filter(|sample| !is_out[*sample]).collect();
                let centred = |i: usize, j: usize| T::of(x[(train[i], j)].wide() - self.mean[j]);
                Spectrum::of(made(self.n_train, x.ncols(), centred).as_ref())?
            }
        };
        let centred = |i: usize, j: usize| T::of(self.x_out[(i, j)].wide() - self.mean[j]);
        let x_held = made(self.held.len(), x.ncols(), centred);
        let z = spectrum.project(x_held.as_ref());
        Ok(Decomposition { spectrum, z })
    }

    /// The fold's part of a block. `xy`: `XᵀY` of all samples.
    pub fn targets(&self, block: &TargetBlock<T>, xy: &Mat<T>) -> FoldTargets<T> {
        let y_out = rows(block.values.as_ref(), &self.out);
        let n = self.n_train as f64;
        let means: Vec<f64> = of_columns(y_out.as_ref(), |_, c| -c.iter().map(|v| v.wide()).sum::<f64>() / n);
        let away = product(self.x_out.transpose(), y_out.as_ref());
        let train = made(xy.nrows(), xy.ncols(), |i, j| {
            T::of(xy[(i, j)].wide() - away[(i, j)].wide() - n * self.mean[i] * means[j])
        });
        let about = |i: usize, j: usize| T::of(y_out[(i, j)].wide() - means[j]);
        FoldTargets::new(train, made(self.held.len(), y_out.ncols(), about))
    }
}

/// `XᵀY` of a block.
pub(crate) fn cross<T: Scalar>(x: MatRef<'_, T>, block: &TargetBlock<T>) -> Mat<T> {
    product(x.transpose(), block.values.as_ref())
}
