//! NIfTI-1 and NIfTI-2 in single files, `.nii` and `.nii.gz`.
//!
//! ```text
//!  file, HTTP body, …  ──►  ByteStream            ──►  Layout → NiftiHeader
//!  (any `Read`)             gzip by content, CRC,       │
//!                           bytes counted               ▼
//!                                                  NiftiReader::next_volume: raw chunk → scaled f32
//! ```
//!
//! Layout and rules are those of the NIfTI-1.1 and NIfTI-2 standards (nifti1.h, nifti2.h); where the
//! standard leaves a choice, the result equals nibabel's.
//!
//! ```
//! use voxelflow_formats::{DataType, NiftiReader, NiftiSpec, NiftiWriter};
//! # fn main() -> voxelflow_formats::Result<()> {
//! let path = std::env::temp_dir().join(format!("nifti-doc-{}.nii.gz", std::process::id()));
//! let spec = NiftiSpec::new([2, 2, 1], 3).with_voxel_size([2.0, 2.0, 2.5]).with_t_r(2.0);
//! let mut writer = NiftiWriter::create(&path, &spec)?;
//! for t in 0..3 {
//!     writer.write_volume(&[t as f32, 0.1, 0.2, 0.3])?;
//! }
//! writer.finish()?;
//!
//! let mut reader = NiftiReader::open(&path)?;
//! assert_eq!((reader.header().data_type, reader.header().volumes), (DataType::F32, 3));
//! assert_eq!(reader.header().t_r()?, Some(2.0));
//! let mut volume = Vec::<f32>::new();
//! while reader.next_volume(&mut volume)? {
//!     assert_eq!(volume[1], 0.1);
//! }
//! # std::fs::remove_file(path).ok();
//! # Ok(())
//! # }
//! ```

mod affine;
pub(crate) mod extension;
mod header;
mod layout;
mod reader;
mod writer;

pub use crate::datatype::{DataType, Endian, Scaling};
pub use affine::{XformPolicy, XformSource};
pub use header::NiftiHeader;
pub(crate) use header::{PLAUSIBLE_T_R, scaling, vox_offset};
pub(crate) use layout::Layout;
pub use layout::NiftiVersion;
pub use reader::{NiftiReader, ReadOptions};
pub use writer::{NiftiSpec, NiftiWriter};
