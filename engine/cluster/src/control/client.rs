//! The other end of a scheduler: what drivers, executors and people ask it with.

use super::{
    cluster_control_client::ClusterControlClient,
    error::{Error, Result},
    guard::{Guard, of_this_build},
    messages::{
        Everything, ExecutorSays, ExecutorSummary, JobNews, JobSummary, LogPage, LogPush, LogRequest, OfJob,
        SchedulerSays, Submission, Waits,
    },
};
use crate::{ClusterAddress, session::MESSAGE_BYTES};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Status, Streaming, transport::Channel};

/// How long an answer may take; cancelling waits for the job to end.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How long the way to the scheduler may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How often a connection is tried whether it still leads somewhere, and how long an answer to that may take.
const KEEP_ALIVE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

/// A connection to a cluster's scheduler. Cheap to clone.
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
        let endpoint = guard
            .endpoint(&format!("{}:{}", cluster.host(), cluster.port()))?
            .connect_timeout(CONNECT_LIMIT)
            .http2_keep_alive_interval(KEEP_ALIVE[0])
            .keep_alive_timeout(KEEP_ALIVE[1])
            .keep_alive_while_idle(true);
        let inner = ClusterControlClient::new(endpoint.connect_lazy())
            .max_encoding_message_size(MESSAGE_BYTES)
            .max_decoding_message_size(MESSAGE_BYTES);
        Ok(Self { inner, address: cluster.to_string() })
    }

    /// The scheduler's address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Submits a plan. Its job lives as long as the stream of its news.
    pub(crate) async fn submit(&self, submission: Submission) -> Result<Result<Streaming<JobNews>, Status>> {
        let answer = self.inner.clone().submit(of_this_build(submission)?).await;
        Ok(answer.map(tonic::Response::into_inner))
    }

    /// Becomes a member, as an executor that says what comes from `says`, for as long as the stream lasts.
    pub(crate) async fn attend(
        &self,
        says: UnboundedReceiver<ExecutorSays>,
    ) -> Result<Streaming<SchedulerSays>> {
        let says = of_this_build(UnboundedReceiverStream::new(says))?;
        let answer = tokio::time::timeout(ANSWER_LIMIT, self.inner.clone().attend(says)).await;
        Ok(self.in_time(answer)?.into_inner())
    }

    /// What the operators of `job` counted: names and values, partition by partition.
    pub(crate) async fn counts(&self, job: &str) -> Result<Vec<(String, u64)>> {
        let answer = self.inner.clone().counts(asks(OfJob { job: job.to_owned() })).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner().counts)
    }

    fn in_time<T>(&self, answer: Result<Result<T, Status>, tokio::time::error::Elapsed>) -> Result<T> {
        let late = || Status::deadline_exceeded(format!("no answer within {} s", ANSWER_LIMIT.as_secs()));
        answer.unwrap_or_else(|_| Err(late())).map_err(|status| self.failed(&status))
    }

    /// All jobs that the scheduler knows, the newest first.
    ///
    /// # Errors
    /// A cluster that does not answer.
    pub async fn jobs(&self) -> Result<Vec<JobSummary>> {
        let answer = self.inner.clone().jobs(asks(Everything)).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner().jobs)
    }

    /// All executors that are alive, by id.
    ///
    /// # Errors
    /// A cluster that does not answer.
    pub async fn executors(&self) -> Result<Vec<ExecutorSummary>> {
        let answer = self.inner.clone().executors(asks(Everything)).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner().executors)
    }

    /// Why `job` waits.
    ///
    /// # Errors
    /// A job that is not there, a cluster that does not answer.
    pub async fn why_waiting(&self, job: &str) -> Result<Waits> {
        let answer = self.inner.clone().why_waiting(asks(OfJob { job: job.to_owned() })).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner())
    }

    /// Ends `job`, and comes back when it has ended.
    ///
    /// # Errors
    /// A job that is not there or has ended, a cluster that does not answer.
    pub async fn cancel(&self, job: &str) -> Result<()> {
        let answer = self.inner.clone().cancel(asks(OfJob { job: job.to_owned() })).await;
        answer.map(drop).map_err(|status| self.failed(&status))
    }

    /// Log lines of `job` from number `from` on, the last `most` of them.
    ///
    /// # Errors
    /// A job that is not there, a cluster that does not answer.
    pub async fn logs(&self, job: &str, from: u64, most: usize) -> Result<LogPage> {
        let answer = self.inner.clone().logs(asks(LogRequest { job: job.to_owned(), from, most })).await;
        Ok(answer.map_err(|status| self.failed(&status))?.into_inner())
    }

    pub(super) async fn push_logs(&self, push: LogPush) -> Result<()> {
        let answer = self.inner.clone().push_logs(asks(push)).await;
        answer.map(drop).map_err(|status| self.failed(&status))
    }

    pub(crate) fn failed(&self, status: &Status) -> Error {
        Error::answered(&self.address, status)
    }
}

/// A question that is to be answered soon.
fn asks<T>(question: T) -> Request<T> {
    let mut request = Request::new(question);
    request.set_timeout(ANSWER_LIMIT);
    request
}
