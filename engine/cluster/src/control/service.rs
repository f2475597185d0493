//! The service itself: answers questions from the scheduler's books, and ends jobs. What drivers and executors say goes
//! on in [`submissions`](super::submissions) and [`attendance`](super::attendance).

use super::{
    CANCELLED, Scheduler,
    cluster_control_server::ClusterControl,
    guard::check_build,
    job_book,
    job_state::{ReasonedJobState, Verdicts},
    log_store::LogStore,
    members::Members,
    messages::{
        Counts, Done, Everything, ExecutorSays, Executors, JobNews, JobPhase, Jobs, LogPage, LogPush,
        LogRequest, OfJob, SchedulerSays, StageWaits, Submission, Waits,
    },
};
use crate::policy::WaitingRoom;
use ballista_core::{
    JobId,
    error::BallistaError,
    serde::protobuf::{
        GetJobMetricsParams, UpdateTaskStatusParams, operator_metric::Metric,
        scheduler_grpc_server::SchedulerGrpc,
    },
};
use futures::{Stream, StreamExt};
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming, async_trait};

/// How long a cancelled job may take to end.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// Jobs that are named to those who ask for one that is not there.
const JOBS_NAMED: usize = 5;

/// What the service answers from.
pub(super) struct ControlService {
    pub(super) scheduler: Scheduler,
    pub(super) members: Arc<Members>,
    pub(super) jobs: Arc<ReasonedJobState>,
    pub(super) waiting_room: Arc<WaitingRoom>,
    pub(super) verdicts: Arc<Verdicts>,
    pub(super) logs: Arc<LogStore>,
    /// After so long a silence an executor counts as lost.
    pub(super) silence: Duration,
    /// How often the plans of jobs were submitted before, for those that were.
    pub(super) tries: Mutex<HashMap<String, u32>>,
}

/// Messages that a driver may not have taken yet.
const NEWS: usize = 4;

/// A stream of answers.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl ControlService {
    /// Notes that the plan of `job` was submitted `tries` times before.
    pub(super) fn note_tries(&self, job: &JobId, tries: u32) {
        if tries > 0 {
            self.tries.lock().unwrap_or_else(PoisonError::into_inner).insert(job.to_string(), tries);
        }
    }

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
    pub(super) async fn end(&self, job: &JobId, reason: &str) -> Result<(), Status> {
        self.verdicts.pass(job, reason);
        self.scheduler.cancel_job(job.clone()).await.map_err(internal)?;
        self.ended(job).await;
        Ok(())
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
    pub(super) async fn offer_slots(&self) {
        let Some(executor) = self.members.all().pop() else { return };
        let executor_id = executor.registration.id;
        let nothing_new = UpdateTaskStatusParams { executor_id, task_status: Vec::new() };
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
    type SubmitStream = Answers<JobNews>;
    type AttendStream = Answers<SchedulerSays>;

    async fn submit(&self, request: Request<Submission>) -> Result<Response<Self::SubmitStream>, Status> {
        check_build(&request, "the driver")?;
        let (tell, told) = mpsc::channel(NEWS);
        tokio::spawn(Arc::clone(self).look_after(request.into_inner(), tell));
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn attend(
        &self,
        request: Request<Streaming<ExecutorSays>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        check_build(&request, "an executor")?;
        let inbox = self.take_in(request.into_inner()).await?;
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(inbox).map(Ok))))
    }

    async fn counts(&self, request: Request<OfJob>) -> Result<Response<Counts>, Status> {
        let params = GetJobMetricsParams { job_id: request.into_inner().job };
        let metrics = SchedulerGrpc::get_job_metrics(&self.scheduler, Request::new(params)).await?;
        let mut counts = Vec::new();
        for operator in metrics.into_inner().stages.into_iter().flat_map(|stage| stage.operators) {
            let mut metrics = operator.metrics;
            metrics.sort_by_key(|metric| metric.partition);
            counts.extend(metrics.into_iter().filter_map(|metric| match metric.metric? {
                Metric::Count(count) => Some((count.name, count.value)),
                Metric::Gauge(gauge) => Some((gauge.name, gauge.value)),
                _ => None,
            }));
        }
        Ok(Response::new(Counts { counts }))
    }

    async fn jobs(&self, _: Request<Everything>) -> Result<Response<Jobs>, Status> {
        let mut jobs = job_book::jobs(&self.scheduler).await.map_err(internal)?;
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of jobs that the scheduler has forgotten go.
        tries.retain(|job, _| jobs.iter().any(|known| known.id == *job));
        for job in &mut jobs {
            job.tries = tries.get(&job.id).copied().unwrap_or(0);
        }
        Ok(Response::new(Jobs { jobs }))
    }

    async fn executors(&self, _: Request<Everything>) -> Result<Response<Executors>, Status> {
        Ok(Response::new(Executors { executors: job_book::executors(&self.members) }))
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
