//! What a fit will need, before it runs: memory and time, phase by phase.
//!
//! Bytes are counted from the sizes, and follow what `decomposition`, `leave_one_out`, `folds` and `RidgeCv::fit`
//! hold; who changes those changes `work`. Time is what is to be computed over the [`Rates`] of this machine, which a
//! short calibration measures. A banded fit is planned in the same way, by `banded`. A card has a plan of its own
//! ([`crate::CardPlan`]).

mod allocator;
mod banded;
mod rates;
mod work;

pub use rates::{Clock, ProductRates, Rates};
pub use work::{Phase, Work};

use crate::{CrossValidation, Error, Result, RidgeSettings};
use std::ops::Add;

/// The type of features, targets and products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 4 bytes.
    F32,
    /// 8 bytes.
    F64,
}

impl Precision {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// The sizes of a fit of [`crate::RidgeCv`] or, by its settings, of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload<S = RidgeSettings> {
    /// Rows of the features and of each target.
    pub n_samples: usize,
    /// Columns of the features.
    pub n_features: usize,
    /// Targets.
    pub n_targets: usize,
    /// Their type.
    pub precision: Precision,
    /// What is asked of the fit.
    pub settings: S,
}

/// What is asked of a fit that can be planned.
pub trait FitSettings: Clone {
    /// The phases of a fit on this machine, in their order.
    fn phases(of: &Workload<Self>) -> Vec<Phase>;
    /// How often targets are read.
    fn passes(&self) -> u64;
    /// Targets that are held at once.
    fn block(&self) -> usize;
    /// The same with another block.
    fn with_block(&self, block: usize) -> Self;
}

impl FitSettings for RidgeSettings {
    fn phases(of: &Workload) -> Vec<Phase> {
        of.phases()
    }

    fn passes(&self) -> u64 {
        if self.read_once && !self.scores_alone() { 1 } else { 2 }
    }

    fn block(&self) -> usize {
        self.block
    }

    fn with_block(&self, block: usize) -> Self {
        Self { block, ..self.clone() }
    }
}

/// What a fit is predicted to need.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In their order.
    pub phases: Vec<PlannedPhase>,
    /// The most that is held at once, in bytes, with the features.
    pub peak_bytes: u64,
    /// Of all phases.
    pub seconds: f64,
    /// Of targets that are read: to choose penalties and, unless they are kept, again to fit.
    pub bytes_read: u64,
}

/// A phase of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPhase {
    /// What it does.
    pub name: &'static str,
    /// The most that is held in it.
    pub bytes: u64,
    /// How long it takes, without waiting for storage.
    pub seconds: f64,
}

impl<S: FitSettings> Workload<S> {
    /// The most that is held at once, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        S::phases(self).iter().map(|phase| phase.bytes).max().unwrap_or(0)
    }

    /// How often targets are read.
    pub fn passes(&self) -> u64 {
        self.settings.passes()
    }

    /// Rows of the largest matrix whose eigenvectors are wanted: what [`Rates::measure`] has to know.
    pub fn largest_eigen(&self) -> usize {
        S::phases(self).iter().flat_map(|phase| &phase.work.eigen).copied().max().unwrap_or(0)
    }

    /// Memory and time on a machine of these `rates`.
    pub fn plan(&self, rates: &Rates) -> Plan {
        let phase = |phase: &Phase| PlannedPhase {
            name: phase.name,
            bytes: phase.bytes,
            seconds: rates.seconds(&phase.work, self.precision),
        };
        let phases: Vec<PlannedPhase> = S::phases(self).iter().map(phase).collect();
        Plan {
            peak_bytes: self.peak_bytes(),
            seconds: phases.iter().map(|phase| phase.seconds).sum(),
            bytes_read: self.passes() * (self.n_samples * self.n_targets * self.precision.bytes()) as u64,
            phases,
        }
    }

    /// Refuses what does not fit into `memory` bytes.
    ///
    /// # Errors
    /// [`Error::Memory`], with what would fit: smaller blocks, else f32, else fewer features.
    pub fn check_memory(&self, memory: u64) -> Result<()> {
        let needed = self.peak_bytes();
        if needed <= memory {
            return Ok(());
        }
        let way_out = self.what_fits(&|other| other.peak_bytes() <= memory);
        Err(Error::Memory { needed: mib(needed), given: mib(memory), way_out })
    }

    /// What would fit instead, by what `fits`: smaller blocks, else f32, else fewer features.
    pub fn what_fits(&self, fits: &dyn Fn(&Self) -> bool) -> String {
        if let Some(block) = self.block_that_fits(fits) {
            return format!("blocks of {block} targets (now {}) would fit", self.settings.block());
        }
        let narrow = Self { precision: Precision::F32, ..self.clone() };
        if self.precision == Precision::F64
            && let Some(block) = narrow.block_that_fits(fits)
        {
            return format!("f32 with blocks of {block} targets would fit");
        }
        // The largest number of features that fits, in f32 and the smallest blocks.
        let enough =
            |n_features: usize| Self { n_features, ..narrow.clone() }.block_that_fits(fits).is_some();
        let (mut least, mut most) = (0, self.n_features);
        while most - least > 1 {
            let middle = usize::midpoint(least, most);
            if enough(middle) { least = middle } else { most = middle }
        }
        match least {
            0 => "no number of features would fit; give more memory, or fewer samples".into(),
            features => format!("{features} features (now {}) in f32 would fit", self.n_features),
        }
    }

    /// The largest block, of this one and its halves down to 16, that fits.
    fn block_that_fits(&self, fits: &dyn Fn(&Self) -> bool) -> Option<usize> {
        let halves = std::iter::successors(Some(self.settings.block()), |block| Some(block / 2));
        let at_least = halves.enumerate().take_while(|(at, block)| *at == 0 || *block >= 16);
        at_least
            .map(|(_, block)| block)
            .find(|block| fits(&Self { settings: self.settings.with_block(*block), ..self.clone() }))
    }
}

impl Workload {
    /// Held samples, and those besides that its fit does not see, of each fold.
    pub fn folds(&self) -> Vec<(usize, usize)> {
        match &self.settings.cv {
            CrossValidation::LeaveOneOut => Vec::new(),
            CrossValidation::Folds(folds) => {
                folds.each().map(|(held, besides)| (held.len(), besides.len())).collect()
            }
        }
    }
}

/// Rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl Work {
    /// So often.
    fn times(self, count: usize) -> Self {
        let all = count as f64;
        Self {
            gram: self.gram * all,
            kernel: self.kernel * all,
            product: self.product * all,
            outer: self.outer * all,
            square: self.square * all,
            wide: self.wide * all,
            penalties: self.penalties * all,
            eigen: self.eigen.repeat(count),
            pass: self.pass * all,
            centre: self.centre * all,
            score: self.score * all,
            fresh: self.fresh * all,
        }
    }
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            gram: self.gram + other.gram,
            kernel: self.kernel + other.kernel,
            product: self.product + other.product,
            outer: self.outer + other.outer,
            square: self.square + other.square,
            wide: self.wide + other.wide,
            penalties: self.penalties + other.penalties,
            eigen: [self.eigen, other.eigen].concat(),
            pass: self.pass + other.pass,
            centre: self.centre + other.centre,
            score: self.score + other.score,
            fresh: self.fresh + other.fresh,
        }
    }
}
