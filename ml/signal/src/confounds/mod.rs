//! From a table of confounds to regressors and the volumes that are kept, to the numbers of
//! `nilearn.interfaces.fmriprep.load_confounds` 0.14.
//!
//! ```text
//!   table, sidecar, settings ─► columns ─► first volume filled ─► mean over kept volumes removed ─► regressors
//!                            └► non-steady state, scrub, short segments ─► sample mask
//! ```
//!
//! Nothing happens silently: what was dropped and filled is returned, for a ledger.

mod columns;
mod scrub;
mod settings;
mod table;

pub use scrub::DropReason;
pub use settings::{
    CompcorCount, CompcorKind, Component, ConfoundSettings, Expansion, FirstVolume, IcaAroma, Preset,
    SteadyState,
};
pub use table::{CompcorComponent, ConfoundTable, ConfoundValues};

use crate::{Error, Result, SampleMask};
use scrub::{NON_STEADY_STATE, drop_marked, marks_volumes, missing};

/// A volume that is not used.
#[derive(Clone, Debug, PartialEq)]
pub struct DroppedVolume {
    /// Its number, from 0.
    pub volume: usize,
    /// Why.
    pub reason: DropReason,
}

/// A missing value of the first volume that got one.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledValue {
    /// The column.
    pub column: String,
    /// What it got, before the mean was subtracted.
    pub value: f64,
    /// By which rule.
    pub policy: FirstVolume,
}

/// Regressors of a run and the volumes that are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Confounds {
    /// Names of the regressors, sorted.
    pub names: Vec<String>,
    /// The regressors, `[K][volumes]`, of all volumes: censoring follows where the series are cleaned.
    pub columns: Vec<Vec<f64>>,
    /// The volumes that are kept.
    pub sample_mask: SampleMask,
    /// Those that are not, ascending.
    pub dropped: Vec<DroppedVolume>,
    /// The values that were filled.
    pub filled: Vec<FilledValue>,
    /// What else a reader of the results should know.
    pub remarks: Vec<String>,
}

impl Confounds {
    /// Whether cosine drifts are among the regressors, which then are the high-pass filter.
    pub fn has_drifts(&self) -> bool {
        self.names.iter().any(|name| name.contains("cosine"))
    }
}

/// Takes the regressors that `settings` ask for from `table`.
///
/// `sidecar` lists the components of CompCor as the JSON file beside the table does; it may be empty where none are
/// asked for. Columns named `non_steady_state…` and `motion_outlier…` mark volumes to drop and are no regressors, but the
/// former where the volumes that they mark are kept.
///
/// # Errors
/// Columns that are not there ([`Error::MissingConfounds`]), a missing value outside the first volume
/// ([`Error::MissingValue`]), no volume left ([`Error::NothingLeft`]), and settings that contradict each other.
pub fn select_confounds(
    table: &ConfoundTable,
    sidecar: &[CompcorComponent],
    settings: &ConfoundSettings,
) -> Result<Confounds> {
    let asks = |component| settings.strategy.contains(&component);
    if asks(Component::Compcor) && !asks(Component::HighPass) {
        let reason = "compcor needs high_pass as well: its components come from series without slow drifts";
        return Err(Error::Setting { setting: "strategy", reason: reason.to_owned() });
    }
    let keeps_unsteady = settings.non_steady_state == SteadyState::Keep;
    if keeps_unsteady && asks(Component::NonSteadyState) {
        let reason = "it keeps volumes that the confounds `non_steady_state` drop: leave out one of them";
        return Err(Error::Setting { setting: "non_steady_state", reason: reason.to_owned() });
    }
    let (names, mut remarks) = columns::columns(table, sidecar, settings)?;
    let marks = |name: &String| marks_volumes(name) && !(keeps_unsteady && name.contains(NON_STEADY_STATE));
    let (markers, names): (Vec<_>, Vec<_>) = names.into_iter().partition(marks);

    let mut dropped: Vec<Option<DropReason>> = vec![None; table.volumes()];
    let unsteady = || table.names().filter(|name| name.contains(NON_STEADY_STATE));
    match unsteady().count() {
        0 => {}
        marked if keeps_unsteady => {
            remarks.push(format!("{marked} volumes before the steady state are kept, as asked"));
        }
        _ => unsteady().try_for_each(|name| drop_marked(table, name, &mut dropped))?,
    }
    if asks(Component::Scrub) {
        scrub::scrub(table, settings, &mut dropped)?;
    }
    for name in &markers {
        drop_marked(table, name, &mut dropped)?;
    }
    let sample_mask = keep(&dropped)?;

    let mut filled = Vec::new();
    let columns = names
        .iter()
        .map(|name| regressor(table, name, settings, &sample_mask, &mut filled))
        .collect::<Result<_>>()?;
    let numbered = dropped.into_iter().enumerate();
    let dropped = numbered.filter_map(|(volume, r)| Some(DroppedVolume { volume, reason: r? })).collect();
    Ok(Confounds { names, columns, sample_mask, dropped, filled, remarks })
}

/// The mask of what is not dropped.
fn keep(dropped: &[Option<DropReason>]) -> Result<SampleMask> {
    let kept: Vec<bool> = dropped.iter().map(Option::is_none).collect();
    let examples: Vec<String> = dropped
        .iter()
        .enumerate()
        .filter_map(|(volume, reason)| Some(format!("volume {volume}: {}", reason.as_ref()?)))
        .take(3)
        .collect();
    if !kept.contains(&true) {
        let reason = format!(
            "all {} volumes are dropped ({}, …); leave the run out, or raise the thresholds",
            kept.len(),
            examples.join(", ")
        );
        return Err(Error::NothingLeft { step: "the choice of volumes", reason });
    }
    SampleMask::from_flags(&kept, kept.len())
}

/// One regressor: its first volume filled, its mean over the kept volumes removed.
fn regressor(
    table: &ConfoundTable,
    name: &str,
    settings: &ConfoundSettings,
    kept: &SampleMask,
    filled: &mut Vec<FilledValue>,
) -> Result<Vec<f64>> {
    let mut values = table.column(name)?;
    if values.first().is_some_and(Option::is_none) {
        let value = match settings.first_volume {
            FirstVolume::Zero => 0.0,
            FirstVolume::Backfill => values.get(1).copied().flatten().ok_or_else(|| missing(name, 1))?,
        };
        values[0] = Some(value);
        filled.push(FilledValue { column: name.to_owned(), value, policy: settings.first_volume });
    }
    let finite = |(row, value): (usize, Option<f64>)| {
        value.filter(|x| x.is_finite()).ok_or_else(|| missing(name, row))
    };
    let mut values = values.into_iter().enumerate().map(finite).collect::<Result<Vec<f64>>>()?;
    if settings.demean {
        let mean = kept.indices().iter().map(|v| values[*v]).sum::<f64>() / kept.kept() as f64;
        values.iter_mut().for_each(|x| *x -= mean);
    }
    Ok(values)
}
