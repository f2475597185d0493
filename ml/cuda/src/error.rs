//! What can go wrong with a card.

use cudarc::{
    cublas::{result::CublasError, sys::cublasStatus_t},
    cusolver::result::CusolverError,
    driver::{DriverError, sys::CUresult},
    nvrtc::result::NvrtcError,
};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Faults of a card, of its libraries, or of what was asked of it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library that is not on this machine.
    #[error("{library} was not found: {advice}")]
    Library {
        /// Its name.
        library: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Cards that this machine does not have.
    #[error("this machine has no {missing}: it has {found}; choose another card, or device => 'cpu'")]
    NoCard {
        /// Those that were asked for.
        missing: String,
        /// What there is.
        found: String,
    },
    /// A card that is too old.
    #[error(
        "cuda:{ordinal} ({name}) has compute capability {found}, at least {needed} is needed; use device => 'cpu'"
    )]
    TooOld {
        /// Its number.
        ordinal: usize,
        /// What it is.
        name: String,
        /// Its compute capability.
        found: String,
        /// The least that will do.
        needed: &'static str,
    },
    /// More memory than the card has left.
    #[error(
        "the card has no room for {bytes} more bytes ({what}): use a smaller minibatch, or a card that is idle"
    )]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What for.
        what: &'static str,
    },
    /// A shape that cannot be.
    #[error("{what}: {reason}")]
    Shape {
        /// Of what.
        what: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The driver refused, or a kernel failed.
    #[error("the card failed at {what}: {reason}")]
    Driver {
        /// What was being done.
        what: &'static str,
        /// The driver's own word.
        reason: String,
    },
    /// Kernels that do not compile on this machine.
    #[error("the card's kernels do not compile with this machine's NVRTC: {reason}")]
    Compile {
        /// The compiler's log.
        reason: String,
    },
}

impl Error {
    /// True when what was asked for is at fault, or the machine lacks what was asked for: not a failure on the way
    /// (exit code 2).
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Driver { .. } | Self::Compile { .. })
    }

    /// A failure of `what`.
    pub fn failed(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Driver { what, reason: reason.to_string() }
    }
}

/// Says what a library was doing when it failed.
pub trait During<T> {
    /// `what` was being done.
    ///
    /// # Errors
    /// The failure, if it is one.
    fn during(self, what: &'static str) -> Result<T>;
}

impl<T> During<T> for std::result::Result<T, DriverError> {
    fn during(self, what: &'static str) -> Result<T> {
        self.map_err(|e| match e.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::Memory { bytes: 0, what },
            // The driver's name for it: asking the driver for words needs a driver.
            other => Error::failed(what, format!("{other:?}")),
        })
    }
}

impl<T> During<T> for std::result::Result<T, CublasError> {
    fn during(self, what: &'static str) -> Result<T> {
        self.map_err(|e| match e.0 {
            cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => Error::Memory { bytes: 0, what },
            other => Error::failed(what, format!("cuBLAS says {other:?}")),
        })
    }
}

impl<T> During<T> for std::result::Result<T, CusolverError> {
    fn during(self, what: &'static str) -> Result<T> {
        self.map_err(|e| Error::failed(what, format!("cuSOLVER says {e:?}")))
    }
}

impl<T> During<T> for std::result::Result<T, NvrtcError> {
    fn during(self, what: &'static str) -> Result<T> {
        self.map_err(|e| Error::failed(what, format!("NVRTC says {e:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_the_user_s_fault_and_a_failure_is_not() {
        let missing = Error::Library { library: "libcuda", advice: "install the driver" };
        assert!(missing.is_input());
        assert!(Error::NoCard { missing: "cuda:3".into(), found: "1 card".into() }.is_input());
        assert!(!Error::failed("a copy", "broken").is_input());
    }

    #[test]
    fn a_full_card_is_told_from_a_broken_one() {
        let full: std::result::Result<(), _> = Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(matches!(full.during("activations"), Err(Error::Memory { what: "activations", .. })));
        let broken: std::result::Result<(), _> = Err(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert!(broken.during("a kernel").is_err_and(|e| !e.is_input()));
    }
}
