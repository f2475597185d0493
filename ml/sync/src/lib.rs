//! How the ranks of a gang talk: point-to-point messages and collectives ([`Communicator`]), and the
//! agreement on parameters that training needs ([`GradientSync`]).
//!
//! ```text
//!              Contribution { gradient, samples, loss }
//!   rank r ────────────────────────────────────────────► GradientSync ─► parameters, Round
//!                                                          │
//!                                        parameter service ┴ ring all-reduce
//! ```
//!
//! A model never knows which of them it has: topology and consistency are settings of the gang.
//! This crate knows neither tensors of a library nor query plans: parameters are one flat `[f32]`.

mod allotment;
mod collectives;
mod communicator;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contribution;
mod element;
mod error;
mod gang;
mod gradient_sync;
mod in_process;
mod local_steps;
pub mod network;
mod optimizer;
mod position;
pub mod protocol;
mod rank;
mod ring;
mod settings;

pub use collectives::CommunicatorExt;
pub use communicator::Communicator;
pub use element::{Element, ReduceOp};
pub use error::{Error, Result};
pub use gang::{
    Deadlines, GangHost, GangSpec, Invitation, Line, Membership, Seat, Signal, Transport, enter,
    in_process_gang, serve,
};
pub use gradient_sync::{Contribution, GradientSync, OptimizerState, Round, Start, Traffic};
pub use in_process::{InProcessCommunicator, in_process_communicators};
pub use local_steps::{LocalSteps, StepTiming, local_steps_for, with_local_steps};
pub use optimizer::{Optimizer, compensate_delay, reduce};
pub use position::{Cursor, Lease, Place, Position, Totals};
pub use rank::Rank;
pub use ring::Ring;
pub use settings::{
    Codec, Consistency, LocalStepCount, OptimizerKind, OptimizerSettings, Outer, Reduction, SyncSettings,
    Topology, equal_ranges,
};
