//! How `clean` reads confounds: operators know no files, and tables no operators.

use voxelflow_dataset::functions::inventory::submit;
use voxelflow_operators::{ConfoundsReader, SessionStores};
use voxelflow_tables::{Stores, confounds_version, read_confounds};

submit! {
    ConfoundsReader {
        read: |run, stores| read_confounds(run, &tables_stores(stores)).map_err(|e| e.to_string()),
        version: |run, stores| confounds_version(run, &tables_stores(stores)),
    }
}

fn tables_stores(stores: &SessionStores) -> Stores {
    stores.as_ref().map_or_else(Stores::default, |stores| Stores::in_registry(stores.clone()))
}
