//! The language as a whole, in one binary: DataFusion is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod golden;
mod parser_properties;
mod running;
mod stages;
