//! Operations on images that stay on the card: what networks of convolutions are made of.
//!
//! | operation | passes | kernels |
//! |---|---|---|
//! | [`Conv2d`] | forward with bias and ReLU, gradients of input, weights and bias | implicit products of matrices |
//! | [`Pool2d`] | maxima with switches, unpooling (and gradient), its inverse | one pass over memory each |
//! | [`Repeat2d`] | up-sampling by repetition, gradient | one pass over memory each |
//!
//! The definitions are those of `voxelflow_nn::operations` on the CPU. Images lie channels last, `[sample][line][column]
//! [channel]`, without a border, in the values of the [`Precision`](crate::Precision): float32 or bfloat16. Parameters and
//! their gradients are float32, in the order of the CPU and of PyTorch, `[filter][channel][line][column]`, anywhere in a
//! flat buffer.
//!
//! Against float64 in the norm, on images of `image_check`: float32 1e-6, TF32 3e-4, bfloat16 2e-3, which is the rounding of
//! what is written; gradients of weights and bias, which are float32, 1e-6 in bfloat16 too.
//!
//! Everything is launched on [`Card::stream`](crate::Card::stream) and returns without waiting, so passes can be captured
//! in a graph once each has run. Sums have a fixed order: the same inputs on the same kind of card give the same bits.

mod around;
mod conv2d;
mod hopper;
mod pool;
mod shape;

pub use conv2d::Conv2d;
pub use pool::{Pool2d, Repeat2d};
pub use shape::Conv2dShape;
