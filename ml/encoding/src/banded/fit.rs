//! What every rank does; all call the same collectives in the same order.

use super::{STAGE, bands::Bands, options::BandedOptions};
use crate::{
    FittedEncoding,
    delays::{self, Delayed, at_zero},
    held_out::{CEILING, HeldOut},
    meeting::meet,
    message::{Number, shared},
    options::{EncodingOptions, Precision, of_ridge, written},
    ranks::{Place, for_digits},
    repeats::{CeilingOf, TrainingRepeats},
    report::{FitReport, RankReport, cpu_seconds},
    targets::Share,
    tensor_file::TensorFile,
    totals::Totals,
    work::too_narrow,
};
use faer::Mat;
use serde::Serialize;
use std::{
    fs::File,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use voxelflow_ridge::{
    BandedCoefficients, BandedFit, BandedRidgeCv, BandedSettings, Coefficients, Decomposition, Part, Together,
};
use voxelflow_stage::{Error, Explained, Fitted, Gang, Result};
use voxelflow_sync::{Communicator, CommunicatorExt, ReduceOp, equal_ranges};

/// What was chosen, for people.
#[derive(Debug, Serialize)]
struct Chosen<'a> {
    /// Names of the bands, in their order, and the columns of each.
    bands: &'a [String],
    band_sizes: &'a [usize],
    /// The weights: `gamma` of a target is a position in this list.
    gammas: &'a [Vec<f64>],
    alphas: &'a [f64],
    /// Of each of the weights with the best penalty, over the targets that can be fitted.
    mean_scores: &'a [f64],
}

/// Fits as one rank of the gang.
///
/// # Errors
/// Features that cannot be used, rows that cannot be read, ranks that are lost.
pub(super) fn fit<T: Number>(
    options: &BandedOptions,
    mut train: Explained<'_>,
    mut validation: Option<Explained<'_>>,
    gang: &mut Gang,
) -> Result<Fitted> {
    let (clock, cpu) = (Instant::now(), cpu_seconds());
    gang.check_cancelled()?;
    let Gang { sync, settings, progress, output, room, cancelled, .. } = gang;
    let folder = output.clone().ok_or_else(|| Error::Data {
        what: STAGE.into(),
        reason: "the gang has no folder for the model".into(),
    })?;
    if validation.is_none() {
        options.encoding.untested()?;
    }
    let rows = train.series.rows();
    let plan = options.plan(train.samples, validation.as_ref().map(|own| own.samples), settings, *room)?;
    plan.check()?;
    let c = meet(sync.as_mut(), progress.as_ref(), rows, || Some(plan.needs()))?;
    let (folder, seed, progress) = (folder.as_path(), settings.seed, progress.as_ref());
    let mut place = Place { c, progress, folder, seed, cancelled, clock, cpu };
    let too_few = match fit_in::<T>(options, plan.into_settings(), (&mut train, &mut validation), &mut place)?
    {
        Ok(fitted) => return Ok(fitted),
        Err(too_few) => too_few,
    };
    log::info!("{too_few}: it is fitted in 64");
    let encoding = EncodingOptions { precision: Precision::F64, ..options.encoding.clone() };
    let wide = BandedOptions { encoding, ..options.clone() };
    let plan = wide.plan(train.samples, validation.as_ref().map(|own| own.samples), settings, *room)?;
    plan.check().map_err(|e| for_digits(e, &too_few))?;
    fit_in::<f64>(options, plan.into_settings(), (&mut train, &mut validation), &mut place)?.map_err(of_ridge)
}

/// The same in numbers of one width; what says that they have too few digits, on all ranks alike.
fn fit_in<T: Number>(
    options: &BandedOptions,
    solver: BandedSettings,
    (train, validation): (&mut Explained<'_>, &mut Option<Explained<'_>>),
    place: &mut Place<'_>,
) -> Result<Result<Fitted, voxelflow_ridge::Error>> {
    let Place { c, progress, folder, seed, cancelled, clock, cpu } = place;
    let (c, clock) = (&mut **c, *clock);
    let Explained { series, features, samples } = train;
    let (series, samples) = (&mut **series, *samples);
    let (rank, world, rows) = (c.rank().0, c.world(), series.rows());
    let (bands, delays) = (options.bands(samples)?, &options.encoding.delays);
    let found = Delayed::<T>::of(&mut **features, samples, delays)?;
    let Delayed { x, origin } = bands.arranged(&found, delays.len());
    let Delayed { origin: as_given, .. } = found;
    let (sizes, gammas, block) = (solver.bands.clone(), solver.gammas.clone(), solver.block);
    let (n_samples, n_features) = (x.nrows(), x.ncols());
    let ridge = match too_narrow(BandedRidgeCv::new(x, solver))? {
        Ok(ridge) => ridge,
        Err(too_few) => return Ok(Err(too_few)),
    };

    let shares = equal_ranges(samples.targets(), world);
    let share = shares.get(rank).cloned().unwrap_or(0..0);
    let mut own = Share::new(series, samples, share.clone(), cancelled);
    let shape = [n_samples, n_features];
    let mut ranks = Ranks { c: &mut *c, cancelled, shape, failed: None, decompositions: 0 };
    let chosen = ridge.choose_together(&mut own, &mut ranks);
    let chosen = chosen.map_err(|e| ranks.failed.take().unwrap_or_else(|| own.cause(e)))?;

    let file = TensorFile::new::<T>(folder, [samples.targets(), n_features], options.columns());
    if rank == 0 {
        file.create::<T>()?;
    }
    ranks.c.barrier()?;
    let mut out = Output {
        opened: file.open()?,
        file: &file,
        first: share.start,
        origin: &origin,
        intercepts: Vec::new(),
        at_zero: Vec::new(),
    };
    out.without::<T>(&chosen)?;
    let mut failed = None;
    let fitted = ridge.fit_together(&chosen, &mut own, &mut ranks, |found| {
        out.take(&found).map_err(|e| {
            let reason = e.to_string();
            failed = Some(e);
            let (from, to) = (found.targets.first().copied(), found.targets.last().copied());
            voxelflow_ridge::Error::Targets { from: from.unwrap_or(0), to: to.unwrap_or(0) + 1, reason }
        })
    });
    let decompositions = ranks.decompositions;
    if let Err(e) = fitted {
        return Err(failed.or_else(|| ranks.failed.take()).unwrap_or_else(|| own.cause(e)));
    }
    out.columns(&chosen)?;

    let mut totals = Totals::of(chosen.unfit.len(), own.variance());
    let validated = validation.is_some();
    let held_out_samples = validation.as_ref().map(|explained| explained.samples);
    let repeats = TrainingRepeats::where_known(samples, held_out_samples, rank);
    let mut held_out = match validation.take() {
        Some(explained) => {
            let found = Delayed::<T>::about(explained.features, explained.samples, delays, as_given)?;
            let x = bands.arranged(&found, delays.len()).x;
            let parts = bands.names.iter().cloned().zip(sizes.clone()).collect();
            Some(HeldOut::of(explained, x, &options.encoding, *seed)?.with_bands(parts))
        }
        None => None,
    };
    for first in (0..share.len()).step_by(block) {
        let range = first..share.len().min(first + block);
        out.held_out(range, held_out.as_mut(), (&bands, &own.variances), &mut totals)?;
    }
    if let Some(repeats) = &repeats {
        repeats.ceilings(own.series, share.clone(), block, cancelled, |at, ceilings| {
            file.write_column(&out.opened, CEILING, at, ceilings)
        })?;
    }
    let ceiling_of = CeilingOf::either(held_out.as_ref().is_some_and(HeldOut::has_repeats), repeats.as_ref());
    if let Some(held_out) = held_out {
        for (column, values) in held_out.tested(c)? {
            file.write_column(&out.opened, &column, share.start, &values)?;
        }
    }
    out.opened
        .sync_all()
        .map_err(|e| Error::Rows { path: folder.display().to_string(), reason: e.to_string() })?;
    let totals = totals.summed(c)?;

    let report = RankReport {
        rank,
        targets: share.len(),
        decompositions,
        cpu_seconds: cpu_seconds() - *cpu,
        seconds: clock.elapsed().as_secs_f64(),
    };
    let ranks = report.gathered(c)?;
    let best = chosen.mean_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let epoch = totals.epoch(options.encoding.scoring, best, rows, validated, clock);
    let per_rank = shares.iter().map(|share| (share.len() * samples.runs.len()) as u64).collect();
    let history = totals.history(options.encoding.scoring, epoch, samples.targets(), per_rank);
    if rank == 0 {
        let names = delays::names(&samples.features, &options.encoding.delays);
        let order = bands.order(options.encoding.delays.len());
        let report = FitReport {
            features: order.into_iter().map(|column| names[column].clone()).collect(),
            precision: T::PRECISION,
            n_samples,
            run_samples: samples.runs.iter().map(|run| run.samples).collect(),
            n_features,
            n_targets: samples.targets(),
            unfit: totals.unfit as u64,
            chosen: Chosen {
                bands: &bands.names,
                band_sizes: &sizes,
                gammas: &gammas,
                alphas: &options.encoding.alphas,
                mean_scores: &chosen.mean_scores,
            },
            ceiling_of,
            ranks,
        };
        report.write(folder)?;
        if let Some(progress) = progress {
            progress.epoch(&epoch);
        }
    }
    let model = Box::new(FittedEncoding { stage: STAGE, options: written(options), file });
    Ok(Ok(Fitted { model, history }))
}

/// Decompositions dealt out to ranks, and sums over them.
struct Ranks<'a> {
    c: &'a mut dyn Communicator,
    cancelled: &'a AtomicBool,
    /// Of the features, `[n_samples, n_features]`.
    shape: [usize; 2],
    /// Why a collective failed, whole.
    failed: Option<Error>,
    /// Those of this rank.
    decompositions: usize,
}

impl Ranks<'_> {
    fn lost(&mut self, error: Error) -> voxelflow_ridge::Error {
        let reason = error.to_string();
        self.failed = Some(error);
        voxelflow_ridge::Error::Device { reason, input: false }
    }
}

impl<T: Number> Together<T> for Ranks<'_> {
    fn decompose(
        &mut self,
        ridge: &BandedRidgeCv<T>,
        parts: &[Part],
    ) -> voxelflow_ridge::Result<Vec<Decomposition<T>>> {
        let (rank, world) = (self.c.rank().0, self.c.world());
        let mut own = Vec::new();
        for part in parts.iter().skip(rank).step_by(world) {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(self.lost(Error::Cancelled));
            }
            own.push(ridge.decompose(*part)?);
        }
        self.decompositions += own.len();
        shared(own, parts.len(), self.shape, None, self.c).map_err(|e| self.lost(e))
    }

    fn add_up(&mut self, sums: &mut [f64]) -> voxelflow_ridge::Result<()> {
        self.c.all_reduce(ReduceOp::Sum, sums).map_err(|e| self.lost(e.into()))
    }
}

/// Where a rank's coefficients and numbers go.
struct Output<'a> {
    file: &'a TensorFile,
    opened: File,
    /// The first target of the share.
    first: usize,
    /// What features are less in the fit.
    origin: &'a [f64],
    /// Of the targets of the share, of features less that, and what they are more of features as they are.
    intercepts: Vec<f64>,
    at_zero: Vec<f64>,
}

impl Output<'_> {
    /// Targets that cannot be fitted have no coefficients.
    fn without<T: Number>(&mut self, chosen: &BandedFit) -> Result<()> {
        self.intercepts = vec![f64::NAN; chosen.alphas.len()];
        self.at_zero = self.intercepts.clone();
        let none = vec![T::of(f64::NAN); self.file.features];
        let write = |target: &usize| self.file.write_coefficients(&self.opened, self.first + target, &none);
        chosen.unfit.iter().try_for_each(write)
    }

    fn take<T: Number>(&mut self, found: &BandedCoefficients<T>) -> Result<()> {
        let at_zero = at_zero(found.weights.as_ref(), self.origin);
        for (at, (target, weights)) in found.targets.iter().zip(found.weights.col_iter()).enumerate() {
            let values: Vec<T> = weights.iter().copied().collect();
            self.file.write_coefficients(&self.opened, self.first + target, &values)?;
            (self.intercepts[*target], self.at_zero[*target]) = (found.intercepts[at], at_zero[at]);
        }
        Ok(())
    }

    fn columns(&self, chosen: &BandedFit) -> Result<()> {
        let gamma = |gamma: &Option<usize>| gamma.map_or(f64::NAN, |gamma| gamma as f64);
        let gammas: Vec<f64> = chosen.gammas.iter().map(gamma).collect();
        let intercepts = self.intercepts.iter().zip(&self.at_zero).map(|(own, more)| own + more).collect();
        let columns = [
            ("intercept", &intercepts),
            ("alpha", &chosen.alphas),
            ("gamma", &gammas),
            ("score", &chosen.scores),
        ];
        columns
            .iter()
            .try_for_each(|(name, values)| self.file.write_column(&self.opened, name, self.first, values))
    }

    /// What the targets `range` of the share say in held-out runs: their coefficients are read back.
    fn held_out<T: Number>(
        &self,
        range: std::ops::Range<usize>,
        held_out: Option<&mut HeldOut<'_, T>>,
        (bands, variances): (&Bands, &[f64]),
        totals: &mut Totals,
    ) -> Result<()> {
        let (first, count, p) = (self.first + range.start, range.len(), self.file.features);
        let columns = match held_out {
            None => crate::held_out::none(&bands.names, count),
            Some(held_out) => {
                let values = self.file.read_coefficients::<T>(first, count)?;
                let weights = Mat::from_fn(p, count, |i, j| values[j * p + i]);
                let intercepts = self.intercepts[range.clone()].to_vec();
                let variances = &variances[range.clone()];
                let block = Coefficients { range, weights, intercepts, scores: Vec::new() };
                held_out.scores(first, &block, variances, totals)?
            }
        };
        columns
            .iter()
            .try_for_each(|(name, values)| self.file.write_column(&self.opened, name, first, values))
    }
}
