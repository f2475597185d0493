//! What can be wrong with a regression.

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Faults of a regression. All are the input's, but a [`Error::Device`] that fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot be.
    #[error("{option}: {reason}")]
    Setting {
        /// Name of the setting.
        option: &'static str,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Features and targets that do not belong together, or too few of them.
    #[error("{what} has {found} samples, expected {expected}")]
    Samples {
        /// What was given.
        what: &'static str,
        /// How many samples it has.
        found: usize,
        /// How many it must have.
        expected: usize,
    },
    /// A feature with NaN or infinity.
    #[error(
        "feature {feature} is {value} in sample {sample}; leave such samples out, or repair them, before a fit"
    )]
    NotFinite {
        /// Column, from 0.
        feature: usize,
        /// Row, from 0.
        sample: usize,
        /// What is there.
        value: f64,
    },
    /// A penalty so small that the solution would be noise.
    #[error(
        "alpha {alpha:e} leaves a condition number of {condition:.1e}, and with it fewer than three correct digits{}",
        way_out(*narrow, *smallest)
    )]
    Condition {
        /// The penalty.
        alpha: f64,
        /// `(λ_max + α) / (λ_min + α)`.
        condition: f64,
        /// The smallest penalty that would do.
        smallest: f64,
        /// Numbers of 64 bits would have more digits.
        narrow: bool,
    },
    /// An eigendecomposition that did not converge.
    #[error("the eigendecomposition of the {size} × {size} matrix did not converge")]
    Eigen {
        /// Rows of the matrix.
        size: usize,
    },
    /// A fit that does not fit into memory.
    #[error("the fit needs {needed} MiB, and {given} MiB are given; {way_out}")]
    Memory {
        /// MiB.
        needed: u64,
        /// MiB.
        given: u64,
        /// What would fit.
        way_out: String,
    },
    /// Targets that could not be read.
    #[error("targets {from} to {to}: {reason}")]
    Targets {
        /// The first that was asked for.
        from: usize,
        /// The one after the last.
        to: usize,
        /// Why.
        reason: String,
    },
    /// A card that was asked for and cannot be had, or fails.
    #[error("{reason}")]
    Device {
        /// What is wrong, and what to do.
        reason: String,
        /// What was asked for is at fault, not the card.
        input: bool,
    },
}

fn way_out(narrow: bool, smallest: f64) -> String {
    match narrow {
        true => format!(
            " in numbers of 32 bits: use 64 (precision => 'f64'), or alphas of at least {smallest:.1e}"
        ),
        false => format!(
            ": features are duplicated or nearly so; drop them, or use alphas of at least {smallest:.1e}"
        ),
    }
}

impl Error {
    /// True when what was given or asked for is at fault: not a card that fails on the way.
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Device { input: false, .. })
    }
}
