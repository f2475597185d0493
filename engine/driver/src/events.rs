//! How `design` reads events: operators know no files, and tables no operators.

use voxelflow_dataset::functions::inventory::submit;
use voxelflow_operators::EventsReader;
use voxelflow_tables::{Stores, read_events};

submit! {
    EventsReader {
        read: |run, stores| {
            let stores = stores.as_ref().map_or_else(Stores::default, |stores| Stores::in_registry(stores.clone()));
            read_events(run, &stores).map_err(|e| e.to_string())
        },
    }
}
