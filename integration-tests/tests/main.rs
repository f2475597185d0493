//! One binary for all integration tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod cluster_jobs;
mod cluster_nodes;
mod cluster_training;
mod commands;
mod deploy;
mod example_01;
mod layers;
mod program;
mod taken_up;
mod unchanged;
mod whole_brain;
mod wrong_inputs;
