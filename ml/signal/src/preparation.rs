//! What the series of a run and its confounds go through alike, so that the filters stay orthogonal to the
//! regressors (Lindquist et al. 2019): censoring, filling, detrending, filtering.
//!
//! ```text
//!   Butterworth   first to last kept volume ─► spline fill ─► detrend ─► filter ─► censor
//!   otherwise     kept volumes              ─► detrend
//! ```

use crate::{
    Band, Butterworth, CleanSettings, Detrend, Error, Filter, Result, SampleMask,
    butterworth::ORDER,
    lanes::{LANES, Lanes, mean},
    spline::{SplineFill, SplineScratch},
};

/// The steps, computed once for all series of a run.
#[derive(Clone, Debug)]
pub(crate) struct Preparation {
    /// Volumes that a block is loaded with, ascending.
    loaded: Vec<usize>,
    fill: Option<SplineFill>,
    detrend: Option<Detrend>,
    pub(crate) filter: Option<Butterworth>,
    /// Positions in the block that are kept in the end; `None`: all.
    censor: Option<Vec<usize>>,
}

/// Room for one block, kept by a thread.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The block, `[time points][LANES]`.
    pub block: Vec<Lanes>,
    padded: Vec<Lanes>,
    spline: SplineScratch,
}

impl Preparation {
    pub fn try_new(settings: &CleanSettings, mask: &SampleMask, t_r: Option<f64>) -> Result<Self> {
        let filter = match settings.filter {
            Filter::Butterworth => butterworth(settings, mask.span().len(), t_r)?,
            Filter::Cosine => None,
        };
        let filtered = filter.is_some();
        let loaded = if filtered { mask.span().collect() } else { mask.indices().to_vec() };
        let fill = if filtered { SplineFill::of(mask) } else { None };
        let first = mask.span().start;
        let censor = fill.as_ref().map(|_| mask.indices().iter().map(|v| v - first).collect());
        let detrend = settings.detrend.then(|| Detrend::new(loaded.len()));
        Ok(Self { loaded, fill, detrend, filter, censor })
    }

    /// Volumes that are filled so that the filter runs over even time steps.
    pub fn filled(&self) -> usize {
        self.loaded.len() - self.censor.as_ref().map_or(self.loaded.len(), Vec::len)
    }

    /// Loads up to [`LANES`] rows of `time_points` values; lanes without a row are zero.
    pub fn load<T: Copy + Into<f64>>(&self, rows: &[&[T]], block: &mut Vec<Lanes>) {
        block.clear();
        block.resize(self.loaded.len(), [0.0; LANES]);
        for (lane, row) in rows.iter().take(LANES).enumerate() {
            for (values, volume) in block.iter_mut().zip(&self.loaded) {
                values[lane] = row[*volume].into();
            }
        }
    }

    /// Runs the steps over the loaded block, of which the kept volumes remain; returns the means that the series
    /// had before any of them was removed.
    pub fn run(&self, work: &mut Workspace) -> Lanes {
        let block = &mut work.block;
        if let Some(fill) = &self.fill {
            fill.apply(block, &mut work.spline);
        }
        let mean = mean(block);
        if let Some(detrend) = &self.detrend {
            detrend.apply(block);
        }
        if let Some(filter) = &self.filter {
            filter.filter(block, &mut work.padded);
        }
        if let Some(kept) = &self.censor {
            for (to, from) in kept.iter().enumerate() {
                block[to] = block[*from];
            }
            block.truncate(kept.len());
        }
        mean
    }

    /// Runs the steps over regressors, `[K][volumes]`; the result is `[K][kept]`.
    pub fn columns(&self, columns: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let mut work = Workspace::default();
        let mut prepared = Vec::with_capacity(columns.len());
        for chunk in columns.chunks(LANES) {
            let rows: Vec<&[f64]> = chunk.iter().map(Vec::as_slice).collect();
            self.load(&rows, &mut work.block);
            self.run(&mut work);
            prepared.extend(
                (0..chunk.len()).map(|lane| work.block.iter().map(|values| values[lane]).collect::<Vec<_>>()),
            );
        }
        prepared
    }
}

/// The repetition time, without which `filter` cannot work.
pub(crate) fn repetition_time(t_r: Option<f64>, filter: &str) -> Result<f64> {
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
        let step = format!("the padding of a Butterworth filter of order {ORDER}");
        return Err(Error::TooShort { time_points, minimum, step });
    }
    Ok(Some(filter))
}
