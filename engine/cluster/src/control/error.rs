//! What can go wrong between a process and its cluster's scheduler.

use tonic::{Code, Status};

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a process and its cluster's scheduler.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answers.
    #[error(
        "no scheduler answers at {address}: {reason}; is the scheduler running, is the address right, and does it have \
         the same key as this process?"
    )]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// Why.
        reason: String,
    },
    /// A job that is not there, or that is not what was thought.
    #[error("{0}")]
    Job(String),
    /// The service cannot be set up.
    #[error("{what}: {reason}")]
    Setup {
        /// What cannot.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The scheduler failed.
    #[error("the scheduler at {address} failed: {reason}")]
    Scheduler {
        /// Where it is.
        address: String,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// True when the user's input is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Job(_) | Self::Setup { .. })
    }

    pub(super) fn setup(what: &'static str) -> impl FnOnce(String) -> Self {
        move |reason| Self::Setup { what, reason }
    }

    /// What `status`, from the service at `address`, says.
    pub(super) fn answered(address: &str, status: &Status) -> Self {
        let (address, reason) = (address.to_owned(), innermost(status));
        match status.code() {
            Code::NotFound | Code::FailedPrecondition => Self::Job(status.message().to_owned()),
            // A connection that does not come about is a status with a cause; one that the service sends has none.
            _ if std::error::Error::source(status).is_some() => Self::Unreachable { address, reason },
            Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
                Self::Unreachable { address, reason }
            }
            code => Self::Scheduler { address, reason: format!("{code:?}: {reason}") },
        }
    }
}

/// The cause behind a status: the outer ones of a connection that failed say "transport error" only.
fn innermost(status: &Status) -> String {
    let mut cause: &dyn std::error::Error = status;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => cause.to_string(),
    }
}
