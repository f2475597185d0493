//! Where data lie: a URL or a plain path becomes an object store and a path in it, through one cached
//! registry. Writers of local files publish through [`AtomicFile`], so that nothing half-written is seen.
//!
//! ```text
//!   data/run.nii.gz      ─┐
//!   file:///data/run.nii  ├─► StoreRegistry ─► Location { store, path }
//!   memory://name/rows    │        └─ one store for each scheme://authority, made once
//!   s3:// hdfs:// http:// ┘   (refused by name until their stores are built in)
//! ```

mod atomic_file;
pub mod conformance;
mod error;
mod location;
mod registry;

pub use atomic_file::{AtomicFile, publish};
pub use error::{Error, Result};
pub use location::{Location, Place};
pub use registry::StoreRegistry;
