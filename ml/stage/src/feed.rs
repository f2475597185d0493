//! The training rows, readable in any order and any number of times.

use crate::{Error, Result};

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

/// Rows held in memory, `[rows, time_points]` row-major.
#[derive(Clone, Debug, Default)]
pub struct MemoryFeed {
    values: Vec<f32>,
    time_points: usize,
}

impl MemoryFeed {
    /// Takes `values`, `[rows, time_points]` row-major.
    ///
    /// # Errors
    /// A length that is no multiple of `time_points`.
    pub fn try_new(values: Vec<f32>, time_points: usize) -> Result<Self> {
        if time_points == 0 || !values.len().is_multiple_of(time_points) {
            let reason = format!("{} values are not whole series of {time_points} points", values.len());
            return Err(Error::Data { what: "feed".into(), reason });
        }
        Ok(Self { values, time_points })
    }
}

impl SeriesFeed for MemoryFeed {
    fn rows(&self) -> usize {
        self.values.len().checked_div(self.time_points).unwrap_or(0)
    }
    fn time_points(&self) -> usize {
        self.time_points
    }
    fn read(&mut self, rows: &[usize], into: &mut [f32]) -> Result<()> {
        let t = self.time_points;
        for (row, out) in rows.iter().zip(into.chunks_exact_mut(t)) {
            let series = self.values.get(row * t..(row + 1) * t).ok_or_else(|| Error::Data {
                what: "feed".into(),
                reason: format!("row {row} of {}", self.values.len() / t),
            })?;
            out.copy_from_slice(series);
        }
        Ok(())
    }
}
