//! What every rank does; all call the same collectives in the same order.

use crate::{
    FittedEncoding,
    delays::{self, Delayed, at_zero},
    held_out::{self, CEILING, HeldOut},
    meeting::meet,
    message::Number,
    needs::FitPlan,
    options::{EncodingOptions, Precision, RidgeCvOptions, STAGE, of_ridge, written},
    repeats::{CeilingOf, TrainingRepeats},
    report::{FitReport, RankReport, cpu_seconds},
    solver::{Solver, Stream},
    targets::Share,
    tensor_file::TensorFile,
    totals::Totals,
    work::{Features, MeanScores, Work, chosen},
};
use serde::Serialize;
use std::{
    fmt,
    fs::File,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};
use voxelflow_ridge::{Coefficients, RidgeCv, RidgeFit, RidgeSettings};
use voxelflow_stage::{Error, Explained, Fitted, Gang, ProgressSink, Result};
use voxelflow_sync::{Communicator, CommunicatorExt};

/// What was chosen, for people.
#[derive(Debug, Serialize)]
struct Chosen<'a> {
    alphas: &'a [f64],
    /// Of each penalty, over the targets that can be fitted.
    mean_scores: &'a [f64],
    /// Where one penalty is shared.
    alpha: Option<f64>,
}

/// Fits as one rank of the gang; `stream`: where targets stream past, instead of the cores of all ranks. Features that leave
/// numbers of 32 bits too few digits are fitted in 64.
///
/// # Errors
/// What does not fit into memory, features that cannot be used, rows that cannot be read, ranks that are lost.
pub(crate) fn fit<T: Number>(
    given: &RidgeCvOptions,
    mut train: Explained<'_>,
    mut validation: Option<Explained<'_>>,
    gang: &mut Gang,
    stream: Option<Stream<T>>,
) -> Result<Fitted> {
    let (clock, cpu) = (Instant::now(), cpu_seconds());
    let options = &given.encoding;
    gang.check_cancelled()?;
    let Gang { sync, settings, progress, output, room, cancelled, .. } = gang;
    let folder = output.clone().ok_or_else(|| Error::Data {
        what: STAGE.into(),
        reason: "the gang has no folder for the model".into(),
    })?;
    if validation.is_none() {
        options.untested()?;
    }
    let rows = train.series.rows();
    let (sync, progress) = (sync.as_mut(), progress.as_ref());
    let (c, solver_settings) = match &stream {
        Some(stream) => {
            let solver_settings = options.settings(train.samples)?;
            (meet(sync, progress, rows, || stream.needs.clone())?, solver_settings)
        }
        None => {
            let held_out = validation.as_ref().map(|explained| explained.samples);
            let plan = FitPlan::of(given, train.samples, held_out, settings.ranks, *room)?;
            plan.check()?;
            (meet(sync, progress, rows, || Some(plan.needs()))?, plan.into_settings())
        }
    };
    let (folder, seed) = (folder.as_path(), settings.seed);
    let mut place = Place { c, progress, folder, seed, cancelled, clock, cpu };
    let too_few = match fit_in(given, solver_settings, (&mut train, &mut validation), &mut place, stream)? {
        Ok(fitted) => return Ok(fitted),
        Err(too_few) => too_few,
    };
    log::info!("{too_few}: it is fitted in 64");
    let wide = EncodingOptions { precision: Precision::F64, ..options.clone() };
    let wide = RidgeCvOptions { encoding: wide, ..given.clone() };
    let held_out = validation.as_ref().map(|explained| explained.samples);
    let plan = FitPlan::of(&wide, train.samples, held_out, settings.ranks, *room)?;
    plan.check().map_err(|e| for_digits(e, &too_few))?;
    let found = fit_in::<f64>(given, plan.into_settings(), (&mut train, &mut validation), &mut place, None)?;
    found.map_err(of_ridge)
}

/// Why a fit in 64 bits was tried that does not fit.
pub(crate) fn for_digits(error: Error, too_few: &voxelflow_ridge::Error) -> Error {
    match error {
        Error::Data { what, reason } => {
            Error::Data { what, reason: format!("{reason}. It is in 64 bits: {too_few}") }
        }
        other => other,
    }
}

/// Where a rank fits.
pub(crate) struct Place<'a> {
    pub c: &'a mut dyn Communicator,
    pub progress: Option<&'a Arc<dyn ProgressSink>>,
    /// The model's.
    pub folder: &'a Path,
    pub seed: u64,
    pub cancelled: &'a AtomicBool,
    /// When it began, and what its process had computed then.
    pub clock: Instant,
    pub cpu: f64,
}

/// The same in numbers of one width; what says that they have too few digits, on all ranks alike.
fn fit_in<T: Number>(
    given: &RidgeCvOptions,
    solver_settings: RidgeSettings,
    (train, validation): (&mut Explained<'_>, &mut Option<Explained<'_>>),
    place: &mut Place<'_>,
    stream: Option<Stream<T>>,
) -> Result<Result<Fitted, voxelflow_ridge::Error>> {
    let RidgeCvOptions { encoding: options, baseline } = given;
    let Place { c, progress, folder, seed, cancelled, clock, cpu } = place;
    let (c, clock) = (&mut **c, *clock);
    let Explained { series, features, samples } = train;
    let (series, samples) = (&mut **series, *samples);
    let (rank, rows) = (c.rank().0, series.rows());
    let Delayed { x, origin } = Delayed::<T>::of(&mut **features, samples, &options.delays)?;
    let (n_samples, n_features) = (x.nrows(), x.ncols());
    let work = match (stream, *baseline) {
        (Some(stream), _) => Ok(Work::streamed(stream, solver_settings, x, samples)?),
        (None, None) => Work::shared(options, solver_settings, x, samples, c)?,
        (None, Some(baseline)) => Ok(Work::repeated(baseline, solver_settings, x, samples, c)?),
    };
    let mut work = match work {
        Ok(work) => work,
        Err(too_few) => return Ok(Err(too_few)),
    };

    let mut phases = Phases { features: clock.elapsed().as_secs_f64(), ..Phases::default() };

    let file = TensorFile::new::<T>(folder, [samples.targets(), n_features], options.columns());
    if rank == 0 {
        file.create::<T>()?;
    }
    c.barrier()?;
    let opened = file.open()?;
    let held_out_samples = validation.as_ref().map(|explained| explained.samples);
    let repeats = TrainingRepeats::where_known(samples, held_out_samples, rank);
    let mut held_out = match validation.take() {
        Some(explained) => {
            let about = origin.clone();
            let found = Delayed::about(explained.features, explained.samples, &options.delays, about)?;
            Some(HeldOut::<T>::of(explained, found.x, options, *seed)?)
        }
        None => None,
    };
    let (first, targets) = (work.share.start, work.share.len());
    let mut totals = Totals::default();
    let mut mean_scores = MeanScores::new(options.alphas.len());
    for piece in work.pieces() {
        let own = &mut Share::new(series, samples, piece.clone(), cancelled);
        let begin = Instant::now();
        let alone;
        let (solver, fit) = match &mut work.features {
            Features::Decomposed(ridge) => (Solver::Cores(ridge), chosen(ridge, own, c)?),
            Features::Each(x, settings) => {
                alone = RidgeCv::new(x.clone(), settings.clone()).map_err(of_ridge)?;
                (Solver::Cores(&alone), alone.choose(own).map_err(|e| own.cause(e))?)
            }
            Features::Streamed(ridge) => {
                let fit = ridge.choose(own).map_err(|e| own.cause(e))?;
                (Solver::Streamed(ridge), fit)
            }
        };
        phases.penalties += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        mean_scores.add(&fit);
        totals.unfit += fit.unfit.len() as f64;
        let variances = own.variances.clone();
        let out = Output {
            file: &file,
            opened: &opened,
            first: piece.start,
            fit: &fit,
            variances: &variances,
            origin: &origin,
        };
        let mut failed = None;
        let fitted = solver.fit(&fit, own, |block| {
            if let Err(e) = out.take(&block, held_out.as_mut(), &mut totals) {
                let reason = e.to_string();
                failed = Some(e);
                return Err(voxelflow_ridge::Error::Targets {
                    from: block.range.start,
                    to: block.range.end,
                    reason,
                });
            }
            Ok(())
        });
        if let Err(e) = fitted {
            return Err(failed.unwrap_or_else(|| own.cause(e)));
        }
        totals.variance += own.variance();
        phases.coefficients += begin.elapsed().as_secs_f64();
    }
    log::info!("rank {rank}: {phases}");
    let mean_scores = match baseline {
        None => mean_scores.of_all,
        Some(_) => mean_scores.over_ranks(c)?,
    };
    if let Some(repeats) = &repeats {
        repeats.ceilings(series, work.share.clone(), options.block, cancelled, |at, ceilings| {
            file.write_column(&opened, CEILING, at, ceilings)
        })?;
    }
    let ceiling_of = CeilingOf::either(held_out.as_ref().is_some_and(HeldOut::has_repeats), repeats.as_ref());
    let validated = held_out.is_some();
    if let Some(held_out) = held_out {
        for (column, values) in held_out.tested(c)? {
            file.write_column(&opened, &column, first, &values)?;
        }
    }
    opened
        .sync_all()
        .map_err(|e| Error::Rows { path: folder.display().to_string(), reason: e.to_string() })?;
    let totals = totals.summed(c)?;

    let report = RankReport {
        rank,
        targets,
        decompositions: work.decompositions,
        cpu_seconds: cpu_seconds() - *cpu,
        seconds: clock.elapsed().as_secs_f64(),
    };
    let ranks = report.gathered(c)?;
    let best = mean_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let epoch = totals.epoch(options.scoring, best, rows, validated, clock);
    let per_rank = work.targets_per_rank.iter().map(|n| (n * samples.runs.len()) as u64).collect();
    let history = totals.history(options.scoring, epoch, samples.targets(), per_rank);
    if rank == 0 {
        let at = mean_scores.iter().position(|score| *score == best);
        let one = !options.alpha_per_target && baseline.is_none();
        let alpha = at.and_then(|at| options.alphas.get(at).copied()).filter(|_| one);
        let report = FitReport {
            features: delays::names(&samples.features, &options.delays),
            precision: T::PRECISION,
            n_samples,
            run_samples: samples.runs.iter().map(|run| run.samples).collect(),
            n_features,
            n_targets: samples.targets(),
            unfit: totals.unfit as u64,
            chosen: Chosen { alphas: &options.alphas, mean_scores: &mean_scores, alpha },
            ceiling_of,
            ranks,
        };
        report.write(folder)?;
        if let Some(progress) = progress {
            progress.epoch(&epoch);
        }
    }
    let model = Box::new(FittedEncoding { stage: STAGE, options: written(given), file });
    Ok(Ok(Fitted { model, history }))
}

/// Seconds of a rank, from when it began.
#[derive(Default)]
struct Phases {
    /// Features and their decompositions.
    features: f64,
    /// Targets are read, and penalties chosen.
    penalties: f64,
    /// Targets are fitted, predicted where that is asked for, and written.
    coefficients: f64,
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { features, penalties, coefficients } = self;
        write!(f, "features {features:.2} s, penalties {penalties:.2} s, coefficients {coefficients:.2} s")
    }
}

/// Where a rank's coefficients go.
struct Output<'a, T> {
    file: &'a TensorFile,
    opened: &'a File,
    /// The first target of those that are fitted.
    first: usize,
    fit: &'a RidgeFit<T>,
    /// Of these targets.
    variances: &'a [f64],
    /// What features are less in the fit.
    origin: &'a [f64],
}

impl<T: Number> Output<'_, T> {
    fn take(
        &self,
        block: &Coefficients<T>,
        held_out: Option<&mut HeldOut<'_, T>>,
        totals: &mut Totals,
    ) -> Result<()> {
        let at = self.first + block.range.start;
        let own = block.range.clone();
        self.file.write_weights(self.opened, at, block.weights.as_ref())?;
        let none = || vec![f64::NAN; own.len()];
        let scores = match block.scores.is_empty() {
            true => self.fit.best_scores.get(own.clone()).map_or_else(none, <[f64]>::to_vec),
            false => block.scores.clone(),
        };
        let at_zero = at_zero(block.weights.as_ref(), self.origin);
        let intercepts = block.intercepts.iter().zip(at_zero).map(|(own, more)| own + more).collect();
        let own_columns =
            [("intercept", intercepts), ("alpha", self.fit.alphas[own.clone()].to_vec()), ("score", scores)];
        let mut columns: Vec<_> = own_columns.map(|(name, values)| (name.to_owned(), values)).into();
        columns.extend(match held_out {
            Some(held_out) => held_out.scores(at, block, &self.variances[own.clone()], totals)?,
            None => held_out::none(&[], own.len()),
        });
        for (name, values) in &columns {
            self.file.write_column(self.opened, name, at, values)?;
        }
        Ok(())
    }
}
