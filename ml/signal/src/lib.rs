//! What is done to series and volumes before they are learned from: pure functions, no I/O.
//!
//! The order is that of nilearn's maskers, and these two hold it:
//!
//! ```text
//!   VolumePlan  volume ─► resample ─► smooth ─► voxels of a mask, or parcels ─► series
//!   Cleaner     [n, T] f32 rows ─► blocks of 8 series, [T][8] f64 ─► (fill ─►) detrend ─► filter ─► censor ─►
//!               regress ─► standardise ─► rows
//! ```
//!
//! [`select_confounds`] takes regressors and the kept volumes from fMRIPrep's table by nilearn's strategies,
//! [`compute_epi_mask`] finds the brain in a mean image, [`SurfaceSmoother`] smooths along a cortical surface,
//! [`design::Design`] says what a series would look like that answers to a run's events, [`pearson_r`] compares series pairwise. What is dropped, filled, constant or not finite is returned and counted,
//! never silent.
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

mod bspline;
mod butterworth;
mod clean;
pub mod confounds;
mod correlation;
mod cosine;
pub mod design;
mod detrend;
mod error;
mod gaussian;
mod grid;
pub mod lanes;
mod mask;
mod morphology;
pub mod parcels;
mod preparation;
mod regressors;
mod resampling;
mod sample_mask;
mod settings;
mod smoothing;
mod sosfiltfilt;
mod spline;
mod standardize;
mod surface;
mod volume_plan;

pub use butterworth::{Band, Butterworth, Section};
pub use clean::{CleanReport, Cleaner};
pub use confounds::{ConfoundSettings, ConfoundTable, Confounds, select_confounds};
pub use correlation::pearson_r;
pub use cosine::create_cosine_drift;
pub use design::{Design, DesignSettings};
pub use detrend::Detrend;
pub use error::{Error, Result};
pub use gaussian::gaussian_smooth;
pub use grid::Grid;
pub use mask::{EpiMask, MeanVolume, compute_epi_mask};
pub use morphology::{Volume, binary_dilation, binary_erosion, largest_connected_component};
pub use regressors::Regressors;
pub use resampling::{Clip, Interpolation, ResampleReport, Resampler};
pub use sample_mask::SampleMask;
pub use settings::{CleanSettings, Filter, Standardize};
pub use smoothing::{SmoothScratch, Smoother};
pub use surface::{SurfaceScratch, SurfaceSmoother};
pub use volume_plan::{VolumePlan, VolumeReport, VolumeScratch};
