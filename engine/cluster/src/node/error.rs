//! What can go wrong between a driver and the agents of its machines.

use std::{io, path::Path};

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a driver and agents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `nodes://…` that names no agents.
    #[error("{location}: {reason}")]
    Location {
        /// As written.
        location: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A connection that cannot be made, that broke, or on which something else was said than expected.
    #[error("agent {agent}: {doing}: {reason}")]
    Connection {
        /// The other end.
        agent: String,
        /// What was being done.
        doing: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The agent does not do what was asked.
    #[error("agent {agent} refuses: {reason}")]
    Refused {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
    },
    /// A file or folder of this machine.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// A process that ended before it was ready, or could not be started.
    #[error("{process} {reason}{}", tail(log))]
    Process {
        /// Which.
        process: String,
        /// How it ended.
        reason: String,
        /// The last lines that it said.
        log: Vec<String>,
    },
    /// A part of the application, or an agent, that is gone while it was needed.
    #[error("{0}")]
    Lost(String),
    /// The keys of the cluster or of a channel.
    #[error(transparent)]
    Credentials(#[from] voxelflow_sync::Error),
}

impl Error {
    /// True when the user's input is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Location { .. } | Self::Credentials(_))
    }

    pub(crate) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }

    pub(crate) fn connection(agent: &str, doing: &'static str, reason: impl ToString) -> Self {
        Self::Connection { agent: agent.to_owned(), doing, reason: reason.to_string() }
    }

    /// The same fault as the peer's own failing reads and writes tell it.
    pub(crate) fn io(agent: &str, doing: &'static str) -> impl Fn(io::Error) -> Self + use<> {
        let agent = agent.to_owned();
        move |e| Self::connection(&agent, doing, e)
    }
}

fn tail(log: &[String]) -> String {
    match log {
        [] => String::new(),
        lines => format!("; it said last:\n{}", lines.join("\n")),
    }
}
