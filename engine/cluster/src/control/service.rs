//! The service itself: answers questions from the scheduler's books, and ends jobs.

use super::{
    CANCELLED, Scheduler,
    cluster_control_server::ClusterControl,
    job_book,
    job_state::Verdicts,
    log_store::LogStore,
    messages::{
        Done, Everything, Executors, JobPhase, Jobs, LogPage, LogPush, LogRequest, OfJob, StageWaits, Waits,
    },
};
use crate::policy::WaitingRoom;
use ballista_core::{
    JobId,
    error::BallistaError,
    serde::protobuf::{UpdateTaskStatusParams, scheduler_grpc_server::SchedulerGrpc},
};
use ballista_scheduler::cluster::{ClusterState, JobStateEvent};
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tonic::{Request, Response, Status, async_trait};

/// How long a cancelled job may take to end.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// Jobs that are named to those who ask for one that is not there.
const JOBS_NAMED: usize = 5;

/// What the service answers from.
pub(super) struct ControlService {
    pub(super) scheduler: Scheduler,
    pub(super) cluster: Arc<dyn ClusterState>,
    pub(super) waiting_room: Arc<WaitingRoom>,
    pub(super) verdicts: Arc<Verdicts>,
    pub(super) logs: Arc<LogStore>,
}

impl ControlService {
    /// How far `job` is.
    async fn phase(&self, job: &JobId) -> Result<JobPhase, Status> {
        if let Some(phase) = job_book::phase(&self.scheduler, job).await.map_err(internal)? {
            return Ok(phase);
        }
        let known = job_book::jobs(&self.scheduler).await.map_err(internal)?;
        let known: Vec<String> = known.into_iter().take(JOBS_NAMED).map(|job| job.id).collect();
        let known = match known.is_empty() {
            true => "the scheduler knows none".to_owned(),
            false => format!("the newest are {}", known.join(", ")),
        };
        Err(Status::not_found(format!("there is no job {job}: {known}")))
    }

    /// Ends `job` for `reason` and waits until it has ended.
    async fn end(&self, job: &JobId, reason: &str) -> Result<(), Status> {
        let mut events = self.scheduler.job_state_events().await.map_err(internal)?;
        self.verdicts.pass(job, reason);
        loop {
            self.scheduler.cancel_job(job.clone()).await.map_err(internal)?;
            // A job that is still being planned is not there to be cancelled: its next event is waited for.
            loop {
                match events.next().await {
                    Some(
                        JobStateEvent::JobUpdated { job_id, .. } | JobStateEvent::JobAcquired { job_id, .. },
                    ) if job_id == *job => {
                        break;
                    }
                    Some(_) => {}
                    None => return Err(Status::internal("the scheduler stops")),
                }
            }
            if self.phase(job).await?.has_ended() {
                return Ok(());
            }
        }
    }

    /// Ends jobs whose gangs have waited for too long, for as long as it is polled.
    pub(super) async fn give_up_overdue(&self) {
        loop {
            for given_up in self.waiting_room.given_up().await {
                let job = JobId::new(&given_up.job);
                log::warn!("job {job} is given up: {}", given_up.message);
                self.verdicts.pass(&job, &given_up.message);
                if let Err(e) = self.scheduler.cancel_job(job).await {
                    log::error!("job {} cannot be ended: {e}", given_up.job);
                }
            }
            self.offer_slots().await;
        }
    }

    /// Has the scheduler look at free slots again: it does so by itself only when tasks or executors change, not
    /// when a job that held slots back has gone.
    async fn offer_slots(&self) {
        let Some(executor) = self.cluster.registered_executor_metadata().await.pop() else { return };
        let nothing_new = UpdateTaskStatusParams { executor_id: executor.id, task_status: Vec::new() };
        if let Err(e) = SchedulerGrpc::update_task_status(&self.scheduler, Request::new(nothing_new)).await {
            log::warn!("free slots are not offered again: {e}");
        }
    }
}

fn internal(error: BallistaError) -> Status {
    Status::internal(error.to_string())
}

#[async_trait]
impl ClusterControl for Arc<ControlService> {
    async fn jobs(&self, _: Request<Everything>) -> Result<Response<Jobs>, Status> {
        let jobs = job_book::jobs(&self.scheduler).await.map_err(internal)?;
        Ok(Response::new(Jobs { jobs }))
    }

    async fn executors(&self, _: Request<Everything>) -> Result<Response<Executors>, Status> {
        let executors = job_book::executors(self.cluster.as_ref(), &self.scheduler).await;
        Ok(Response::new(Executors { executors }))
    }

    async fn why_waiting(&self, request: Request<OfJob>) -> Result<Response<Waits>, Status> {
        let job = JobId::new(request.into_inner().job);
        let phase = self.phase(&job).await?;
        // The room forgets a job that has ended when it decides again.
        let waiting = if phase.has_ended() { Vec::new() } else { self.waiting_room.why(job.as_str()) };
        let stages = waiting.into_iter().map(|waits| StageWaits {
            stage: waits.stage,
            seconds: waits.waited.as_secs_f64(),
            reason: waits.reason,
        });
        Ok(Response::new(Waits { phase: Some(phase), stages: stages.collect() }))
    }

    async fn cancel(&self, request: Request<OfJob>) -> Result<Response<Done>, Status> {
        let job = JobId::new(request.into_inner().job);
        let phase = self.phase(&job).await?;
        if phase.has_ended() {
            return Err(Status::failed_precondition(format!("job {job} has ended already: it is {phase}")));
        }
        let ended = tokio::time::timeout(CANCEL_LIMIT, self.end(&job, CANCELLED)).await;
        self.offer_slots().await;
        match ended {
            Ok(ended) => ended.map(|()| Response::new(Done)),
            Err(_) => Err(Status::internal(format!(
                "job {job} has not ended within {} s of being cancelled",
                CANCEL_LIMIT.as_secs()
            ))),
        }
    }

    async fn logs(&self, request: Request<LogRequest>) -> Result<Response<LogPage>, Status> {
        let LogRequest { job, from, most } = request.into_inner();
        // First how far the job is: a line that comes in between is on the page, not lost behind its end.
        let ended = self.phase(&JobId::new(&job)).await?.has_ended();
        Ok(Response::new(LogPage { ended, ..self.logs.page(&job, from, most) }))
    }

    async fn push_logs(&self, request: Request<LogPush>) -> Result<Response<Done>, Status> {
        let LogPush { process, lines } = request.into_inner();
        self.logs.add(&process, lines);
        Ok(Response::new(Done))
    }
}
