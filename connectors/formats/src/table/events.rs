//! Events: what happened when, in seconds from the run's first stored volume.

use super::tsv::Table;
use crate::Result;
use crate::opening::open;
use std::io::Read;
use std::path::Path;

/// One row of an events file.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds after the run's first stored volume; negative when it came before.
    pub onset: f64,
    /// Seconds, at least 0; `None` where it is `n/a`.
    pub duration: Option<f64>,
    /// Condition; `None` where the column is absent or says `n/a`.
    pub trial_type: Option<String>,
    /// The line of the file.
    pub line: u64,
}

/// The events of a run, `*_events.tsv`, in the file's order.
///
/// Nothing is dropped here: events before the first volume or after the last may still reach into the run
/// through the haemodynamic response, and whoever convolves them knows its length.
#[derive(Clone, Debug)]
pub struct Events {
    table: Table,
    events: Vec<Event>,
}

impl Events {
    /// Reads the events at `path`.
    ///
    /// # Errors
    /// [`crate::Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads events from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// Those of [`Table::from_reader`], [`crate::Error::Column`] without `onset` or `duration`, and
    /// [`crate::Error::Cell`] for an onset that is no number, or a duration that is negative or neither a number
    /// nor `n/a`.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let table = Table::from_reader(source, name)?;
        let (onsets, durations) = (table.numbers("onset")?, table.numbers("duration")?);
        let trial_types =
            if table.has("trial_type") { table.text("trial_type")? } else { vec![None; table.len()] };
        let mut events = Vec::with_capacity(table.len());
        for (row, (&onset, &duration)) in onsets.iter().zip(&durations).enumerate() {
            if onset.is_nan() {
                return Err(table.cell(
                    row,
                    "onset",
                    "an event without onset cannot be placed; remove it".into(),
                ));
            }
            if duration < 0.0 {
                return Err(table.cell(row, "duration", format!("{duration} s is negative")));
            }
            let trial_type = trial_types[row].map(str::to_owned);
            let duration = Some(duration).filter(|duration| !duration.is_nan());
            events.push(Event { onset, duration, trial_type, line: table.line_of(row) });
        }
        Ok(Self { table, events })
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// All columns as text, those beyond onset, duration and trial type among them.
    pub fn table(&self) -> &Table {
        &self.table
    }
}
