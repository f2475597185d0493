//! Ballista's books of jobs, with words of ours: a job that is ended for a reason of the scheduler's own, such as
//! a gang that found no room, ends for its driver with that reason and not as "Cancelled".

use async_trait::async_trait;
use ballista_core::{
    ConfigProducer, JobId, JobStatusSubscriber,
    error::Result,
    serde::protobuf::{FailedJob, JobStatus, job_status::Status},
};
use ballista_scheduler::{
    SessionBuilder,
    cluster::{JobState, JobStateEventStream, memory::InMemoryJobState},
    state::{execution_graph::ExecutionGraphBox, session_manager::share_file_statistics_cache},
};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

/// Reasons of jobs that are about to be ended, until they have.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Mutex<HashMap<JobId, String>>);

impl Verdicts {
    /// `job` is about to be ended, because of `reason`. The first reason stands.
    pub(super) fn pass(&self, job: &JobId, reason: &str) {
        let mut verdicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.entry(job.clone()).or_insert_with(|| reason.to_owned());
    }

    fn take(&self, job: &JobId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(job)
    }

    /// The status that `status` is to be told as.
    fn applied(&self, job: &JobId, status: &JobStatus) -> Option<JobStatus> {
        match &status.status {
            Some(Status::Failed(failed)) => {
                let failed = FailedJob { error: self.take(job)?, ..failed.clone() };
                Some(JobStatus { status: Some(Status::Failed(failed)), ..status.clone() })
            }
            Some(Status::Successful(_)) => {
                // It was faster.
                self.take(job);
                None
            }
            _ => None,
        }
    }
}

/// Jobs in memory, as Ballista keeps them, told with the reasons of [`Verdicts`].
pub(super) struct ReasonedJobState {
    inner: InMemoryJobState,
    verdicts: Arc<Verdicts>,
}

impl ReasonedJobState {
    pub(super) fn new(
        scheduler: &str,
        sessions: SessionBuilder,
        configs: ConfigProducer,
        verdicts: Arc<Verdicts>,
    ) -> Self {
        let inner = InMemoryJobState::new(scheduler, share_file_statistics_cache(sessions), configs);
        Self { inner, verdicts }
    }
}

#[async_trait]
impl JobState for ReasonedJobState {
    async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
        match self.verdicts.applied(job_id, graph.status()) {
            Some(status) => {
                let mut graph = graph.cloned();
                graph.update_status(status);
                self.inner.save_job(job_id, &graph).await
            }
            None => self.inner.save_job(job_id, graph).await,
        }
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
        let reason = self.verdicts.take(job_id).unwrap_or(reason);
        self.inner.fail_unscheduled_job(job_id, reason).await
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
    use super::*;

    fn failed(error: &str) -> JobStatus {
        let failed = FailedJob { error: error.to_owned(), queued_at: 3, started_at: 4, ended_at: 5 };
        JobStatus { job_id: "j1".into(), job_name: "n".into(), status: Some(Status::Failed(failed)) }
    }

    #[test]
    fn the_first_reason_is_told_once() {
        let (verdicts, job) = (Verdicts::default(), JobId::new("j1"));
        verdicts.pass(&job, "no room");
        verdicts.pass(&job, "cancelled on request");
        assert_eq!(verdicts.applied(&job, &failed("Cancelled")), Some(failed("no room")));
        assert_eq!(verdicts.applied(&job, &failed("Cancelled")), None);
    }
}
