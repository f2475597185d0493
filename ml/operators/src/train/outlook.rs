//! What a training that explains series is going to need, as far as the statistics of its inputs say so before any row
//! is read: for `EXPLAIN`. The ranks ask again when the samples are known.

use super::job::TrainJob;
use crate::{SeriesColumn, features::FeatureTable};
use datafusion::{
    common::stats::Precision,
    execution::TaskContext,
    execution::memory_pool::MemoryLimit,
    physical_plan::{
        ExecutionPlan,
        statistics::{StatisticsArgs, StatisticsContext},
    },
};
use std::sync::Arc;
use voxelflow_dataset::{Runner, log_tail::current_task, memory_of_session};
use voxelflow_stage::{Needs, Result, Room, RunVolumes, SampleRun, Samples, Segments};

/// What a rank's process has. Ranks that are threads of the driver's process have the session's memory together; on an
/// executor a rank has the bytes that are `reserved` for it, or, where these are 0, the memory of its slot, which the
/// driver does not know.
pub(super) fn room_of(ranks: usize, reserved: u64, context: &TaskContext) -> Room {
    let reserved = Some(reserved).filter(|bytes| *bytes > 0);
    let bytes = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => Some(bytes),
        MemoryLimit::Infinite | MemoryLimit::Unknown => None,
    };
    if current_task().is_some_and(|task| !task.is_empty()) {
        return Room { ranks: 1, memory: reserved.or(bytes.map(|slot| slot as u64)) };
    }
    if Runner::of(context).driver_address().is_some() {
        return Room { ranks: 1, memory: reserved };
    }
    Room { ranks, memory: bytes.map(|pool| memory_of_session(pool) as u64) }
}

/// What the training needs, or why it does not fit; none where it is known only when it runs.
pub(super) fn outlook(
    job: &TrainJob,
    train: &Arc<dyn ExecutionPlan>,
    validation: Option<&Arc<dyn ExecutionPlan>>,
    features: &Arc<dyn ExecutionPlan>,
    room: &Room,
) -> Option<Result<Needs>> {
    let (samples, held_out) = samples(job, train, validation, features)?;
    job.estimator.needs(&samples, held_out.as_ref(), &job.settings, room).transpose()
}

/// The samples that the inputs have if every feature is one of a sample that is fitted or held out.
fn samples(
    job: &TrainJob,
    train: &Arc<dyn ExecutionPlan>,
    validation: Option<&Arc<dyn ExecutionPlan>>,
    features: &Arc<dyn ExecutionPlan>,
) -> Option<(Samples, Option<Samples>)> {
    // Features of volumes that were dropped are of no sample.
    let whole = |plan: &Arc<dyn ExecutionPlan>| matches!(RunVolumes::of(&plan.schema()), Ok(None));
    if !whole(train) || !validation.is_none_or(whole) {
        return None;
    }
    let names = FeatureTable::find(&features.schema()).ok()?.names(&features.schema())?;
    let all = rows(features)?;
    // A row has the points of one target in one run, or in several that were joined.
    let points = |plan: &Arc<dyn ExecutionPlan>| {
        let column = SeriesColumn::find("TRAIN MODEL", &plan.schema()).ok()?;
        Some(rows(plan)? * column.time_points)
    };
    let (fitted, held_out) = (points(train)?, validation.map_or(Some(0), points)?);
    let targets = exactly(fitted + held_out, all)?;
    let of = |points: usize, plan: &Arc<dyn ExecutionPlan>| {
        let segments = Segments::of(&plan.schema()).ok()?;
        let run = segments.map_or(job.column.time_points, |segments| segments.time_points);
        let samples = exactly(points, targets)?;
        let runs = exactly(samples, run)?;
        let run = |_| SampleRun { samples: run, ..SampleRun::default() };
        Some(Samples { features: names.clone(), runs: (0..runs).map(run).collect(), groups: vec![targets] })
    };
    let held_out = match validation {
        Some(plan) => Some(of(held_out, plan)?),
        None => None,
    };
    Some((of(fitted, train)?, held_out))
}

/// `a / b`, where nothing is left.
fn exactly(a: usize, b: usize) -> Option<usize> {
    (a > 0 && b > 0 && a.is_multiple_of(b)).then(|| a / b)
}

/// Rows, where they are known.
fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    match statistics.num_rows {
        Precision::Exact(rows) => Some(rows),
        Precision::Inexact(_) | Precision::Absent => None,
    }
}
