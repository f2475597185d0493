//! Columns of numbers without names, such as the confounds that some pipelines write as `.txt` or `.1D`.

use super::number_lines::NumberLines;
use crate::Result;
use crate::opening::open;
use std::io::Read;
use std::path::Path;

/// Columns of numbers between white space, one row per volume, without a header.
#[derive(Clone, Debug, PartialEq)]
pub struct UnnamedColumns {
    /// `[columns]` of `[rows]` finite numbers.
    pub columns: Vec<Vec<f64>>,
}

impl UnnamedColumns {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`crate::Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// [`crate::Error::Line`] for a file without lines, a word that is no finite number, or a line of another length
    /// than the first; [`crate::Error::Read`] from the system.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let numbers = NumberLines::from_reader(source, name)?;
        let Some((first, row)) = numbers.lines.first() else {
            return Err(numbers.fault(1, "the file is empty".into()));
        };
        let mut columns = vec![Vec::with_capacity(numbers.lines.len()); row.len()];
        for (line, values) in &numbers.lines {
            if values.len() != columns.len() {
                let reason = format!("it has {} number(s), line {first} has {}", values.len(), columns.len());
                return Err(numbers.fault(*line, reason));
            }
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(*value);
            }
        }
        Ok(Self { columns })
    }

    /// Count of rows, which is that of the run's volumes.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }
}
