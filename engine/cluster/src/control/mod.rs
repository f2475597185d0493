//! The control service of a cluster: what runs, what waits and why, log lines of jobs, and ending a job.
//!
//! ```text
//!   voxelflow jobs │ logs │ cancel │ why-waiting ──┐
//!                                                  ├─► control service (scheduler's port + 1) ─► Ballista's books,
//!   executors: log lines of their tasks ───────────┘                                            WaitingRoom, LogStore
//! ```
//!
//! It stands beside Ballista's scheduler in one process, because Ballista's own ports know neither who asks nor
//! why a job waits. [`SchedulerControl`] makes the parts of a scheduler that we bring, and serves.

mod client;
mod error;
mod guard;
mod job_book;
mod job_state;
mod log_push;
mod log_store;
pub mod messages;
mod service;
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
    ClusterAddress,
    policy::{GangPolicy, WaitingRoom},
};
use ballista_core::ConfigProducer;
use ballista_scheduler::{
    SessionBuilder,
    cluster::{BallistaCluster, ClusterState, memory::InMemoryClusterState},
    config::TaskDistributionPolicy,
    scheduler_server::SchedulerServer,
};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use generated::{cluster_control_client, cluster_control_server};
use job_state::{ReasonedJobState, Verdicts};
use log_store::LogStore;
use service::ControlService;
use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

/// Ballista's scheduler as we run it.
pub type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// What a job that somebody has cancelled ends with.
pub const CANCELLED: &str = "it was cancelled on request";

/// Where the control service of `cluster` listens, `host:port`: beside the scheduler.
///
/// # Errors
/// A scheduler at the last port of all.
pub fn control_address(cluster: &ClusterAddress) -> Result<String> {
    Ok(format!("{}:{}", cluster.host(), control_port(cluster.port())?))
}

/// The port of the control service of the scheduler at `port`: the next one.
///
/// # Errors
/// The last port of all.
pub fn control_port(port: u16) -> Result<u16> {
    let taken =
        || Error::setup("the scheduler's port")(format!("{port} leaves none for the control service"));
    port.checked_add(1).ok_or_else(taken)
}

/// The parts of a scheduler that we bring: its books, its policy, and the control service that knows both.
pub struct SchedulerControl {
    cluster: Arc<dyn ClusterState>,
    waiting_room: Arc<WaitingRoom>,
    verdicts: Arc<Verdicts>,
    weights: BTreeMap<String, u32>,
}

impl fmt::Debug for SchedulerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerControl").field("weights", &self.weights).finish_non_exhaustive()
    }
}

impl SchedulerControl {
    /// Parts for a new scheduler, whose queues have `weights`.
    pub fn new(weights: BTreeMap<String, u32>) -> Self {
        let cluster: Arc<dyn ClusterState> = Arc::new(InMemoryClusterState::default());
        Self { cluster, waiting_room: Arc::default(), verdicts: Arc::default(), weights }
    }

    /// The scheduler's books of executors and jobs.
    pub fn cluster(
        &self,
        scheduler: &str,
        sessions: SessionBuilder,
        configs: ConfigProducer,
    ) -> BallistaCluster {
        let jobs = ReasonedJobState::new(scheduler, sessions, configs, Arc::clone(&self.verdicts));
        BallistaCluster::new(Arc::clone(&self.cluster), Arc::new(jobs))
    }

    /// Who runs when.
    pub fn policy(&self) -> TaskDistributionPolicy {
        let (cluster, room) = (Arc::clone(&self.cluster), Arc::clone(&self.waiting_room));
        TaskDistributionPolicy::Custom(Arc::new(GangPolicy::new(cluster, room, self.weights.clone())))
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
            cluster: Arc::clone(&self.cluster),
            waiting_room: Arc::clone(&self.waiting_room),
            verdicts: Arc::clone(&self.verdicts),
            logs: Arc::clone(&logs),
        });
        let answers = cluster_control_server::ClusterControlServer::new(Arc::clone(&service));
        let server = guard.server()?.add_service(answers).serve_with_incoming(TcpIncoming::from(listener));
        tokio::select! {
            ended = server => ended.map_err(|e| Error::setup("the control service")(e.to_string())),
            () = service.give_up_overdue() => Ok(()),
            () = log_push::keep_own(logs) => Ok(()),
        }
    }
}
