//! What every verb gives, for any number of partitions, and what is told when it cannot.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod failures;
mod fixture;
mod functions;
mod keys;
mod laziness;
mod parquet;
mod partitions;
mod persist;
mod rows;
mod train;
