//! Confounds: one row per volume, one column of numbers per regressor.

use super::tsv::Table;
use crate::Result;
use crate::opening::open;
use std::io::Read;
use std::path::Path;

/// The confounds of a run as fMRIPrep writes them: `[volumes]` numbers in each named column.
///
/// NaN stands where the file says `n/a`, as in the first row of derivatives; any other number is finite.
#[derive(Clone, Debug)]
pub struct Confounds {
    table: Table,
    columns: Vec<Vec<f64>>,
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
    /// Those of [`Table::from_reader`], and [`crate::Error::Cell`] for a cell that is neither a finite number
    /// nor `n/a`.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let table = Table::from_reader(source, name)?;
        let columns = (0..table.names().len()).map(|index| table.numbers_at(index)).collect::<Result<_>>()?;
        Ok(Self { table, columns })
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

    /// The column `name`, `[volumes]`, if it is there.
    pub fn column(&self, name: &str) -> Option<&[f64]> {
        let index = self.names().iter().position(|known| known == name)?;
        Some(&self.columns[index])
    }

    /// The column `name`, `[volumes]`.
    ///
    /// # Errors
    /// [`crate::Error::Column`] when it is not there.
    pub fn require(&self, name: &str) -> Result<&[f64]> {
        self.table.index(name).map(|index| &self.columns[index][..])
    }

    /// The line of the file where a volume's row stands.
    pub fn line_of(&self, volume: usize) -> u64 {
        self.table.line_of(volume)
    }
}
