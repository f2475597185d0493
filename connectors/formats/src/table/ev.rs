//! FSL's explanatory variables in three columns, as in the `EVs` folders of the Human Connectome Project.

use super::number_lines::NumberLines;
use crate::opening::open;
use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// One line of a three-column file: a stretch of time and the height of the regressor in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvEvent {
    /// Seconds after the run's first stored volume; negative when it came before.
    pub onset: f64,
    /// Seconds, at least 0.
    pub duration: f64,
    /// Height of the regressor, mostly 1.
    pub amplitude: f64,
    /// The line of the file.
    pub line: u64,
}

/// A three-column file. The condition is the file's name, which the caller knows; a file without a line is a
/// condition that never happened.
#[derive(Clone, Debug, PartialEq)]
pub struct EvFile {
    /// The lines, in the file's order.
    pub events: Vec<EvEvent>,
}

impl EvFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// [`Error::Line`] for a line without exactly three finite numbers or with a negative duration,
    /// [`Error::Read`] from the system.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let rows = NumberLines::from_reader(source, name)?.into_rows::<3>("onset, duration, amplitude")?;
        let event = |(line, [onset, duration, amplitude]): (u64, [f64; 3])| {
            if duration < 0.0 {
                let reason = format!("the duration {duration} s is negative");
                return Err(Error::Line { path: name.into(), line, reason });
            }
            Ok(EvEvent { onset, duration, amplitude, line })
        };
        Ok(Self { events: rows.into_iter().map(event).collect::<Result<_>>()? })
    }
}
