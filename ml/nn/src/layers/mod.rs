//! Layers, one file each: its shapes, its parameters if it has any, and its tests.
//!
//! Feature maps are `[n_samples, n_channels, length]`, hidden states `[n_samples, n_features]`.

mod activation;
mod conv1d;
mod conv1d_cpu;
mod linear;
mod max_pool;
mod unpool;
mod upsample;

#[cfg(test)]
pub(crate) mod gradient_check;

pub use activation::Activation;
pub use conv1d::{Conv1d, Padding};
pub use linear::Linear;
pub use max_pool::{Switches, max_pool_with_switches};
pub use unpool::unpool;
pub use upsample::upsample;
