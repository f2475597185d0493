//! What the scheduler knows of its jobs and executors, in the words of the control service.

use super::{
    CANCELLED, Scheduler,
    messages::{ExecutorSummary, JobPhase, JobSummary, TaskCounts},
};
use crate::policy::ExecutorName;
use ballista_core::{
    JobId,
    error::Result,
    serde::protobuf::{job_status::Status, task_status},
};
use ballista_scheduler::{
    cluster::ClusterState,
    state::{execution_graph::ExecutionGraph, execution_stage::ExecutionStage, task_manager::JobOverview},
};
use std::collections::HashMap;

/// All jobs, the newest first.
pub(super) async fn jobs(scheduler: &Scheduler) -> Result<Vec<JobSummary>> {
    let mut jobs = Vec::new();
    let running = scheduler.state.task_manager.get_running_job_cache();
    for overview in scheduler.state.task_manager.get_all_jobs().await? {
        let mut summary = summary(&overview);
        if let Some(job) = running.get(&overview.job_id) {
            summary.tasks = task_counts(job.execution_graph.read().await.as_ref());
        }
        jobs.push(summary);
    }
    jobs.sort_by(|a, b| b.id.cmp(&a.id));
    Ok(jobs)
}

/// How far `job` is; nothing if the scheduler does not know it.
pub(super) async fn phase(scheduler: &Scheduler, job: &JobId) -> Result<Option<JobPhase>> {
    let status = scheduler.state.task_manager.get_job_status(job).await?;
    Ok(status.map(|status| phase_of(status.status.as_ref())))
}

/// Executors that are alive, by id.
pub(super) async fn executors(cluster: &dyn ClusterState, scheduler: &Scheduler) -> Vec<ExecutorSummary> {
    let mut used: HashMap<String, u32> = HashMap::new();
    for job in scheduler.state.task_manager.get_running_job_cache().values() {
        for stage in job.execution_graph.read().await.stages().values() {
            let ExecutionStage::Running(stage) = stage else { continue };
            for info in &stage.task_infos {
                if let task_status::Status::Running(task) = &info.task_status {
                    *used.entry(task.executor_id.clone()).or_default() += info.vcores_consumed;
                }
            }
        }
    }
    let mut executors = Vec::new();
    for metadata in cluster.registered_executor_metadata().await {
        let name = ExecutorName::of(&metadata.id);
        let room = name.room(metadata.specification.vcores);
        executors.push(ExecutorSummary {
            pool: name.pool().to_owned(),
            slots: room.slots,
            slots_used: used.get(&metadata.id).copied().unwrap_or(0),
            memory_bytes: room.memory_bytes,
            cards: room.cards,
            seen_s: cluster.get_executor_heartbeat(&metadata.id).map_or(0, |h| h.timestamp),
            host: metadata.host,
            id: metadata.id,
        });
    }
    executors.sort_by(|a, b| a.id.cmp(&b.id));
    executors
}

fn summary(job: &JobOverview) -> JobSummary {
    let (error, queued_ms) = match &job.status.status {
        Some(Status::Failed(failed)) => (Some(failed.error.clone()), failed.queued_at),
        Some(Status::Queued(queued)) => (None, queued.queued_at),
        Some(Status::Running(running)) => (None, running.queued_at),
        Some(Status::Successful(done)) => (None, done.queued_at),
        None => (None, 0),
    };
    JobSummary {
        id: job.job_id.to_string(),
        name: job.job_name.clone(),
        phase: phase_of(job.status.status.as_ref()),
        error,
        stages: job.num_stages,
        stages_done: job.completed_stages,
        tasks: TaskCounts::default(),
        queued_ms,
        ended_ms: job.end_time,
    }
}

fn phase_of(status: Option<&Status>) -> JobPhase {
    match status {
        None | Some(Status::Queued(_)) => JobPhase::Queued,
        Some(Status::Running(_)) => JobPhase::Running,
        Some(Status::Successful(_)) => JobPhase::Done,
        // Ballista's own word, for jobs that their driver has cancelled.
        Some(Status::Failed(failed)) if failed.error == CANCELLED || failed.error == "Cancelled" => {
            JobPhase::Cancelled
        }
        Some(Status::Failed(_)) => JobPhase::Failed,
    }
}

fn task_counts(graph: &dyn ExecutionGraph) -> TaskCounts {
    let mut counts = TaskCounts::default();
    for stage in graph.stages().values() {
        match stage {
            ExecutionStage::Running(stage) => {
                counts.waiting += stage.pending.remaining();
                for info in &stage.task_infos {
                    let partitions = info.global_input_partition_ids.len();
                    match &info.task_status {
                        task_status::Status::Running(_) => counts.running += partitions,
                        task_status::Status::Successful(_) => counts.done += partitions,
                        task_status::Status::Failed(_) => {}
                    }
                }
            }
            ExecutionStage::Successful(stage) => counts.done += stage.partitions,
            ExecutionStage::Resolved(stage) => counts.waiting += stage.partitions,
            ExecutionStage::UnResolved(_) | ExecutionStage::Failed(_) => {}
        }
    }
    counts
}
