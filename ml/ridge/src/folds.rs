//! Cross-validation over folds: the Gram matrix of a training set is that of all samples less what is held out.

use crate::columns::{less, made, of_columns};
use crate::decomposition::Decomposition;
use crate::fold_sums::FoldTargets;
use crate::spectrum::{Spectrum, gram, product};
use crate::targets::TargetBlock;
use crate::{Error, Result, Scalar};
use faer::{ColRef, Mat, MatRef};
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

/// The samples that a fold does not see.
pub(crate) struct FoldRows {
    /// Those that are predicted come first.
    out: Vec<usize>,
    n_held: usize,
}

/// The mean of a column over `n_train` training samples, of what is held out: all samples sum to zero, so the training samples sum
/// to minus the others.
pub(crate) fn mean_of_train<T: Scalar>(out: ColRef<'_, T>, n_train: f64) -> f64 {
    -out.iter().map(|value| value.wide()).sum::<f64>() / n_train
}

/// Rows of `x`.
pub(crate) fn rows<T: Scalar>(x: MatRef<'_, T>, at: &[usize]) -> Mat<T> {
    made(at.len(), x.ncols(), |i, j| x[(at[i], j)])
}

impl FoldRows {
    /// Of `n_samples`.
    pub fn all(n_samples: usize, folds: &Folds) -> Result<Vec<Self>> {
        folds.check(n_samples)?;
        let fold = |(held, besides): (&[usize], &[usize])| Self {
            out: held.iter().chain(besides).copied().collect(),
            n_held: held.len(),
        };
        Ok(folds.each().map(fold).collect())
    }

    /// The samples that are predicted.
    pub fn held(&self) -> &[usize] {
        &self.out[..self.n_held]
    }

    /// How many these are.
    pub fn n_held(&self) -> usize {
        self.n_held
    }

    /// The samples that it does see, of `n_samples`.
    pub fn train(&self, n_samples: usize) -> Vec<usize> {
        let mut is_out = vec![false; n_samples];
        self.out.iter().for_each(|sample| is_out[*sample] = true);
        (0..n_samples).filter(|sample| !is_out[*sample]).collect()
    }

    /// Rows of centred features that are held out.
    pub fn features<T: Scalar>(&self, x: MatRef<'_, T>) -> FoldFeatures<T> {
        let x_out = rows(x, &self.out);
        let n_train = (x.nrows() - self.out.len()) as f64;
        let mean = |_, out: ColRef<'_, T>| mean_of_train(out, n_train);
        FoldFeatures { mean: of_columns(x_out.as_ref(), mean), n_train, x_out }
    }

    /// Decomposes the training samples of `x`. `whole`: the Gram matrix of all samples, which is of no use where they are
    /// fewer than features.
    pub fn decompose<T: Scalar>(
        &self,
        x: MatRef<'_, T>,
        whole: Option<&Mat<f64>>,
    ) -> Result<Decomposition<T>> {
        let own = self.features(x);
        let is_wide = x.nrows() - self.out.len() < x.ncols();
        let spectrum = match whole.filter(|_| !is_wide) {
            Some(whole) => Spectrum::of_gram(&own.gram_of_train(whole))?,
            None => {
                let train = self.train(x.nrows());
                let centred = |i: usize, j: usize| T::of(x[(train[i], j)].wide() - own.mean[j]);
                Spectrum::of(made(train.len(), x.ncols(), centred).as_ref())?
            }
        };
        let z = spectrum.project(own.about_train().as_ref());
        Ok(Decomposition { spectrum, z })
    }

    /// The fold's part of a block.
    pub fn targets<T: Scalar>(&self, block: &TargetBlock<T>) -> FoldTargets<T> {
        FoldTargets::new(block, &self.out, self.n_held)
    }
}

/// Features that a fold holds out.
pub(crate) struct FoldFeatures<T> {
    /// About the mean of all samples.
    x_out: Mat<T>,
    /// Of the training samples.
    mean: Vec<f64>,
    n_train: f64,
}

impl<T: Scalar> FoldFeatures<T> {
    /// The Gram matrix of the training samples about their mean, by that of all samples.
    pub fn gram_of_train(&self, whole: &Mat<f64>) -> Mat<f64> {
        let (away, mean, n) = (gram(self.x_out.as_ref()), &self.mean, self.n_train);
        made(whole.nrows(), whole.ncols(), |i, j| whole[(i, j)] - away[(i, j)] - n * mean[i] * mean[j])
    }

    /// What is held out, about the mean of the training samples.
    pub fn about_train(self) -> Mat<T> {
        let Self { mut x_out, mean, .. } = self;
        less(&mut x_out, &mean);
        x_out
    }
}

/// `XᵀY` of a block.
pub(crate) fn cross<T: Scalar>(x: MatRef<'_, T>, block: &TargetBlock<T>) -> Mat<T> {
    product(x.transpose(), block.values.as_ref())
}
