//! The back end on the cores of this machine: [`RidgeCv`], block by block as it is told.

use super::backend::{Backend, Staging};
use crate::{
    Coefficients, Error, Evidence, Result, RidgeCv, RidgeFit, RidgeSettings, Scalar, pearson, predict,
};
use faer::{Mat, MatRef};
use std::{ops::Range, time::Instant};

/// Decomposed features, and what is known of the targets that passed.
pub(super) struct Cores<T> {
    ridge: RidgeCv<T>,
    n_samples: usize,
    evidence: Evidence<T>,
    busy: f64,
    held_out: Option<Mat<T>>,
    /// Of the block that was fitted last, from the held-out features.
    predicted: Mat<T>,
}

impl<T: Scalar> Cores<T> {
    pub fn new(x: MatRef<'_, T>, settings: &RidgeSettings) -> Result<Self> {
        // Each block would be kept as if it were all.
        let ridge = RidgeCv::new(x.to_owned(), RidgeSettings { read_once: false, ..settings.clone() })?;
        let (n_samples, evidence, predicted) = (x.nrows(), Evidence::default(), Mat::new());
        Ok(Self { ridge, n_samples, evidence, busy: 0.0, held_out: None, predicted })
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

    fn begin(&mut self, _count: usize, _largest: usize) -> Result<()> {
        (self.evidence, self.busy) = (Evidence::default(), 0.0);
        Ok(())
    }

    fn add(&mut self, range: Range<usize>, values: &[T]) -> Result<()> {
        let clock = Instant::now();
        let mut block = MatRef::from_column_major_slice(values, self.n_samples, range.len());
        self.evidence.append(self.ridge.evidence(&mut block)?);
        self.busy += clock.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish(&mut self) -> Result<f64> {
        Ok(self.busy)
    }

    fn evidence(&mut self) -> Result<(Evidence<T>, Vec<f64>)> {
        let evidence = std::mem::take(&mut self.evidence);
        let mean_scores =
            self.ridge.mean_scores(evidence.sums(), 0..self.n_samples, |_| Ok::<_, Error>(()))?;
        Ok((evidence, mean_scores))
    }

    /// They are as large as the coefficients, which this machine's memory is not to hold.
    fn has_products(&self) -> bool {
        false
    }

    fn hold_out(&mut self, x: MatRef<'_, T>) -> Result<()> {
        self.held_out = Some(x.to_owned());
        Ok(())
    }

    fn fit(&mut self, range: Range<usize>, alphas: &[f64], values: Option<&[T]>) -> Result<Coefficients<T>> {
        let again = || {
            let reason = "they were not read again".into();
            Error::Targets { from: range.start, to: range.end, reason }
        };
        let values = values.ok_or_else(again)?;
        let mut block = MatRef::from_column_major_slice(values, self.n_samples, range.len());
        let fit = RidgeFit::of_alphas(alphas.to_vec());
        let mut weights = Mat::zeros(0, 0);
        let (mut intercepts, mut scores) = (Vec::with_capacity(range.len()), Vec::new());
        self.ridge.fit(&fit, &mut block, |part| {
            if weights.ncols() == 0 {
                weights = Mat::zeros(part.weights.nrows(), range.len());
            }
            weights.subcols_mut(part.range.start, part.range.len()).copy_from(&part.weights);
            intercepts.extend(part.intercepts);
            scores.extend(part.scores);
            Ok(())
        })?;
        let found = Coefficients { range: range.clone(), weights, intercepts, scores };
        if let Some(x) = &self.held_out {
            self.predicted = predict(x.as_ref(), &found);
        }
        Ok(found)
    }

    fn correlations(&mut self, actual: &[T]) -> Result<Vec<f64>> {
        let each = self.predicted.col_iter().zip(actual.chunks_exact(self.predicted.nrows().max(1)));
        let of = |(predicted, actual): (faer::ColRef<'_, T>, &[T])| {
            let actual: Vec<f64> = actual.iter().map(|value| value.wide()).collect();
            pearson(&actual, &predicted.iter().map(|value| value.wide()).collect::<Vec<_>>())
        };
        Ok(each.map(of).collect())
    }
}
