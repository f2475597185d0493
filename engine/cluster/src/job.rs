//! One job on the cluster: submitted, followed, cancelled, fetched.
//!
//! ```text
//!   submit ─► id ─► status … running … ─► done: places of the partitions ─► rows, partition by partition
//!                     │ no answer for SILENCE: the scheduler is lost
//!   dropped before the end: cancelled; dropped after it: its data are cleaned up
//! ```

use crate::{
    error::{Error, Result},
    session::MESSAGE_BYTES,
};
use ballista_core::{
    client::BallistaClient,
    serde::protobuf::{
        CancelJobParams, CleanJobDataParams, ExecuteQueryParams, ExecutorMetadata, GetJobMetricsParams,
        GetJobStatusParams, KeyValuePair, PartitionLocation, execute_query_failure_result::Failure,
        execute_query_params::Query, execute_query_result, job_status::Status, operator_metric::Metric,
        scheduler_grpc_client::SchedulerGrpcClient,
    },
    version::insert_version_header,
};
use datafusion::physical_plan::SendableRecordBatchStream;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::Notify};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;
use voxelflow_dataset::cause_in;

/// How long the scheduler may be silent while a job runs.
const SILENCE: Duration = Duration::from_secs(8);
/// How long a question to the scheduler may take.
const ANSWER: Duration = Duration::from_secs(4);
/// What the books say of a job that is being taken back, and how long they may.
const CANCELLED: &str = "Cancelled";
const GRACE: Duration = Duration::from_secs(1);
/// The first and the longest pause between two questions how a job is.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// How long the end of a process may be held up by saying so.
const FAREWELL: Duration = Duration::from_secs(2);

type Client = SchedulerGrpcClient<Channel>;

/// The way to a scheduler. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SchedulerLink {
    url: Arc<str>,
    channel: Channel,
}

impl fmt::Debug for SchedulerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SchedulerLink").field(&self.url).finish()
    }
}

impl SchedulerLink {
    /// Connects when first used. Must be made within a runtime.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let unfit =
            |e: tonic::transport::Error| Error::Address { address: url.into(), reason: e.to_string() };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(unfit)?;
        let channel = endpoint
            .connect_timeout(ANSWER)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(ANSWER / 2)
            .keep_alive_timeout(ANSWER)
            .keep_alive_while_idle(true)
            .connect_lazy();
        Ok(Self { url: url.into(), channel })
    }

    fn client(&self) -> Client {
        SchedulerGrpcClient::new(self.channel.clone())
            .max_encoding_message_size(MESSAGE_BYTES)
            .max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Submits a plan in bytes.
    pub(crate) async fn submit(
        &self,
        plan: Vec<u8>,
        settings: Vec<KeyValuePair>,
        session: &str,
    ) -> Result<Job> {
        let mut request = tonic::Request::new(ExecuteQueryParams {
            query: Some(Query::PhysicalPlan(plan)),
            settings,
            session_id: session.to_owned(),
            operation_id: Uuid::now_v7().to_string(),
        });
        insert_version_header(request.metadata_mut());
        let answer =
            self.client().execute_query(request).await.map_err(|e| self.unanswered(&e))?.into_inner();
        let refused = |reason: &str| Error::Refused { reason: cause(reason) };
        match answer.result {
            Some(execute_query_result::Result::Success(accepted)) => {
                log::info!("job {} runs on {}", accepted.job_id, self.url);
                Ok(Job { id: accepted.job_id, link: self.clone(), ended: AtomicBool::new(false) })
            }
            Some(execute_query_result::Result::Failure(failure)) => match failure.failure {
                Some(Failure::PlanParsingFailure(text) | Failure::SqlParsingFailure(text)) => {
                    Err(refused(&text))
                }
                Some(Failure::SessionNotFound(text)) => Err(refused(&format!("unknown session {text}"))),
                None => Err(refused("without a reason")),
            },
            None => Err(refused("without a reason")),
        }
    }

    fn unanswered(&self, status: &tonic::Status) -> Error {
        match status.code() {
            tonic::Code::Unavailable | tonic::Code::DeadlineExceeded | tonic::Code::Unknown => {
                Error::Unreachable { url: self.url.to_string(), reason: root(status) }
            }
            _ => Error::Refused { reason: cause(status.message()) },
        }
    }
}

/// The innermost reason of a connection that failed: the outer ones say "transport error" only.
fn root(status: &tonic::Status) -> String {
    let mut reason: &dyn std::error::Error = status;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    match reason.downcast_ref::<tonic::Status>() {
        Some(status) => status.message().to_owned(),
        None => reason.to_string(),
    }
}

/// A job that the scheduler has taken. Dropped before its end it is cancelled, else its data are removed.
#[derive(Debug)]
pub(crate) struct Job {
    id: String,
    link: SchedulerLink,
    ended: AtomicBool,
}

/// Where the rows of a job are: for each partition the executors that have parts of it.
pub(crate) struct Places(BTreeMap<usize, Vec<PartitionLocation>>);

impl Job {
    /// Its name among the jobs of the scheduler.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    fn failed(&self, reason: String, is_input: bool) -> Error {
        Error::Job { job: self.id.clone(), reason, is_input, lines: Vec::new() }
    }

    /// Waits for the end.
    pub(crate) async fn finish(&self) -> Result<Places> {
        let mut pause = PAUSES[0];
        let mut heard = Instant::now();
        let mut known = false;
        loop {
            let params = GetJobStatusParams { job_id: self.id.clone() };
            let reason = match tokio::time::timeout(ANSWER, self.link.client().get_job_status(params)).await {
                Ok(Ok(answer)) => match answer.into_inner().status.and_then(|s| s.status) {
                    Some(Status::Successful(done)) => {
                        self.ended.store(true, Ordering::Relaxed);
                        return Ok(Places::of(done.partition_location));
                    }
                    // While a job is taken back this stands where the reason will be.
                    Some(Status::Failed(failed)) if failed.error == CANCELLED && heard.elapsed() < GRACE => {
                        None
                    }
                    Some(Status::Failed(failed)) => {
                        self.ended.store(true, Ordering::Relaxed);
                        let is_input = cause_in(&failed.error).is_some_and(|cause| cause.is_input);
                        return Err(self.failed(cause(&failed.error), is_input));
                    }
                    Some(Status::Queued(_) | Status::Running(_)) => {
                        known = true;
                        heard = Instant::now();
                        None
                    }
                    // A scheduler that was started again knows nothing of the jobs before.
                    None if known => Some("it does not know the job any more".to_owned()),
                    None => Some("it never began the job".to_owned()),
                },
                Ok(Err(status)) => Some(root(&status)),
                Err(_) => Some(format!("no answer within {} s", ANSWER.as_secs())),
            };
            if let Some(reason) = reason.filter(|_| heard.elapsed() > SILENCE) {
                self.ended.store(true, Ordering::Relaxed);
                return Err(Error::SchedulerLost {
                    url: self.link.url.to_string(),
                    job: self.id.clone(),
                    reason,
                });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// What the operators counted: names and values, partition by partition.
    pub(crate) async fn metrics(&self) -> Result<Vec<(String, u64)>> {
        let params = GetJobMetricsParams { job_id: self.id.clone() };
        let answer =
            self.link.client().get_job_metrics(params).await.map_err(|e| self.link.unanswered(&e))?;
        let mut counted = Vec::new();
        for stage in answer.into_inner().stages {
            for operator in stage.operators {
                let mut metrics = operator.metrics;
                metrics.sort_by_key(|metric| metric.partition);
                counted.extend(metrics.into_iter().filter_map(|metric| match metric.metric? {
                    Metric::Count(count) => Some((count.name, count.value)),
                    Metric::Gauge(gauge) => Some((gauge.name, gauge.value)),
                    _ => None,
                }));
            }
        }
        Ok(counted)
    }

    /// The rows of a part of a partition.
    pub(crate) async fn fetch(&self, location: PartitionLocation) -> Result<SendableRecordBatchStream> {
        let layout = location.layout();
        let (Some(id), Some(executor)) = (location.partition_id, location.executor_meta) else {
            return Err(self.failed("a partition without a place".into(), false));
        };
        let failed = |executor: &ExecutorMetadata, e: &dyn fmt::Display| Error::Fetch {
            job: self.id.clone(),
            partition: id.partition_id as usize,
            executor: format!("{} ({}:{})", executor.id, executor.host, executor.port),
            reason: e.to_string(),
        };
        let port = u16::try_from(executor.port).map_err(|e| failed(&executor, &e))?;
        let client =
            BallistaClient::try_new(&executor.host, port, MESSAGE_BYTES, false, None, 3, 200, 0, 0).await;
        let mut client = client.map_err(|e| failed(&executor, &e))?;
        let rows =
            client.fetch_partition(&executor.id, &id.clone().into(), location.file_id, layout, true).await;
        rows.map_err(|e| failed(&executor, &e))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (mut client, id, ended) = (self.link.client(), self.id.clone(), *self.ended.get_mut());
        let departure = Departure::begin();
        runtime.spawn(async move {
            let _departure = departure;
            let told = if ended {
                client
                    .clean_job_data(CleanJobDataParams { job_id: id.clone(), remove_stage_ids: Vec::new() })
                    .await
                    .map(drop)
            } else {
                log::info!("job {id} is cancelled: nobody waits for it");
                client.cancel_job(CancelJobParams { job_id: id.clone() }).await.map(drop)
            };
            if let Err(e) = told {
                log::debug!(
                    "job {id}: the scheduler could not be told that it is not needed: {}",
                    e.message()
                );
            }
        });
    }
}

/// Jobs whose end the scheduler is being told.
static DEPARTURES: (Mutex<usize>, Notify) = (Mutex::new(0), Notify::const_new());

struct Departure;

impl Departure {
    fn begin() -> Self {
        *DEPARTURES.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        *DEPARTURES.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        DEPARTURES.1.notify_waiters();
    }
}

/// Waits, not for long, until the scheduler was told of all jobs that are not needed any more. To be called before a
/// process ends.
pub async fn farewell() {
    let all_told = async {
        loop {
            let told = DEPARTURES.1.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if *DEPARTURES.0.lock().unwrap_or_else(PoisonError::into_inner) == 0 {
                return;
            }
            told.await;
        }
    };
    if tokio::time::timeout(FAREWELL, all_told).await.is_err() {
        log::warn!("the scheduler could not be told within {FAREWELL:?} that jobs are not needed any more");
    }
}

impl Places {
    fn of(locations: Vec<PartitionLocation>) -> Self {
        let mut places: BTreeMap<usize, Vec<PartitionLocation>> = BTreeMap::new();
        for location in locations {
            let partition = location.partition_id.as_ref().map_or(0, |id| id.partition_id as usize);
            places.entry(partition).or_default().push(location);
        }
        places.values_mut().for_each(|parts| parts.sort_by_key(|part| part.map_partition_id));
        Self(places)
    }

    /// The parts of `partition`; none where it has no rows.
    pub(crate) fn partition(&self, partition: usize) -> Vec<PartitionLocation> {
        self.0.get(&partition).cloned().unwrap_or_default()
    }
}

/// The cause in a failure's text: what Ballista and DataFusion put around it on its way says nothing to users.
pub(crate) fn cause(text: &str) -> String {
    const WRAPPERS: &[&str] = &[
        "Job failed due to stage ",
        "Task failed due to runtime execution error: ",
        "Task failed due to Tokio error: ",
        "DataFusion error: ",
        "External error: ",
        "Execution error: ",
        "Error during planning: ",
        "Could not parse plan: ",
        "Internal error: ",
        "Shared error: ",
        "General error: ",
    ];
    // Ballista writes errors as their Debug text.
    if let Some(cause) = cause_in(text) {
        return cause.words.to_owned();
    }
    let mut rest = text.trim();
    loop {
        let before = rest;
        for wrapper in WRAPPERS {
            rest = rest.strip_prefix(wrapper).unwrap_or(rest);
        }
        // "Job failed due to stage 3 failed: …"
        if let Some((number, inner)) = rest.split_once(" failed: ")
            && number.parse::<u32>().is_ok()
        {
            rest = inner.trim_start();
        }
        if rest == before {
            break;
        }
    }
    let without_advice = rest.split(".\nThis issue was likely caused by a bug").next().unwrap_or(rest);
    without_advice.split("\n\nbacktrace:").next().unwrap_or(without_advice).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told_without_the_way_it_came() {
        let text = "Job failed due to stage 2 failed: Task failed due to runtime execution error: DataFusion error: \
                    External error: partition 1 of 4: function `scale` at a.rs:3: too hot\n";
        assert_eq!(cause(text), "partition 1 of 4: function `scale` at a.rs:3: too hot");
        assert_eq!(cause("Error during planning: plan refused: other build"), "plan refused: other build");
        assert_eq!(cause("12 failed: why"), "why");
        assert_eq!(cause("3 of 4 failed: why"), "3 of 4 failed: why");
    }
}
