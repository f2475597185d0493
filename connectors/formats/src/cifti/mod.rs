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
//! let mut series = Vec::<f32>::new();
//! while reader.next_series(&mut series)? {}
//! # Ok(())
//! # }
//! ```

mod axes;
mod brain_models;
mod header;
mod reader;

/// Intent code of a file that does not say which of them it is: its XML does.
pub(crate) const UNSAID: i32 = 3000;
/// Intent codes of the kinds that are read.
pub(crate) const DENSE_SERIES: i32 = 3002;
pub(crate) const DENSE_SCALARS: i32 = 3006;

/// What to do with the others, such as `.ptseries.nii`.
pub(crate) const SAVE_AS_ARRAY: &str = "only dense series and dense scalars are read; of another kind save the array with \
                                        numpy, [rows, time points], and make a table STORED AS NPY of it";

pub use axes::{Along, SeriesAxis};
pub use brain_models::{BrainModel, Places, VolumeSpace};
pub use header::CiftiHeader;
pub use reader::CiftiReader;
