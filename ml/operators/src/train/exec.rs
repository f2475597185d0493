//! Executes `TRAIN MODEL` in the driver: spools the rows, runs the gang, shows the model's folder, yields the history.

use super::{
    common_voxels::keep_common,
    explaining::{explained, finish_targets, other_stimuli, read_features, same_targets},
    gang::{GangRun, Outcome, forget_checkpoints},
    history,
    model_folder::ModelFolder,
    outlook::{outlook, room_of},
    run_record::{RunClaim, RunRecord},
    samples::RunMetadata,
    spool::{Filling, Spool, SpoolFolder},
};
use crate::{
    Error, Result, TrainObserver,
    observer::Cancellation,
    train::{RunVoxels, Statistics, SubjectOverlap, TrainJob, job::TRAIN},
};
use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{
    common::{internal_err, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result as PlanResult},
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType},
        metrics::{ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::stream;
use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use voxelflow_dataset::{Finding, LedgerEntry, LedgerNotes, Level, RunKey, Runner};
use voxelflow_stage::{GRID_METADATA_KEY, Grid, History, Lineage, Room};

/// Executes [`TrainNode`](crate::TrainNode); one partition, one row for each epoch.
#[derive(Debug)]
pub struct TrainExec {
    job: Arc<TrainJob>,
    /// Rows to train on, rows to validate on if `validates`, features if `has_features`, members of the gang.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    validates: bool,
    has_features: bool,
    /// What a rank's process has.
    room: Room,
    /// What the training needs, for people, once they have asked.
    needs: OnceLock<String>,
    properties: Arc<PlanProperties>,
    /// What is for the ledger, of the inputs too.
    metrics: ExecutionPlanMetricsSet,
}

impl TrainExec {
    /// Trains on `inputs[0]` and, if it `validates`, validates on `inputs[1]`; features come next, if there are any. The
    /// others show the gang. It runs in the session of `context`.
    pub fn new(
        job: Arc<TrainJob>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        validates: bool,
        has_features: bool,
        context: &TaskContext,
    ) -> Self {
        let room = room_of(job.settings.ranks, job.gang.memory_bytes(), context);
        Self::in_room(job, inputs, (validates, has_features), room)
    }

    fn in_room(
        job: Arc<TrainJob>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        (validates, has_features): (bool, bool),
        room: Room,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(history::arrow_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            job,
            inputs,
            validates,
            has_features,
            room,
            needs: OnceLock::new(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl TrainExec {
    fn validation(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        self.inputs.get(1).filter(|_| self.validates)
    }

    fn features(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        self.inputs.get(1 + usize::from(self.validates)).filter(|_| self.has_features)
    }

    /// What it needs, behind what it is; nothing where that is known only when it runs.
    fn outlook(&self) -> String {
        let (Some(train), Some(features)) = (self.inputs.first(), self.features()) else {
            return String::new();
        };
        match outlook(&self.job, train, self.validation(), features, &self.room) {
            Some(Ok(needs)) => format!("; needs {needs}"),
            Some(Err(e)) => format!("; does not fit: {e}"),
            None => String::new(),
        }
    }
}

impl DisplayAs for TrainExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TrainExec: {}{}", self.job, self.needs.get_or_init(|| self.outlook()))
    }
}

impl ExecutionPlan for TrainExec {
    fn name(&self) -> &str {
        "TrainExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }
    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let has = (self.validates, self.has_features);
        Ok(Arc::new(Self::in_room(Arc::clone(&self.job), children, has, self.room)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let Some(train) = self.inputs.first().filter(|_| partition == 0).cloned() else {
            return internal_err!("TrainExec has one partition and an input, not partition {partition}");
        };
        let (validation, features) = (self.validation().cloned(), self.features().cloned());
        let inputs = Inputs { train, validation, features };
        let job = Arc::clone(&self.job);
        let notes = LedgerNotes::new(&self.metrics, partition);
        let noted = Arc::clone(&notes);
        let rows = stream::once(async move { train_on(job, &inputs, &noted, &context).await });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), notes.until_end(rows))))
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Cancels the training when the query is dropped.
struct CancelOnDrop(Arc<Cancellation>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Plans of rows.
struct Inputs {
    train: Arc<dyn ExecutionPlan>,
    validation: Option<Arc<dyn ExecutionPlan>>,
    features: Option<Arc<dyn ExecutionPlan>>,
}

async fn train_on(
    job: Arc<TrainJob>,
    Inputs { train, validation, features }: &Inputs,
    notes: &LedgerNotes,
    context: &Arc<TaskContext>,
) -> PlanResult<RecordBatch> {
    let folder = ModelFolder::prepare(&job.folder)?;
    let (claim, left) = RunClaim::take(&job.folder)?;
    folder.must_be_alone()?;
    let claim = Arc::new(claim);
    let cut_off = left.is_some();
    if let Some(left) = left {
        clear_away(&job, left, context).await;
    }
    claim.note(|record| record.writing = Some(folder.writing().to_owned()))?;
    let training = CancelOnDrop(Arc::default());
    let observer = context.session_config().get_extension::<TrainObserver>();
    if let Some(observer) = &observer {
        observer.register(&training.0);
    }
    let spool = SpoolFolder::create(&spool_parent(&job, context)?, &spool_name(&job), context)?;
    claim.note(|record| record.spool = Some(spool.location().to_owned()))?;
    let filling = |operator| Filling {
        operator,
        not_finite: job.estimator.explains(),
        may_shrink: job.voxels == RunVoxels::Intersection,
    };
    let mut rows = Spool::fill(train, filling(TRAIN), &spool, context).await?;
    let validation_plan = validation;
    let mut validation = match validation {
        Some(plan) => Some(Spool::fill(plan, filling("VALIDATE ON"), &spool, context).await?),
        None => None,
    };
    check_rows(&job, &rows, validation.as_ref())?;
    if job.voxels == RunVoxels::Intersection {
        let mut both: Vec<&mut Spool> = std::iter::once(&mut rows).chain(&mut validation).collect();
        keep_common(&mut both, notes, context).await?;
    }
    note_rows(&job, &rows, validation.as_ref(), notes);
    let explained = match features {
        Some(plan) => {
            let features = read_features(plan, notes, context).await?;
            let runs = RunMetadata::of(&train.schema())?;
            let own = explained((&rows, &runs), &features, (&spool, context)).await?;
            job.estimator.check_samples(&own.0.samples).map_err(Error::from)?;
            let held_out = match (&validation, validation_plan) {
                (Some(rows), Some(plan)) => {
                    let runs = RunMetadata::of(&plan.schema())?;
                    let held_out = explained((rows, &runs), &features, (&spool, context)).await?;
                    same_targets(&own.1, &held_out.1)?;
                    other_stimuli(&own.0.samples, &held_out.0.samples)?;
                    Some(held_out.0)
                }
                _ => None,
            };
            Some((own, held_out))
        }
        None => None,
    };
    if training.0.is_cancelled() {
        return Err(Error::from(voxelflow_stage::Error::Cancelled).into());
    }
    let statistics =
        Statistics::of(&rows, validation.as_ref(), job.upstream.clone(), grid_of(&train.schema())?);
    let (own, held_out) = explained.unzip();
    let (features, groups) = own.unzip();
    let fingerprint = blake3::hash(format!("{} {}", job.lineage(), statistics.data_hash).as_bytes());
    let checkpoints = folder.checkpoints(fingerprint.to_hex().as_str());
    let keeps = job.settings.checkpoint_every > 0 || job.settings.checkpoint_steps > 0;
    if cut_off {
        // Checkpoints are of the same rows and settings only.
        let fits = keeps && std::fs::read_dir(&checkpoints).is_ok_and(|mut entries| entries.next().is_some());
        let goes_on = if fits {
            "it goes on from its newest checkpoint"
        } else {
            "it has no checkpoint of these rows and settings and starts anew"
        };
        log::warn!("a training of model {} was cut off; {goes_on}", job.model);
    }
    let run = GangRun {
        job: &job,
        train: &rows.place,
        validation: validation.as_ref().map(|spool| &spool.place),
        features,
        validation_features: held_out.flatten(),
        progress: observer.and_then(|o| o.progress()),
        checkpoints: Some(checkpoints.as_path()).filter(|_| keeps),
        writing: folder.writing(),
        cancellation: &training.0,
        claim: &claim,
    };
    let outcome = until_done(&run, context).await?;
    // What is solved has no steps that could lead away: a poor score is what it says.
    if !job.estimator.explains() {
        check_converged(&job.model, &outcome.history)?;
    }
    if outcome.ranks_at_end < job.settings.ranks {
        log::warn!(
            "model {}: {} of {} ranks trained to the end; the others were lost, and there was no room for them",
            job.model,
            outcome.ranks_at_end,
            job.settings.ranks
        );
    }
    if let Some(groups) = groups {
        let trained = (&train.schema(), &statistics, validation.is_some());
        finish_targets(&job, folder.writing(), trained, &groups, notes, context)?;
    }
    folder.finish(&statistics, &outcome)?;
    forget_checkpoints(&checkpoints);
    history::batch(&job, &statistics, &outcome)
}

/// How many times the initial loss the last one may be: a model that is worse than none was not trained.
const DIVERGED: f64 = 100.0;

/// A training that has diverged publishes no model. (Losses that are not finite end it where they come up.)
fn check_converged(model: &str, history: &History) -> Result<()> {
    let before = history.initial_loss;
    // The mean of an epoch may hide that its end was good.
    let last = history.steps.last().map_or(f64::INFINITY, |step| step.loss);
    let after = history.last_loss().min(last);
    if before > 0.0 && after > DIVERGED * before {
        return Err(Error::Diverged { model: model.to_owned(), before, after });
    }
    Ok(())
}

/// Runs the gang; one that was lost with its scheduler starts over from its newest checkpoint when the scheduler is
/// back.
async fn until_done(run: &GangRun<'_>, context: &Arc<TaskContext>) -> PlanResult<Outcome> {
    let patience = Duration::from_secs_f64(run.job.gang.gang_deadline_seconds);
    let runner = Runner::of(context);
    let mut since = None;
    loop {
        let started = Instant::now();
        let error = match run.run(context).await {
            Err(error) if runner.is_lost(&error) && !run.cancellation.is_cancelled() => error,
            ended => return ended,
        };
        // A gang that has been at work for a while was lost anew.
        since = since.filter(|_| started.elapsed() < AT_WORK);
        if since.get_or_insert_with(Instant::now).elapsed() > patience {
            return Err(error);
        }
        log::warn!(
            "model {}: {error}; it starts over from its newest checkpoint when the scheduler is back",
            run.job.model
        );
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// How long a gang is at work before it counts as one that had begun.
const AT_WORK: Duration = Duration::from_secs(30);
/// How often a scheduler that is lost is asked for.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Removes what a training has left behind that was cut off with its driver; its checkpoints stay. Its ranks, which
/// wait for the lost driver, give up their slots.
async fn clear_away(job: &TrainJob, left: RunRecord, context: &TaskContext) {
    if let Some(gang) = left.job
        && let Err(e) = Runner::of(context).cancel(&gang).await
    {
        log::warn!(
            "job {gang} of the training that was cut off cannot be ended: {e}; its ranks leave by themselves"
        );
    }
    // A note is only a file: nothing is removed that no training has made.
    if let Some(spool) = left.spool.filter(|spool| spool.contains(&spool_name(job))) {
        SpoolFolder::remove(&spool, context).await;
    }
    let partial = ModelFolder::partial_name(&job.folder);
    let made = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&partial));
    if let Some(writing) = left.writing.filter(made) {
        // What cannot be removed takes room, no more.
        let _ = std::fs::remove_dir_all(writing);
    }
}

/// Where rows are spooled: what the statement says, else storage that all ranks see.
fn spool_parent(job: &TrainJob, context: &TaskContext) -> PlanResult<String> {
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            let reason = "its name is no Unicode text".to_owned();
            DataFusionError::from(Error::Storage { path: path.display().to_string(), reason })
        })
    };
    if let Some(spool) = &job.gang.spool {
        return Ok(spool.clone());
    }
    if Runner::of(context).driver_address().is_some() {
        let beside = job.folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return text(&std::path::absolute(beside)?);
    }
    // Where the session spills to; one that does not spill to files gets the system's folder.
    let spilled = context.runtime_env().disk_manager.create_tmp_file(TRAIN)?;
    let beside = spilled.path().and_then(Path::parent).map(Path::to_owned);
    text(&beside.unwrap_or_else(std::env::temp_dir))
}

fn spool_name(job: &TrainJob) -> String {
    let model = job.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!(".{model}.spool-")
}

fn grid_of(schema: &SchemaRef) -> Result<Option<Grid>> {
    Ok(schema.metadata().contains_key(GRID_METADATA_KEY).then(|| Grid::of(schema)).transpose()?)
}

/// What the ledger is told: what the rows' own plans have to say, the rows that are not trained on, and subjects whose
/// validation loss flatters.
fn note_rows(job: &TrainJob, train: &Spool, validation: Option<&Spool>, notes: &LedgerNotes) {
    notes.note_all(train.ledger.clone());
    let Some(validation) = validation else { return };
    notes.note_all(validation.ledger.clone());
    let entry = |level, what, reason: &str, count: usize, subjects: BTreeSet<&str>| {
        let entry = LedgerEntry::of_run(RunKey::default(), level, what, reason, count as u64);
        notes.note(if subjects.is_empty() { entry } else { entry.named(subjects) });
    };
    let (subjects, reason) =
        (validation.subjects(), "rows to validate on, of these subjects: not trained on");
    entry(Level::Voxel, Finding::HeldOut, reason, validation.rows(), subjects.clone());
    if job.estimator.explains() {
        // Other runs of the same voxels are what such a model is validated on.
        return;
    }
    let both = &subjects & &train.subjects();
    let reason = "subjects both trained on and validated on: the validation loss flatters";
    entry(Level::Value, Finding::Noted, reason, both.len(), both);
}

/// What only the rows themselves can tell.
fn check_rows(job: &TrainJob, train: &Spool, validation: Option<&Spool>) -> Result<()> {
    let spools = [("ON", Some(train)), ("VALIDATE ON", validation)];
    if let Some((clause, _)) = spools.iter().find(|(_, spool)| spool.is_some_and(|s| s.rows() == 0)) {
        return Err(Error::NoRows { model: job.model.clone(), clause });
    }
    let overlap = match job.subject_overlap {
        // A model of a subject's voxels is validated on other runs of the same subject.
        SubjectOverlap::Auto if job.estimator.explains() => SubjectOverlap::OtherRuns,
        other => other,
    };
    let Some(validation) = validation else { return Ok(()) };
    check_overlap(overlap, train, validation)?;
    check_upstream(overlap, &job.upstream, train, validation)
}

/// What a model has seen of the rows that it is validated on.
fn check_overlap(allowed: SubjectOverlap, train: &Spool, validation: &Spool) -> Result<()> {
    let subjects = train.subjects();
    let refused = match allowed {
        SubjectOverlap::Auto => subjects.len() > 1,
        SubjectOverlap::Error => true,
        SubjectOverlap::OtherRuns => false,
        SubjectOverlap::Allow => return Ok(()),
    };
    let both = if refused { &validation.subjects() & &subjects } else { BTreeSet::new() };
    if !both.is_empty() {
        return Err(Error::SubjectOverlap { subjects: both.into_iter().map(str::to_owned).collect() });
    }
    let runs = &validation.runs() & &train.runs();
    if allowed == SubjectOverlap::OtherRuns && !runs.is_empty() {
        return Err(Error::RunOverlap { runs: runs.into_iter().collect() });
    }
    if let Some((count, first)) = train.in_both(validation) {
        return Err(Error::SeriesOverlap { count, first });
    }
    match train.renamed_in(validation) {
        Some((count, first, other)) => Err(Error::RenamedSeries { count, first, other }),
        None => Ok(()),
    }
}

/// What the models that rows went through have seen of the rows that this one is validated on.
fn check_upstream(
    allowed: SubjectOverlap,
    upstream: &Lineage,
    train: &Spool,
    validation: &Spool,
) -> Result<()> {
    let (subjects, runs) = (validation.subjects(), validation.runs());
    for (model, seen) in upstream.iter() {
        let of_model: BTreeSet<&str> = seen.subjects.iter().map(String::as_str).collect();
        let refused = match allowed {
            // A study of one subject has no other one to validate on.
            SubjectOverlap::Auto => (&(&subjects | &train.subjects()) | &of_model).len() > 1,
            SubjectOverlap::Error => true,
            SubjectOverlap::OtherRuns => false,
            SubjectOverlap::Allow => return Ok(()),
        };
        let both: Vec<String> = match allowed {
            SubjectOverlap::OtherRuns => runs.intersection(&seen.runs).cloned().collect(),
            _ if refused => subjects.intersection(&of_model).map(|s| format!("subject {s}")).collect(),
            _ => Vec::new(),
        };
        if !both.is_empty() {
            return Err(Error::UpstreamOverlap { model: model.to_owned(), seen: both.join("; ") });
        }
    }
    Ok(())
}
