//! Cleaning of many series at once, in the order and to the numbers of `nilearn.signal.clean`.

use crate::{
    Band, Butterworth, CleanSettings, Detrend, Error, Filter, Regressors, Result, Standardize,
    butterworth::ORDER,
    create_cosine_drift,
    lanes::{LANES, Lanes, load, mean, store},
    standardize::standardize,
};
use rayon::prelude::*;

/// Blocks of [`LANES`] series per task: large enough to hide the cost of a task, small enough to balance.
const BLOCKS_PER_TASK: usize = 16;

/// What was found while cleaning; row numbers in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Series without variance. They are zero afterwards if any step removes the mean, else as they were.
    pub constant: Vec<usize>,
    /// Series with NaN or infinity. They are left exactly as they were.
    pub not_finite: Vec<usize>,
}

/// Everything that cleaning needs, computed once for all series of a run.
///
/// Order: detrend → Butterworth → regress → standardise; with the cosine filter the drifts are regressors.
/// `psc` refers to the mean before any step that removes it (detrend, Butterworth high-pass): nilearn decides
/// this from the data of all voxels together, we from the settings, so that a voxel's result does not depend on
/// its neighbours.
#[derive(Clone, Debug)]
pub struct Cleaner {
    settings: CleanSettings,
    time_points: usize,
    t_r: Option<f64>,
    detrend: Option<Detrend>,
    filter: Option<Butterworth>,
    regressors: Option<Regressors>,
}

/// Room for one block, kept by a thread.
struct Workspace {
    block: Vec<Lanes>,
    padded: Vec<Lanes>,
}

impl Cleaner {
    /// Prepares the cleaning of series of `time_points`; `t_r` is the data's repetition time in seconds, which
    /// the settings outrank.
    ///
    /// # Errors
    /// Settings that contradict each other or the repetition time, and series that are too short.
    pub fn try_new(settings: &CleanSettings, time_points: usize, t_r: Option<f64>) -> Result<Self> {
        let t_r = settings.t_r.or(t_r);
        if time_points < 2 && (settings.detrend || settings.standardize != Standardize::None) {
            let step = "detrending or standardising".to_owned();
            return Err(Error::TooShort { time_points, minimum: 2, step });
        }
        let detrend = settings.detrend.then(|| Detrend::new(time_points));
        let (filter, regressors) = match settings.filter {
            Filter::Butterworth => (butterworth(settings, time_points, t_r)?, None),
            Filter::Cosine => (None, Some(cosine(settings, time_points, t_r)?)),
        };
        Ok(Self { settings: settings.clone(), time_points, t_r, detrend, filter, regressors })
    }

    /// Points of the series that can be cleaned.
    pub fn time_points(&self) -> usize {
        self.time_points
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &CleanSettings {
        &self.settings
    }

    /// The repetition time that it was made with, in seconds.
    pub fn t_r(&self) -> Option<f64> {
        self.t_r
    }

    /// What is done, for the history of the data.
    pub fn describe(&self) -> String {
        let s = &self.settings;
        let mut steps = Vec::new();
        if s.detrend {
            steps.push("linear detrend".to_owned());
        }
        let t_r = self.t_r.unwrap_or_default();
        if self.filter.is_some() {
            let cut = |name, hertz: Option<f64>| hertz.map(|f| format!(" {name} {f} Hz")).unwrap_or_default();
            let (high, low) = (cut("high_pass", s.high_pass), cut("low_pass", s.low_pass));
            steps.push(format!("Butterworth of order {ORDER}{high}{low} (t_r {t_r} s)"));
        }
        if let Some(regressors) = &self.regressors {
            let hertz = s.high_pass.unwrap_or_default();
            let terms = regressors.rank();
            steps.push(format!("{terms} cosine drifts under {hertz} Hz removed (t_r {t_r} s)"));
        }
        match s.standardize {
            Standardize::ZscoreSample => steps.push("zscore_sample".to_owned()),
            Standardize::Zscore => steps.push("zscore".to_owned()),
            Standardize::Psc => steps.push("psc".to_owned()),
            Standardize::None => {}
        }
        format!("clean: {}", if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") })
    }

    /// Cleans `series`, `[n, time_points]` row-major, in place and in parallel; sums are accumulated in f64.
    ///
    /// # Errors
    /// A length that is no multiple of `time_points`.
    pub fn clean(&self, series: &mut [f32]) -> Result<CleanReport> {
        let t = self.time_points;
        if t == 0 || !series.len().is_multiple_of(t) {
            let expected = format!("whole series of {t} time points");
            return Err(Error::Shape { what: "series", found: series.len(), expected });
        }
        let reports: Vec<CleanReport> = series
            .par_chunks_mut(LANES * BLOCKS_PER_TASK * t)
            .enumerate()
            .map_init(
                || Workspace { block: vec![[0.0; LANES]; t], padded: Vec::new() },
                |workspace, (task, rows)| {
                    let mut report = CleanReport::default();
                    for (number, rows) in rows.chunks_mut(LANES * t).enumerate() {
                        let first_row = (task * BLOCKS_PER_TASK + number) * LANES;
                        self.clean_block(first_row, rows, workspace, &mut report);
                    }
                    report
                },
            )
            .collect();
        let mut all = CleanReport::default();
        for report in reports {
            all.constant.extend(report.constant);
            all.not_finite.extend(report.not_finite);
        }
        Ok(all)
    }

    fn clean_block(
        &self,
        first_row: usize,
        rows: &mut [f32],
        work: &mut Workspace,
        report: &mut CleanReport,
    ) {
        let block = &mut work.block;
        load(rows, self.time_points, block);
        let original_mean = mean(block);
        if let Some(detrend) = &self.detrend {
            detrend.apply(block);
        }
        if let Some(filter) = &self.filter {
            filter.filter(block, &mut work.padded);
        }
        if let Some(regressors) = &self.regressors {
            regressors.remove_from(block);
        }
        standardize(block, self.settings.standardize, self.removes_mean().then_some(&original_mean));

        for (lane, row) in rows.chunks_exact_mut(self.time_points).enumerate() {
            if row.iter().any(|x| !x.is_finite()) {
                report.not_finite.push(first_row + lane);
            } else if row.iter().all(|x| *x == row[0]) {
                report.constant.push(first_row + lane);
                // What rounding leaves of a constant must not be blown up to unit variance.
                if self.removes_mean() || self.settings.standardize != Standardize::None {
                    row.fill(0.0);
                }
            } else {
                store(block, lane, row);
            }
        }
    }

    /// Whether the mean is gone before standardisation.
    fn removes_mean(&self) -> bool {
        self.settings.detrend || (self.filter.is_some() && self.settings.high_pass.is_some())
    }
}

fn repetition_time(t_r: Option<f64>, filter: &str) -> Result<f64> {
    match t_r {
        Some(t_r) if t_r.is_finite() && t_r > 0.0 => Ok(t_r),
        Some(t_r) => Err(Error::Setting {
            setting: "t_r",
            reason: format!("{t_r} s is no repetition time; give seconds over 0"),
        }),
        None => Err(Error::Setting {
            setting: "t_r",
            reason: format!(
                "a {filter} filter needs the repetition time, which the data lack; give it in seconds"
            ),
        }),
    }
}

fn butterworth(
    settings: &CleanSettings,
    time_points: usize,
    t_r: Option<f64>,
) -> Result<Option<Butterworth>> {
    let band = match (settings.high_pass, settings.low_pass) {
        (None, None) => return Ok(None),
        (Some(high), None) => Band::HighPass(high),
        (None, Some(low)) => Band::LowPass(low),
        (Some(high), Some(low)) => Band::BandPass(high, low),
    };
    let filter = Butterworth::try_new(ORDER, band, repetition_time(t_r, "butterworth")?)?;
    let minimum = filter.min_time_points();
    if time_points < minimum {
        let step = "the padding of a Butterworth filter of order 5".to_owned();
        return Err(Error::TooShort { time_points, minimum, step });
    }
    Ok(Some(filter))
}

/// Cosine drifts as nilearn treats any confound: detrended like the series, then z-scored.
fn cosine(settings: &CleanSettings, time_points: usize, t_r: Option<f64>) -> Result<Regressors> {
    if settings.low_pass.is_some() {
        let reason =
            "a cosine filter has no low_pass; leave it out or take filter => 'butterworth'".to_owned();
        return Err(Error::Setting { setting: "low_pass", reason });
    }
    let Some(high_pass) = settings.high_pass else {
        let reason =
            "a cosine filter needs the frequency, in hertz, under which drifts are removed".to_owned();
        return Err(Error::Setting { setting: "high_pass", reason });
    };
    let mut drifts = create_cosine_drift(high_pass, time_points, repetition_time(t_r, "cosine")?)?;
    let detrend = Detrend::new(time_points);
    for drift in &mut drifts {
        if settings.detrend {
            detrend.apply_one(drift);
        }
        zscore(drift);
    }
    Regressors::try_new(drifts, time_points)
}

fn zscore(column: &mut [f64]) {
    let n = column.len() as f64;
    let mean = column.iter().sum::<f64>() / n;
    column.iter_mut().for_each(|x| *x -= mean);
    let deviation = (column.iter().map(|x| x * x).sum::<f64>() / (n - 1.0)).sqrt();
    if deviation >= f64::EPSILON {
        column.iter_mut().for_each(|x| *x /= deviation);
    }
}
