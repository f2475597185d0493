//! The one service that a cluster's scheduler offers: drivers submit plans to it, executors are its members, and people
//! ask it what runs, what waits and why, read logs of jobs, and end jobs.
//!
//! ```text
//!   drivers:   submit ─────────────────────┐
//!   executors: attend, log lines ──────────┼─► ControlService ─► Ballista's scheduler: stages, tasks
//!   voxelflow jobs │ logs │ cancel │ … ────┘          │
//!                                                     └─► Members, job states, WaitingRoom, LogStore
//! ```
//!
//! Ballista's own services are not served: they know neither who asks, nor what became of tasks that were run again,
//! nor why a job waits. Its scheduler is called within the process. [`SchedulerControl`] makes the parts of it that we
//! bring, and serves, at one port, those who have the cluster's key.

mod attendance;
mod client;
mod error;
mod guard;
mod job_book;
mod job_state;
mod launcher;
mod log_push;
mod log_store;
mod members;
pub mod messages;
mod service;
mod submissions;
#[cfg(test)]
mod tests;

#[allow(missing_docs, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/voxelflow.cluster.ClusterControl.rs"));
}

pub use client::ControlClient;
pub use error::{Error, Result};
pub use guard::Guard;
pub use log_push::push_logs;

use crate::{
    connections_in::incoming,
    policy::{GangPolicy, WaitingRoom},
    session::MESSAGE_BYTES,
};
use ballista_core::ConfigProducer;
use ballista_scheduler::{
    SessionBuilder,
    cluster::{BallistaCluster, ClusterState, JobState},
    config::TaskDistributionPolicy,
    scheduler_server::SchedulerServer,
    state::task_manager::TaskLauncher,
};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use generated::{cluster_control_client, cluster_control_server};
use job_state::{ReasonedJobState, Verdicts};
use launcher::Launcher;
use log_store::LogStore;
use members::Members;
use service::ControlService;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::TcpListener;

/// Ballista's scheduler as we run it.
pub type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// What a job that somebody has cancelled ends with.
pub const CANCELLED: &str = "it was cancelled on request";

/// The parts of a scheduler that we bring: its books, its policy, and the control service that knows both.
pub struct SchedulerControl {
    members: Arc<Members>,
    jobs: Arc<ReasonedJobState>,
    waiting_room: Arc<WaitingRoom>,
    verdicts: Arc<Verdicts>,
    weights: BTreeMap<String, u32>,
    silence: Duration,
}

impl fmt::Debug for SchedulerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerControl").field("weights", &self.weights).finish_non_exhaustive()
    }
}

impl SchedulerControl {
    /// Parts of the new scheduler `scheduler`, whose queues have `weights`, and to which an executor counts as lost when
    /// it was silent for `silence`.
    pub fn new(
        scheduler: &str,
        sessions: SessionBuilder,
        configs: ConfigProducer,
        weights: BTreeMap<String, u32>,
        silence: Duration,
    ) -> Self {
        let verdicts = Arc::<Verdicts>::default();
        let jobs = ReasonedJobState::new(scheduler, sessions, configs, Arc::clone(&verdicts));
        let (members, waiting_room) = (Arc::default(), Arc::default());
        Self { members, jobs: Arc::new(jobs), waiting_room, verdicts, weights, silence }
    }

    /// The scheduler's books of executors and jobs.
    pub fn cluster(&self) -> BallistaCluster {
        let members: Arc<dyn ClusterState> = Arc::clone(&self.members) as _;
        let jobs: Arc<dyn JobState> = Arc::clone(&self.jobs) as _;
        BallistaCluster::new(members, jobs)
    }

    /// Who runs when.
    pub fn policy(&self) -> TaskDistributionPolicy {
        let (members, room) = (Arc::clone(&self.members) as _, Arc::clone(&self.waiting_room));
        TaskDistributionPolicy::Custom(Arc::new(GangPolicy::new(members, room, self.weights.clone())))
    }

    /// How tasks get to executors.
    pub fn launcher(&self) -> Arc<dyn TaskLauncher> {
        Arc::new(Launcher(Arc::clone(&self.members)))
    }

    /// Serves `scheduler`, which was made of these parts, at `listener`, and ends jobs whose gangs waited for too
    /// long, for as long as it is polled.
    ///
    /// # Errors
    /// A key that cannot be used, a listener that fails.
    pub async fn serve(&self, scheduler: Scheduler, listener: TcpListener, guard: &Guard) -> Result<()> {
        let logs = Arc::<LogStore>::default();
        let service = Arc::new(ControlService {
            scheduler,
            members: Arc::clone(&self.members),
            jobs: Arc::clone(&self.jobs),
            waiting_room: Arc::clone(&self.waiting_room),
            verdicts: Arc::clone(&self.verdicts),
            logs: Arc::clone(&logs),
            silence: self.silence,
            tries: Mutex::default(),
        });
        let answers = cluster_control_server::ClusterControlServer::new(Arc::clone(&service))
            .max_encoding_message_size(MESSAGE_BYTES)
            .max_decoding_message_size(MESSAGE_BYTES);
        // A driver whose network is cut is as gone as one that was killed.
        let server = guard
            .server()?
            .http2_keepalive_interval(Some(self.silence / 2))
            .http2_keepalive_timeout(Some(self.silence / 2))
            .add_service(answers)
            .serve_with_incoming(incoming(listener));
        tokio::select! {
            ended = server => ended.map_err(|e| Error::setup("the scheduler's service")(e.to_string())),
            () = service.give_up_overdue() => Ok(()),
            () = log_push::keep_own(logs) => Ok(()),
        }
    }
}
