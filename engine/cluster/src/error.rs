//! What can go wrong between the driver and the cluster.

use datafusion::error::DataFusionError;
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between the driver and the cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address that is none.
    #[error("`{address}` is no address of a cluster: {reason}; write df://host:port")]
    Address {
        /// As written.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// An address that strangers can reach.
    #[error(
        "{address} is {what}: bind to a private address of this machine, or say --public if the port is to be reached \
         from there; only who has the cluster's key is answered"
    )]
    Exposed {
        /// The address.
        address: IpAddr,
        /// Why strangers can reach it.
        what: &'static str,
    },
    /// A setting that cannot be used.
    #[error("{what}: {reason}")]
    Setting {
        /// The flag or setting.
        what: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Nobody answers at the scheduler's address.
    #[error(
        "no scheduler answers at {url}: {reason}; is the scheduler running, is the address right, and does it have the \
         same key as this process?"
    )]
    Unreachable {
        /// Its address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The scheduler has gone while a job was running.
    #[error(
        "the scheduler at {url} was lost while job {job} was running ({reason}); its jobs are lost with it: start it \
         again and run this again"
    )]
    SchedulerLost {
        /// Its address.
        url: String,
        /// The job.
        job: String,
        /// How that showed.
        reason: String,
    },
    /// The scheduler or an executor does not take the plan.
    #[error("the cluster refused the plan: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// A job failed on the cluster.
    #[error("job {job} failed on the cluster: {reason}{}", job_log(.lines))]
    Job {
        /// The job.
        job: String,
        /// The first cause.
        reason: String,
        /// Whether the user's input is at fault.
        is_input: bool,
        /// The last lines that its tasks wrote to their logs.
        lines: Vec<String>,
    },
    /// A job has lost what an executor had of it: the same plan can be submitted again.
    #[error("job {job} has lost rows on the cluster: {reason}")]
    Lost {
        /// The job.
        job: String,
        /// How.
        reason: String,
    },
    /// A plan was submitted so often, and its jobs have lost rows every time.
    #[error(
        "the cluster has lost rows of all {} jobs of this plan:{}\nlook after the executors (`voxelflow jobs \
         --list-executors`), and run it again",
        .lost.len(),
        listed(.lost)
    )]
    LostAgain {
        /// What each of the jobs has lost.
        lost: Vec<String>,
    },
    /// The rows of a partition cannot be fetched.
    #[error("partition {partition} of job {job} cannot be fetched from executor {executor}: {reason}")]
    Fetch {
        /// The job.
        job: String,
        /// The partition.
        partition: usize,
        /// Who has it.
        executor: String,
        /// Why.
        reason: String,
    },
    /// A plan that is too large to be sent.
    #[error(
        "the plan has {mib} MiB, more than the {most} MiB that a message to the scheduler may have: rows in memory \
         and broadcast values travel inside the plan; write them as Parquet and read that"
    )]
    PlanTooLarge {
        /// Its size.
        mib: usize,
        /// The bound.
        most: usize,
    },
    /// A process of the cluster on this machine did not start or ended.
    #[error("{role} {what}{}", tail(.log, .lines))]
    Process {
        /// `scheduler`, `executor 1`, …
        role: String,
        /// What happened.
        what: String,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        lines: String,
    },
    /// Not all executors came in time.
    #[error("{missing} of {wanted} executors did not register within {waited:?}{}", tail(.log, .lines))]
    Missing {
        /// How many are missing.
        missing: usize,
        /// How many were started.
        wanted: usize,
        /// How long they were waited for.
        waited: Duration,
        /// A log of one of them.
        log: PathBuf,
        /// The log's last lines.
        lines: String,
    },
    /// The machine failed.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Ballista's scheduler or executor ended.
    #[error("the {role} ended: {reason}")]
    Ended {
        /// `scheduler` or `executor`.
        role: &'static str,
        /// Why.
        reason: String,
    },
    /// The scheduler, when it is asked.
    #[error(transparent)]
    Control(#[from] crate::control::Error),
    /// Agents, or what they have started.
    #[error(transparent)]
    Node(#[from] crate::node::Error),
    /// A plan or session.
    #[error("{}", .0.strip_backtrace())]
    Plan(#[from] DataFusionError),
}

fn tail(log: &std::path::Path, lines: &str) -> String {
    if lines.is_empty() {
        return format!("; its log is {}", log.display());
    }
    let shown: String = lines.lines().map(|line| format!("\n  | {line}")).collect();
    format!("; the end of its log {}:{shown}", log.display())
}

fn listed(lost: &[String]) -> String {
    lost.iter().enumerate().map(|(n, how)| format!("\n  {}. {how}", n + 1)).collect()
}

fn job_log(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let shown: String = lines.iter().map(|line| format!("\n  | {line}")).collect();
    format!("\nthe end of its log:{shown}")
}

impl Error {
    /// True when the user's input, not the machines, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Address { .. }
            | Self::Exposed { .. }
            | Self::Setting { .. }
            | Self::PlanTooLarge { .. } => true,
            Self::Job { is_input, .. } => *is_input,
            Self::Control(e) => e.is_input(),
            Self::Node(e) => e.is_input(),
            _ => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Plan(inner) => inner,
            other => Self::External(Box::new(other)),
        }
    }
}
