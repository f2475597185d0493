//! NVIDIA cards: a card's streams and libraries, kernels of our own, and operations on series that stay on the card.
//!
//! ```text
//!   Card ── context, streams, cuBLAS ──► operations ──► Autoencoder: forward, backward, update
//!     └──── kernels.cu ─ NVRTC ─ cache folder
//! ```
//! Nothing of CUDA is needed to compile this crate: the driver and its libraries are opened when a card is first asked
//! for. A machine that lacks them gives an [`Error`] that says what is missing ([`Error::is_input`]).

#![allow(unsafe_code)] // the driver and cuBLAS have no safe interface; every call says why it is sound

mod card;
mod error;
mod kernels;
mod libraries;

pub use card::Card;
pub use cudarc;
pub use error::{During, Error, Result};
pub use kernels::{cache_folder, cache_key};
pub use libraries::{Part, find};
