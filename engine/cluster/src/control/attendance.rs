//! Executors and the scheduler: one stream a member, from its registration to its loss.
//!
//! ```text
//!   executor                              scheduler
//!   Register ───────────────────────────► join: a member, its slots are offered
//!   Alive (how it is) ──────────────────► hear: leases of tasks that it does not know end
//!            ◄────────────────────────── Run, Forget
//!   Ended (what became of tasks) ───────► leases end; the job's graph goes on
//!   stream ends, or is silent ──────────► lose: jobs that have something there are lost with it
//! ```
//!
//! An executor has no port that takes orders: it goes to the scheduler, and what it gets comes back on its own stream.
//! A process that dies closes the stream, which shows at once; one that hangs, or whose network is cut, is silent. One
//! that wakes after it was lost finds its stream closed, stops what it does, and comes again under another name.
//!
//! Rows are right under loss because nothing is mended: a job of which an executor had a task or an output is ended,
//! and its driver submits the plan again as another job. Ballista's own way, to run the tasks of a stage again, leaves
//! outputs of the first run among the inputs of the next stage, so that rows count twice. Gangs are placed anew task by
//! task, as Ballista does it: their outputs are no rows.

use super::{
    messages::{ExecutorSays, Registration, SchedulerSays, TaskEnd, TaskName},
    service::ControlService,
};
use ballista_core::{
    JobId,
    serde::protobuf::{
        ExecutorStoppedParams, TaskStatus, UpdateTaskStatusParams, failed_task::FailedReason,
        scheduler_grpc_server::SchedulerGrpc, task_status,
    },
};
use ballista_scheduler::state::{
    decode_protobuf, execution_graph::ExecutionGraph, execution_stage::ExecutionStage,
};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::{Request, Status, Streaming};
use voxelflow_dataset::nodes::GangExec;

impl ControlService {
    /// Lets an executor in whose stream is `says`; gives what is said to it.
    pub(super) async fn take_in(
        self: &Arc<Self>,
        mut says: Streaming<ExecutorSays>,
    ) -> Result<UnboundedReceiver<SchedulerSays>, Status> {
        let registration = match tokio::time::timeout(self.silence, says.message()).await {
            Ok(Ok(Some(ExecutorSays::Register(registration)))) => registration,
            Ok(Err(status)) => return Err(status),
            Ok(Ok(_)) | Err(_) => {
                return Err(Status::invalid_argument("an executor begins with its registration"));
            }
        };
        let (outbox, inbox) = unbounded_channel();
        let silence_ms = u64::try_from(self.silence.as_millis()).unwrap_or(u64::MAX);
        // It is there to take it: the stream is answered after this.
        let _ = outbox.send(SchedulerSays::Welcome { silence_ms });
        let Registration { id, host, slots, build, .. } = registration.clone();
        self.members.join(registration, outbox).map_err(Status::already_exists)?;
        log::info!(
            "executor {id} at {host} joins with {slots} slots, build {}",
            build.get(..12).unwrap_or(&build)
        );
        self.offer_slots().await;
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let reason = service.listen(&id, says).await;
            service.lose(&id, &reason).await;
        });
        Ok(inbox)
    }

    /// Takes up what an executor says, until it is lost; gives why it is.
    async fn listen(&self, executor: &str, mut says: Streaming<ExecutorSays>) -> String {
        loop {
            match tokio::time::timeout(self.silence, says.message()).await {
                Ok(Ok(Some(ExecutorSays::Alive(vitals)))) => {
                    if self.members.hear(executor, vitals) {
                        self.offer_slots().await;
                    }
                }
                Ok(Ok(Some(ExecutorSays::Ended(ends)))) => self.tasks_ended(executor, &ends).await,
                Ok(Ok(Some(ExecutorSays::Register(_)))) => return "it registered twice".to_owned(),
                Ok(Ok(None)) => return "it has left".to_owned(),
                Ok(Err(status)) => return format!("its connection broke ({})", status.message()),
                Err(_) => return format!("it was silent for {:.1} s", self.silence.as_secs_f64()),
            }
        }
    }

    /// An executor is lost, and with it every job that had something there.
    pub(super) async fn lose(&self, executor: &str, reason: &str) {
        let shown = self.members.shown(executor);
        log::warn!("executor {shown} is lost: {reason}");
        // From here on nothing is bound to it, and what was bound before is in the graphs.
        self.members.leave(executor).await;
        for (job, cached) in self.scheduler.state.task_manager.get_running_job_cache().iter() {
            let graph = cached.execution_graph.read().await;
            if !is_gang(graph.as_ref()) && has_something_at(graph.as_ref(), executor) {
                drop(graph);
                self.lose_job(job, &format!("executor {shown} was lost: {reason}")).await;
            }
        }
        // After these jobs have been ended: Ballista runs tasks of the others, which are gangs, again.
        let stopped = ExecutorStoppedParams { executor_id: executor.to_owned(), reason: reason.to_owned() };
        if let Err(e) = SchedulerGrpc::executor_stopped(&self.scheduler, Request::new(stopped)).await {
            log::error!("gangs are not told that executor {executor} is lost: {e}");
        }
    }

    /// Ends a job that has lost a part of what it needs. Its driver is told so, and may submit the plan again.
    async fn lose_job(&self, job: &JobId, reason: &str) {
        log::warn!("job {job} is ended: {reason}");
        self.verdicts.lose(job, reason);
        if let Err(e) = self.scheduler.cancel_job(job.clone()).await {
            log::error!("job {job} cannot be ended: {e}");
        }
    }

    /// Tasks of an executor have ended: their leases do too, and their graphs go on.
    async fn tasks_ended(&self, executor: &str, ends: &[TaskEnd]) {
        let mut told = Vec::new();
        for end in ends {
            let status = match decode_protobuf::<TaskStatus>(&end.status) {
                Ok(status) => status,
                Err(e) => {
                    log::error!("executor {executor} told what cannot be read: {e}");
                    continue;
                }
            };
            self.members.release(executor, &name_of(&status));
            told.extend(self.judged(executor, status, end.disk_full).await);
        }
        let params = UpdateTaskStatusParams { executor_id: executor.to_owned(), task_status: told };
        // Also when there is nothing to tell: slots are free.
        if let Err(e) = SchedulerGrpc::update_task_status(&self.scheduler, Request::new(params)).await {
            log::error!("what became of tasks of executor {executor} is not taken up: {e}");
        }
    }

    /// What Ballista is to know of a task's end.
    async fn judged(&self, executor: &str, status: TaskStatus, disk_full: bool) -> Option<TaskStatus> {
        let Some(task_status::Status::Failed(failed)) = &status.status else { return Some(status) };
        match &failed.failed_reason {
            Some(FailedReason::FetchPartitionError(lost)) => {
                let holder = self.members.shown(&lost.executor_id);
                let reason = format!(
                    "rows of stage {} could not be fetched from executor {holder} by {}: {}",
                    lost.map_stage_id,
                    self.members.shown(executor),
                    failed.error.lines().next().unwrap_or_default()
                );
                self.lose_job(&JobId::new(&status.job_id), &reason).await;
                None
            }
            // Another executor may have room. Where there is none, the job ends with what this one has told.
            _ if disk_full && self.members.has_another(executor) => {
                self.members.set_aside(executor);
                let reason = format!("executor {}: {}", self.members.shown(executor), failed.error);
                self.lose_job(&JobId::new(&status.job_id), &reason).await;
                None
            }
            _ => Some(status),
        }
    }

    /// Stops what executors still do for `job`, which has ended, and removes its files there.
    pub(super) fn forget(&self, job: &JobId) {
        self.members.say_to_all(&SchedulerSays::Forget { job: job.to_string() });
        self.verdicts.forget(job);
    }
}

fn name_of(status: &TaskStatus) -> TaskName {
    TaskName {
        job: status.job_id.clone(),
        stage: status.stage_id,
        attempt: status.stage_attempt_num,
        task: status.task_id,
    }
}

/// Whether the job of `graph` is a gang.
pub(super) fn is_gang(graph: &dyn ExecutionGraph) -> bool {
    GangExec::find(graph.physical_plan().as_ref()).is_some()
}

/// Whether `executor` has tasks of `graph` that run, or outputs of tasks.
fn has_something_at(graph: &dyn ExecutionGraph, executor: &str) -> bool {
    graph.stages().values().any(|stage| {
        let tasks = match stage {
            ExecutionStage::Running(stage) => &stage.task_infos,
            ExecutionStage::Successful(stage) => &stage.task_infos,
            _ => return false,
        };
        tasks.iter().any(|task| match &task.task_status {
            task_status::Status::Running(running) => running.executor_id == executor,
            task_status::Status::Successful(done) => done.executor_id == executor,
            task_status::Status::Failed(_) => false,
        })
    })
}
