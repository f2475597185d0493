//! Bytes to typed records: the file formats of brain imaging, read and written without async and
//! without DataFusion.
//!
//! - [`bids`]: BIDS datasets and HCP folders: runs and the files that belong to them.
//! - [`nifti`]: NIfTI-1 and NIfTI-2 volumes, streamed one volume at a time.
//! - [`table`]: what stands beside an image as text: confounds, events, EV files, movement, b-values, phenotypes.
//! - [`sidecar`]: the JSON files beside images and confounds.

pub mod bids;
pub mod error;
pub mod nifti;
pub mod sidecar;
pub mod table;

pub use error::{Error, Result};
pub use nifti::{
    DataType, Endian, NiftiHeader, NiftiReader, NiftiSpec, NiftiVersion, NiftiWriter, ReadOptions, Scaling,
    XformPolicy, XformSource,
};
