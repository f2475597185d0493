//! What a fold is before any weight, and with one.

use crate::columns::made;
use crate::fold_sums::{FoldTargets, Statistic};
use crate::folds::FoldRows;
use crate::spectrum::{Spectrum, narrowed, product};
use crate::targets::TargetBlock;
use crate::{Decomposition, Folds, Result, Scalar};
use faer::{Mat, MatRef};

/// A fold, and what its fits under any weights follow from.
pub(super) struct BandedFold<T> {
    rows: FoldRows,
    form: Form<T>,
}

enum Form<T> {
    /// At least as many training samples as features.
    Features {
        /// Of the training samples, about their mean.
        gram: Mat<f64>,
        /// About the mean of the training samples.
        x_out: Mat<T>,
    },
    /// More features: all that is needed is in the kernels of the bands.
    Samples { train: Vec<usize> },
}

impl<T: Scalar> BandedFold<T> {
    /// All folds over centred features `x`, whose Gram matrix is `whole` unless kernels are used.
    pub fn all(x: MatRef<'_, T>, whole: Option<&Mat<f64>>, folds: &Folds) -> Result<Vec<Self>> {
        let form = |rows: &FoldRows| match whole {
            Some(whole) => {
                let own = rows.features(x);
                Form::Features { gram: own.gram_of_train(whole), x_out: own.about_train() }
            }
            None => Form::Samples { train: rows.train(x.nrows()) },
        };
        let folds = FoldRows::all(x.nrows(), folds)?;
        Ok(folds.into_iter().map(|rows| Self { form: form(&rows), rows }).collect())
    }

    /// How many samples are predicted.
    pub fn n_held(&self) -> usize {
        self.rows.n_held()
    }

    /// Under one γ: `Ŷ = Z · (λ + α)⁻¹ · basisᵀ · S` of the held samples, with S of [`BandedFold::targets`]. `scales` are √γ
    /// of the features, `kernel` is `Σ γ K` over bands where features outnumber samples.
    pub fn weighted(&self, scales: &[f64], kernel: Option<&Mat<f64>>) -> Result<Decomposition<T>> {
        match (&self.form, kernel) {
            (Form::Features { gram, x_out }, _) => {
                let scaled = made(gram.nrows(), gram.ncols(), |i, j| gram[(i, j)] * scales[i] * scales[j]);
                let mut spectrum = Spectrum::<T>::of_gram(&scaled)?;
                for column in spectrum.basis.col_iter_mut() {
                    column.iter_mut().zip(scales).for_each(|(v, s)| *v = T::of(v.wide() * s));
                }
                let z = spectrum.project(x_out.as_ref());
                Ok(Decomposition { spectrum, z })
            }
            (Form::Samples { train }, kernel) => self.samples(train, kernel.unwrap_or(&Mat::zeros(0, 0))),
        }
    }

    fn samples(&self, train: &[usize], kernel: &Mat<f64>) -> Result<Decomposition<T>> {
        let (held, n) = (self.rows.held(), train.len() as f64);
        // About the training samples' mean in feature space, which the kernel shows without features.
        let mean = |sample: usize| train.iter().map(|t| kernel[(*t, sample)]).sum::<f64>() / n;
        let of_train: Vec<f64> = train.iter().map(|t| mean(*t)).collect();
        let all = of_train.iter().sum::<f64>() / n;
        let of_held: Vec<f64> = held.iter().map(|h| mean(*h)).collect();
        let inner = made(train.len(), train.len(), |i, j| {
            kernel[(train[i], train[j])] - of_train[i] - of_train[j] + all
        });
        let outer = made(held.len(), train.len(), |i, j| {
            kernel[(held[i], train[j])] - of_held[i] - of_train[j] + all
        });
        let found = Spectrum::<f64>::of_gram(&inner)?;
        let z = narrowed(product(outer.as_ref(), found.basis.as_ref()).as_ref());
        let spectrum = Spectrum { values: found.values, basis: narrowed(found.basis.as_ref()), wide: true };
        Ok(Decomposition { spectrum, z })
    }

    /// The fold's part of a block of targets, and what they are in its bases; `xy`: `XᵀY` of all samples, where kernels are
    /// not used.
    pub fn targets<'a>(
        &self,
        block: &TargetBlock<T>,
        xy: Option<&'a Mat<T>>,
    ) -> (FoldTargets<T>, Statistic<'a, T>) {
        let (own, y) = (self.rows.targets(block), block.values.as_ref());
        let train = |train: &[usize]| Statistic::Samples(own.about_train(y, train));
        let statistic = match (&self.form, xy) {
            (Form::Samples { train: samples }, _) => train(samples),
            (Form::Features { .. }, Some(xy)) => Statistic::Features(xy),
            (Form::Features { .. }, None) => train(&self.rows.train(y.nrows())),
        };
        (own, statistic)
    }
}
