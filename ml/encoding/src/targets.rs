//! A rank's share of the targets, as the solver reads them.

use crate::options::STAGE;
use faer::MatMut;
use rayon::prelude::*;
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};
use voxelflow_ridge::{Error, Result, Scalar, Targets};
use voxelflow_stage::{Samples, SeriesFeed};

/// The targets `share` of all.
pub(crate) struct Share<'a> {
    pub series: &'a mut dyn SeriesFeed,
    pub samples: &'a Samples,
    pub share: Range<usize>,
    pub cancelled: &'a AtomicBool,
    /// Why the last read failed, whole.
    pub failed: Option<voxelflow_stage::Error>,
    /// `Σ (y − ȳ)² / n` over all targets of the share that vary and are finite, of the last pass.
    pub variance: f64,
}

impl Share<'_> {
    /// The series of targets by their numbers in the share, `[range.len(), n_samples]` row-major.
    fn read_series(&mut self, range: &Range<usize>) -> Result<Vec<f32>> {
        let mut values = vec![0.0; range.len() * self.samples.count()];
        let all = self.share.start + range.start..self.share.start + range.end;
        let read = match self.cancelled.load(Ordering::Relaxed) {
            true => Err(voxelflow_stage::Error::Cancelled),
            false => self.samples.read(self.series, all, &mut values),
        };
        read.map_err(|e| {
            let reason = e.to_string();
            self.failed = Some(e);
            Error::Targets { from: range.start, to: range.end, reason }
        })?;
        Ok(values)
    }

    /// The stage's error for the solver's: the cause, where reading targets was it.
    pub fn cause(&mut self, error: Error) -> voxelflow_stage::Error {
        self.failed.take().unwrap_or_else(|| crate::options::of_ridge(error))
    }
}

impl<T: Scalar> Targets<T> for Share<'_> {
    fn samples(&self) -> usize {
        self.samples.count()
    }

    fn count(&self) -> usize {
        self.share.len()
    }

    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, T>) -> Result<()> {
        let values = self.read_series(&range)?;
        if range.start == 0 {
            self.variance = 0.0;
        }
        if into.nrows() * into.ncols() != values.len() {
            let (found, expected) = (into.nrows(), self.samples.count());
            return Err(Error::Samples { what: STAGE, found, expected });
        }
        self.variance += into_columns(&values, into.as_mut(), variance).iter().sum::<f64>();
        Ok(())
    }
}

/// Puts series, one behind the other, into the columns of `into`; gives what `each` says of every one.
pub(crate) fn into_columns<T: Scalar, R: Send>(
    values: &[f32],
    into: MatMut<'_, T>,
    each: impl Fn(&[f32]) -> R + Sync,
) -> Vec<R> {
    let samples = into.nrows().max(1);
    let columns = into.par_col_iter_mut().zip(values.par_chunks_exact(samples));
    columns
        .map(|(column, series)| {
            column.iter_mut().zip(series).for_each(|(to, value)| *to = T::of(f64::from(*value)));
            each(series)
        })
        .collect()
}

/// Variance; 0 where it is none.
fn variance(series: &[f32]) -> f64 {
    let n = series.len().max(1) as f64;
    let mean = series.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let variance = series.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
    if variance.is_finite() { variance } else { 0.0 }
}
