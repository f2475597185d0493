//! The back end on the cores of this machine: what [`RidgeCv`](crate::RidgeCv) computes, block by block as it is told.

use super::backend::{Backend, Moments, Staging};
use crate::leave_one_out::{LeaveOneOut, SharedErrors};
use crate::score::Sums;
use crate::spectrum::{Spectrum, centred, product};
use crate::targets::TargetBlock;
use crate::{Coefficients, Error, Result, RidgeSettings, Scalar, Score};
use faer::{Mat, MatRef};
use std::{ops::Range, time::Instant};

/// Decomposed features.
pub(super) struct Cores<T> {
    n_samples: usize,
    x_means: Vec<f64>,
    spectrum: Spectrum<T>,
    z: Mat<T>,
    pass: Pass<T>,
    /// Held-out features in the spectrum's basis.
    z_held_out: Mat<T>,
    /// Of the block that was fitted last, in the spectrum's basis.
    weights: Mat<T>,
}

/// What is summed in a pass over the targets.
struct Pass<T> {
    errors: Option<SharedErrors<T>>,
    by_variance: bool,
    squares: Vec<f64>,
    busy: f64,
}

impl<T: Scalar> Cores<T> {
    pub fn new(x: MatRef<'_, T>, settings: &RidgeSettings) -> Result<Self> {
        let (x, x_means) = centred(x)?;
        let spectrum = Spectrum::of(x.as_ref())?;
        spectrum.check(&settings.alphas)?;
        let z = spectrum.project(x.as_ref());
        let pass = Pass { errors: None, by_variance: false, squares: Vec::new(), busy: 0.0 };
        let (z_held_out, weights) = (Mat::new(), Mat::new());
        Ok(Self { n_samples: x.nrows(), x_means, spectrum, z, pass, z_held_out, weights })
    }

    fn block(&self, range: Range<usize>, values: &[T]) -> Result<TargetBlock<T>> {
        let mut values = MatRef::from_column_major_slice(values, self.n_samples, range.len());
        let block = TargetBlock::read(&mut values, 0..range.len())?;
        Ok(TargetBlock { range, ..block })
    }
}

struct Plain<T>(Vec<T>);

impl<T: Send> Staging<T> for Plain<T> {
    fn values(&mut self) -> Result<&mut [T]> {
        Ok(&mut self.0)
    }
}

impl<T: Scalar> Backend<T> for Cores<T> {
    fn staging(&self, len: usize) -> Result<Box<dyn Staging<T>>> {
        Ok(Box::new(Plain(vec![T::of(0.0); len])))
    }

    fn begin(&mut self, count: usize, _largest: usize, by_variance: bool) -> Result<()> {
        let errors = Some(SharedErrors::new(self.n_samples, self.z.ncols()));
        self.pass = Pass { errors, by_variance, squares: vec![0.0; count], busy: 0.0 };
        Ok(())
    }

    fn add(&mut self, range: Range<usize>, values: &[T]) -> Result<()> {
        let clock = Instant::now();
        let mut block = self.block(range.clone(), values)?;
        if self.pass.by_variance {
            block.standardize();
        }
        if let Some(errors) = &mut self.pass.errors {
            errors.add(&block.values, &product(block.values.transpose(), self.z.as_ref()));
        }
        self.pass.squares[range].copy_from_slice(&block.squares);
        self.pass.busy += clock.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish(&mut self) -> Result<Moments> {
        Ok(Moments { squares: self.pass.squares.clone(), busy: self.pass.busy })
    }

    fn errors(&mut self, alphas: &[f64]) -> Result<Vec<f64>> {
        let sums = self.pass.errors.take();
        let alone = LeaveOneOut::new(&self.spectrum, &self.z, alphas);
        Ok(sums.map_or_else(Vec::new, |sums| alone.shared(&alone.sums(&sums), 0..self.n_samples)))
    }

    /// They are as large as the coefficients, which this machine's memory is not to hold.
    fn has_products(&self) -> bool {
        false
    }

    fn hold_out(&mut self, x: MatRef<'_, T>) -> Result<()> {
        let x = Mat::from_fn(x.nrows(), x.ncols(), |i, j| T::of(x[(i, j)].wide() - self.x_means[j]));
        self.z_held_out = self.spectrum.project(x.as_ref());
        Ok(())
    }

    fn fit(&mut self, range: Range<usize>, alphas: &[f64], values: Option<&[T]>) -> Result<Coefficients<T>> {
        let Some(values) = values else {
            let reason = "they were not read again".into();
            return Err(Error::Targets { from: range.start, to: range.end, reason });
        };
        let block = self.block(range.clone(), values)?;
        let m = product(self.z.transpose(), block.values.as_ref());
        let eigenvalues = &self.spectrum.values;
        self.weights =
            Mat::from_fn(m.nrows(), m.ncols(), |i, j| T::of(m[(i, j)].wide() / (eigenvalues[i] + alphas[j])));
        let weights = product(self.spectrum.basis.as_ref(), self.weights.as_ref());
        let intercept = |(j, mean): (usize, &f64)| {
            let offset: f64 = weights.col(j).iter().zip(&self.x_means).map(|(w, m)| w.wide() * m).sum();
            mean - offset
        };
        let intercepts = block.means.iter().enumerate().map(intercept).collect();
        Ok(Coefficients { range, weights, intercepts })
    }

    fn correlations(&mut self, actual: &[T]) -> Result<Vec<f64>> {
        let predicted = product(self.z_held_out.as_ref(), self.weights.as_ref());
        let of = |(column, actual): (faer::ColRef<'_, T>, &[T])| {
            let mut sums = Sums::default();
            column.iter().zip(actual).for_each(|(p, y)| sums.add(y.wide(), p.wide()));
            sums.score(Score::Pearson)
        };
        Ok(predicted.col_iter().zip(actual.chunks_exact(predicted.nrows().max(1))).map(of).collect())
    }
}
