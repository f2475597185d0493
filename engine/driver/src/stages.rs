//! The stages that this build has.

use std::sync::Arc;
use voxelflow_stage::StageKind;

/// All of them, from all crates of stages.
pub(crate) fn stages() -> Vec<Arc<dyn StageKind>> {
    [voxelflow_nn::stages(), voxelflow_encoding::stages()].concat()
}
