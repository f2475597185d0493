//! dist-DCA: the deep convolutional autoencoder of fMRI series that is trained on many executors
//! (Makkie et al., "Fast and scalable distributed deep convolutional autoencoder for fMRI big data analytics").
//!
//! ```text
//!   series [T] ─conv─pool─conv─pool─conv─pool─conv─► Z ─linear─► hidden [T]      encode
//!                 │switches│        │                              │
//!   X̂ [T] ◄─conv─unpool─conv─unpool─conv─unpool─conv◄ Z′ ◄─linear──┘            decode
//! ```
//!
//! Loss of a series: `½‖X − X̂‖² + ½λ‖Z − Z′‖²`.

mod config;
mod estimator;
mod measured;
mod model;
mod network;
mod objective;
mod on_card;
mod step;

pub use config::{Architecture, DistDcaConfig};
pub use estimator::{DistDcaEstimator, DistDcaKind};
pub use measured::{Measured, measure_operations};
pub use model::DistDca;
pub use network::Network;
pub use objective::DcaObjective;
