//! What drivers, executors and people say to a cluster's scheduler, and what it answers.

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
    /// How often its plan was submitted before, because executors were lost.
    pub tries: u32,
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
    /// The first digits of the build that it runs.
    pub build: String,
    /// The version of the release that it runs.
    pub version: String,
    /// Slots.
    pub slots: u32,
    /// Slots that tasks take now.
    pub slots_used: u32,
    /// Memory that it gives to tasks, in bytes.
    pub memory_bytes: u64,
    /// Memory that its process takes now, in bytes.
    pub memory_used_bytes: u64,
    /// Accelerator cards.
    pub cards: u32,
    /// Bytes that are free on the disk of its work folder.
    pub disk_free_bytes: u64,
    /// Why it is given no tasks now; empty if it is given some.
    pub set_aside: String,
    /// Seconds since 1970 when it was last heard of.
    pub seen_s: u64,
}

/// What an executor says to the scheduler, on the one stream that is its membership: it is a member from its
/// registration to the end of the stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ExecutorSays {
    /// First of all: who it is.
    Register(Registration),
    /// That it is alive, several times within the time after which it would count as lost.
    Alive(Vitals),
    /// That tasks have ended.
    Ended(Vec<TaskEnd>),
}

/// The end of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskEnd {
    /// A `TaskStatus` of Ballista, in its bytes.
    pub status: Vec<u8>,
    /// It failed because the disk of the executor's work folder is full.
    pub disk_full: bool,
}

/// Who an executor is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// Its id, which no executor had before: one that was lost comes again as another one, so that nothing that the
    /// lost one left can be taken for its work.
    pub id: String,
    /// The build that it runs.
    pub build: String,
    /// The release that it runs.
    pub version: String,
    /// Under which name or address rows are fetched from it.
    pub host: String,
    /// At which port.
    pub port: u16,
    /// Slots.
    pub slots: u32,
}

/// How an executor is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Vitals {
    /// How many messages of the scheduler it has taken up.
    pub received: u64,
    /// Tasks that it has taken up and that have not ended.
    pub running: Vec<TaskName>,
    /// Memory of the process, in bytes.
    pub memory_used_bytes: u64,
    /// Bytes that are free on the disk of its work folder.
    pub disk_free_bytes: u64,
}

/// A task: no two of a scheduler have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskName {
    /// The job.
    pub job: String,
    /// The stage within the job.
    pub stage: u32,
    /// How often the stage was begun before.
    pub attempt: u32,
    /// The task within the stage.
    pub task: u32,
}

/// What the scheduler says to an executor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SchedulerSays {
    /// It is a member, and counts as lost when it was not heard for so many milliseconds.
    Welcome {
        /// Milliseconds.
        silence_ms: u64,
    },
    /// Run this task: a `MultiTaskDefinition` of Ballista, in its bytes.
    Run(Vec<u8>),
    /// The job is over: what still runs of it stops, and its files go.
    Forget {
        /// The job.
        job: String,
    },
}

/// A plan to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submission {
    /// The physical plan, as the codec writes it.
    pub plan: Vec<u8>,
    /// Settings of the session, by name.
    pub settings: Vec<(String, String)>,
    /// The session.
    pub session: String,
    /// How often the same plan was submitted before, because executors were lost.
    pub tries: u32,
    /// It is a gang: its members know themselves when their driver is gone, and leave with what they have reached.
    pub is_gang: bool,
}

/// What becomes of a submission. Its job lives as long as the stream of these: when the driver closes the stream, or is
/// gone, a job that runs is cancelled, but for a gang, and the rows of one that has ended are removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum JobNews {
    /// It is a job now.
    Accepted {
        /// Its id.
        job: String,
    },
    /// All rows are there: a `PartitionLocation` of Ballista each, in its bytes. Nothing of the job was run twice.
    Done(Vec<Vec<u8>>),
    /// It has failed.
    Failed {
        /// Why, as Ballista words it.
        reason: String,
        /// It has lost what an executor had of it: the same plan can be submitted again.
        lost: bool,
    },
}

/// What the operators of a job counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Names and values, partition by partition.
    pub counts: Vec<(String, u64)>,
}
