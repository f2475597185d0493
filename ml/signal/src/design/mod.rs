//! Design matrices: what happened in a run, as regressors at its volumes.
//!
//! ```text
//!   Event (onset, duration, condition, modulation)
//!     └─► conditions ─► boxes on a grid of t_r / oversampling ─► convolved with the HRF ─► at the frame times ─┐
//!   extra regressors ──────────────────────────────────────────────────────────────────────────────────────────┼─► Design
//!   drifts, constant ──────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The numbers, the columns, their names and their order are those of nilearn 0.14's
//! `make_first_level_design_matrix`, rounding of the fine grid included: an onset that lies on the border of two fine
//! bins falls on the same side. Where an event cannot be seen in a run, where two are one, and where a column stays
//! empty, the [`DesignReport`] says so. Three things are done differently, for nilearn does not do what it says there:
//!
//! - An event that is over before `min_onset` is left out. nilearn warns that it is not considered, but leaves an
//!   impulse at the beginning of its fine grid.
//! - A design whose columns depend on each other stays as it is, and its rank is reported; nilearn adds 1e-15 of the
//!   largest singular value to all of them.
//! - A `high_pass` that leaves nothing of a series is an error, not a warning.

mod conditions;
mod drift;
mod fine_grid;
mod frame_times;
mod hrf;
mod orthogonal;
mod report;
mod response;
mod settings;

pub use conditions::Event;
pub use frame_times::FrameTimes;
pub use hrf::HrfModel;
pub use report::{DesignReport, EventNote, Outcome};
pub use settings::{DesignSettings, DriftModel};

use crate::{Error, Regressors, Result, SampleMask};
use fine_grid::FineGrid;
use std::collections::HashSet;

/// Regressors of a run, one column for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// Names of the columns: conditions (with `_derivative`, `_dispersion` or `_delay_N`), extra regressors,
    /// `drift_1` …, `constant`.
    pub names: Vec<String>,
    /// Values `[names.len()][volumes]`.
    pub columns: Vec<Vec<f64>>,
    /// What was merged, left out or found odd.
    pub report: DesignReport,
}

impl Design {
    /// The design of a run whose volumes were taken at `times`. `extra` are further regressors with their names, each
    /// `[volumes]`; they come after the conditions.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting that cannot be used, [`Error::Event`] for an event without place in time,
    /// [`Error::Shape`] for an extra regressor of another length, [`Error::Regressor`] for one that is not finite and
    /// for two columns of one name.
    pub fn try_new(
        times: &FrameTimes,
        events: &[Event],
        extra: &[(String, Vec<f64>)],
        settings: &DesignSettings,
    ) -> Result<Self> {
        settings.validate(times.volumes())?;
        let (mut names, mut columns) = (Vec::new(), Vec::new());
        let mut report = DesignReport::default();
        let grid = FineGrid::try_new(times, settings.min_onset, settings.oversampling)?;
        let kernels = settings.hrf_model.kernels(times.step(), settings)?;
        for condition in conditions::group(events, &mut report)? {
            let responses = response::respond(&condition, &kernels, &grid, settings, &mut report);
            names.extend(kernels.iter().map(|kernel| format!("{}{}", condition.name, kernel.suffix)));
            columns.extend(responses);
        }
        for (name, values) in extra {
            check_extra(name, values, times.volumes())?;
            names.push(name.clone());
            columns.push(values.clone());
        }
        let drifts = drift::drifts(times, settings)?;
        names.extend((1..=drifts.len()).map(|k| format!("drift_{k}")));
        columns.extend(drifts);
        names.push("constant".into());
        columns.push(vec![1.0; times.volumes()]);
        must_differ(&names)?;
        report.conclude(&names, &columns, rank(&columns, times.volumes())?);
        Ok(Self { names, columns, report })
    }

    /// The same design at the volumes of `mask` alone: events count also where their volumes were dropped, and drifts
    /// are those of the whole run, as with nilearn's `sample_masks`.
    ///
    /// # Errors
    /// [`Error::Shape`] for a mask of another run.
    pub fn at(mut self, mask: &SampleMask) -> Result<Self> {
        let volumes = self.columns.first().map_or(0, Vec::len);
        if mask.volumes() != volumes {
            let expected = format!("{volumes} volumes");
            return Err(Error::Shape { what: "sample mask of a design", found: mask.volumes(), expected });
        }
        for column in &mut self.columns {
            *column = mask.indices().iter().map(|volume| column[*volume]).collect();
        }
        let rank = rank(&self.columns, mask.kept())?;
        self.report.conclude(&self.names, &self.columns, rank);
        Ok(self)
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&[f64]> {
        let at = self.names.iter().position(|known| known == name)?;
        self.columns.get(at).map(Vec::as_slice)
    }
}

fn check_extra(name: &str, values: &[f64], volumes: usize) -> Result<()> {
    if values.len() != volumes {
        let expected = format!("{volumes} volumes");
        return Err(Error::Shape { what: "extra regressor", found: values.len(), expected });
    }
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(volume) => Err(Error::Regressor {
            name: name.into(),
            reason: format!("it is not finite in volume {volume} (counted from 0); fill it, or leave it out"),
        }),
    }
}

fn must_differ(names: &[String]) -> Result<()> {
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::Regressor {
            name: name.clone(),
            reason: "two columns of the design have this name; rename the condition or the extra regressor"
                .into(),
        }),
    }
}

/// Independent columns, all of them brought to one scale before.
fn rank(columns: &[Vec<f64>], volumes: usize) -> Result<usize> {
    let scaled = columns.iter().map(|column| {
        let length = column.iter().map(|x| x * x).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        column.iter().map(|x| x * scale).collect()
    });
    Ok(Regressors::try_new(scaled.collect(), volumes)?.rank())
}
