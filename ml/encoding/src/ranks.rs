//! What every rank does; all call the same collectives in the same order.

use crate::{
    FittedRidgeCv,
    delays::delayed,
    message::Number,
    options::{EncodingOptions, STAGE, of_ridge},
    targets::Share,
    tensor_file::{TensorFile, WITHOUT_TEST},
    work::{Features, MeanScores, Work, chosen},
};
use faer::Mat;
use serde::{Deserialize, Serialize};
use std::{fs::File, path::Path, time::Instant};
use voxelflow_ridge::{
    Coefficients, NullResult, NullTest, RidgeCv, RidgeFit, Score, false_discovery, predict, target_scores,
};
use voxelflow_stage::{EpochRecord, Error, Explained, Fitted, Gang, History, Result};
use voxelflow_sync::{Communicator, CommunicatorExt, Element, ReduceOp, Start, equal_ranges};

/// What one rank has done, for people: `ridge.json` of the model's folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RankReport {
    rank: usize,
    targets: usize,
    decompositions: usize,
    /// Of its process, user and system, while it fitted; ranks that are threads of one process share them.
    cpu_seconds: f64,
    seconds: f64,
}

/// What was chosen, for people.
#[derive(Debug, Serialize)]
struct FitReport<'a> {
    n_samples: usize,
    n_features: usize,
    n_targets: usize,
    /// Targets that are constant or not finite.
    unfit: u64,
    alphas: &'a [f64],
    /// Of each penalty, over the targets that can be fitted.
    mean_scores: &'a [f64],
    /// Where one penalty is shared.
    alpha: Option<f64>,
    ranks: Vec<RankReport>,
}

/// Sums over the targets of all ranks.
#[derive(Clone, Copy, Default)]
struct Totals {
    unfit: f64,
    variance: f64,
    /// Targets with held-out scores, and the sums of these.
    scored: f64,
    r: f64,
    r2: f64,
    squared_error: f64,
}

impl Totals {
    fn summed(self, c: &mut dyn Communicator) -> Result<Self> {
        let mut all = [self.unfit, self.variance, self.scored, self.r, self.r2, self.squared_error];
        c.all_reduce(ReduceOp::Sum, &mut all)?;
        let [unfit, variance, scored, r, r2, squared_error] = all;
        Ok(Self { unfit, variance, scored, r, r2, squared_error })
    }
}

/// Fits as one rank of the gang.
///
/// # Errors
/// Features that cannot be used, rows that cannot be read, ranks that are lost.
pub(crate) fn fit<T: Number>(
    options: &EncodingOptions,
    train: Explained<'_>,
    validation: Option<Explained<'_>>,
    gang: &mut Gang,
) -> Result<Fitted> {
    let (clock, cpu) = (Instant::now(), cpu_seconds());
    gang.check_cancelled()?;
    let Gang { sync, settings, progress, output, cancelled, .. } = gang;
    let folder = output.clone().ok_or_else(|| Error::Data {
        what: STAGE.into(),
        reason: "the gang has no folder for the model".into(),
    })?;
    let rows = train.series.rows();
    // The ranks meet; there are no parameters to agree on.
    sync.join(&mut [0.0], Start::fresh(rows))?;
    let c = sync.communicator()?;
    let (rank, world) = (c.rank().0, c.world());
    if let Some(progress) = progress {
        progress.started(rows as u64);
    }

    let Explained { series, features, samples } = train;
    let x = delayed::<T>(features, samples, &options.delays)?;
    let (n_samples, n_features) = (x.nrows(), x.ncols());
    let alphas = equal_ranges(options.alphas.len(), world);
    let work = match options.baseline {
        None => Work::shared(options, x, samples, &alphas, c)?,
        Some(baseline) => Work::repeated(baseline, options, x, samples, c)?,
    };

    let tested = options.permutations > 0;
    let file = TensorFile::new::<T>(&folder, [samples.targets(), n_features], tested);
    if rank == 0 {
        file.create::<T>()?;
    }
    c.barrier()?;
    let opened = file.open()?;
    let mut held_out = match validation {
        Some(explained) => Some(HeldOut::<T>::of(explained, options, settings.seed)?),
        None if tested => {
            let (what, option) = (STAGE.to_owned(), "permutations".to_owned());
            let reason = "test r in runs that no fit has seen: name them in VALIDATE ON (…)".to_owned();
            return Err(Error::OptionValue { what, option, reason });
        }
        None => None,
    };
    let (first, targets) = (work.share.start, work.share.len());
    let mut totals = Totals::default();
    let mut mean_scores = MeanScores::new(options.alphas.len());
    for piece in work.pieces() {
        let own =
            &mut Share { series, samples, share: piece.clone(), cancelled, failed: None, variance: 0.0 };
        let alone;
        let (ridge, fit) = match &work.features {
            Features::Decomposed(ridge) => (ridge, chosen(ridge, own, &alphas, c)?),
            Features::Each(x, settings) => {
                alone = RidgeCv::new(x.as_ref(), settings.clone()).map_err(of_ridge)?;
                (&alone, alone.choose(own).map_err(|e| own.cause(e))?)
            }
        };
        mean_scores.add(&fit);
        totals.unfit += fit.unfit.len() as f64;
        let out = Output { file: &file, opened: &opened, first: piece.start, fit: &fit };
        let mut failed = None;
        let fitted = ridge.fit(&fit, own, |block| {
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
        totals.variance += own.variance;
    }
    let mean_scores = match options.baseline {
        None => mean_scores.of_all,
        Some(_) => mean_scores.over_ranks(c)?,
    };
    if let Some(test) = held_out.as_mut().and_then(|held_out| held_out.test.take()) {
        for (column, values) in tested_targets(test, c)?.iter().enumerate() {
            file.write_column(&opened, WITHOUT_TEST + column, first, values)?;
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
        cpu_seconds: cpu_seconds() - cpu,
        seconds: clock.elapsed().as_secs_f64(),
    };
    let reports = c.all_gather(serde_json::to_vec(&report).unwrap_or_default())?;
    let best = mean_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let epoch = EpochRecord {
        epoch: 0,
        samples: rows as u64,
        loss: loss_of(options.scoring, best),
        validation_loss: held_out.is_some().then(|| totals.validation_loss(options.scoring)),
        seconds: clock.elapsed().as_secs_f64(),
    };
    let fitted_targets = (samples.targets() as f64 - totals.unfit).max(1.0);
    let history = History {
        initial_loss: match options.scoring {
            Score::NegMeanSquaredError => totals.variance / fitted_targets,
            Score::R2 | Score::Pearson => 1.0,
        },
        epochs: vec![epoch],
        samples_per_rank: work.targets_per_rank.iter().map(|n| (n * samples.runs.len()) as u64).collect(),
        ..History::default()
    };
    if rank == 0 {
        let ranks = reports.iter().filter_map(|bytes| serde_json::from_slice(bytes).ok()).collect();
        let at = mean_scores.iter().position(|score| *score == best);
        let one = !options.alpha_per_target && options.baseline.is_none();
        let alpha = at.and_then(|at| options.alphas.get(at).copied()).filter(|_| one);
        let report = FitReport {
            n_samples,
            n_features,
            n_targets: samples.targets(),
            unfit: totals.unfit as u64,
            alphas: &options.alphas,
            mean_scores: &mean_scores,
            alpha,
            ranks,
        };
        write_report(&folder, &report)?;
        if let Some(progress) = progress {
            progress.epoch(&epoch);
        }
    }
    let model = Box::new(FittedRidgeCv { options: options.clone(), file });
    Ok(Fitted { model, history })
}

impl Totals {
    fn validation_loss(&self, scoring: Score) -> f64 {
        let scored = self.scored.max(1.0);
        match scoring {
            Score::R2 => 1.0 - self.r2 / scored,
            Score::Pearson => 1.0 - self.r / scored,
            Score::NegMeanSquaredError => self.squared_error / scored,
        }
    }
}

/// A loss for a score: less is better, and 1 is what the mean of a target scores by R² and r.
fn loss_of(scoring: Score, score: f64) -> f64 {
    match scoring {
        _ if !score.is_finite() => 1.0,
        Score::R2 | Score::Pearson => 1.0 - score,
        Score::NegMeanSquaredError => -score,
    }
}

/// Where a rank's coefficients go.
struct Output<'a> {
    file: &'a TensorFile,
    opened: &'a File,
    /// The first target of those that are fitted.
    first: usize,
    fit: &'a RidgeFit,
}

impl Output<'_> {
    fn take<T: Number>(
        &self,
        block: &Coefficients<T>,
        held_out: Option<&mut HeldOut<'_, T>>,
        totals: &mut Totals,
    ) -> Result<()> {
        let at = self.first + block.range.start;
        let own = block.range.clone();
        let values: Vec<T> = block.weights.col_iter().flat_map(|column| column.iter().copied()).collect();
        self.file.write_coefficients(self.opened, at, &values)?;
        let none = || vec![f64::NAN; own.len()];
        let scores = self.fit.best_scores.get(own.clone()).map_or_else(none, <[f64]>::to_vec);
        let (r, r2) = match held_out {
            Some(held_out) => held_out.scores(at, block, totals)?,
            None => (none(), none()),
        };
        let columns = [block.intercepts.clone(), self.fit.alphas[own.clone()].to_vec(), scores, r, r2];
        for (number, values) in columns.iter().enumerate() {
            self.file.write_column(self.opened, number, at, values)?;
        }
        Ok(())
    }
}

/// p of a rank's targets, p of the largest r of all targets, and q of all targets' p.
fn tested_targets(mut test: NullTest, c: &mut dyn Communicator) -> Result<[Vec<f64>; 3]> {
    c.all_reduce(ReduceOp::Max, test.largest_mut())?;
    let NullResult { p, p_family, .. } = test.finish();
    let (mut all, mut before) = (Vec::new(), 0);
    for (rank, bytes) in c.all_gather(f64::write(&p))?.iter().enumerate() {
        if rank == c.rank().0 {
            before = all.len();
        }
        let mut own = vec![0.0; bytes.len() / f64::BYTES];
        f64::read(bytes, &mut own);
        all.extend(own);
    }
    let q = false_discovery(&all)[before..before + p.len()].to_vec();
    Ok([p, p_family, q])
}

/// Runs that no fit has seen.
struct HeldOut<'a, T> {
    explained: Explained<'a>,
    x: Mat<T>,
    test: Option<NullTest>,
}

impl<'a, T: Number> HeldOut<'a, T> {
    fn of(explained: Explained<'a>, options: &EncodingOptions, seed: u64) -> Result<Self> {
        let x = delayed(explained.features, explained.samples, &options.delays)?;
        let test = options.null_test(explained.samples, seed)?;
        Ok(Self { explained, x, test })
    }

    /// r and R² of each target of a block, over all samples of these runs.
    fn scores(
        &mut self,
        first: usize,
        block: &Coefficients<T>,
        totals: &mut Totals,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let Explained { series, samples, .. } = &mut self.explained;
        let (n, targets) = (samples.count(), block.intercepts.len());
        let mut values = vec![0.0; n * targets];
        samples.read(*series, first..first + targets, &mut values)?;
        let y = Mat::from_fn(n, targets, |i, j| T::of(f64::from(values[j * n + i])));
        let predicted = predict(self.x.as_ref(), block);
        let scores = target_scores(y.as_ref(), predicted.as_ref());
        if let Some(test) = &mut self.test {
            test.add(y.as_ref(), predicted.as_ref()).map_err(of_ridge)?;
        }
        let finite = |v: &f64| Some(*v).filter(|v| v.is_finite());
        for score in &scores {
            if let (Some(r), Some(r2)) = (finite(&score.r), finite(&score.r2)) {
                totals.scored += 1.0;
                totals.r += r;
                totals.r2 += r2;
                totals.squared_error += score.mean_squared_error;
            }
        }
        Ok((scores.iter().map(|s| s.r).collect(), scores.iter().map(|s| s.r2).collect()))
    }
}

fn write_report(folder: &Path, report: &FitReport<'_>) -> Result<()> {
    let path = folder.join("ridge.json");
    let failed = |reason: String| Error::Rows { path: path.display().to_string(), reason };
    let text = serde_json::to_string_pretty(report).map_err(|e| failed(e.to_string()))?;
    std::fs::write(&path, text + "\n").map_err(|e| failed(e.to_string()))
}

/// Seconds that this process has computed, user and system; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
    // utime and stime are the 12th and 13th after the name, in ticks of 1/100 s on Linux.
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / 100.0
}
