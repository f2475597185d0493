//! The other end: what `voxelflow jobs`, `logs`, `cancel`, `why-waiting` and executors ask with.

use super::{
    cluster_control_client::ClusterControlClient,
    control_address,
    error::{Error, Result},
    guard::Guard,
    messages::{Everything, ExecutorSummary, JobSummary, LogPage, LogPush, LogRequest, OfJob, Waits},
};
use crate::ClusterAddress;
use std::time::Duration;
use tonic::{Status, transport::Channel};

/// How long an answer may take; cancelling waits for the job to end.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How long the way to the scheduler may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A connection to a cluster's control service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControlClient {
    inner: ClusterControlClient<Channel>,
    address: String,
}

impl ControlClient {
    /// A client of the cluster whose scheduler is at `cluster`. It connects when it first asks, and again when a
    /// connection is lost.
    ///
    /// # Errors
    /// An address or a key that cannot be used.
    pub fn new(cluster: &ClusterAddress, guard: &Guard) -> Result<Self> {
        let address = control_address(cluster)?;
        let endpoint = guard.endpoint(&address)?.connect_timeout(CONNECT_LIMIT).timeout(ANSWER_LIMIT);
        let inner = ClusterControlClient::new(endpoint.connect_lazy());
        Ok(Self { inner, address: cluster.to_string() })
    }

    /// All jobs that the scheduler knows, the newest first.
    ///
    /// # Errors
    /// A cluster that does not answer.
    pub async fn jobs(&self) -> Result<Vec<JobSummary>> {
        let answer = self.inner.clone().jobs(Everything).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner().jobs)
    }

    /// All executors that are alive, by id.
    ///
    /// # Errors
    /// A cluster that does not answer.
    pub async fn executors(&self) -> Result<Vec<ExecutorSummary>> {
        let answer = self.inner.clone().executors(Everything).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner().executors)
    }

    /// Why `job` waits.
    ///
    /// # Errors
    /// A job that is not there, a cluster that does not answer.
    pub async fn why_waiting(&self, job: &str) -> Result<Waits> {
        let answer = self.inner.clone().why_waiting(OfJob { job: job.to_owned() }).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner())
    }

    /// Ends `job`, and comes back when it has ended.
    ///
    /// # Errors
    /// A job that is not there or has ended, a cluster that does not answer.
    pub async fn cancel(&self, job: &str) -> Result<()> {
        let answer = self.inner.clone().cancel(OfJob { job: job.to_owned() }).await;
        answer.map(drop).map_err(|status| self.failed(&status))
    }

    /// Log lines of `job` from number `from` on, the last `most` of them.
    ///
    /// # Errors
    /// A job that is not there, a cluster that does not answer.
    pub async fn logs(&self, job: &str, from: u64, most: usize) -> Result<LogPage> {
        let answer = self.inner.clone().logs(LogRequest { job: job.to_owned(), from, most }).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner())
    }

    pub(super) async fn push_logs(&self, push: LogPush) -> Result<()> {
        let answer = self.inner.clone().push_logs(push).await;
        answer.map(drop).map_err(|status| self.failed(&status))
    }

    fn failed(&self, status: &Status) -> Error {
        Error::answered(&self.address, status)
    }
}
