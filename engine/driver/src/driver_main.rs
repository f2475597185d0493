//! From `async fn main(session)` to a process: runtime, session, exit code.

use crate::{DEFAULT_OUT, Error, Result, Session};
use std::{future::Future, process::ExitCode};

/// Runs `work` on a runtime of its own and turns its end into an exit code: 0, 1 (failed) or 2 (wrong input).
pub fn block_on<F: Future<Output = Result<()>>>(work: F) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Deep plans recurse deeply.
        .thread_stack_size(16 << 20)
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(work),
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

/// What `#[voxelflow::main]` calls. The session writes below `VOXELFLOW_OUT`, or `voxelflow-out/NAME`.
pub fn driver_main<F>(name: &str, driver: impl FnOnce(Session) -> F) -> ExitCode
where
    F: Future<Output = Result<()>>,
{
    block_on(async {
        let out = std::env::var_os("VOXELFLOW_OUT")
            .map_or_else(|| format!("{DEFAULT_OUT}/{name}").into(), Into::into);
        let out: std::path::PathBuf = out;
        driver(Session::builder().out(out).build()?).await
    })
}
