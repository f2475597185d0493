//! NVIDIA cards: a card's streams and libraries, kernels of our own, and operations on series and images that stay on the
//! card.
//!
//! ```text
//!   Card ── context, streams, cuBLAS ──► operations ──► Autoencoder: forward, backward, update
//!     ├──── kernels.cu ─ NVRTC ─ cache folder
//!     ├──── image ──► convolution, pooling and up-sampling of images
//!     └──── matrix (cuSOLVER), regression ──► streamed ridge
//! ```
//! Nothing of CUDA is needed to compile this crate: the driver and its libraries are opened when a card is first asked
//! for. A machine that lacks them gives an [`Error`] that says what is missing ([`Error::is_input`]).

#![allow(unsafe_code)] // the driver and cuBLAS have no safe interface; every call says why it is sound

mod autoencoder;
mod card;
mod conv1d;
mod error;
pub mod image;
mod kernels;
mod launch;
mod libraries;
pub mod matrix;
mod memory;
mod pinned;
mod product;
pub mod regression;

pub use autoencoder::{Activation, Autoencoder, AutoencoderShape, Measured, Rates, Replicas, Rule};
pub use card::Card;
pub use conv1d::Conv1d;
pub use cudarc;
pub use error::{During, Error, Result};
pub use kernels::{cache_folder, cache_key};
pub use launch::Level;
pub use libraries::{Part, find};
pub use memory::{Memory, Values};
pub use pinned::Pinned;
pub use product::{Operand, Precision, Product};
