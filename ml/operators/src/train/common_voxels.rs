//! Voxels that all runs have: where masks differ from run to run, a model may be of these.

use super::spool::Spool;
use crate::{Result, features::refused};
use datafusion::{error::Result as PlanResult, execution::TaskContext};
use std::collections::{BTreeMap, BTreeSet};
use voxelflow_dataset::{Finding, LedgerEntry, LedgerNotes, Level, RunKey};

/// Whose voxels are compared: a subject's in a space.
type Group = (Option<String>, Option<String>);

/// Voxels, ascending.
#[derive(Default)]
struct Voxels {
    of_all_runs: Vec<u32>,
    of_any: BTreeSet<u32>,
}

/// Leaves of `spools` the rows of voxels that every run of their subject and space has, in all of them, and tells the ledger of
/// the others.
///
/// # Errors
/// Runs that have no voxel in common; storage that fails.
pub(super) async fn keep_common(
    spools: &mut [&mut Spool],
    notes: &LedgerNotes,
    context: &TaskContext,
) -> PlanResult<()> {
    let mut groups: BTreeMap<Group, Voxels> = BTreeMap::new();
    for spool in &*spools {
        for (group, voxels) in runs(spool) {
            match groups.get_mut(&group) {
                Some(known) => {
                    known.of_all_runs.retain(|voxel| voxels.binary_search(voxel).is_ok());
                    known.of_any.extend(voxels);
                }
                None => {
                    let of_any = voxels.iter().copied().collect();
                    groups.insert(group, Voxels { of_all_runs: voxels, of_any });
                }
            }
        }
    }
    for ((subject, _), voxels) in &groups {
        tell(subject.as_ref(), voxels, notes)?;
    }
    for spool in spools {
        let origins: Vec<Option<&Voxels>> = spool
            .origins
            .iter()
            .map(|origin| {
                groups.get(&(origin.subject().map(str::to_owned), origin.space().map(str::to_owned)))
            })
            .collect();
        let kept: Vec<bool> = spool
            .known
            .iter()
            .map(|row| {
                let of = origins.get(row.origin as usize).copied().flatten();
                of.is_some_and(|voxels| voxels.of_all_runs.binary_search(&row.voxel).is_ok())
            })
            .collect();
        if kept.contains(&false) {
            spool.retain(&kept, context).await?;
        }
    }
    Ok(())
}

/// The voxels of each run.
fn runs(spool: &Spool) -> impl Iterator<Item = (Group, Vec<u32>)> {
    spool.known.chunk_by(|a, b| a.origin == b.origin).filter_map(|rows| {
        let origin = spool.origins.get(rows.first()?.origin as usize)?;
        let group = (origin.subject().map(str::to_owned), origin.space().map(str::to_owned));
        Some((group, rows.iter().map(|row| row.voxel).collect()))
    })
}

fn tell(subject: Option<&String>, voxels: &Voxels, notes: &LedgerNotes) -> Result<()> {
    let of = subject.map(|subject| format!(" of subject {subject}")).unwrap_or_default();
    if voxels.of_all_runs.is_empty() {
        return Err(refused(format!("the runs{of} have no voxel in common: are their masks of one grid?")));
    }
    let all = &voxels.of_all_runs;
    let others: Vec<u64> = voxels
        .of_any
        .iter()
        .filter(|voxel| all.binary_search(voxel).is_err())
        .map(|v| u64::from(*v))
        .collect();
    if !others.is_empty() {
        let run: RunKey = [subject.cloned(), None, None, None];
        let reason = "voxels that not all runs have: left out, as voxels => 'intersection' asks";
        let entry = LedgerEntry::of_run(run, Level::Voxel, Finding::Dropped, reason, others.len() as u64);
        notes.note(entry.at(others));
    }
    Ok(())
}
