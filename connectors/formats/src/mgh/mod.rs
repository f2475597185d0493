//! FreeSurfer's `.mgh` and `.mgz`: volumes, and data on surfaces, whose vertices lie along the first axis.
//!
//! A header of 284 bytes, frames of values, and a footer that begins with the repetition time; all big-endian
//! (FreeSurfer wiki, "The MGH/MGZ Volume Format"). The affine is nibabel's,
//! save where the header gives no place: there it is FreeSurfer's (`setDirectionCosine`, coronal), of which nibabel
//! has the transpose.
//!
//! ```no_run
//! use voxelflow_formats::mgh::MghReader;
//! # fn main() -> voxelflow_formats::Result<()> {
//! let mut reader = MghReader::open("lh.rest.fsaverage5.mgz")?;
//! let vertices = reader.header().values();
//! let mut frame = Vec::<f32>::new();
//! while reader.next_frame(&mut frame)? {
//!     assert_eq!(frame.len(), vertices);
//! }
//! // The footer follows the last frame.
//! println!("repetition time: {:?} s", reader.t_r()?);
//! # Ok(())
//! # }
//! ```

mod header;
mod reader;

pub use header::MghHeader;
pub use reader::MghReader;
