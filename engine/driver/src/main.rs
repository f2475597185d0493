//! The `voxelflow` command.

use clap::Parser;
use std::process::ExitCode;
use voxelflow::{command, flags::Flags};

fn main() -> ExitCode {
    command::run(Flags::parse())
}
