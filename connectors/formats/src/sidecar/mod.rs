//! The JSON files of BIDS: what stands beside images ([`Sidecar`]) and beside confounds
//! ([`ConfoundsSidecar`]).
//!
//! Keys that are not used here are passed over; a key whose value is of the wrong kind is refused by name.

mod confounds;
mod image;
mod keys;

pub use confounds::{ConfoundNote, ConfoundsSidecar};
pub use image::{Sidecar, repetition_time};
