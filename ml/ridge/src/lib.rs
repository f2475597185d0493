//! Ridge regression of many targets: brain encoding, where features of a stimulus predict every voxel.
//!
//! ```text
//!   X [n_samples, n_features] ─► centred ─► Spectrum: Z = XV, λ           once; n × n where features outnumber samples
//!                                                  │
//!   Y, a block of targets at a time ─► M = ZᵀY ────┤
//!                                                  ├─► errors of every alpha ─► alpha: shared, or one a target
//!                                                  └─► coefficients V (λ + α)⁻¹ M of a block, handed on
//! ```
//! With Z and λ a ridge fit of any penalty α is `Ŷ = Z (λ + α)⁻¹ ZᵀY`, so one decomposition serves all penalties and
//! targets, and Y is never held whole: it is read block by block to choose α, and fitted from M, which is kept where there is
//! room for it; else Y is read again.
//!
//! Leave-one-out errors need no refits: `(y − ŷ)ᵢ / (1 − hᵢ)` with the leverage `hᵢ = 1/n + Σⱼ zᵢⱼ² / (λⱼ + α)`
//! (Golub, Heath & Wahba 1979). With one α for all targets even the predictions are not needed: the sum of squared
//! errors over targets follows from `M·Mᵀ`, `Y·Mᵀ` and the norms of Y's rows. Here and in every fold one product serves all
//! penalties: see `quadratic`.
//!
//! Scores agree with scikit-learn's `RidgeCV` and `KFold` searches; r, r² and R² are three things and never mixed.

mod banded;
mod ceiling;
mod columns;
mod decomposition;
mod error;
mod evidence;
mod fold_sums;
mod folds;
mod leave_one_out;
mod null;
mod penalties;
pub mod plan;
mod quadratic;
mod ridge_cv;
mod scalar;
mod score;
mod settings;
mod spectrum;
mod streamed;
mod targets;

pub use banded::{
    BandedCoefficients, BandedFit, BandedRidgeCv, BandedSettings, Part, SplitScores, Together, dirichlet,
    pearson_split, r2_split, split_scores,
};
pub use ceiling::{NoiseCeiling, noise_ceiling};
pub use decomposition::{Decomposition, DecompositionParts, Prepared};
pub use error::{Error, Result};
pub use evidence::{Evidence, RidgeFit};
pub use folds::{Folds, leave_one_run_out};
pub use null::{NullResult, NullTest, Permuted, Rearrangement, false_discovery, rearrangements};
pub use ridge_cv::{Coefficients, RidgeCv};
pub use scalar::Scalar;
pub use score::{Score, TargetScores, pearson, predict, predict_without_intercept, r2, target_scores};
pub use settings::{CrossValidation, RidgeSettings};
pub use streamed::{CardPlan, CardRates, FoldSizes, HeldOut, Step, StreamShape, StreamedRidge};
pub use targets::Targets;
