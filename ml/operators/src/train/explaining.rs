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
    table.note(notes);
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
    let runs: Vec<&[f64]> =
        order.iter().filter_map(|run| features.runs.get(*run)).map(|run| run.values.as_slice()).collect();
    let place = SpoolPlace::of_features(&runs, features.names.len(), spool, context).await?;
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

/// The table of the model's targets; those that could not be fitted are told to the ledger, and, where it was `validated`, those
/// that have no score in held-out runs.
pub(super) fn finish_targets(
    job: &TrainJob,
    folder: &Path,
    (trained, statistics, validated): (&SchemaRef, &Statistics, bool),
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
    let of =
        |name: &str| columns.iter().find(|(column, _)| column == name).map(|(_, values)| values.as_slice());
    let scores = [
        (
            Some(first.as_slice()),
            "targets that are constant, or have null, NaN or infinity: not fitted, null in the model",
        ),
        (
            of(CHOSEN_BY).filter(|scores| scores.iter().any(|score| score.is_finite())),
            "targets that vary in no fold: no score by cross-validation",
        ),
        (
            of(HELD_OUT).filter(|_| validated),
            "targets that are constant in the rows to validate on, or have null, NaN or infinity there: no held-out scores",
        ),
    ];
    let mut begin = 0;
    for group in groups {
        let own = begin..begin + group.voxels.len();
        begin = own.end;
        for (at, (scores, reason)) in scores.iter().enumerate() {
            let Some(scores) = scores else { continue };
            // Each target is told once: what was not fitted has no scores either.
            let lacks =
                |target: &usize| !scores[*target].is_finite() && (at == 0 || first[*target].is_finite());
            let lacking = own.clone().filter(lacks).map(|target| u64::from(group.voxels[target - own.start]));
            let lacking: Vec<u64> = lacking.collect();
            if !lacking.is_empty() {
                let run: RunKey = [group.subject.clone(), None, None, None];
                let (level, count) = (Level::Voxel, lacking.len() as u64);
                let entry = LedgerEntry::of_run(run, level, Finding::Constant, *reason, count);
                notes.note(entry.at(lacking));
            }
        }
    }
    Ok(())
}

/// Columns of a model's targets: by what its penalties were chosen, and R² in rows to validate on, which every target has that
/// varies there.
const CHOSEN_BY: &str = "score";
const HELD_OUT: &str = "r2";
