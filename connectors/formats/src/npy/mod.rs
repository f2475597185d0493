//! numpy's `.npy`, versions 1 to 3: one array of numbers in a file (numpy `lib/format.py`).
//!
//! Own code rather than a crate: the header is one line of Python, the numbers are those of every other format
//! here, and so are the errors, with file and byte.
//!
//! ```
//! use voxelflow_formats::npy::{NpyReader, NpyWriter};
//! # fn main() -> voxelflow_formats::Result<()> {
//! let path = std::env::temp_dir().join(format!("npy-doc-{}.npy", std::process::id()));
//! let mut writer = NpyWriter::<f32>::create(&path, &[2, 3])?;
//! writer.write(&[1.0, 2.0, 3.0])?;
//! writer.write(&[4.0, 5.0, 6.5])?;
//! writer.finish()?;
//!
//! let mut reader = NpyReader::open(&path)?;
//! assert_eq!(reader.header().shape, [2, 3]);
//! let mut row: Vec<f32> = Vec::new();
//! assert!(reader.next_row(&mut row)?);
//! assert_eq!(row, [1.0, 2.0, 3.0]);
//! assert_eq!(NpyReader::open(&path)?.read_all::<f64>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]);
//! # std::fs::remove_file(path).ok();
//! # Ok(())
//! # }
//! ```

mod header;
mod literal;
mod reader;
mod writer;

pub use crate::datatype::Value;
pub use header::NpyHeader;
pub use reader::NpyReader;
pub use writer::{NpyElement, NpyWriter};
