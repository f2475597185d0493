//! What a fold is before any weight, and with one.

use crate::columns::{made, of_columns};
use crate::fold_sums::FoldTargets;
use crate::folds::rows;
use crate::spectrum::{Spectrum, gram, narrowed, product};
use crate::{Decomposition, Folds, Result, Scalar};
use faer::{Mat, MatRef};

/// A fold, and what its fits under any weights follow from.
pub(super) struct BandedFold<T> {
    pub held: Vec<usize>,
    /// Held samples first, then those that the fit does not see either.
    out: Vec<usize>,
    train: Vec<usize>,
    form: Form<T>,
}

enum Form<T> {
    /// At least as many training samples as features.
    Features {
        /// Of the training samples, about the mean of all.
        mean: Vec<f64>,
        /// Of the training samples, about their mean.
        gram: Mat<f64>,
        x_out: Mat<T>,
        /// About the mean of the training samples.
        x_held: Mat<T>,
    },
    /// More features: all that is needed is in the kernels of the bands.
    Samples,
}

impl<T: Scalar> BandedFold<T> {
    /// All folds over centred features `x`, whose Gram matrix is `whole` unless kernels are used.
    pub fn all(x: MatRef<'_, T>, whole: Option<&Mat<f64>>, folds: &Folds) -> Vec<Self> {
        let fold = |(held, besides): (&[usize], &[usize])| {
            let out: Vec<usize> = held.iter().chain(besides).copied().collect();
            let mut is_out = vec![false; x.nrows()];
            out.iter().for_each(|sample| is_out[*sample] = true);
            let train: Vec<usize> = (0..x.nrows()).filter(|sample| !is_out[*sample]).collect();
            let form = whole.map_or(Form::Samples, |whole| Self::features(x, whole, held, &out, train.len()));
            Self { held: held.to_vec(), out, train, form }
        };
        folds.each().map(fold).collect()
    }

    fn features(
        x: MatRef<'_, T>,
        whole: &Mat<f64>,
        held: &[usize],
        out: &[usize],
        n_train: usize,
    ) -> Form<T> {
        let n = n_train as f64;
        let x_out = rows(x, out);
        // All samples sum to zero, so the training samples sum to minus the others.
        let mean: Vec<f64> = x_out.col_iter().map(|c| -c.iter().map(|v| v.wide()).sum::<f64>() / n).collect();
        let away = gram(x_out.as_ref());
        let gram = made(x.ncols(), x.ncols(), |i, j| whole[(i, j)] - away[(i, j)] - n * mean[i] * mean[j]);
        let x_held = made(held.len(), x.ncols(), |i, j| T::of(x_out[(i, j)].wide() - mean[j]));
        Form::Features { mean, gram, x_out, x_held }
    }

    /// Under one γ: `Ŷ = Z · (λ + α)⁻¹ · basisᵀ · S` of the held samples, with S of [`BandedFold::targets`]. `scales` are √γ
    /// of the features, `kernel` is `Σ γ K` over bands where features outnumber samples.
    pub fn weighted(&self, scales: &[f64], kernel: Option<&Mat<f64>>) -> Result<Decomposition<T>> {
        match (&self.form, kernel) {
            (Form::Features { gram, x_held, .. }, _) => {
                let scaled = made(gram.nrows(), gram.ncols(), |i, j| gram[(i, j)] * scales[i] * scales[j]);
                let mut spectrum = Spectrum::<T>::of_gram(&scaled)?;
                for column in spectrum.basis.col_iter_mut() {
                    column.iter_mut().zip(scales).for_each(|(v, s)| *v = T::of(v.wide() * s));
                }
                let z = spectrum.project(x_held.as_ref());
                Ok(Decomposition { spectrum, z })
            }
            (Form::Samples, kernel) => self.samples(kernel.unwrap_or(&Mat::zeros(0, 0))),
        }
    }

    fn samples(&self, kernel: &Mat<f64>) -> Result<Decomposition<T>> {
        let (train, n) = (&self.train, self.train.len() as f64);
        // About the training samples' mean in feature space, which the kernel shows without features.
        let mean = |sample: usize| train.iter().map(|t| kernel[(*t, sample)]).sum::<f64>() / n;
        let of_train: Vec<f64> = train.iter().map(|t| mean(*t)).collect();
        let all = of_train.iter().sum::<f64>() / n;
        let of_held: Vec<f64> = self.held.iter().map(|h| mean(*h)).collect();
        let inner = made(train.len(), train.len(), |i, j| {
            kernel[(train[i], train[j])] - of_train[i] - of_train[j] + all
        });
        let outer = made(self.held.len(), train.len(), |i, j| {
            kernel[(self.held[i], train[j])] - of_held[i] - of_train[j] + all
        });
        let found = Spectrum::<f64>::of_gram(&inner)?;
        let z = narrowed(product(outer.as_ref(), found.basis.as_ref()).as_ref());
        let spectrum = Spectrum { values: found.values, basis: narrowed(found.basis.as_ref()), wide: true };
        Ok(Decomposition { spectrum, z })
    }

    /// The fold's part of centred targets `y`; `xy`: `XᵀY` of all samples, where kernels are not used.
    pub fn targets(&self, y: MatRef<'_, T>, xy: Option<&Mat<T>>) -> FoldTargets<T> {
        let n = self.train.len() as f64;
        let y_out = rows(y, &self.out);
        let means: Vec<f64> = of_columns(y_out.as_ref(), |_, c| -c.iter().map(|v| v.wide()).sum::<f64>() / n);
        let about = |from: &Mat<T>, count: usize| {
            made(count, y.ncols(), |i, j| T::of(from[(i, j)].wide() - means[j]))
        };
        let held = about(&y_out, self.held.len());
        let statistic = match (&self.form, xy) {
            (Form::Features { mean, x_out, .. }, Some(xy)) => {
                let away = product(x_out.transpose(), y_out.as_ref());
                made(xy.nrows(), xy.ncols(), |i, j| {
                    T::of(xy[(i, j)].wide() - away[(i, j)].wide() - n * mean[i] * means[j])
                })
            }
            _ => about(&rows(y, &self.train), self.train.len()),
        };
        FoldTargets::new(statistic, held)
    }
}
