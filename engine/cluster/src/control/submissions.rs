//! Jobs of drivers. A job lives as long as its driver's stream: a driver that is killed, or that does not want the rows
//! any more, closes it, and then the job ends and its rows go.
//!
//! ```text
//!   driver                                scheduler
//!   Submission ─────────────────────────► Ballista plans it
//!             ◄── Accepted ──────────────
//!             ◄── Done, or Failed ──────── when the books have it, and vouch for it
//!   fetches rows from executors
//!   closes the stream ──────────────────► runs: cancelled; ended: its files are removed
//! ```

use super::{
    CANCELLED,
    messages::{JobNews, Submission},
    service::ControlService,
};
use ballista_core::{
    JobId,
    serde::protobuf::{
        ExecuteQueryParams, KeyValuePair, execute_query_failure_result::Failure, execute_query_params::Query,
        execute_query_result, job_status::Status as JobStatus, scheduler_grpc_server::SchedulerGrpc,
    },
    version::insert_version_header,
};
use ballista_scheduler::state::encode_protobuf;
use futures::FutureExt;
use std::{
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::Sender;
use tonic::{Request, Status};
use uuid::Uuid;

/// How long Ballista may plan a job: a planner that panics says nothing more.
const PLANNED_WITHIN: Duration = Duration::from_secs(60);
/// How often it is looked at whether a job that runs can go on.
const LOOK: Duration = Duration::from_millis(500);
/// How long a job that had executors waits for others when the last one has gone, in times of the silence after which
/// one counts as lost; and at least so long.
const WITHOUT_EXECUTORS: (u32, Duration) = (2, Duration::from_secs(10));

/// What is told of a job that Ballista does not plan.
fn unplanned() -> JobNews {
    let seconds = PLANNED_WITHIN.as_secs();
    let reason =
        format!("the plan was not cut into stages within {seconds} s: the scheduler's log may say why");
    JobNews::Failed { reason, lost: false }
}

impl ControlService {
    /// Runs a submission, and tells its driver what becomes of it, for as long as the driver listens.
    pub(super) async fn look_after(
        self: Arc<Self>,
        submission: Submission,
        tell: Sender<Result<JobNews, Status>>,
    ) {
        let (tries, is_gang) = (submission.tries, submission.is_gang);
        let job = match self.begin(submission).await {
            Ok(job) => job,
            // A driver that has gone does not hear it.
            Err(status) => return drop(tell.send(Err(status)).await),
        };
        self.note_tries(&job, tries);
        let _ = tell.send(Ok(JobNews::Accepted { job: job.to_string() })).await;
        tokio::select! {
            news = self.news(&job, tries > 0) => {
                let holders = match &news {
                    Ok((_, holders)) => holders.clone(),
                    Err(_) => BTreeSet::new(),
                };
                let _ = tell.send(news.map(|(news, _)| news)).await;
                tokio::select! {
                    reason = self.loss_of(&holders) => {
                        let _ = tell.send(Ok(JobNews::Failed { reason, lost: true })).await;
                        tell.closed().await;
                    }
                    () = tell.closed() => {}
                }
            }
            () = tell.closed() => {
                if is_gang && self.is_at_work(&job).await {
                    log::info!("job {job}: its driver is gone; its members hold out as long as they were told");
                    self.over(&job).await;
                }
                log::info!("job {job} ends: its driver is gone");
                if let Err(e) = self.end(&job, CANCELLED).await {
                    log::error!("job {job} cannot be ended: {e}");
                }
            }
        }
        self.forget(&job);
    }

    /// Has Ballista plan and queue a submission.
    async fn begin(&self, submission: Submission) -> Result<JobId, Status> {
        let pair = |(key, value): (String, String)| KeyValuePair { key, value: Some(value) };
        let mut request = Request::new(ExecuteQueryParams {
            query: Some(Query::PhysicalPlan(submission.plan)),
            settings: submission.settings.into_iter().map(pair).collect(),
            session_id: submission.session,
            operation_id: Uuid::now_v7().to_string(),
        });
        insert_version_header(request.metadata_mut());
        let decoded =
            AssertUnwindSafe(SchedulerGrpc::execute_query(&self.scheduler, request)).catch_unwind().await;
        let answer = decoded
            .map_err(|_| Status::invalid_argument("the plan cannot be read: see the scheduler's log"))?;
        match answer?.into_inner().result {
            Some(execute_query_result::Result::Success(accepted)) => Ok(JobId::new(&accepted.job_id)),
            Some(execute_query_result::Result::Failure(refused)) => {
                Err(Status::invalid_argument(match refused.failure {
                    Some(Failure::PlanParsingFailure(text) | Failure::SqlParsingFailure(text)) => text,
                    Some(Failure::SessionNotFound(text)) => format!("unknown session {text}"),
                    None => "without a reason".to_owned(),
                }))
            }
            None => Err(Status::internal("Ballista has not answered")),
        }
    }

    /// Waits until one of `holders`, executors that have rows, is lost; gives which. Without end for no holders.
    async fn loss_of(&self, holders: &BTreeSet<String>) -> String {
        let mut changes = self.members.changes();
        loop {
            changes.mark_unchanged();
            if let Some(lost) = holders.iter().find(|holder| !self.members.is_there(holder)) {
                return format!("executor {lost} was lost, which had rows of the result");
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for a job's end, and tells it, with the executors that have its rows.
    async fn news(&self, job: &JobId, had_executors: bool) -> Result<(JobNews, BTreeSet<String>), Status> {
        let began = Instant::now();
        let mut had_executors = had_executors;
        let mut lonely_since: Option<Instant> = None;
        let (times, least) = WITHOUT_EXECUTORS;
        let patience = (self.silence * times).max(least);
        let mut saved = self.jobs.changes();
        loop {
            saved.mark_unchanged();
            match self.jobs.status(job).await {
                Some(JobStatus::Successful(done)) => {
                    let holders = done
                        .partition_location
                        .iter()
                        .filter_map(|part| Some(part.executor_meta.as_ref()?.id.clone()));
                    let locations =
                        done.partition_location.iter().map(encode_protobuf).collect::<Result<_, _>>();
                    let locations = locations.map_err(|e| Status::internal(e.to_string()))?;
                    return Ok((JobNews::Done(locations), holders.collect()));
                }
                Some(JobStatus::Failed(failed)) => {
                    let lost = self.verdicts.is_lost(job);
                    return Ok((JobNews::Failed { reason: failed.error, lost }, BTreeSet::new()));
                }
                Some(JobStatus::Queued(_)) if began.elapsed() > PLANNED_WITHIN => {
                    return Ok((unplanned(), BTreeSet::new()));
                }
                _ => {}
            }
            if self.members.is_empty() {
                let since = *lonely_since.get_or_insert_with(Instant::now);
                if had_executors && since.elapsed() > patience {
                    let reason = format!(
                        "the cluster has had no executor for {} s: start one again",
                        patience.as_secs()
                    );
                    self.verdicts.pass(job, &reason);
                    self.scheduler
                        .cancel_job(job.clone())
                        .await
                        .map_err(|e| Status::internal(e.to_string()))?;
                }
            } else {
                had_executors = true;
                lonely_since = None;
            }
            // Whichever comes first; that nobody can tell of a change is no reason to end.
            let _ = tokio::time::timeout(LOOK, saved.changed()).await;
        }
    }

    /// Whether tasks of a job run.
    async fn is_at_work(&self, job: &JobId) -> bool {
        let running = self.scheduler.state.task_manager.get_running_job_cache();
        let Some(job) = running.get(job) else { return false };
        !job.execution_graph.read().await.running_tasks().is_empty()
    }

    /// Waits until a job has ended by itself.
    async fn over(&self, job: &JobId) {
        let mut saved = self.jobs.changes();
        loop {
            saved.mark_unchanged();
            if !matches!(self.jobs.status(job).await, Some(JobStatus::Queued(_) | JobStatus::Running(_))) {
                return;
            }
            let _ = tokio::time::timeout(LOOK, saved.changed()).await;
        }
    }

    /// Waits until the books say that a job which is to end has ended.
    pub(super) async fn ended(&self, job: &JobId) {
        let began = Instant::now();
        let mut saved = self.jobs.changes();
        loop {
            saved.mark_unchanged();
            match self.jobs.status(job).await {
                Some(JobStatus::Queued(_)) if began.elapsed() > PLANNED_WITHIN => return,
                Some(JobStatus::Queued(_) | JobStatus::Running(_)) => {}
                // It was submitted a moment ago.
                None if began.elapsed() < LOOK * 4 => {}
                _ => return,
            }
            // A job that was being planned when it was cancelled did not hear of it.
            if tokio::time::timeout(LOOK, saved.changed()).await.is_err()
                && self.scheduler.cancel_job(job.clone()).await.is_err()
            {
                return;
            }
        }
    }
}
