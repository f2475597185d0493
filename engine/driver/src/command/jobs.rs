//! `voxelflow jobs`: what a cluster's scheduler knows, or who its executors are.

use super::control::{client, seconds, since, table};
use crate::{Result, flags::JobsFlags};
use voxelflow_cluster::control::messages::{ExecutorSummary, JobSummary, TaskCounts};

/// Letters of an error that a table shows.
const ERROR_SHOWN: usize = 60;

pub(super) async fn jobs(flags: JobsFlags, json: bool) -> Result<()> {
    let client = client(&flags.control)?;
    if flags.list_executors {
        let executors = client.executors().await.map_err(voxelflow_cluster::Error::from)?;
        return print(&executors, json, executor_table);
    }
    let jobs = client.jobs().await.map_err(voxelflow_cluster::Error::from)?;
    print(&jobs, json, job_table)
}

fn print<T: serde::Serialize>(rows: &[T], json: bool, text: impl Fn(&[T]) -> String) -> Result<()> {
    if !json {
        crate::output::say(format_args!("{}", text(rows)));
        return Ok(());
    }
    for row in rows {
        say!("{}", serde_json::json!(row));
    }
    Ok(())
}

fn job_table(jobs: &[JobSummary]) -> String {
    let rows: Vec<Vec<String>> = jobs.iter().map(job_row).collect();
    table(&["job", "state", "for", "stages", "tasks", "try", "name", "error"], &rows)
}

fn job_row(job: &JobSummary) -> Vec<String> {
    let lasted = match (job.queued_ms, job.ended_ms) {
        (0, _) => String::new(),
        (queued, 0) => since(queued),
        (queued, ended) => seconds(ended.saturating_sub(queued) / 1000),
    };
    let TaskCounts { done, running, waiting } = job.tasks;
    let tasks = match job.phase.has_ended() {
        true => String::new(),
        false => format!("{running} running, {waiting} waiting, {done} done"),
    };
    let first_line = job.error.as_deref().and_then(|error| error.lines().next()).unwrap_or_default();
    let mut error: String = first_line.chars().take(ERROR_SHOWN).collect();
    if error.len() < first_line.len() {
        error.push('…');
    }
    let stages = format!("{}/{}", job.stages_done, job.stages);
    // The first one says nothing; a second one was begun because an executor was lost.
    let attempt = if job.tries == 0 { String::new() } else { (job.tries + 1).to_string() };
    vec![job.id.clone(), job.phase.to_string(), lasted, stages, tasks, attempt, job.name.clone(), error]
}

fn executor_table(executors: &[ExecutorSummary]) -> String {
    let row = |executor: &ExecutorSummary| {
        vec![
            executor.id.clone(),
            executor.pool.clone(),
            executor.host.clone(),
            format!("{} {}", executor.version, executor.build),
            format!("{}/{}", executor.slots_used, executor.slots),
            format!("{} of {} MiB", executor.memory_used_bytes >> 20, executor.memory_bytes >> 20),
            format!("{} MiB free", executor.disk_free_bytes >> 20),
            executor.cards.to_string(),
            format!("{} ago", since(executor.seen_s * 1000)),
            executor.set_aside.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = executors.iter().map(row).collect();
    let heads =
        ["executor", "pool", "host", "build", "slots", "memory", "disk", "cards", "heard of", "set aside"];
    table(&heads, &rows)
}
