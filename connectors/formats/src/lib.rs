//! Bytes to typed records: the file formats of brain imaging, read and written without async and
//! without DataFusion.
//!
//! - [`bids`]: BIDS datasets and HCP folders: runs and the files that belong to them.
//! - [`nifti`]: NIfTI-1 and NIfTI-2 volumes, streamed one volume at a time.
//! - [`cifti`]: CIFTI-2 dense series and scalars, streamed one grayordinate at a time.
//! - [`gifti`]: surfaces and data on them, streamed one array at a time.
//! - [`mgh`]: FreeSurfer's volumes and surface data, streamed one frame at a time.
//! - [`npy`]: numpy's arrays.
//! - [`table`]: what stands beside an image as text: confounds, events, EV files, movement, b-values, phenotypes.
//! - [`sidecar`]: the JSON files beside images and confounds.

pub mod bids;
mod byte_stream;
pub mod cifti;
mod datatype;
mod dimension_order;
pub mod error;
pub mod gifti;
pub mod mgh;
pub mod nifti;
pub mod npy;
mod opening;
pub mod sidecar;
mod stored_values;
pub mod table;
mod whole_file;
mod xml;

pub use datatype::Value;
pub use error::{Error, Result};
pub use nifti::{
    DataType, Endian, NiftiHeader, NiftiReader, NiftiSpec, NiftiVersion, NiftiWriter, ReadOptions, Scaling,
    XformPolicy, XformSource,
};
pub use opening::not_opened;
