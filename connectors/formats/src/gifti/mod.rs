//! GIFTI (`.gii`, also compressed): surfaces, and data on their vertices (GIFTI 1.0; values as nibabel reads them).
//!
//! A file is a list of arrays. In a time series, `.func.gii`, each time point is an array of its own, so that
//! [`GiftiReader`] reads it in memory of one time point. [`Surface`] has the points and triangles of a mesh.
//!
//! ```
//! use voxelflow_formats::gifti::{GiftiReader, GiftiWriter, Intent};
//! # fn main() -> voxelflow_formats::Result<()> {
//! let path = std::env::temp_dir().join(format!("gifti-doc-{}.func.gii", std::process::id()));
//! let mut writer = GiftiWriter::create(&path, 3, 2, Intent::TimeSeries, &[("AnatomicalStructurePrimary", "CortexLeft")])?;
//! writer.write_array(&[1.0, 2.5, -1.0], &[("TimeStep", "800")])?;
//! writer.write_array(&[0.0, 0.25, 1e-3], &[("TimeStep", "800")])?;
//! writer.finish()?;
//!
//! let mut reader = GiftiReader::open(&path)?;
//! assert_eq!(reader.header().structure(), Some("CortexLeft"));
//! let first = reader.next_array()?.unwrap();
//! assert_eq!((first.intent(), first.t_r()?), (Intent::TimeSeries, Some(0.8)));
//! assert_eq!(first.values(), [1.0, 2.5, -1.0]);
//! assert_eq!(reader.next_array()?.unwrap().values(), [0.0, 0.25, 1e-3]);
//! assert!(reader.next_array()?.is_none());
//! # std::fs::remove_file(path).ok();
//! # Ok(())
//! # }
//! ```

mod array;
mod content;
mod intent;
mod metadata;
mod reader;
mod surface;
mod writer;

pub use array::DataArray;
pub use intent::Intent;
pub use metadata::Metadata;
pub use reader::{GiftiHeader, GiftiReader, Label};
pub use surface::Surface;
pub use writer::GiftiWriter;
