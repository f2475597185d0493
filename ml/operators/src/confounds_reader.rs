//! How confounds are read. Operators know no files: the program that has both says it here.

use datafusion::execution::object_store::ObjectStoreRegistry;
use std::sync::Arc;
use voxelflow_signal::ConfoundTable;
use voxelflow_signal::confounds::CompcorComponent;
use voxelflow_stage::RunFiles;

/// What stands in the confounds of a run: the columns, and the components of CompCor that the sidecar lists.
pub type RunTable = (ConfoundTable, Vec<CompcorComponent>);

/// Where URLs lie: as the session says; nothing where there is none, and the environment says it.
pub type SessionStores = Option<Arc<dyn ObjectStoreRegistry>>;

/// Reads the confounds of a run. One is submitted by the program, with `inventory::submit!`.
pub struct ConfoundsReader {
    /// Reads; an error names the file and says what is wrong.
    pub read: fn(&RunFiles, &SessionStores) -> Result<RunTable, String>,
    /// A text that changes when a file does that `read` reads, without reading it; none where that cannot be told.
    pub version: fn(&RunFiles, &SessionStores) -> Option<String>,
}

inventory::collect!(ConfoundsReader);

/// Reads by the program's reader.
pub(crate) fn read_confounds(run: &RunFiles, stores: &SessionStores) -> Result<RunTable, String> {
    match inventory::iter::<ConfoundsReader>().next() {
        Some(reader) => (reader.read)(run, stores),
        None => Err("this program has no reader for them".into()),
    }
}

/// Which confounds a run has now, by the program's reader.
pub(crate) fn version_of_confounds(run: &RunFiles, stores: &SessionStores) -> Option<String> {
    (inventory::iter::<ConfoundsReader>().next()?.version)(run, stores)
}
