//! Brain images as tables, and tables back to images.
//!
//! ```text
//!   STORED AS NIFTI LOCATION 'sub-*/func/*_bold.nii.gz'
//!     │ header only: T, grid, names            (NiftiTable)
//!     ▼
//!   one partition a file: volumes ─► mask ─► kept voxels, [T][V] in memory or in a temporary file
//!     │                                      (NiftiExec, VolumeStore)
//!     ▼
//!   batches: subject … k | series              rows sorted by voxel, the grid in the schema's metadata
//!     │ … any plan that keeps `voxel` and the grid …
//!     ▼
//!   check_export ─► export_maps ─► maps/{column}.nii.gz
//! ```

mod bids_name;
mod error;
mod export_maps;
mod export_plan;
mod export_rows;
mod image;
mod image_files;
mod mask;
mod mean_image;
mod nifti_exec;
mod nifti_options;
mod nifti_table;
mod series_rows;
mod travel;
mod volume_store;

pub use bids_name::BidsName;
pub use error::{Error, Result};
pub use export_maps::{ExportOptions, export_maps};
pub use export_plan::{ExportPlan, MapColumn, check_export};
pub(crate) use image::Image;
pub use mean_image::mean_image;
pub use nifti_exec::NiftiExec;
pub use nifti_options::{ByteSize, NiftiOptions};
pub use nifti_table::{NIFTI, NiftiTable, NiftiTableFactory};
