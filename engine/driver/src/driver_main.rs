//! From `async fn main(session)` to a process: runtime, session, exit code.

use crate::{
    DEFAULT_OUT, Error, Result, Session, command,
    flags::{ClusterFlags, PartFlags},
};
use clap::Parser;
use std::{env, future::Future, path::PathBuf, pin::Pin, process::ExitCode};
use voxelflow_dataset::log_tail::start_log;

/// Work of a program. Boxed, so that this crate compiles what runs it once, and not every program again.
type Work<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Runs `work` on a runtime of its own and turns its end into an exit code: 0, 1 (failed) or 2 (wrong input).
pub(crate) fn block_on(work: Work<'_>) -> ExitCode {
    start_log();
    name_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Deep plans recurse deeply.
        .thread_stack_size(32 << 20)
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(unless_stopped(work)).and_then(|()| crate::output::check()),
        Err(e) => Err(Error::input("threads", format!("the runtime cannot start: {e}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let text = e.to_string();
            // The language's errors say so themselves.
            let prefix = if text.starts_with("error") { "" } else { "error: " };
            eprintln!("{prefix}{text}");
            ExitCode::from(e.exit_code())
        }
    }
}

/// Starts the threads that compute. Started by whoever computes first, they would bear the name of that thread.
fn name_threads() {
    let pool = rayon::ThreadPoolBuilder::new().thread_name(|n| format!("voxelflow-{n}"));
    if let Err(e) = pool.build_global() {
        log::debug!("the threads that compute run already: {e}");
    }
}

/// `work` to its end, or until the user stops it.
async fn unless_stopped(work: Work<'_>) -> Result<()> {
    tokio::select! {
        ended = work => ended,
        _ = tokio::signal::ctrl_c() => Err(Error::Interrupted),
    }
}

/// What `#[voxelflow::main]` calls. The session writes below `VOXELFLOW_OUT`, or `voxelflow-out/NAME`; it runs on
/// the cluster `VOXELFLOW_CLUSTER` (whose key is in the file `VOXELFLOW_CLUSTER_KEY`), or on `VOXELFLOW_EXECUTORS`
/// executors of its own. Started with `scheduler` or `executor` as its first argument, the program is that part of
/// a cluster.
pub fn driver_main<F>(name: &str, driver: impl FnOnce(Session) -> F) -> ExitCode
where
    F: Future<Output = Result<()>>,
{
    if command::is_part() {
        return run_part();
    }
    block_on(Box::pin(async { driver(session(name).await?).await }))
}

fn run_part() -> ExitCode {
    let flags = PartFlags::parse();
    block_on(Box::pin(command::run_part(flags.part)))
}

/// The session of the program `name`.
fn session(name: &str) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>> {
    Box::pin(async move {
        let out: PathBuf =
            env::var_os("VOXELFLOW_OUT").map_or_else(|| format!("{DEFAULT_OUT}/{name}").into(), Into::into);
        Session::builder().out(out).place(&place_of_environment()?).start().await
    })
}

/// Where the environment says that plans run.
fn place_of_environment() -> Result<ClusterFlags> {
    let text = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let number = |name: &str| {
        let wrong = |text: String| Error::input(name, format!("`{text}` is no number: give 1 or more"));
        text(name).map(|text| text.parse::<usize>().map_err(|_| wrong(text))).transpose()
    };
    Ok(ClusterFlags {
        cluster: text("VOXELFLOW_CLUSTER"),
        executors: number("VOXELFLOW_EXECUTORS")?,
        slots: number("VOXELFLOW_SLOTS")?,
        cluster_key: text("VOXELFLOW_CLUSTER_KEY").map(Into::into),
    })
}
