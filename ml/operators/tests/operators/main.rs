//! Stages as plans, end to end in one process, with a stage small enough to be seen through.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod banded;
mod clean;
mod clean_confounds;
mod concatenate;
mod design;
mod encoding;
mod explain;
mod functions;
mod joins;
mod lengths;
mod line_stage;
mod masks;
mod precise;
mod predict;
mod refusals;
mod repeats;
mod split;
mod tables;
mod train;
