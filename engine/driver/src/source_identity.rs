//! How tables of images tell what they read, so that what is persisted of them is known in later sessions.

use voxelflow_dataset::{SourceIdentity, functions::inventory};
use voxelflow_tables::NiftiTable;

inventory::submit! {
    SourceIdentity { of: |table| table.downcast_ref::<NiftiTable>()?.identity() }
}
