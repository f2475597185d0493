//! A job on a cluster, as its driver has it: submitted, followed to its end, its rows fetched. It lives as long as this
//! value: dropped before its end it is cancelled, and after it its rows are removed, because the stream of its news is
//! closed; the same happens when this process ends, however it ends.

use crate::{
    connections::Connections,
    control::{
        ControlClient,
        messages::{JobNews, Submission},
    },
    error::{Error, Result},
    session::MESSAGE_BYTES,
};
use arrow::record_batch::RecordBatch;
use ballista_core::{
    client_pool::BallistaClientPool,
    serde::protobuf::{ExecutorMetadata, PartitionLocation},
    utils::GrpcClientConfig,
};
use ballista_scheduler::state::decode_protobuf;
use datafusion::error::Result as PlanResult;
use futures::{
    Stream, StreamExt, TryStreamExt,
    future::Either,
    stream::{self, BoxStream},
};
use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};
use tonic::{Code, Status, Streaming};
use voxelflow_dataset::cause_in;

/// Tries of a fetch, and milliseconds between them.
const FETCH_TRIES: u8 = 3;
const FETCH_PAUSE_MS: u64 = 200;

/// A job that the scheduler has taken.
pub(crate) struct Job {
    id: String,
    client: ControlClient,
    connections: Arc<Connections>,
    news: Mutex<Option<Streaming<JobNews>>>,
    /// Why its rows are lost, once they are.
    lost: watch::Sender<Option<String>>,
    follower: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.id).finish()
    }
}

/// Where the rows of a job are: for each partition the executors that have parts of it.
#[derive(Debug)]
pub(crate) struct Places(BTreeMap<usize, Vec<PartitionLocation>>);

impl Job {
    /// Submits a plan. Its rows are fetched through `connections`.
    ///
    /// # Errors
    /// A scheduler that does not answer, or does not take the plan.
    pub(crate) async fn submit(
        client: &ControlClient,
        connections: Arc<Connections>,
        submission: Submission,
    ) -> Result<Arc<Self>> {
        let unanswered = |status: &Status| unanswered(client.address(), status);
        let mut news = client.submit(submission).await?.map_err(|e| unanswered(&e))?;
        let id = match news.message().await.map_err(|e| unanswered(&e))? {
            Some(JobNews::Accepted { job }) => job,
            _ => return Err(Error::Refused { reason: "without a reason".into() }),
        };
        log::info!("job {id} runs on {}", client.address());
        let (news, lost, follower) =
            (Mutex::new(Some(news)), watch::Sender::new(None), std::sync::Mutex::default());
        Ok(Arc::new(Self { id, client: client.clone(), connections, news, lost, follower }))
    }

    /// Its name among the jobs of the scheduler.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the end. To be asked for once.
    ///
    /// # Errors
    /// A job that has failed, or has lost something, or whose scheduler is gone.
    pub(crate) async fn finish(&self) -> Result<Places> {
        let mut slot = self.news.lock().await;
        let Some(mut news) = slot.take() else {
            return Err(self.failed("it was followed twice".into(), false));
        };
        let gone = |reason: String| Error::SchedulerLost {
            url: self.client.address().to_owned(),
            job: self.id.clone(),
            reason,
        };
        match news.message().await {
            Ok(Some(JobNews::Done(locations))) => {
                let locations =
                    locations.iter().map(|bytes| decode_protobuf(bytes)).collect::<Result<_, _>>();
                let locations = locations.map_err(|e| self.failed(e.to_string(), false))?;
                let follower = tokio::spawn(follow(news, self.lost.clone()));
                *self.follower.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(follower);
                Ok(Places::of(locations))
            }
            Ok(Some(JobNews::Failed { reason, lost: true })) => {
                Err(Error::Lost { job: self.id.clone(), reason })
            }
            Ok(Some(JobNews::Failed { reason, lost: false })) => {
                let is_input = cause_in(&reason).is_some_and(|cause| cause.is_input);
                Err(self.failed(cause(&reason), is_input))
            }
            Ok(Some(JobNews::Accepted { .. })) => Err(self.failed("it was accepted twice".into(), false)),
            Ok(None) => Err(gone("it has ended the connection".into())),
            Err(status) => Err(gone(root(&status))),
        }
    }

    /// What the operators counted: names and values, partition by partition.
    pub(crate) async fn counts(&self) -> Result<Vec<(String, u64)>> {
        Ok(self.client.counts(&self.id).await?)
    }

    fn failed(&self, reason: String, is_input: bool) -> Error {
        Error::Job { job: self.id.clone(), reason, is_input, lines: Vec::new() }
    }

    /// The rows of a partition, part by part. When an executor that has some is lost they end with an error.
    pub(crate) fn rows(
        self: &Arc<Self>,
        parts: Vec<PartitionLocation>,
    ) -> impl Stream<Item = PlanResult<RecordBatch>> + Send + use<> {
        let (job, mut lost) = (Arc::clone(self), self.lost.subscribe());
        let opened = stream::iter(parts).then(move |part| {
            let job = Arc::clone(&job);
            async move { job.fetch(part).await }
        });
        let id = self.id.clone();
        let lost = async move {
            match lost.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
                Ok(Some(reason)) => Error::Lost { job: id, reason },
                // The job is there as long as its rows are asked for.
                _ => std::future::pending().await,
            }
        };
        let lost = stream::once(lost).map(|error| Either::Right(Err(error.into())));
        // The end of the rows, not of the job, ends them.
        let rows =
            opened.try_flatten().map(Either::Left).chain(stream::once(async { Either::Right(Ok(())) }));
        stream::select(lost, rows).scan(false, |over, next| {
            let item = match next {
                _ if *over => None,
                Either::Left(rows) => Some(rows),
                Either::Right(Ok(())) => None,
                Either::Right(Err(error)) => {
                    *over = true;
                    Some(Err(error))
                }
            };
            std::future::ready(item)
        })
    }

    async fn fetch(
        &self,
        location: PartitionLocation,
    ) -> PlanResult<BoxStream<'static, PlanResult<RecordBatch>>> {
        let layout = location.layout();
        let (Some(id), Some(executor)) = (location.partition_id, location.executor_meta) else {
            return Err(self.failed("a partition without a place".into(), false).into());
        };
        let failed = |executor: &ExecutorMetadata, e: &dyn fmt::Display| Error::Fetch {
            job: self.id.clone(),
            partition: id.partition_id as usize,
            executor: format!("{} ({}:{})", executor.id, executor.host, executor.port),
            reason: e.to_string(),
        };
        let port = u16::try_from(executor.port).map_err(|e| failed(&executor, &e))?;
        let config = GrpcClientConfig {
            max_message_size: MESSAGE_BYTES,
            io_retries_times: FETCH_TRIES,
            io_retry_wait_time_ms: FETCH_PAUSE_MS,
            ..GrpcClientConfig::default()
        };
        let client = self.connections.acquire(&executor.host, port, &config, None).await;
        let mut client = client.map_err(|e| failed(&executor, &e))?;
        match client.fetch_partition(&executor.id, &id.clone().into(), location.file_id, layout, true).await {
            // The connection is another's once these rows have ended: rows that nobody reads would hold up those beside
            // them.
            Ok(rows) => Ok(rows.inspect(move |_| _ = &client).boxed()),
            Err(e) => {
                client.discard();
                Err(failed(&executor, &e).into())
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let follower = self.follower.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(follower) = follower {
            follower.abort();
        }
    }
}

/// Follows a job whose rows are there until they are lost.
async fn follow(mut news: Streaming<JobNews>, lost: watch::Sender<Option<String>>) {
    // A scheduler that ends takes no rows with it: executors give them out until they hear otherwise.
    if let Ok(Some(JobNews::Failed { reason, .. })) = news.message().await {
        lost.send_replace(Some(reason));
    }
}

/// What a status says of a plan that was to be submitted.
fn unanswered(url: &str, status: &Status) -> Error {
    let is_of_connection = std::error::Error::source(status).is_some();
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
            Error::Unreachable { url: url.to_owned(), reason: root(status) }
        }
        _ if is_of_connection => Error::Unreachable { url: url.to_owned(), reason: root(status) },
        _ => Error::Refused { reason: cause(status.message()) },
    }
}

/// The innermost reason of a connection that failed: the outer ones say "transport error" only.
fn root(status: &Status) -> String {
    let mut reason: &dyn std::error::Error = status;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    match reason.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => reason.to_string(),
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

    /// Bytes of all rows, as they lie on executors.
    pub(crate) fn bytes(&self) -> u64 {
        let parts = self.0.values().flatten().filter_map(|part| part.partition_stats.as_ref());
        parts.map(|stats| u64::try_from(stats.num_bytes).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
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
