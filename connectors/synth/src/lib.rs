//! Data with planted truth, so that what a model finds can be checked.
//!
//! [`HcpSynth`] describes series in the shape of the HCP motor task; [`HcpGenerator`] makes them, voxel
//! by voxel and in any order; [`write_hcp`] writes them as Parquet beside the truth and the design. [`write_bold`]
//! writes an image of any size with the same responses, volume by volume.
//!
//! ```text
//!   seed, subject, voxel ─► own random stream ─┐
//!   design (blocks ∗ HRF) ─► region's regressor ┼─► series = baseline·(…) + σ·(snr·a·x + AR(1) + drift + spikes)
//!   seed, subject ─► shared spikes ─────────────┘
//! ```

mod anatomy;
mod bold;
mod design;
mod error;
mod hcp;
mod write;

pub use anatomy::{Anatomy, Region};
pub use bold::{BoldSynth, write_bold};
pub use design::{Design, REGRESSORS};
pub use error::{Error, Result};
pub use hcp::{HcpGenerator, HcpSynth, VERSION};
pub use write::{Summary, WrittenFile, write_hcp};
