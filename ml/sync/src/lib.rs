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

mod error;
mod gradient_sync;
mod rank;
mod settings;

pub use error::{Error, Result};
pub use gradient_sync::{Contribution, GradientSync, OptimizerState, Round, Traffic};
pub use rank::Rank;
pub use settings::{Consistency, OptimizerKind, OptimizerSettings, SyncSettings, Topology};
