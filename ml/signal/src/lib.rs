//! What is done to series and volumes before they are learned from: pure functions, no I/O.
//!
//! [`Cleaner`] applies `nilearn.signal.clean` (detrend, filter, regress, standardise) to many series at
//! once; [`compute_epi_mask`] finds the brain in a mean image; [`pearson_r`] compares series pairwise.
//!
//! ```text
//!   [n, T] f32 rows ─► blocks of 8 series, [T][8] f64 ─► detrend ─► filter ─► regress ─► standardise ─► rows
//! ```
//!
//! Series are interleaved in blocks ([`lanes`]) so that recurrences that run over time, as a Butterworth
//! filter, are vectorised across voxels.
//!
//! ```
//! use voxelflow_signal::{CleanSettings, Cleaner};
//!
//! let settings = CleanSettings { high_pass: Some(0.01), ..CleanSettings::default() };
//! let cleaner = Cleaner::try_new(&settings, 100, Some(2.0))?;
//! let mut series: Vec<f32> = (0..2 * 100).map(|t| 800.0 + (t % 7) as f32).collect(); // two voxels
//! let report = cleaner.clean(&mut series)?;
//! assert!(report.constant.is_empty() && report.not_finite.is_empty());
//! assert!(series[..100].iter().sum::<f32>().abs() < 1e-3);
//! # Ok::<(), voxelflow_signal::Error>(())
//! ```

mod butterworth;
mod clean;
mod correlation;
mod cosine;
mod detrend;
mod error;
mod gaussian;
pub mod lanes;
mod mask;
mod morphology;
mod regressors;
mod settings;
mod sosfiltfilt;
mod standardize;

pub use butterworth::{Band, Butterworth, Section};
pub use clean::{CleanReport, Cleaner};
pub use correlation::pearson_r;
pub use cosine::create_cosine_drift;
pub use detrend::Detrend;
pub use error::{Error, Result};
pub use gaussian::gaussian_smooth;
pub use mask::{EpiMask, MeanVolume, compute_epi_mask};
pub use morphology::{Volume, binary_dilation, binary_erosion, largest_connected_component};
pub use regressors::Regressors;
pub use settings::{CleanSettings, Filter, Standardize};
