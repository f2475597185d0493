//! The `voxelflow` command.

use clap::Parser;
use std::process::ExitCode;
use voxelflow::{command, flags::Flags};

fn main() -> ExitCode {
    let flags = Flags::parse();
    voxelflow::__private::block_on(command::execute(flags))
}
