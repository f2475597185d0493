//! Neural networks as stages: layers, models composed of them, and the training loop of a rank.
//!
//! ```text
//!   layers/ ─► models/dist_dca/network ─► Objective ─► trainer ◄─► GradientSync (other ranks)
//!                                             │           └─► checkpoints
//!                                             ├─ a card: Resident, for a rank without peers
//!                                             └─ flat parameters, declaration order
//! ```
//! This is the only crate that names burn: what leaves it are the traits of `voxelflow-stage`, flat `[f32]`
//! vectors and safetensors files. Its errors are those of `voxelflow-stage`.

pub mod checkpoint;
mod device;
mod kernels;
pub mod layers;
pub mod models;
mod objective;
pub mod operations;
pub mod parameters;
mod trainer;
mod visits;

pub use device::{WarmedUp, check_device, device, warm_up};
pub use models::dist_dca::{DistDca, DistDcaConfig, DistDcaEstimator, DistDcaKind};
pub use models::histogram::HistogramKind;
pub use objective::{Objective, Resident};
pub use trainer::{Trained, train};

use std::sync::Arc;
use voxelflow_stage::StageKind;

/// The stages of this crate.
pub fn stages() -> Vec<Arc<dyn StageKind>> {
    vec![Arc::new(DistDcaKind), Arc::new(HistogramKind)]
}
