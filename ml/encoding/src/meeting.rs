//! How the ranks of a fit meet, and what is told of it.

use std::sync::Arc;
use voxelflow_stage::{Needs, ProgressSink, Result};
use voxelflow_sync::{Communicator, GradientSync, Rank, Start};

/// The ranks meet, to fit `rows` series; whoever listens is told what the fit will need.
///
/// # Errors
/// Ranks that are lost.
pub(crate) fn meet<'a>(
    sync: &'a mut dyn GradientSync,
    progress: Option<&Arc<dyn ProgressSink>>,
    rows: usize,
    needs: impl FnOnce() -> Option<Needs>,
) -> Result<&'a mut dyn Communicator> {
    let progress = progress.filter(|_| sync.rank() == Rank(0));
    // Measured while the others wait for this one.
    let needs = progress.and_then(|_| needs());
    // There are no parameters to agree on.
    sync.join(&mut [0.0], Start::fresh(rows))?;
    // Told when all are there: a fit that never begins needs nothing.
    if let Some(progress) = progress {
        if let Some(needs) = &needs {
            progress.planned(needs);
        }
        progress.started(rows as u64);
    }
    Ok(sync.communicator()?)
}
