//! What the confounds of a run have for the data-quality ledger: the volumes that they drop, and the values that were
//! filled.

use std::collections::BTreeMap;
use voxelflow_dataset::{Finding, Ledger, LedgerEntry, Level, RunKey};
use voxelflow_signal::{
    ConfoundSettings,
    confounds::{Confounds, DropReason, FirstVolume},
};

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
