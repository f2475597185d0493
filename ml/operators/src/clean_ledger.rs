//! What cleaning has for the data-quality ledger: of each run the volumes that its confounds drop and the values that
//! were filled, and of rows those that are constant or not finite.

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, UInt64Type},
    util::display::array_value_to_string,
};
use datafusion::common::DataFusionError;
use std::collections::BTreeMap;
use voxelflow_dataset::{Finding, Ledger, LedgerEntry, LedgerNotes, Level, RUN_KEYS, RunKey};
use voxelflow_signal::{
    ConfoundSettings,
    confounds::{Confounds, DropReason, FirstVolume},
};

/// Columns that number voxels, or what a table has instead of them; the first that it has counts.
const NUMBERS: [&str; 4] = ["voxel", "grayordinate", "vertex", "row"];

/// What the confounds of a run say of it.
pub(crate) fn of_run(run: &RunKey, confounds: &Confounds, settings: &ConfoundSettings) -> Ledger {
    let mut ledger = Ledger::default();
    let mut dropped = BTreeMap::<String, Vec<u64>>::new();
    for volume in &confounds.dropped {
        let reason = drop_reason(&volume.reason, settings);
        dropped.entry(reason).or_default().push(volume.volume as u64);
    }
    ledger.extend(dropped.into_iter().map(|(reason, volumes)| {
        let count = volumes.len() as u64;
        LedgerEntry::of_run(run.clone(), Level::Volume, Finding::Dropped, reason, count).at(volumes)
    }));
    let filled = confounds.filled.iter().map(|value| {
        LedgerEntry::of_run(run.clone(), Level::Value, Finding::Filled, fill_reason(value.policy), 1)
            .named([value.column.clone()])
    });
    ledger.extend(filled);
    ledger.extend(
        confounds
            .remarks
            .iter()
            .map(|remark| LedgerEntry::of_run(run.clone(), Level::Run, Finding::Noted, remark.clone(), 1)),
    );
    ledger
}

/// Why volumes are dropped, the same for all that are dropped by one rule.
fn drop_reason(reason: &DropReason, settings: &ConfoundSettings) -> String {
    match reason {
        DropReason::NonSteadyState => "before the steady state".into(),
        DropReason::FramewiseDisplacement(_) => {
            format!("framewise displacement over {} mm", settings.fd_threshold)
        }
        DropReason::StdDvars(_) => format!("standardised DVARS over {}", settings.std_dvars_threshold),
        DropReason::ShortSegment(_) => {
            format!("in a segment of fewer than {} volumes between those of high motion", settings.scrub)
        }
        DropReason::Marked(_) => "marked as outliers in the table of confounds".into(),
    }
}

fn fill_reason(policy: FirstVolume) -> &'static str {
    match policy {
        FirstVolume::Zero => "n/a in the first volume: set to 0",
        FirstVolume::Backfill => "n/a in the first volume: that of the second taken",
    }
}

/// Notes `rows` of `batch`, run by run, with their voxels where the table has them.
///
/// # Errors
/// Key columns that cannot be read.
pub(crate) fn note_rows(
    notes: &LedgerNotes,
    batch: &RecordBatch,
    rows: impl IntoIterator<Item = usize>,
    what: Finding,
    reason: &str,
) -> Result<(), DataFusionError> {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let keys = RUN_KEYS.map(|name| batch.column_by_name(name));
    let voxels = NUMBERS.iter().find_map(|name| batch.column_by_name(name));
    let voxels = voxels.map(|column| cast(column, &DataType::UInt64)).transpose()?;
    let voxels = voxels.as_ref().and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let mut found = BTreeMap::<RunKey, Vec<usize>>::new();
    for row in rows {
        let mut run = RunKey::default();
        for (key, column) in run.iter_mut().zip(keys) {
            *key = column.map(|column| text(column, row)).transpose()?.flatten();
        }
        found.entry(run).or_default().push(row);
    }
    for (run, rows) in found {
        let entry = LedgerEntry::of_rows(run, Level::Voxel, what, reason, rows.len() as u64);
        let numbers = voxels
            .map(|voxels| rows.into_iter().filter(|row| voxels.is_valid(*row)).map(|row| voxels.value(row)));
        notes.note(entry.at(numbers.into_iter().flatten()));
    }
    Ok(())
}

fn text(column: &ArrayRef, row: usize) -> Result<Option<String>, DataFusionError> {
    Ok(column.is_valid(row).then(|| array_value_to_string(column, row)).transpose()?)
}
