//! How tables of images and series tell what they read, so that what is persisted of them is known in later sessions.

use voxelflow_dataset::{SourceIdentity, functions::inventory};
use voxelflow_tables::{NiftiTable, SeriesTable};

inventory::submit! {
    SourceIdentity { of: |table| table.downcast_ref::<NiftiTable>()?.identity() }
}

inventory::submit! {
    SourceIdentity { of: |table| table.downcast_ref::<SeriesTable>()?.identity() }
}
