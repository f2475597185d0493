//! One binary for all integration tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod layers;
