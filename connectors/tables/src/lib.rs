//! Brain images, surfaces and what stands beside them as tables, and tables back to images.
//!
//! ```text
//!   STORED AS NIFTI LOCATION 'sub-*/func/*_bold.nii.gz' ─────────┐
//!   STORED AS BIDS LOCATION 's3://lab/fmriprep' (task 'motor' …) ─┤ which images, masks, confounds (run_tables)
//!     │ header only: T, grid, names            (NiftiTable) ◄─────┘
//!     ▼
//!   one partition a file: volumes ─► mask ─► kept voxels, [T][V] in memory or in a temporary file
//!     │        (resample ─► smooth ─► parcels, where the options say so: VolumeFlow, Steps)
//!     │                                      (NiftiExec, VolumeStore)
//!     ▼
//!   batches: subject … k | series              rows sorted by voxel, the grid in the schema's metadata
//!     │ … any plan that keeps `voxel` and the grid …
//!     ▼
//!   check_export ─► export_maps ─► maps/{column}.nii.gz
//!
//!   STORED AS GIFTI | CIFTI | MGH | NPY, BIDS (kind 'surface' …) ─► SeriesTable ─► SeriesExec: frames or rows of a file
//!     batches: subject … structure, vertex | series      the structures in the schema's metadata (SeriesOrigin)
//!   STORED AS EVENTS | CONFOUNDS | PARTICIPANTS …         read at once: rows in memory, with the keys of their runs
//! ```
//!
//! Both nodes that read series are one, [`FilesExec`], over what differs ([`FileRows`]): a partition a file here, and
//! on a cluster a partition for each row that says which file.

mod atlas;
mod beside_runs;
mod bids_options;
mod computed_rows;
mod confounds;
mod differences;
mod error;
mod events;
mod export_maps;
mod export_plan;
mod export_rows;
mod files_exec;
mod image;
mod image_files;
mod image_reader;
mod inspect;
mod inspect_file;
mod mask;
mod mean_image;
mod nifti_exec;
mod nifti_options;
mod nifti_table;
mod not_finite;
mod number;
mod run_keys;
mod run_tables;
mod series_columns;
mod series_exec;
mod series_file;
mod series_format;
mod series_options;
mod series_room;
mod series_rows;
mod series_smoothing;
mod series_table;
mod space;
mod steps;
mod stores;
mod structure;
mod table_factory;
mod text_columns;
mod text_file;
mod text_kind;
mod text_table;
mod travel;
mod volume_flow;
mod volume_options;
mod volume_set;
mod volume_store;

pub use bids_options::{BidsOptions, HcpOptions, Incomplete, RunImageOptions, RunKind};
pub use confounds::{confounds_version, read_confounds};
pub use error::{Error, Result};
pub use events::read_events;
pub use export_maps::{ExportOptions, export_maps};
pub use export_plan::{ExportPlan, MapColumn, check_export};
pub use files_exec::{FileRows, FilesExec};
pub(crate) use image::Image;
pub use inspect::{FolderReport, InspectedRun, inspect_folder};
pub use inspect_file::{FileLine, inspect_file};
pub use mean_image::mean_image;
pub use nifti_exec::{ImageRows, NiftiExec};
pub use nifti_options::{ByteSize, NiftiOptions};
pub use nifti_table::NiftiTable;
pub use run_keys::RunKeys;
pub use series_exec::{SeriesExec, SeriesRows};
pub use series_format::SeriesFormat;
pub use series_options::SeriesOptions;
pub use series_table::SeriesTable;
pub use stores::Stores;
pub use table_factory::ImageTables;
pub use text_kind::TextTables;
pub use text_table::TextOptions;
pub use volume_options::{Millimetres, Target, VolumeOptions};
