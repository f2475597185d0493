//! The training rows, readable in any order and any number of times.

use crate::{Error, Result};
use std::ops::Range;

/// The rows of all ranks, the same on each of them. Which rows a rank visits, and when, is the trainer's (leases of
/// [`GradientSync`](voxelflow_sync::GradientSync), a seeded permutation per epoch); where the rows lie (memory, a file,
/// an epoch cache on disk) is the feed's.
pub trait SeriesFeed: Send {
    /// Number of series, all ranks together.
    fn rows(&self) -> usize;
    /// Points of every series.
    fn time_points(&self) -> usize;
    /// Copies the series numbered `rows` into `into`, `[rows.len(), time_points]` row-major.
    ///
    /// # Errors
    /// A row number out of range, or storage that fails.
    fn read(&mut self, rows: &[usize], into: &mut [f32]) -> Result<()>;
    /// `rows` will probably be read next: a feed that has to fetch them may begin. A guess that is wrong costs time only.
    fn prefetch(&mut self, rows: &[usize]) {
        let _ = rows;
    }
}

/// Features, a row a sample, in 64 bits: of time stamps (1.7e9) no seconds are left in 32.
pub trait FeatureFeed: Send {
    /// Numbers of a sample.
    fn features(&self) -> usize;
    /// Copies the samples `rows` into `into`, `[rows.len(), features]` row-major.
    ///
    /// # Errors
    /// A sample that is not there, or storage that fails.
    fn read(&mut self, rows: Range<usize>, into: &mut [f64]) -> Result<()>;
}

/// Rows held in memory, `[rows, width]` row-major: series of 32 bits, or features of 64.
#[derive(Clone, Debug, Default)]
pub struct MemoryFeed<T = f32> {
    values: Vec<T>,
    width: usize,
}

impl<T: Copy> MemoryFeed<T> {
    /// Takes `values`, `[rows, width]` row-major.
    ///
    /// # Errors
    /// A length that is no multiple of `width`.
    pub fn try_new(values: Vec<T>, width: usize) -> Result<Self> {
        if width == 0 || !values.len().is_multiple_of(width) {
            let reason = format!("{} values are not whole rows of {width}", values.len());
            return Err(Error::Data { what: "feed".into(), reason });
        }
        Ok(Self { values, width })
    }

    fn copy(&self, rows: impl Iterator<Item = usize>, into: &mut [T]) -> Result<()> {
        for (row, out) in rows.zip(into.chunks_exact_mut(self.width)) {
            let own =
                self.values.get(row * self.width..(row + 1) * self.width).ok_or_else(|| Error::Data {
                    what: "feed".into(),
                    reason: format!("row {row} of {}", self.values.len() / self.width),
                })?;
            out.copy_from_slice(own);
        }
        Ok(())
    }
}

impl SeriesFeed for MemoryFeed<f32> {
    fn rows(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }
    fn time_points(&self) -> usize {
        self.width
    }
    fn read(&mut self, rows: &[usize], into: &mut [f32]) -> Result<()> {
        self.copy(rows.iter().copied(), into)
    }
}

impl FeatureFeed for MemoryFeed<f64> {
    fn features(&self) -> usize {
        self.width
    }
    fn read(&mut self, rows: Range<usize>, into: &mut [f64]) -> Result<()> {
        self.copy(rows, into)
    }
}
