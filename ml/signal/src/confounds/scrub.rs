//! Volumes that are dropped: those before the steady state, those of high motion (Power 2014) and what they leave
//! of segments too short to be used.

use super::{ConfoundSettings, ConfoundTable};
use crate::{Error, Result};
use std::fmt;

/// Why a volume is dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum DropReason {
    /// The scanner had not come to its steady state.
    NonSteadyState,
    /// Framewise displacement, in millimetres, over the threshold.
    FramewiseDisplacement(f64),
    /// Standardised DVARS over the threshold.
    StdDvars(f64),
    /// In a segment of so many volumes, which is shorter than `scrub` asks.
    ShortSegment(usize),
    /// Marked by this column of the table.
    Marked(String),
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonSteadyState => write!(f, "non-steady state"),
            Self::FramewiseDisplacement(mm) => write!(f, "framewise displacement of {mm} mm"),
            Self::StdDvars(value) => write!(f, "standardised DVARS of {value}"),
            Self::ShortSegment(n) => write!(f, "in a segment of {n} volumes"),
            Self::Marked(column) => write!(f, "marked by `{column}`"),
        }
    }
}

/// What fMRIPrep's names of columns have that mark volumes before the steady state.
pub(super) const NON_STEADY_STATE: &str = "non_steady_state";

/// Whether a column marks volumes instead of holding a regressor: fMRIPrep's names for one-hot columns.
pub(super) fn marks_volumes(name: &str) -> bool {
    name.contains(NON_STEADY_STATE) || name.contains("motion_outlier")
}

/// Drops the volumes that the one-hot column `name` marks.
pub(super) fn drop_marked(
    table: &ConfoundTable,
    name: &str,
    dropped: &mut [Option<DropReason>],
) -> Result<()> {
    for (volume, value) in table.column(name)?.into_iter().enumerate() {
        let marked = value.ok_or_else(|| missing(name, volume))? != 0.0;
        if marked && dropped[volume].is_none() {
            dropped[volume] = Some(match name.contains(NON_STEADY_STATE) {
                true => DropReason::NonSteadyState,
                false => DropReason::Marked(name.to_owned()),
            });
        }
    }
    Ok(())
}

/// Drops volumes of high motion, and the segments between them that are shorter than `scrub`.
///
/// As in nilearn, segments lie between volumes of high motion and the ends of the run: non-steady-state volumes do
/// not bound them, and a run without high motion loses nothing.
pub(super) fn scrub(
    table: &ConfoundTable,
    settings: &ConfoundSettings,
    dropped: &mut [Option<DropReason>],
) -> Result<()> {
    for (setting, threshold) in
        [("fd_threshold", settings.fd_threshold), ("std_dvars_threshold", settings.std_dvars_threshold)]
    {
        if !(threshold.is_finite() && threshold >= 0.0) {
            let reason = format!("{threshold} is no threshold; give a number of at least 0");
            return Err(Error::Setting { setting, reason });
        }
    }
    let fd = differences(table, "framewise_displacement")?;
    let dvars = differences(table, "std_dvars")?;
    let high: Vec<Option<DropReason>> = (0..table.volumes())
        .map(|volume| match (fd[volume], dvars[volume]) {
            (Some(mm), _) if mm > settings.fd_threshold => Some(DropReason::FramewiseDisplacement(mm)),
            (_, Some(value)) if value > settings.std_dvars_threshold => Some(DropReason::StdDvars(value)),
            _ => None,
        })
        .collect();
    let any = high.iter().any(Option::is_some);
    let mut first = 0;
    for segment in high.chunk_by(|a, b| a.is_none() && b.is_none()) {
        let short = any && segment[0].is_none() && segment.len() < settings.scrub;
        for (volume, reason) in segment.iter().enumerate() {
            let reason = if short { Some(DropReason::ShortSegment(segment.len())) } else { reason.clone() };
            let place = &mut dropped[first + volume];
            *place = place.take().or(reason);
        }
        first += segment.len();
    }
    Ok(())
}

/// A measure of the change from volume to volume, which the first volume lacks.
fn differences(table: &ConfoundTable, name: &str) -> Result<Vec<Option<f64>>> {
    let values = table.column(name)?;
    match values.iter().skip(1).position(Option::is_none) {
        Some(place) => Err(missing(name, place + 1)),
        None => Ok(values),
    }
}

/// The error for a value that must be there.
pub(super) fn missing(column: &str, row: usize) -> Error {
    Error::MissingValue { column: column.to_owned(), row }
}
