//! Events of a run as `design` takes them: a BIDS table, or FSL's three columns.

use crate::{Error, Result, Stores};
use voxelflow_formats::table::{EvFile, Events};
use voxelflow_stage::{EventFiles, RunEvent, RunFiles};

/// The column of a table that gives events their height, as in nilearn.
const MODULATION: &str = "modulation";

/// Reads the events of a run, in the order of its files.
///
/// # Errors
/// A run without events; a file that is not there or cannot be read; a modulation that is `n/a`.
pub fn read_events(run: &RunFiles, stores: &Stores) -> Result<Vec<RunEvent>> {
    let missing = |path: &str, reason: &str| Error::Image { path: path.into(), reason: reason.into() };
    let bytes = |path: &str| {
        stores.read_if_there(path)?.ok_or_else(|| missing(path, "the events file is not there any more"))
    };
    match &run.events {
        None => Err(missing(
            &run.image,
            "no events were found for it; `voxelflow inspect` says what was looked for; OPTIONS (raw 'folder') of a BIDS \
             table or OPTIONS (events 'file') of another say where they are, and a subquery leaves runs without events out",
        )),
        Some(EventFiles::Table(path)) => of_table(&Events::from_reader(bytes(path)?.as_slice(), path)?),
        Some(EventFiles::ThreeColumns(files)) => {
            let mut events = Vec::new();
            for (file, (condition, path)) in files.iter().enumerate() {
                events.extend(EvFile::from_reader(bytes(path)?.as_slice(), path)?.events.iter().map(
                    |event| RunEvent {
                        onset: event.onset,
                        duration: Some(event.duration),
                        condition: Some(condition.clone()),
                        modulation: event.amplitude,
                        file,
                        line: event.line,
                    },
                ));
            }
            Ok(events)
        }
    }
}

fn of_table(events: &Events) -> Result<Vec<RunEvent>> {
    let table = events.table();
    let modulations = table.has(MODULATION).then(|| table.numbers(MODULATION)).transpose()?;
    let event = |(row, event): (usize, &voxelflow_formats::table::Event)| {
        let modulation = modulations.as_ref().map_or(1.0, |all| all[row]);
        if modulation.is_nan() {
            let reason =
                format!("line {}: its modulation is n/a; write a number, or remove the event", event.line);
            return Err(Error::Image { path: table.path().into(), reason });
        }
        let (onset, duration, condition) = (event.onset, event.duration, event.trial_type.clone());
        Ok(RunEvent { onset, duration, condition, modulation, file: 0, line: event.line })
    };
    events.events().iter().enumerate().map(event).collect()
}
