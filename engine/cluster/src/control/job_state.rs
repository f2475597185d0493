//! Ballista's books of jobs, with words of ours: a job that is ended for a reason of the scheduler's own, such as
//! a gang that found no room, ends for its driver with that reason and not as "Cancelled".

use super::attendance::is_gang;
use async_trait::async_trait;
use ballista_core::{
    ConfigProducer, JobId, JobStatusSubscriber,
    error::Result,
    serde::protobuf::{FailedJob, JobStatus, job_status::Status},
};
use ballista_scheduler::{
    SessionBuilder,
    cluster::{JobState, JobStateEventStream, memory::InMemoryJobState},
    state::{
        execution_graph::ExecutionGraphBox, execution_stage::ExecutionStage,
        session_manager::share_file_statistics_cache,
    },
};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Reasons of jobs that are about to be ended, until they have, and which of these jobs are lost: an executor had
/// something of them, and the same plan can be submitted again.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    reasons: HashMap<JobId, String>,
    lost: HashSet<JobId>,
}

impl Verdicts {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `job` is about to be ended, because of `reason`. The first reason stands.
    pub(super) fn pass(&self, job: &JobId, reason: &str) {
        self.open().reasons.entry(job.clone()).or_insert_with(|| reason.to_owned());
    }

    /// `job` is about to be ended because it has lost something, unless it is for another reason.
    pub(super) fn lose(&self, job: &JobId, reason: &str) {
        let mut open = self.open();
        if !open.reasons.contains_key(job) {
            open.reasons.insert(job.clone(), reason.to_owned());
            open.lost.insert(job.clone());
        }
    }

    /// Whether `job` has lost something.
    pub(super) fn is_lost(&self, job: &JobId) -> bool {
        self.open().lost.contains(job)
    }

    /// Nobody will ask for `job` any more.
    pub(super) fn forget(&self, job: &JobId) {
        let mut open = self.open();
        open.reasons.remove(job);
        open.lost.remove(job);
    }

    /// The status that `status` is to be told as. A job that is ended ends for its reason. One that has lost something
    /// has not succeeded, and neither has one of which a stage was run again (`rolled_back`): rows of the first run may
    /// be among its own. One that was to be cancelled may have been faster.
    fn applied(&self, job: &JobId, status: &JobStatus, rolled_back: Option<usize>) -> Option<JobStatus> {
        let told = |error: String| {
            let failed = match &status.status {
                Some(Status::Failed(failed)) => FailedJob { error, ..failed.clone() },
                Some(Status::Successful(done)) => FailedJob {
                    error,
                    queued_at: done.queued_at,
                    started_at: done.started_at,
                    ended_at: done.ended_at,
                },
                _ => return None,
            };
            Some(JobStatus { status: Some(Status::Failed(failed)), ..status.clone() })
        };
        if !matches!(status.status, Some(Status::Failed(_) | Status::Successful(_))) {
            return None;
        }
        if let (Some(Status::Successful(_)), Some(stage)) = (&status.status, rolled_back) {
            self.lose(job, &format!("stage {stage} was run again after something of it was lost"));
        }
        let open = self.open();
        if matches!(status.status, Some(Status::Successful(_))) && !open.lost.contains(job) {
            return None;
        }
        open.reasons.get(job).cloned().and_then(told)
    }
}

/// Jobs in memory, as Ballista keeps them, told with the reasons of [`Verdicts`].
pub(super) struct ReasonedJobState {
    inner: InMemoryJobState,
    verdicts: Arc<Verdicts>,
    /// Raised whenever the status of a job was saved.
    saved: watch::Sender<u64>,
}

impl ReasonedJobState {
    pub(super) fn new(
        scheduler: &str,
        sessions: SessionBuilder,
        configs: ConfigProducer,
        verdicts: Arc<Verdicts>,
    ) -> Self {
        let inner = InMemoryJobState::new(scheduler, share_file_statistics_cache(sessions), configs);
        Self { inner, verdicts, saved: watch::Sender::new(0) }
    }

    /// How far `job` is, as far as that is settled; nothing if there is no such job.
    pub(super) async fn status(&self, job: &JobId) -> Option<Status> {
        self.inner.get_job_status(job).await.ok().flatten().and_then(|status| status.status)
    }

    /// Tells when the status of a job was saved.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.saved.subscribe()
    }

    fn has_saved(&self, result: Result<()>) -> Result<()> {
        self.saved.send_modify(|times| *times += 1);
        result
    }
}

/// The first stage of `graph` that was begun more than once; gangs may.
fn rolled_back(graph: &ExecutionGraphBox) -> Option<usize> {
    if is_gang(graph.as_ref()) {
        return None;
    }
    let again = |stage: &ExecutionStage| match stage {
        ExecutionStage::Successful(stage) => (stage.stage_attempt_num > 0).then_some(stage.stage_id),
        ExecutionStage::Running(stage) => (stage.stage_attempt_num > 0).then_some(stage.stage_id),
        _ => None,
    };
    graph.stages().values().filter_map(again).min()
}

#[async_trait]
impl JobState for ReasonedJobState {
    async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
        let saved = match self.verdicts.applied(job_id, graph.status(), rolled_back(graph)) {
            Some(status) => {
                let mut graph = graph.cloned();
                graph.update_status(status);
                self.inner.save_job(job_id, &graph).await
            }
            None => self.inner.save_job(job_id, graph).await,
        };
        self.has_saved(saved)
    }

    fn accept_job(&self, job_id: &JobId, job_name: &str, queued_at: u64) -> Result<()> {
        self.inner.accept_job(job_id, job_name, queued_at)
    }
    fn pending_job_number(&self) -> usize {
        self.inner.pending_job_number()
    }
    async fn submit_job(
        &self,
        job_id: JobId,
        graph: &ExecutionGraphBox,
        subscriber: Option<JobStatusSubscriber>,
    ) -> Result<()> {
        self.inner.submit_job(job_id, graph, subscriber).await
    }
    async fn get_jobs(&self) -> Result<HashSet<JobId>> {
        self.inner.get_jobs().await
    }
    async fn get_all_jobs(&self) -> Result<HashSet<JobId>> {
        self.inner.get_all_jobs().await
    }
    async fn get_job_status(&self, job_id: &JobId) -> Result<Option<JobStatus>> {
        self.inner.get_job_status(job_id).await
    }
    async fn get_execution_graph(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.inner.get_execution_graph(job_id).await
    }
    async fn fail_unscheduled_job(&self, job_id: &JobId, reason: String) -> Result<()> {
        let reason = self.verdicts.open().reasons.get(job_id).cloned().unwrap_or(reason);
        let saved = self.inner.fail_unscheduled_job(job_id, reason).await;
        self.has_saved(saved)
    }
    async fn remove_job(&self, job_id: &JobId) -> Result<()> {
        self.inner.remove_job(job_id).await
    }
    async fn try_acquire_job(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.inner.try_acquire_job(job_id).await
    }
    async fn job_state_events(&self) -> Result<JobStateEventStream> {
        self.inner.job_state_events().await
    }
    async fn create_or_update_session(
        &self,
        session_id: &str,
        config: &SessionConfig,
    ) -> Result<Arc<SessionContext>> {
        self.inner.create_or_update_session(session_id, config).await
    }
    async fn remove_session(&self, session_id: &str) -> Result<()> {
        self.inner.remove_session(session_id).await
    }
    fn produce_config(&self) -> SessionConfig {
        self.inner.produce_config()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use ballista_core::serde::protobuf::SuccessfulJob;

    fn failed(error: &str) -> JobStatus {
        let failed = FailedJob { error: error.to_owned(), queued_at: 3, started_at: 4, ended_at: 5 };
        JobStatus { job_id: "j1".into(), job_name: "n".into(), status: Some(Status::Failed(failed)) }
    }

    fn done() -> JobStatus {
        let done = SuccessfulJob { partition_location: Vec::new(), queued_at: 3, started_at: 4, ended_at: 5 };
        JobStatus { job_id: "j1".into(), job_name: "n".into(), status: Some(Status::Successful(done)) }
    }

    #[test]
    fn the_first_reason_stands() {
        let (verdicts, job) = (Verdicts::default(), JobId::new("j1"));
        verdicts.pass(&job, "no room");
        verdicts.lose(&job, "an executor was lost");
        assert_eq!(verdicts.applied(&job, &failed("Cancelled"), None), Some(failed("no room")));
        assert!(!verdicts.is_lost(&job), "it does not begin again: it was to end");
        verdicts.forget(&job);
        assert_eq!(verdicts.applied(&job, &failed("Cancelled"), None), None);
    }

    #[test]
    fn a_job_that_has_lost_something_never_succeeds() {
        let (verdicts, job) = (Verdicts::default(), JobId::new("j1"));
        assert_eq!(verdicts.applied(&job, &done(), None), None);
        verdicts.lose(&job, "an executor was lost");
        assert_eq!(verdicts.applied(&job, &done(), None), Some(failed("an executor was lost")));
        let cancelled = JobId::new("j3");
        verdicts.pass(&cancelled, "cancelled on request");
        assert_eq!(verdicts.applied(&cancelled, &done(), None), None, "it was faster");
        let other = JobId::new("j2");
        let told = verdicts.applied(&other, &done(), Some(2)).unwrap();
        let Some(Status::Failed(told)) = told.status else { panic!("{told:?}") };
        assert!(told.error.starts_with("stage 2 was run again") && verdicts.is_lost(&other));
    }
}
