//! What is asked of a cluster's control service, and what it answers.

use serde::{Deserialize, Serialize};
use std::fmt;
use voxelflow_dataset::log_tail::LogLine;

/// Asks for something that has no parameters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Everything;

/// Asks for something of one job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfJob {
    /// Its id.
    pub job: String,
}

/// Asks for log lines of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogRequest {
    /// Its id.
    pub job: String,
    /// Number of the first line that is wanted; 0 for all that are kept.
    pub from: u64,
    /// Lines that are wanted at most, the last ones.
    pub most: usize,
}

/// Log lines of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines, in the order in which they came.
    pub lines: Vec<JobLine>,
    /// Number that the next line will have: ask from here for what comes later.
    pub next: u64,
    /// Whether the job has ended: nothing comes later.
    pub ended: bool,
}

/// A log line, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLine {
    /// The executor, or `scheduler`.
    pub process: String,
    /// The line.
    pub line: LogLine,
}

impl fmt::Display for JobLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.process, self.line)
    }
}

/// Log lines that an executor sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogPush {
    /// Its id.
    pub process: String,
    /// What its tasks wrote.
    pub lines: Vec<LogLine>,
}

/// The answer to what needs none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Done;

/// All jobs that the scheduler knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Jobs {
    /// The newest first.
    pub jobs: Vec<JobSummary>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Its id.
    pub id: String,
    /// Its name; empty if it was given none.
    pub name: String,
    /// How far it is.
    pub phase: JobPhase,
    /// Why it failed.
    pub error: Option<String>,
    /// Stages.
    pub stages: usize,
    /// Stages that are complete.
    pub stages_done: usize,
    /// Tasks of the stages that run.
    pub tasks: TaskCounts,
    /// Milliseconds since 1970 when it was submitted; 0 if not known.
    pub queued_ms: u64,
    /// Milliseconds since 1970 when it ended; 0 if it has not.
    pub ended_ms: u64,
}

/// Partitions of the stages of a job that run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// Done.
    pub done: usize,
    /// At work.
    pub running: usize,
    /// Not bound yet.
    pub waiting: usize,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobPhase {
    /// It is being planned.
    Queued,
    /// It runs, or waits for room.
    Running,
    /// It has ended well.
    Done,
    /// It has failed.
    Failed,
    /// Somebody has cancelled it.
    Cancelled,
}

impl JobPhase {
    /// Whether nothing more will happen.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for JobPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// Why a job waits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Waits {
    /// How far it is.
    pub phase: Option<JobPhase>,
    /// Its stages that wait for room.
    pub stages: Vec<StageWaits>,
}

/// Why a stage waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageWaits {
    /// Its number.
    pub stage: usize,
    /// For how long.
    pub seconds: f64,
    /// Why.
    pub reason: String,
}

/// All executors that are alive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Executors {
    /// By id.
    pub executors: Vec<ExecutorSummary>,
}

/// An executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorSummary {
    /// Its id.
    pub id: String,
    /// Its pool.
    pub pool: String,
    /// Where it is.
    pub host: String,
    /// Slots.
    pub slots: u32,
    /// Slots that tasks take now.
    pub slots_used: u32,
    /// Memory of members of gangs, in bytes; 0: not counted.
    pub memory_bytes: u64,
    /// Accelerator cards.
    pub cards: u32,
    /// Seconds since 1970 when it was last heard of.
    pub seen_s: u64,
}
