//! Brain encoding as stages: `TRAIN MODEL enc USING ridge_cv (…) ON (series) FEATURES (features)`, and, with a weight for
//! each band of features, `banded_ridge_cv`.
//!
//! ```text
//!   features [n, p] ─► delays within runs ─► X on every rank
//!   rows of X, a share each ─► Gram ─ summed ─► decompositions, dealt out ─ broadcast ─► every rank
//!   targets, a share each ──► what they say about the penalties ─ summed ─► penalties
//!                        └──► coefficients, intercepts, scores ─► the model's one file, each rank its part
//! ```
//! A fitted model predicts series of other runs from their features, block of targets by block.
//!
//! No product and no decomposition of the features alone is computed twice. Ranks that decompose have fewer targets, so
//! that all are busy alike.

mod banded;
mod delays;
mod estimator;
mod held_out;
mod meeting;
mod message;
mod model;
mod needs;
mod options;
mod predict;
mod ranks;
mod repeats;
mod report;
mod shares;
mod solver;
#[cfg(test)]
mod streamed_tests;
mod targets;
mod tensor_file;
mod totals;
mod work;

pub use banded::{BandedOptions, BandedRidgeCvEstimator, BandedRidgeCvKind, Features};
pub use estimator::{RidgeCvEstimator, RidgeCvKind};
pub use model::FittedEncoding;
pub use options::{Baseline, CvChoice, EncodingOptions, Permutation, Precision, RidgeCvOptions};

use std::sync::Arc;
use voxelflow_stage::StageKind;

/// The stages of this crate.
pub fn stages() -> Vec<Arc<dyn StageKind>> {
    vec![Arc::new(RidgeCvKind), Arc::new(BandedRidgeCvKind)]
}
