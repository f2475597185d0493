//! Confounds: one row per volume, one column of numbers per regressor.

use super::tsv::Table;
use crate::Result;
use crate::opening::open;
use std::io::Read;
use std::path::Path;

/// The confounds of a run as fMRIPrep writes them: `[volumes]` numbers in each named column.
///
/// A column is judged when it is asked for: programs write text and infinity into columns that nobody uses.
#[derive(Clone, Debug)]
pub struct Confounds {
    table: Table,
}

impl Confounds {
    /// Reads `*_desc-confounds_timeseries.tsv` (or `…_regressors.tsv`).
    ///
    /// # Errors
    /// [`crate::Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads confounds from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// Those of [`Table::from_reader`].
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        Ok(Self { table: Table::from_reader(source, name)? })
    }

    /// Path or URL as it was given.
    pub fn path(&self) -> &str {
        self.table.path()
    }

    /// Names of the columns, in the file's order.
    pub fn names(&self) -> &[String] {
        self.table.names()
    }

    /// Count of rows, which is that of the run's volumes.
    pub fn volumes(&self) -> usize {
        self.table.len()
    }

    /// The column `name`, `[volumes]`; NaN where the file says `n/a` or nothing, as in the first row of derivatives.
    ///
    /// # Errors
    /// [`crate::Error::Column`] when it is not there, [`crate::Error::Cell`] for a cell that is no finite number.
    pub fn column(&self, name: &str) -> Result<Vec<f64>> {
        self.table.numbers_or_nothing(name)
    }

    /// The line of the file where a volume's row stands.
    pub fn line_of(&self, volume: usize) -> u64 {
        self.table.line_of(volume)
    }
}
