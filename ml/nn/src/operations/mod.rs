//! What networks of convolutions are made of, as plain operations on slices: no tensors, no differentiation, no burn.
//!
//! | operation | passes | source |
//! |---|---|---|
//! | [`Conv2d`] | forward with bias and ReLU, gradients of input, weights and bias | cross-correlation, as PyTorch's `conv2d` |
//! | [`MaxPool2d`] | maxima with switches, unpooling (and gradient), its inverse | Zeiler and Fergus 2014 |
//! | [`average_pool2d`], [`upsample2d`] | forward, gradient | means of windows, repetition |
//!
//! The same operations with differentiation are in [`crate::layers`]; the update rules for flat parameters (Adagrad, SGD,
//! momentum, Adam) are `voxelflow_sync::Optimizer`, packing and unpacking is [`crate::parameters`].
//!
//! Images are `[n, c, h, w]`, row-major. Everything is there in f32 and f64, runs on the threads of rayon, and gives the
//! same bits whatever their number. What each costs stands beside it; `integration-tests/bench/operations.py` prints what
//! of it this machine reaches. On an NVIDIA card they are `voxelflow_cuda::image`, with the same definitions and channels last.

mod conv2d;
mod pool2d;

pub use conv2d::{Conv2d, Conv2dConfig};
pub use pool2d::{MaxPool2d, average_pool2d, average_pool2d_backward, upsample2d, upsample2d_backward};

use crate::kernels::real::Real;

/// The element types: `f32` and `f64`.
pub trait Float: Real {}
impl Float for f32 {}
impl Float for f64 {}
