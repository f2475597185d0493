//! Layers, one file each: its shapes, its parameters if it has any, and its tests.
//!
//! Feature maps are `[n_samples, n_channels, length]`, images `[n_samples, n_channels, height, width]`, hidden states `[n_samples, n_features]`.

mod activation;
mod conv1d;
mod conv1d_cpu;
mod conv2d;
mod conv2d_cpu;
mod convolution_cpu;
mod linear;
mod max_pool;
mod pool2d;
mod pool2d_cpu;
mod unpool;
mod upsample;

#[cfg(test)]
pub(crate) mod gradient_check;

pub use activation::Activation;
pub use conv1d::{Conv1d, Padding};
pub use conv2d::Conv2d;
pub use linear::Linear;
pub use max_pool::{Switches, max_pool_with_switches};
pub use pool2d::{Switches2d, max_pool2d_with_switches, unpool2d, upsample2d};
pub use unpool::unpool;
pub use upsample::upsample;
