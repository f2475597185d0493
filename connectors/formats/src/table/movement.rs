//! `Movement_Regressors.txt` of the Human Connectome Project's minimal preprocessing.

use super::number_lines::NumberLines;
use crate::Result;
use crate::opening::open;
use std::io::Read;
use std::path::Path;

/// Movement of the head: 12 numbers per volume.
#[derive(Clone, Debug, PartialEq)]
pub struct MovementRegressors {
    /// `[volumes]` of the columns [`Self::NAMES`].
    pub rows: Vec<[f64; 12]>,
}

impl MovementRegressors {
    /// The columns: translations in millimetres, rotations in degrees, then the derivatives of both (their
    /// difference to the volume before, 0 in the first).
    pub const NAMES: [&str; 12] = [
        "trans_x",
        "trans_y",
        "trans_z",
        "rot_x",
        "rot_y",
        "rot_z",
        "trans_x_derivative1",
        "trans_y_derivative1",
        "trans_z_derivative1",
        "rot_x_derivative1",
        "rot_y_derivative1",
        "rot_z_derivative1",
    ];

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
    /// [`crate::Error::Line`] for a file without lines, or a line without exactly 12 finite numbers; [`crate::Error::Read`]
    /// from the system.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let numbers = NumberLines::from_reader(source, name)?;
        if numbers.lines.is_empty() {
            return Err(numbers.fault(1, "the file is empty; it has 12 numbers per volume".into()));
        }
        let rows = numbers.into_rows::<12>("6 of movement and 6 of its derivatives")?;
        Ok(Self { rows: rows.into_iter().map(|(_, row)| row).collect() })
    }

    /// One column by its place in [`Self::NAMES`], `[volumes]`.
    pub fn column(&self, index: usize) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.get(index).copied()).collect()
    }
}
