//! Brain encoding as a stage: `TRAIN MODEL enc USING ridge_cv (…) ON (series) FEATURES (features)`.
//!
//! ```text
//!   features [n, p] ─► delays within runs ─► X on every rank
//!   rows of X, a share each ─► Gram ─ summed ─► decompositions, dealt out ─ broadcast ─► every rank
//!   targets, a share each ──► what they say about the penalties ─ summed ─► penalties
//!                        └──► coefficients, intercepts, scores ─► the model's one file, each rank its part
//! ```
//! No product and no decomposition of the features alone is computed twice. Ranks that decompose have fewer targets, so
//! that all are busy alike.

mod delays;
mod estimator;
mod message;
mod model;
mod options;
mod ranks;
mod shares;
mod targets;
mod tensor_file;
mod work;

pub use estimator::{RidgeCvEstimator, RidgeCvKind};
pub use model::FittedRidgeCv;
pub use options::{Baseline, CvChoice, EncodingOptions, Permutation, Precision};

use std::sync::Arc;
use voxelflow_stage::StageKind;

/// The stages of this crate.
pub fn stages() -> Vec<Arc<dyn StageKind>> {
    vec![Arc::new(RidgeCvKind)]
}
