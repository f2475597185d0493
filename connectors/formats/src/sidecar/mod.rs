//! The JSON files of BIDS: what stands beside images ([`Sidecar`]) and beside confounds
//! ([`ConfoundsSidecar`]).
//!
//! Keys that are not used here are passed over; a key whose value is of the wrong kind is refused by name. `NaN` and
//! `Infinity`, which Python's `json` writes, are null.

mod confounds;
mod image;
mod keys;

pub use confounds::{ConfoundNote, ConfoundsSidecar};
pub use image::{Sidecar, repetition_time};
pub(crate) use keys::without_nan;
