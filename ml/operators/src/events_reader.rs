//! How events are read. Operators know no files: the program that has both says it here.

use crate::SessionStores;
use voxelflow_stage::{RunEvent, RunFiles};

/// Reads the events of a run. One is submitted by the program, with `inventory::submit!`.
pub struct EventsReader {
    /// Reads; an error names the file and says what is wrong.
    pub read: fn(&RunFiles, &SessionStores) -> Result<Vec<RunEvent>, String>,
}

inventory::collect!(EventsReader);

/// Reads by the program's reader.
pub(crate) fn read_events(run: &RunFiles, stores: &SessionStores) -> Result<Vec<RunEvent>, String> {
    match inventory::iter::<EventsReader>().next() {
        Some(reader) => (reader.read)(run, stores),
        None => Err("this program has no reader for events".into()),
    }
}
