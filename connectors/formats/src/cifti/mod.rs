//! CIFTI-2: series (`.dtseries.nii`) and maps (`.dscalar.nii`) of grayordinates, which are vertices of surfaces
//! and voxels of a volume in one list (CIFTI-2 specification, NITRC 2014).
//!
//! ```text
//!  NIfTI-2 header │ extension 32: XML  │ values
//!  dim[5] T, dim[6] N   what T and N are   T fastest: all time points of a grayordinate stand together
//! ```
//!
//! So [`CiftiReader`] gives one grayordinate's series at a time in memory of one series. Values of a few time
//! points for all grayordinates cost one pass over the file ([`CiftiReader::time_points`]).
//!
//! ```no_run
//! use voxelflow_formats::cifti::{Along, CiftiReader};
//! # fn main() -> voxelflow_formats::Result<()> {
//! let mut reader = CiftiReader::open("sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii")?;
//! println!("{} grayordinates", reader.header().grayordinates());
//! if let Along::Series(axis) = &reader.header().along {
//!     println!("every {:?} s", axis.t_r());
//! }
//! let mut series = Vec::new();
//! while reader.next_series(&mut series)? {}
//! # Ok(())
//! # }
//! ```

mod axes;
mod brain_models;
mod header;
mod reader;

pub use axes::{Along, SeriesAxis};
pub use brain_models::{BrainModel, Places, VolumeSpace};
pub use header::CiftiHeader;
pub use reader::CiftiReader;
