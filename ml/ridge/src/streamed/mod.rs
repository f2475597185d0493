//! Ridge whose targets stream past where the products are computed: on the cores, or on a graphics card.
//!
//! ```text
//!   reader thread ─► block of Y (page-locked) ─► Backend: centred, M = ZᵀY, what scores follow from ─► scores of every alpha
//!        ▲                    │                                │
//!        └── emptied blocks ──┘                                └─► M kept, if it fits: a fit reads Y no more
//! ```
//! The next blocks are read while one is worked on; how long work waited for them is told. All that depends on where
//! products are computed is behind [`Backend`]; blocks, penalties and what cannot be fitted are treated here, once.

mod backend;
mod card;
mod cores;
mod measure;
mod plan;
mod reader;

pub use plan::{CardPlan, CardRates, FoldSizes, StreamShape};

use crate::evidence::decided;
use crate::settings::validate;
use crate::targets::{blocks, check_samples};
use crate::{Coefficients, CrossValidation, Error, Result, RidgeFit, RidgeSettings, Scalar, Score, Targets};
use backend::{Backend, Staging};
use faer::{MatMut, MatRef};
use std::{ops::Range, sync::Arc, time::Instant};
use voxelflow_cuda::{Card, regression::HostNumber};

/// Blocks of targets that are read, or wait to be worked on, at once.
pub(crate) const STAGED_BLOCKS: usize = 3;

/// Coefficients that are handed over at once where targets are not read: from larger pieces, allocators take and return
/// the system's pages each time, which costs more than the coefficients.
const COEFFICIENT_BYTES: usize = 24 << 20;

/// A step of a fit, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// What was done.
    pub name: &'static str,
    /// From its beginning to its end, seconds.
    pub seconds: f64,
    /// Of these, seconds in which nothing was computed, since targets were not there.
    pub waiting: f64,
}

/// Samples that no fit sees, to be predicted by it.
pub struct HeldOut<'a, T> {
    /// Features, `[n_samples, n_features]`.
    pub features: MatRef<'a, T>,
    /// The same targets as those that are fitted.
    pub targets: &'a mut dyn Targets<T>,
}

/// Features, ready for targets that stream past. Folds choose one penalty for all of them or one for each, leave-one-out one
/// for all.
///
/// Scores, penalties and coefficients are those of [`RidgeCv`](crate::RidgeCv) with the same settings.
pub struct StreamedRidge<T> {
    settings: RidgeSettings,
    n_samples: usize,
    n_features: usize,
    backend: Box<dyn Backend<T>>,
    /// Lent to a reader in each pass.
    staging: Vec<Box<dyn Staging<T>>>,
    steps: Vec<Step>,
}

impl<T: Scalar> StreamedRidge<T> {
    /// On the cores of this machine. `x`: `[n_samples, n_features]`.
    ///
    /// # Errors
    /// As of [`RidgeCv::new`](crate::RidgeCv::new); settings that a stream cannot serve.
    pub fn on_cores(x: MatRef<'_, T>, settings: RidgeSettings) -> Result<Self> {
        check(x, &settings)?;
        let clock = Instant::now();
        let backend = Box::new(cores::Cores::new(x, &settings)?);
        Ok(Self::of(x, settings, backend, clock))
    }

    /// On an NVIDIA card, in double precision. `x`: `[n_samples, n_features]`.
    ///
    /// # Errors
    /// As of [`Self::on_cores`]; a card without room for the features, or that fails.
    pub fn on_card(card: Arc<Card>, x: MatRef<'_, T>, settings: RidgeSettings) -> Result<Self>
    where
        T: HostNumber,
    {
        check(x, &settings)?;
        let clock = Instant::now();
        let backend = Box::new(card::OnCard::new(card, x, &settings)?);
        Ok(Self::of(x, settings, backend, clock))
    }

    fn of(x: MatRef<'_, T>, settings: RidgeSettings, backend: Box<dyn Backend<T>>, clock: Instant) -> Self {
        let steps = vec![step("decomposition", clock, 0.0)];
        Self { settings, n_samples: x.nrows(), n_features: x.ncols(), backend, staging: Vec::new(), steps }
    }

    /// Leaves what a card has beyond `bytes` to others: products of targets that do not fit in them are not kept, so that a
    /// fit reads the targets again. What no fit can be without is taken all the same.
    pub fn limit_memory(&mut self, bytes: u64) {
        self.backend.limit(bytes);
    }

    /// What was done so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Chooses the penalty, reading all targets once.
    ///
    /// # Errors
    /// Targets that cannot be read or have another number of samples.
    pub fn choose(&mut self, targets: &mut (dyn Targets<T> + Send)) -> Result<RidgeFit<T>> {
        check_samples(targets, self.n_samples)?;
        let (clock, count) = (Instant::now(), targets.count());
        self.backend.begin(count, self.settings.block.min(count))?;
        self.pass(targets, |backend, range, values| backend.add(range, values))?;
        let busy = self.backend.finish()?;
        self.steps.push(step("targets", clock, clock.elapsed().as_secs_f64() - busy));
        let clock = Instant::now();
        let (evidence, mean_scores) = self.backend.evidence()?;
        self.steps.push(step("scores", clock, 0.0));
        Ok(decided(&self.settings, evidence, mean_scores))
    }

    /// Fits all samples with the penalties of `fit`; `take` gets the coefficients block by block. `targets` are those that
    /// the penalties were chosen for: they are read again only where their products with the features could not be kept.
    ///
    /// Gives Pearson's r of each target in the samples `held_out`, NaN where it is not fitted or constant.
    ///
    /// # Errors
    /// Targets that cannot be read, or do not belong to the features; what `take` says.
    pub fn fit(
        &mut self,
        fit: &RidgeFit<T>,
        targets: &mut (dyn Targets<T> + Send),
        held_out: Option<HeldOut<'_, T>>,
        mut take: impl FnMut(Coefficients<T>) -> Result<()>,
    ) -> Result<Vec<f64>> {
        check_samples(targets, self.n_samples)?;
        let (clock, count) = (Instant::now(), targets.count());
        if fit.alphas.len() != count {
            let reason = format!("they are for {} targets, not for these {count}", fit.alphas.len());
            return Err(Error::Setting { option: "the fit's alphas", reason });
        }
        let mut scored = Scored::new(held_out, count, self.backend.as_mut())?;
        let mut busy = 0.0;
        let mut one = |backend: &mut dyn Backend<T>, range: Range<usize>, values: Option<&[T]>| {
            let clock = Instant::now();
            let coefficients = backend.fit(range.clone(), &fit.alphas[range.clone()], values)?;
            let waited = scored.add(backend, range)?;
            busy += clock.elapsed().as_secs_f64() - waited;
            take(coefficients)
        };
        if self.backend.has_products() {
            let column = self.n_features * size_of::<T>();
            let at_once = (COEFFICIENT_BYTES / column.max(1)).max(1).min(self.settings.block);
            for range in blocks(count, at_once) {
                one(self.backend.as_mut(), range, None)?;
            }
        } else {
            self.pass(targets, |backend, range, values| one(backend, range, Some(values)))?;
        }
        let correlations = std::mem::take(&mut scored.correlations);
        self.steps.push(step("coefficients", clock, clock.elapsed().as_secs_f64() - busy));
        Ok(correlations)
    }

    /// Reads all targets, block by block and ahead.
    fn pass(
        &mut self,
        targets: &mut (dyn Targets<T> + Send),
        mut work: impl FnMut(&mut dyn Backend<T>, Range<usize>, &[T]) -> Result<()>,
    ) -> Result<()> {
        let (count, block) = (targets.count(), self.settings.block);
        let needed = self.n_samples * block.max(1).min(count);
        let mut staging = std::mem::take(&mut self.staging);
        if staging.iter_mut().any(|place| place.values().is_ok_and(|values| values.len() < needed)) {
            staging.clear();
        }
        while staging.len() < STAGED_BLOCKS {
            staging.push(self.backend.staging(needed)?);
        }
        let backend = self.backend.as_mut();
        let ranges = blocks(count, block).collect();
        self.staging = reader::ahead(targets, staging, ranges, |range, values| work(backend, range, values))?;
        Ok(())
    }
}

/// Predictions of held-out samples, as far as they were asked for.
struct Scored<'a, T> {
    targets: Option<&'a mut dyn Targets<T>>,
    values: Vec<T>,
    correlations: Vec<f64>,
}

impl<'a, T: Scalar> Scored<'a, T> {
    fn new(held_out: Option<HeldOut<'a, T>>, count: usize, backend: &mut dyn Backend<T>) -> Result<Self> {
        let (values, correlations) = (Vec::new(), Vec::new());
        let Some(HeldOut { features, targets }) = held_out else {
            return Ok(Self { targets: None, values, correlations });
        };
        check_samples(targets, features.nrows())?;
        if targets.count() != count {
            let reason = format!("{} targets, but {count} are fitted; give the same", targets.count());
            return Err(Error::Setting { option: "held-out samples", reason });
        }
        backend.hold_out(features)?;
        Ok(Self { targets: Some(targets), values, correlations })
    }

    /// Scores the block that was fitted last; gives the seconds for which its targets were waited for.
    fn add(&mut self, backend: &mut dyn Backend<T>, range: Range<usize>) -> Result<f64> {
        let Some(targets) = &mut self.targets else { return Ok(0.0) };
        let clock = Instant::now();
        let samples = targets.samples();
        self.values.resize(samples * range.len(), T::of(0.0));
        let into = MatMut::from_column_major_slice_mut(&mut self.values, samples, range.len());
        targets.read(range, into)?;
        let waited = clock.elapsed().as_secs_f64();
        self.correlations.extend(backend.correlations(&self.values)?);
        Ok(waited)
    }
}

fn step(name: &'static str, clock: Instant, waiting: f64) -> Step {
    Step { name, seconds: clock.elapsed().as_secs_f64(), waiting: waiting.max(0.0) }
}

/// Refuses what a stream cannot serve.
fn check<T>(x: MatRef<'_, T>, settings: &RidgeSettings) -> Result<()> {
    validate(x, settings)?;
    let refuse = |option, reason: &str| Err(Error::Setting { option, reason: reason.into() });
    if settings.cv != CrossValidation::LeaveOneOut {
        return Ok(());
    }
    // Both would need every prediction.
    if settings.alpha_per_target {
        return refuse(
            "alpha_per_target",
            "streamed targets share one penalty with cv => 'loo'; use 'run', a number of folds, or device => 'cpu'",
        );
    }
    if settings.score == Score::Pearson {
        return refuse(
            "scoring",
            "is 'r2' or 'neg_mean_squared_error' with cv => 'loo' of streamed targets; use 'run', a number of folds, or \
             device => 'cpu'",
        );
    }
    Ok(())
}
