//! `voxelflow scheduler`, `voxelflow executor`: the parts of a cluster, which are this program.

use crate::{
    Error, Result,
    flags::{ExecutorFlags, Part, SchedulerFlags},
    session::cluster_sessions,
};
use std::{env, future::Future, net::SocketAddr, path::Path, time::Duration};
use tokio::signal::unix::{SignalKind, signal};
use voxelflow_cluster::{
    ClusterAddress, ExecutorSettings, SchedulerSettings, parent_gone, report_ready, run_executor,
    run_scheduler,
};
use voxelflow_dataset::EngineConfig;
use voxelflow_sync::network::ClusterKey;

/// Whether a driver program was started as a part of a cluster.
pub(crate) fn is_part() -> bool {
    env::args_os().nth(1).is_some_and(|first| first == "scheduler" || first == "executor")
}

pub(crate) async fn run(part: Part) -> Result<()> {
    match part {
        Part::Scheduler(flags) => {
            let child = flags.reach.child;
            unless_parent_gone(child, scheduler(flags)).await
        }
        Part::Executor(flags) => {
            let (child, work_dir) = (flags.reach.child, flags.work_dir.clone());
            let ended = unless_parent_gone(child, executor(flags)).await;
            if child {
                // Rows of jobs that nobody will ask for.
                drop(std::fs::remove_dir_all(work_dir));
            }
            ended
        }
    }
}

/// `work` until it ends, the process is told to end, or whoever started it is gone: then it leaves nothing behind.
async fn unless_parent_gone(child: bool, work: impl Future<Output = Result<()>>) -> Result<()> {
    let failed = |e| Error::io(Path::new("signals"), e);
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let parent_gone = async {
        match child {
            true => parent_gone().await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = work => ended,
        () = parent_gone => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}

async fn scheduler(flags: SchedulerFlags) -> Result<()> {
    let settings = SchedulerSettings {
        bind: flags.reach.bind,
        port: flags.port,
        external_host: flags.reach.external_host,
        public: flags.reach.public,
        weights: flags.weights.into_iter().collect(),
        executor_timeout: Duration::from_secs(flags.executor_timeout),
        key: cluster_key(&flags.reach.cluster_key)?,
    };
    let ready =
        |address: SocketAddr| tell(flags.reach.child, &address.to_string(), "scheduler", "listens on");
    Ok(run_scheduler(settings, &cluster_sessions(EngineConfig::default()), ready).await?)
}

async fn executor(flags: ExecutorFlags) -> Result<()> {
    let key = cluster_key(&flags.reach.cluster_key)?;
    let mut settings =
        ExecutorSettings::new(ClusterAddress::parse(&flags.scheduler)?, absolute(&flags.work_dir)?, key);
    settings.bind = flags.reach.bind;
    settings.port = flags.port;
    settings.external_host = flags.reach.external_host;
    settings.public = flags.reach.public;
    settings.slots = flags.slots.unwrap_or(settings.slots).max(1);
    settings.pool = flags.pool;
    settings.memory_bytes = flags.memory_mib << 20;
    settings.cards = flags.cards;
    let config = EngineConfig { temp_dir: Some(settings.work_dir.join("spill")), ..EngineConfig::default() };
    let ready = |id: &str| tell(flags.reach.child, id, "executor", "is registered as");
    Ok(run_executor(settings, &cluster_sessions(config), ready).await?)
}

/// The key in a file.
pub(crate) fn cluster_key(path: &Path) -> Result<ClusterKey> {
    ClusterKey::read(path).map_err(|e| Error::input("--cluster-key", e))
}

fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(path, e))
}

/// Tells whoever has started this process that it can be reached: the driver, or a person.
fn tell(child: bool, name: &str, part: &str, how: &str) {
    if !child {
        eprintln!("{part} {how} {name}");
    } else if let Err(e) = report_ready(name) {
        log::error!("{e}");
    }
}
