//! Cleaning of many series at once, in the order and to the numbers of `nilearn.signal.clean`.

mod history;

use crate::{
    CleanSettings, Confounds, Error, Filter, Regressors, Result, SampleMask, Standardize,
    cosine::drifts,
    lanes::{LANES, Lanes, store},
    preparation::{Preparation, Workspace},
    standardize::{standardize, zscore_one},
};
use rayon::prelude::*;

/// Blocks of [`LANES`] series per task: large enough to hide the cost of a task, small enough to balance.
const BLOCKS_PER_TASK: usize = 16;

/// What was found while cleaning; row numbers in ascending order. Only kept volumes are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Series without variance. They are zero afterwards if any step removes the mean, else as they were.
    pub constant: Vec<usize>,
    /// Series with NaN or infinity. They are left exactly as they were.
    pub not_finite: Vec<usize>,
}

/// Everything that cleaning needs, computed once for all series of a run.
///
/// Order: with a Butterworth filter, censored volumes are filled by a spline → detrend → filter → censor → regress →
/// standardise; otherwise censor → detrend → regress → standardise. Confounds, and the drifts of the cosine filter
/// (built over all volumes), go the same way and are then z-scored. Volumes before the first kept one and after the
/// last are never filled: nothing is extrapolated.
///
/// nilearn 0.14 fills the wrong volumes where a censored volume's mirror image is censored as well
/// (`volumes[~sample_mask]` with indices); we fill those that are censored.
///
/// `psc` refers to the mean before any step that removes it (detrend, Butterworth high-pass): nilearn decides
/// this from the data of all voxels together, we from the settings, so that a voxel's result does not depend on
/// its neighbours.
#[derive(Clone, Debug)]
pub struct Cleaner {
    settings: CleanSettings,
    mask: SampleMask,
    t_r: Option<f64>,
    preparation: Preparation,
    confounds: usize,
    drifts: usize,
    regressors: Option<Regressors>,
}

/// What a row holds.
#[derive(Clone, Copy, PartialEq)]
enum Row {
    Varying,
    Constant,
    NotFinite,
}

impl Cleaner {
    /// Prepares the cleaning of series of `time_points` without confounds; `t_r` is the data's repetition time in
    /// seconds, which the settings outrank.
    ///
    /// # Errors
    /// Settings that contradict each other or the repetition time, and series that are too short.
    pub fn try_new(settings: &CleanSettings, time_points: usize, t_r: Option<f64>) -> Result<Self> {
        if time_points == 0 {
            return Err(Error::TooShort { time_points, minimum: 1, step: "cleaning".to_owned() });
        }
        Self::try_with_regressors(settings, t_r, &[], &SampleMask::all(time_points)?)
    }

    /// Prepares the cleaning of a run with its confounds and the volumes that they leave.
    ///
    /// # Errors
    /// As [`Cleaner::try_with_regressors`], and a high-pass filter beside the drifts that are confounds already.
    pub fn try_with_confounds(
        settings: &CleanSettings,
        t_r: Option<f64>,
        confounds: &Confounds,
    ) -> Result<Self> {
        if settings.high_pass.is_some() && confounds.has_drifts() {
            let reason = "the confounds hold cosine drifts, which are a high-pass filter already; leave out \
                          either high_pass here or `high_pass` in the strategy of the confounds"
                .to_owned();
            return Err(Error::Setting { setting: "high_pass", reason });
        }
        Self::try_with_regressors(settings, t_r, &confounds.columns, &confounds.sample_mask)
    }

    /// Prepares the cleaning of a run with regressors, `[K][volumes]`, and the volumes of `mask`.
    ///
    /// # Errors
    /// Settings that contradict each other or the repetition time, series that are too short, regressors of another
    /// length or with values that are not finite, and as many of them as would leave nothing of any series.
    pub fn try_with_regressors(
        settings: &CleanSettings,
        t_r: Option<f64>,
        confounds: &[Vec<f64>],
        mask: &SampleMask,
    ) -> Result<Self> {
        let t_r = settings.t_r.or(t_r);
        let time_points = mask.kept();
        if time_points < 2 && (settings.detrend || settings.standardize != Standardize::None) {
            let step = "detrending or standardising".to_owned();
            return Err(Error::TooShort { time_points, minimum: 2, step });
        }
        let preparation = Preparation::try_new(settings, mask, t_r)?;
        let drifts = match settings.filter {
            Filter::Cosine => drifts(settings, mask.volumes(), t_r)?,
            Filter::Butterworth => Vec::new(),
        };
        if let Some(odd) = confounds.iter().find(|c| c.len() != mask.volumes()) {
            let expected = format!("one per volume, {}", mask.volumes());
            return Err(Error::Shape { what: "confound", found: odd.len(), expected });
        }
        let (confound_count, drift_count) = (confounds.len(), drifts.len());
        let columns = [confounds, &drifts].concat();
        let mut columns = preparation.columns(&columns);
        columns.iter_mut().for_each(|column| zscore_one(column));
        let regressors = match columns.is_empty() {
            true => None,
            false => Some(Regressors::try_new(columns, time_points)?),
        };
        let cleaner = Self {
            settings: settings.clone(),
            mask: mask.clone(),
            t_r,
            preparation,
            confounds: confound_count,
            drifts: drift_count,
            regressors,
        };
        cleaner.leaves_something()?;
        Ok(cleaner)
    }

    /// Points of the series that can be cleaned.
    pub fn time_points(&self) -> usize {
        self.mask.volumes()
    }

    /// Points of the series afterwards: the kept volumes.
    pub fn kept(&self) -> usize {
        self.mask.kept()
    }

    /// The volumes that are kept.
    pub fn sample_mask(&self) -> &SampleMask {
        &self.mask
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &CleanSettings {
        &self.settings
    }

    /// The repetition time that it was made with, in seconds.
    pub fn t_r(&self) -> Option<f64> {
        self.t_r
    }

    /// Cleans `series`, `[n, time_points]` row-major, in place and in parallel; sums are accumulated in f64.
    ///
    /// # Errors
    /// A length that is no multiple of `time_points`, and a sample mask that drops volumes: see
    /// [`Cleaner::clean_into`].
    pub fn clean(&self, series: &mut [f32]) -> Result<CleanReport> {
        if !self.mask.keeps_all() {
            let reason = format!(
                "{} of {} volumes are kept, so series cannot be cleaned in place",
                self.kept(),
                self.time_points()
            );
            return Err(Error::SampleMask { reason });
        }
        let t = self.whole_series(series.len())?;
        let tasks = series.par_chunks_mut(LANES * BLOCKS_PER_TASK * t).enumerate();
        Ok(gather(tasks.map_init(Workspace::default, |work, (task, rows)| {
            let mut report = CleanReport::default();
            for (number, rows) in rows.chunks_mut(LANES * t).enumerate() {
                let found = self.clean_block(rows, work);
                for (lane, row) in rows.chunks_exact_mut(t).enumerate() {
                    report.note(found[lane], (task * BLOCKS_PER_TASK + number) * LANES + lane);
                    self.finish(found[lane], &work.block, lane, row);
                }
            }
            report
        })))
    }

    /// Cleans `series`, `[n, time_points]` row-major, into `cleaned`, `[n, kept]`, in parallel.
    ///
    /// Series that were computed are better given as f64: a smoothed one varies by so little of its mean that rounding
    /// it to float32 shows in the fifth digit of a z-score.
    ///
    /// # Errors
    /// A length that is no multiple of `time_points`, or another number of series in `cleaned`.
    pub fn clean_into<T: Copy + Into<f64> + Sync>(
        &self,
        series: &[T],
        cleaned: &mut [f32],
    ) -> Result<CleanReport> {
        let (t, kept) = (self.whole_series(series.len())?, self.kept());
        if cleaned.len() != series.len() / t * kept {
            let expected = format!("{} series of {kept} kept volumes", series.len() / t);
            return Err(Error::Shape { what: "cleaned series", found: cleaned.len(), expected });
        }
        let rows = LANES * BLOCKS_PER_TASK;
        let tasks = series.par_chunks(rows * t).zip(cleaned.par_chunks_mut(rows * kept)).enumerate();
        Ok(gather(tasks.map_init(Workspace::default, |work, (task, (from, to))| {
            let mut report = CleanReport::default();
            let blocks = from.chunks(LANES * t).zip(to.chunks_mut(LANES * kept)).enumerate();
            for (number, (from, to)) in blocks {
                let found = self.clean_block(from, work);
                for (lane, row) in to.chunks_exact_mut(kept).enumerate() {
                    for (x, volume) in row.iter_mut().zip(self.mask.indices()) {
                        let value: f64 = from[lane * t + volume].into();
                        *x = value as f32;
                    }
                    report.note(found[lane], (task * BLOCKS_PER_TASK + number) * LANES + lane);
                    self.finish(found[lane], &work.block, lane, row);
                }
            }
            report
        })))
    }

    /// Cleans up to [`LANES`] rows; the result is in the workspace.
    fn clean_block<T: Copy + Into<f64>>(&self, rows: &[T], work: &mut Workspace) -> [Row; LANES] {
        let mut lanes = [&[][..]; LANES];
        let count = lanes.iter_mut().zip(rows.chunks_exact(self.time_points())).map(|(l, r)| *l = r).count();
        let mut found = [Row::Varying; LANES];
        found.iter_mut().zip(&lanes[..count]).for_each(|(kind, row)| *kind = self.inspect(row));
        self.preparation.load(&lanes[..count], &mut work.block);
        let original_mean = self.preparation.run(work);
        let block = &mut work.block;
        if let Some(regressors) = &self.regressors {
            regressors.remove_from(block);
        }
        standardize(block, self.settings.standardize, self.removes_mean().then_some(&original_mean));
        found
    }

    /// Looks at the kept volumes of a row.
    fn inspect<T: Copy + Into<f64>>(&self, row: &[T]) -> Row {
        let kept = self.mask.indices();
        let first: f64 = row[kept[0]].into();
        let (mut finite, mut constant) = (true, true);
        for volume in kept {
            let value: f64 = row[*volume].into();
            finite &= value.is_finite();
            constant &= value == first;
        }
        match (finite, constant) {
            (false, _) => Row::NotFinite,
            (true, true) => Row::Constant,
            (true, false) => Row::Varying,
        }
    }

    /// Stores a lane in its row, which holds the kept volumes as they were.
    fn finish(&self, found: Row, block: &[Lanes], lane: usize, row: &mut [f32]) {
        match found {
            Row::Varying => store(block, lane, row),
            // What rounding leaves of a constant must not be blown up to unit variance.
            Row::Constant if self.removes_mean() || self.settings.standardize != Standardize::None => {
                row.fill(0.0);
            }
            Row::Constant | Row::NotFinite => {}
        }
    }

    /// Whether the mean is gone before standardisation.
    fn removes_mean(&self) -> bool {
        self.settings.detrend || (self.preparation.filter.is_some() && self.settings.high_pass.is_some())
    }

    /// The length of a series, if `values` are whole ones.
    fn whole_series(&self, values: usize) -> Result<usize> {
        let t = self.time_points();
        if values.is_multiple_of(t) {
            return Ok(t);
        }
        let expected = format!("whole series of {t} time points");
        Err(Error::Shape { what: "series", found: values, expected })
    }

    /// Refuses regressors that span all that a series could hold, of which rounding errors would be left.
    fn leaves_something(&self) -> Result<()> {
        let Some(regressors) = &self.regressors else { return Ok(()) };
        let mean = self.removes_mean() || self.settings.standardize != Standardize::None;
        let trend = self.settings.detrend && self.preparation.filter.is_none();
        let removed = regressors.rank() + usize::from(mean) + usize::from(trend);
        if removed < self.kept() {
            return Ok(());
        }
        let reason = format!(
            "{} independent regressors, mean and trend explain any series of {} volumes; take fewer confounds, or \
             drop fewer volumes",
            regressors.rank(),
            self.kept()
        );
        Err(Error::NothingLeft { step: "the regression on confounds", reason })
    }
}

impl CleanReport {
    fn note(&mut self, found: Row, row: usize) {
        match found {
            Row::Varying => {}
            Row::Constant => self.constant.push(row),
            Row::NotFinite => self.not_finite.push(row),
        }
    }
}

/// The reports of all tasks in their order.
fn gather(reports: impl IndexedParallelIterator<Item = CleanReport>) -> CleanReport {
    let mut all = CleanReport::default();
    for report in reports.collect::<Vec<_>>() {
        all.constant.extend(report.constant);
        all.not_finite.extend(report.not_finite);
    }
    all
}
