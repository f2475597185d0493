//! What the scheduler knows of its jobs and executors, in the words of the control service.

use super::{
    CANCELLED, Scheduler,
    members::{MemberView, Members},
    messages::{ExecutorSummary, JobPhase, JobSummary, TaskCounts},
};
use ballista_core::{
    JobId,
    error::Result,
    serde::protobuf::{job_status::Status, task_status},
};
use ballista_scheduler::state::{
    execution_graph::ExecutionGraph, execution_stage::ExecutionStage, task_manager::JobOverview,
};
use std::time::UNIX_EPOCH;

/// Digits of a build that are shown.
const BUILD_DIGITS: usize = 12;

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

/// Executors that are members, by id.
pub(super) fn executors(members: &Members) -> Vec<ExecutorSummary> {
    let summary = |member: MemberView| {
        let (name, registration) = (member.name(), member.registration);
        let room = name.room(registration.slots);
        let seen = member.heard.duration_since(UNIX_EPOCH).unwrap_or_default();
        ExecutorSummary {
            pool: name.pool().to_owned(),
            host: registration.host,
            build: registration.build.chars().take(BUILD_DIGITS).collect(),
            version: registration.version,
            slots: room.slots,
            slots_used: member.slots_used,
            memory_bytes: room.memory_bytes,
            memory_used_bytes: member.vitals.memory_used_bytes,
            cards: room.cards,
            disk_free_bytes: member.vitals.disk_free_bytes,
            set_aside: if member.set_aside { "its disk is full".to_owned() } else { String::new() },
            seen_s: seen.as_secs(),
            id: registration.id,
        }
    };
    members.all().into_iter().map(summary).collect()
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
        tries: 0,
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
