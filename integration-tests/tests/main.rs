//! One binary for all integration tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bids;
mod bids_tree;
mod cluster;
mod cluster_access;
mod cluster_by_hand;
mod cluster_jobs;
mod cluster_membership;
mod cluster_network;
mod cluster_nodes;
mod cluster_queues;
mod cluster_resume;
mod cluster_training;
mod commands;
mod counting;
mod deploy;
mod design;
mod example_01;
mod example_02;
mod field_cases;
mod import_memory;
mod import_resume;
mod layers;
mod ledger;
mod masker;
mod processes;
mod program;
#[path = "../../connectors/storage/tests/servers/mod.rs"]
mod servers;
mod stores;
mod subjects_and_runs;
mod taken_up;
mod unchanged;
mod whole_brain;
mod whole_brain_stores;
mod wrong_inputs;
