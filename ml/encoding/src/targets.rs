//! A rank's share of the targets, as the solver reads them.

use crate::options::STAGE;
use faer::{ColRef, MatMut};
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
    /// `Σ (y − ȳ)² / n` of each target of the share that was read; 0 where it is not finite.
    pub variances: Vec<f64>,
}

impl<'a> Share<'a> {
    /// Of `series`, of which nothing has been read.
    pub fn new(
        series: &'a mut dyn SeriesFeed,
        samples: &'a Samples,
        share: Range<usize>,
        cancelled: &'a AtomicBool,
    ) -> Self {
        let variances = vec![0.0; share.len()];
        Self { series, samples, share, cancelled, failed: None, variances }
    }

    /// The sum of the targets' variances.
    pub fn variance(&self) -> f64 {
        self.variances.iter().sum()
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
        let all = self.share.start + range.start..self.share.start + range.end;
        let read = match self.cancelled.load(Ordering::Relaxed) {
            true => Err(voxelflow_stage::Error::Cancelled),
            false => read_columns(self.series, self.samples, all, into.as_mut()),
        };
        read.map_err(|e| {
            let reason = e.to_string();
            self.failed = Some(e);
            Error::Targets { from: range.start, to: range.end, reason }
        })?;
        let own = self.variances[range].par_iter_mut().zip(into.par_col_iter_mut());
        own.for_each(|(own, column)| *own = variance(column.as_ref()));
        Ok(())
    }
}

/// Puts the series of the targets `range` into the columns of `into`, `[samples, range.len()]`.
///
/// # Errors
/// Rows that cannot be read.
pub(crate) fn read_columns<T: Scalar>(
    series: &mut dyn SeriesFeed,
    samples: &Samples,
    range: Range<usize>,
    mut into: MatMut<'_, T>,
) -> voxelflow_stage::Result<()> {
    if (into.nrows(), into.ncols()) != (samples.count(), range.len()) {
        let (rows, columns, count) = (into.nrows(), into.ncols(), samples.count());
        let reason = format!("{count} samples of {} targets for {rows} rows of {columns}", range.len());
        return Err(voxelflow_stage::Error::Data { what: STAGE.into(), reason });
    }
    let points = series.time_points().max(1);
    samples.read_runs(series, range, |before, within, values| {
        let columns = into.as_mut().subrows_mut(before, within.len());
        columns.par_col_iter_mut().zip(values.par_chunks_exact(points)).for_each(|(column, series)| {
            let own = column.iter_mut().zip(&series[within.clone()]);
            own.for_each(|(to, value)| *to = T::of(f64::from(*value)));
        });
    })
}

/// Variance; 0 where it is none.
fn variance<T: Scalar>(series: ColRef<'_, T>) -> f64 {
    let n = series.nrows().max(1) as f64;
    let mean = series.iter().map(|v| v.wide()).sum::<f64>() / n;
    let variance = series.iter().map(|v| (v.wide() - mean).powi(2)).sum::<f64>() / n;
    if variance.is_finite() { variance } else { 0.0 }
}
