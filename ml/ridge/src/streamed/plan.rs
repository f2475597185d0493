//! What a stream of targets needs on a card, before it is started: memory, bytes read, time; and what would fit instead.

use crate::{CrossValidation, Error, Result};
use std::fmt;

const F64: u64 = 8;
/// What the driver and the libraries take for themselves.
const LIBRARIES: u64 = 1 << 30;

/// Sizes of a streamed regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamShape {
    /// Samples that are fitted.
    pub n_samples: usize,
    /// Features.
    pub n_features: usize,
    /// Targets.
    pub n_targets: usize,
    /// Targets at once.
    pub block: usize,
    /// Penalties to choose from.
    pub n_alphas: usize,
    /// Samples that are held out and predicted.
    pub n_held_out: usize,
    /// By which folds penalties are chosen.
    pub folds: FoldSizes,
    /// Bytes of a number of the features and targets as they are read.
    pub number_bytes: usize,
}

/// Sizes of the folds of a cross-validation; all zero for leave-one-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldSizes {
    /// Folds.
    pub count: usize,
    /// Samples that a fold does not train on, over all folds.
    pub out: usize,
    /// The most that one does not train on.
    pub largest: usize,
}

impl FoldSizes {
    /// Of a cross-validation.
    pub fn of(cv: &CrossValidation) -> Self {
        let CrossValidation::Folds(folds) = cv else { return Self::default() };
        folds.each().fold(Self::default(), |sizes, (held, besides)| {
            let out = held.len() + besides.len();
            Self { count: sizes.count + 1, out: sizes.out + out, largest: sizes.largest.max(out) }
        })
    }
}

/// What a card does in a second, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardRates {
    /// Floating-point operations of products in double precision.
    pub products: f64,
    /// Seconds of an eigendecomposition of a matrix, divided by the third power of its size.
    pub eigen: f64,
    /// Bytes between this machine's memory and the card.
    pub copies: f64,
    /// Bytes of targets that are read or made.
    pub targets: f64,
    /// Bytes of coefficients that this machine takes from the card into memory of its own.
    pub taken: f64,
    /// Bytes of the card's memory that are free.
    pub memory: u64,
    /// Bytes of it that are used at most, if there is a choice ([`StreamedRidge::limit_memory`](super::StreamedRidge)).
    pub limit: u64,
    /// Bytes that an eigendecomposition of this size works with beside its matrix.
    pub eigen_workspace: u64,
}

/// What a streamed regression will need on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct CardPlan {
    /// Bytes on the card in each step; the largest is the peak.
    pub memory: Vec<(&'static str, u64)>,
    /// Bytes free on the card.
    pub free: u64,
    /// Bytes of this machine's memory, beside the features: blocks of targets that are read ahead, coefficients of one.
    pub host: u64,
    /// Bytes of targets that are read, over all passes.
    pub read: u64,
    /// Products of targets and features stay on the card, so that targets are read once.
    pub keeps_products: bool,
    /// Seconds of each step.
    pub steps: Vec<(&'static str, f64)>,
}

impl StreamShape {
    fn rank(&self) -> usize {
        self.n_samples.min(self.n_features)
    }

    /// What stays after the decomposition: features in the spectrum's basis, the basis, and folds.
    fn features(&self) -> u64 {
        F64 * (self.n_samples + self.n_features) as u64 * self.rank() as u64 + self.decomposed_folds()
    }

    fn blocks(&self) -> u64 {
        (2 * self.number_bytes as u64 + F64) * self.n_samples as u64 * self.block as u64
    }

    fn products(&self, keeps: bool) -> u64 {
        F64 * self.rank() as u64 * if keeps { self.n_targets } else { self.block } as u64
    }

    /// What is summed over targets by leave-one-out; what each fold keeps of its decomposition, and the scores, by folds.
    fn sums(&self) -> u64 {
        let k = self.rank() as u64;
        if self.folds.count == 0 {
            return F64 * (k * (self.n_samples as u64 + k) + (self.n_samples * self.n_alphas) as u64);
        }
        let block = (self.folds.largest as u64 + 1 + 4 * k) * self.block as u64;
        F64 * (block + ((self.n_alphas + 1) * self.n_targets) as u64)
    }

    /// Bases of folds and, beside them, of what they predict the squares over differences of eigenvalues.
    fn decomposed_folds(&self) -> u64 {
        let (k, folds) = (self.rank() as u64, self.folds);
        F64 * k * (2 * folds.count as u64 * k + (folds.out + folds.count) as u64)
    }

    fn coefficients(&self) -> u64 {
        let (p, k, b, held) =
            (self.n_features as u64, self.rank() as u64, self.block as u64, self.n_held_out as u64);
        F64 * (k + p) * b + self.number_bytes as u64 * (p + held) * b + F64 * held * (p + k + b)
    }

    /// The most that is on a card at once after the decomposition, with or without features and basis.
    pub(crate) fn on_card(&self, keeps: bool, features: bool) -> u64 {
        let beside = if features { 0 } else { self.features() };
        self.steps_memory(keeps, 0).iter().skip(1).map(|(_, bytes)| bytes - beside).max().unwrap_or(0)
    }

    fn steps_memory(&self, keeps: bool, workspace: u64) -> Vec<(&'static str, u64)> {
        let (n, p, k) = (self.n_samples as u64, self.n_features as u64, self.rank() as u64);
        let (x, square) = (F64 * n * p, F64 * k * k);
        let whole = self.features() - self.decomposed_folds();
        let of_folds =
            if self.folds.count == 0 { 0 } else { F64 * k * self.folds.largest as u64 + workspace };
        let decomposition = LIBRARIES + (x + square + workspace.max(whole)).max(self.features() + of_folds);
        let targets = LIBRARIES + self.features() + self.blocks() + self.products(keeps);
        vec![
            ("decomposition", decomposition),
            ("targets", targets + self.sums()),
            // Products take the place of centred targets.
            ("scores", targets + self.sums()),
            ("coefficients", targets + self.coefficients()),
        ]
    }

    /// What it needs on a card of these rates.
    ///
    /// # Errors
    /// More memory than the card has free; it names a block or a number of features that would do.
    pub fn plan(&self, rates: &CardRates) -> Result<CardPlan> {
        let fits = |shape: &Self, keeps| {
            // A decomposition of another size works with as much more or less as its matrix has.
            let workspace = u128::from(rates.eigen_workspace) * (shape.rank() as u128).pow(2);
            let workspace = workspace / (self.rank() as u128).pow(2).max(1);
            let bytes = shape.steps_memory(keeps, workspace as u64);
            bytes.iter().all(|(_, bytes)| *bytes <= rates.memory)
        };
        let keeps = fits(self, true) && self.on_card(true, true) <= rates.limit;
        if !keeps && !fits(self, false) {
            return Err(self.refused(rates, |shape| fits(shape, false)));
        }
        let [n, p, k, t, held] =
            [self.n_samples, self.n_features, self.rank(), self.n_targets, self.n_held_out].map(|v| v as f64);
        let number = self.number_bytes as f64;
        let targets = n * t * number;
        let passes = if keeps { 1.0 } else { 2.0 };
        let project = 2.0 * n * k * t / rates.products;
        // Whichever is slowest: the others go on beside it.
        let streamed = |products: f64| products.max(targets / rates.copies).max(targets / rates.targets);
        let [folds, out] = [self.folds.count, self.folds.out].map(|v| v as f64);
        let by_folds = folds > 0.0;
        // A fold rotates each target into its basis, and multiplies it with all that it predicts and with their square.
        let scored = 2.0 * k * t * (out + 2.0 * folds * k) / rates.products;
        let summed = project + k * k * t / rates.products;
        let steps = vec![
            ("decomposition", {
                let products = (3.0 * n * p * k + 4.0 * out * k * k) / rates.products;
                products + rates.eigen * (1.0 + folds) * k.powi(3) + n * p * number / rates.copies
            }),
            ("targets", streamed(project + if by_folds { scored } else { summed })),
            ("scores", if by_folds { 0.0 } else { 2.0 * n * k * k / rates.products }),
            ("coefficients", {
                let products = 2.0 * (p + held) * k * t / rates.products;
                let copied = p * t * number / rates.taken
                    + held * t * number * (1.0 / rates.copies + 1.0 / rates.targets);
                products + copied + if keeps { 0.0 } else { streamed(project) }
            }),
        ];
        let staged = super::STAGED_BLOCKS as u64 * (self.n_samples * self.block * self.number_bytes) as u64;
        let taken = 3 * (self.n_features * self.block * self.number_bytes) as u64;
        Ok(CardPlan {
            memory: self.steps_memory(keeps, rates.eigen_workspace),
            free: rates.memory,
            host: staged + taken,
            read: (passes * targets) as u64 + (held * t * number) as u64,
            keeps_products: keeps,
            steps,
        })
    }

    fn refused(&self, rates: &CardRates, fits: impl Fn(&Self) -> bool) -> Error {
        let peak = self.steps_memory(false, rates.eigen_workspace).iter().map(|(_, b)| *b).max().unwrap_or(0);
        let halves = |value: usize| std::iter::successors(Some(value), |v| (*v > 1).then_some(v / 2));
        let block = halves(self.block).find(|block| fits(&Self { block: *block, ..*self }));
        let features = halves(self.n_features)
            .find(|n| fits(&Self { n_features: *n, block: self.block.min(256), ..*self }));
        let folds = (2..self.folds.count).rev().find(|count| {
            let FoldSizes { out, largest, .. } = self.folds;
            fits(&Self { folds: FoldSizes { count: *count, out, largest }, ..*self })
        });
        let advice = match (block, folds, features) {
            (Some(block), ..) => format!("a block of {block} targets would fit"),
            (None, Some(folds), _) => format!("cv => {folds} would fit"),
            (None, None, Some(features)) => {
                format!(
                    "{features} features in blocks of {} would fit, or device => 'cpu'",
                    self.block.min(256)
                )
            }
            (None, None, None) => "use fewer samples, or device => 'cpu'".into(),
        };
        let folds =
            if self.folds.count > 0 { format!(", {} folds", self.folds.count) } else { String::new() };
        let reason = format!(
            "{} samples, {} features{folds} and blocks of {} targets need {} on the card, which has {} free: {advice}",
            self.n_samples,
            self.n_features,
            self.block,
            gib(peak),
            gib(rates.memory),
        );
        Error::Device { reason, input: true }
    }
}

impl CardPlan {
    /// The most that is on the card at once, bytes.
    pub fn peak(&self) -> u64 {
        self.memory.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }

    /// Seconds of all steps.
    pub fn seconds(&self) -> f64 {
        self.steps.iter().map(|(_, seconds)| seconds).sum()
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

impl fmt::Display for CardPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, bytes), (_, seconds)) in self.memory.iter().zip(&self.steps) {
            writeln!(f, "  {name:<14} {:>9} on the card  {seconds:>8.1} s", gib(*bytes))?;
        }
        let once =
            if self.keeps_products { "once" } else { "twice, since their products do not fit the card" };
        writeln!(
            f,
            "  at most {} of {} free; {} of this machine's memory",
            gib(self.peak()),
            gib(self.free),
            gib(self.host)
        )?;
        write!(f, "  targets are read {once}: {}; {:.1} s in all", gib(self.read), self.seconds())
    }
}

#[cfg(test)]
mod tests;
