//! What a stage that explains series needs in the driver: features gathered and spooled for the ranks, who the targets
//! are, and the table of what the model knows of each.

use super::{
    rank::FeaturesPlace,
    samples::{self, Gathered, RunMetadata, TargetGroup},
    spool::{Spool, SpoolFolder, SpoolPlace},
    target_table,
};
use crate::{
    Error, Result, StageCatalog,
    features::{self, FeatureTable, Features},
    lineage,
    train::{Statistics, TrainJob},
};
use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{error::Result as PlanResult, execution::TaskContext, physical_plan::ExecutionPlan};
use futures::TryStreamExt;
use std::{path::Path, sync::Arc};
use voxelflow_dataset::{Finding, LedgerEntry, LedgerNotes, Level, RunKey, Runner};
use voxelflow_stage::Samples;

/// All features, in the driver.
pub(super) async fn read_features(
    plan: &Arc<dyn ExecutionPlan>,
    notes: &LedgerNotes,
    context: &Arc<TaskContext>,
) -> PlanResult<Features> {
    let table = FeatureTable::find(&plan.schema())?;
    let run = Runner::of(context).run(Arc::clone(plan), Arc::clone(context)).await?;
    let mut batches = Vec::new();
    for rows in run.streams {
        batches.extend(rows.try_collect::<Vec<RecordBatch>>().await?);
    }
    notes.note_all(run.counts.gather().await?);
    Ok(table.read(&batches)?)
}

/// The samples of `rows`, with their features spooled for the ranks, and who the targets are.
pub(super) async fn explained(
    (rows, runs): (&Spool, &RunMetadata),
    features: &Features,
    (spool, context): (&SpoolFolder, &Arc<TaskContext>),
) -> PlanResult<(FeaturesPlace, Vec<TargetGroup>)> {
    let Gathered { samples, order, groups } = samples::gather(rows, runs, features)?;
    let values = features.values(&order);
    let place = SpoolPlace::write(&values, features.names.len(), spool, context).await?;
    Ok((FeaturesPlace { place, samples }, groups))
}

/// Held-out rows are of the targets that are fitted.
pub(super) fn same_targets(train: &[TargetGroup], validation: &[TargetGroup]) -> Result<()> {
    if train == validation {
        return Ok(());
    }
    let count = |groups: &[TargetGroup]| groups.iter().map(|group| group.voxels.len()).sum::<usize>();
    Err(features::refused(format!(
        "the rows to validate on are of other targets ({}) than those to train on ({}): take the same voxels of the same          subjects, in other runs",
        count(validation),
        count(train)
    )))
}

/// A model that was fitted to a stimulus is not tested by its repeats.
pub(super) fn other_stimuli(train: &Samples, validation: &Samples) -> Result<()> {
    let of =
        |samples: &'_ Samples| samples.runs.iter().filter_map(|run| run.stimulus.clone()).collect::<Vec<_>>();
    let (seen, held_out) = (of(train), of(validation));
    let Some(both) = held_out.iter().find(|stimulus| seen.contains(stimulus)) else { return Ok(()) };
    Err(features::refused(format!(
        "the stimulus {both} is in the rows to train on and in those to validate on, which a model that has seen it \
         predicts too well: keep all its runs on one side"
    )))
}

/// The table of the model's targets; those that could not be fitted are told to the ledger.
pub(super) fn finish_targets(
    job: &TrainJob,
    folder: &Path,
    (trained, statistics): (&SchemaRef, &Statistics),
    groups: &[TargetGroup],
    notes: &LedgerNotes,
    context: &TaskContext,
) -> PlanResult<()> {
    let stage = job.estimator.stage();
    let catalog = context.session_config().get_extension::<StageCatalog>();
    let catalog = catalog.ok_or_else(|| Error::NoStages { stage: stage.to_owned() })?;
    let columns = catalog.load(stage, folder)?.targets().map_err(Error::from)?;
    let seen = lineage::of_model(&job.model, statistics).to_metadata().map_err(Error::from)?;
    target_table::write(folder, (trained, seen), groups, &columns)?;
    let Some((_, first)) = columns.first() else { return Ok(()) };
    let mut begin = 0;
    for group in groups {
        let own = group.voxels.iter().zip(first.iter().skip(begin));
        let unfit: Vec<u64> =
            own.filter(|(_, value)| !value.is_finite()).map(|(voxel, _)| u64::from(*voxel)).collect();
        begin += group.voxels.len();
        if !unfit.is_empty() {
            let run: RunKey = [group.subject.clone(), None, None, None];
            let reason =
                "targets that are constant, or have null, NaN or infinity: not fitted, null in the model";
            let entry = LedgerEntry::of_run(run, Level::Voxel, Finding::Constant, reason, unfit.len() as u64);
            notes.note(entry.at(unfit));
        }
    }
    Ok(())
}
