//! The subcommands: one file each, from flags to exit code.

mod check;
mod inspect;
mod plan;
mod run;
mod sql;
mod synth;

use crate::{
    Result,
    flags::{Command, Flags},
};
use clap::CommandFactory;

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
