//! Dataset: partitioned rows, described lazily and run by an action.
mod stage_planner;
pub use stage_planner::{OptionMap, StageError, StagePlanner, TrainRequest};
