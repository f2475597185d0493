//! Text tables beside images: what is read, and what is refused with its place.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod events;
mod gradients;
mod numbers;
mod real_files;
mod tsv;
