//! What a training step on the CPU spends its time in, written for its caches and vector registers.
//!
//! ```text
//!   lanes ─► tile ─┬─► conv1d     forward, gradient of the input, gradient of the weights: no im2col
//!                  ├─► conv2d     the same of images, at any stride
//!                  └─► dense      fully connected layers
//!   maps, images ─────► pooling   max-pool with switches, unpool, repetition; pooling2d of images
//! ```
//! Feature maps lie in panels of 32 channels ([`maps`]), so that a row is whole vector registers and a convolution reads
//! its im2col where the input lies. Everything is generic over f32 and f64 ([`real`]): gradient checks run the same code.
//! Sums are taken in an order that does not depend on the number of threads.

pub(crate) mod conv1d;
pub(crate) mod conv2d;
pub(crate) mod dense;
mod images;
mod lanes;
pub(crate) mod maps;
mod planes;
pub(crate) mod pooling;
pub(crate) mod pooling2d;
pub(crate) mod real;
pub(crate) mod tile;
mod transpose;
