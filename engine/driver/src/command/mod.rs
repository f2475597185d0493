//! The subcommands: one file each, from flags to exit code.

mod cancel;
mod check;
mod cluster_part;
mod control;
mod inspect;
mod jobs;
mod logs;
mod node;
mod plan;
mod run;
mod sql;
mod synth;
mod warm_up;
mod why_waiting;

pub(crate) use cluster_part::{cluster_key, is_part, run as run_part};

use crate::{
    Result,
    driver_main::block_on,
    flags::{Command, Flags, Part},
};
use clap::CommandFactory;
use std::process::ExitCode;

/// Does what the flags ask for, and gives the exit code.
pub fn run(flags: Flags) -> ExitCode {
    block_on(Box::pin(execute(flags)))
}

/// Does what the flags ask for.
///
/// # Errors
/// Wrong input, or work that failed.
pub async fn execute(flags: Flags) -> Result<()> {
    match flags.command {
        Command::Run(run) => run::run(run, flags.json).await,
        Command::Plan(file) => plan::plan(file).await,
        Command::Check(file) => check::check(file).await,
        Command::Sql(sql) => sql::sql(sql).await,
        Command::Inspect(inspect) => inspect::inspect(inspect).await,
        Command::Synth(synth) => synth::synth(synth, flags.json),
        Command::WarmUp(warm_up) => warm_up::warm_up(&warm_up, flags.json),
        Command::Scheduler(scheduler) => cluster_part::run(Part::Scheduler(scheduler)).await,
        Command::Executor(executor) => cluster_part::run(Part::Executor(executor)).await,
        Command::Node(node) => node::node(node).await,
        Command::Jobs(jobs) => jobs::jobs(jobs, flags.json).await,
        Command::Logs(logs) => logs::logs(logs, flags.json).await,
        Command::WhyWaiting(job) => why_waiting::why_waiting(job, flags.json).await,
        Command::Cancel(job) => cancel::cancel(job, flags.json).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Flags::command(), "voxelflow", &mut std::io::stdout());
            Ok(())
        }
        Command::Man => {
            let page = clap_mangen::Man::new(Flags::command()).render(&mut std::io::stdout());
            page.map_err(|e| crate::Error::io(std::path::Path::new("standard output"), e))
        }
    }
}
