//! The NIfTI reader and writer on small files that the tests make.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../damage/mod.rs"]
mod damage;
mod field_cases;
mod headers;
mod image_bytes;
mod mutations;
mod round_trip;
mod writing;
