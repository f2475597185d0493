//! What a driver and an agent say to each other: a request, then its answer, in JSON, with its length before it.

use super::grant::{Grant, Resources, Wish};
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr, path::PathBuf};

/// Both ends must speak the same.
pub(crate) const PROTOCOL: u32 = 1;
/// Longest message.
pub(crate) const MESSAGE: usize = 1 << 20;
/// Longest piece of a binary.
pub(crate) const CHUNK: usize = 1 << 20;

/// A text that is not to be seen.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// What a driver asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// First on every connection: whose it is. A connection that broke is taken up again in the same way.
    Hello { protocol: u32, application: u128, name: String },
    /// Is the binary with this hash here, or in the agent's store?
    Have { binary: String },
    /// The binary follows, in pieces of [`CHUNK`].
    Send { binary: String, bytes: u64 },
    /// A share of the machine.
    Want { wish: Wish },
    /// Start a part of the application.
    Start(Start),
    /// How are its processes, and what did they say since?
    Watch,
    /// The application has ended.
    End,
}

/// A part of an application that is to be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub binary: String,
    pub role: Role,
    /// The application's own key, with which what its plans hold is sealed.
    pub key: Secret,
    /// The driver's working folder, which relative paths in plans are relative to.
    pub folder: Option<PathBuf>,
}

/// Parts of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Scheduler,
    Executor { scheduler: SocketAddr },
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheduler => "scheduler",
            Self::Executor { .. } => "executor",
        })
    }
}

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Welcome {
        left: Resources,
    },
    Have(bool),
    /// The binary is here and is what it was announced as.
    Taken,
    Granted(Grant),
    /// What the part is ready as: a scheduler's address, an executor's id.
    Started {
        ready: String,
    },
    Processes(Vec<ProcessReport>),
    Ended,
    Refused(String),
}

/// A process of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessReport {
    pub name: String,
    /// How it ended; none while it runs.
    pub ended: Option<String>,
    /// What it said since the last report.
    pub lines: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_key_is_not_to_be_seen() {
        let start = Start {
            binary: "b".into(),
            role: Role::Scheduler,
            key: Secret("topsecret".into()),
            folder: None,
        };
        let shown = format!("{:?}", Request::Start(start.clone()));
        assert!(!shown.contains("topsecret"), "{shown}");
        let sent = serde_json::to_vec(&Request::Start(start.clone())).unwrap();
        assert_eq!(serde_json::from_slice::<Request>(&sent).unwrap(), Request::Start(start));
    }
}
