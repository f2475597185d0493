//! Executes `TRAIN MODEL`: spools the rows, runs the gang, writes the model's folder, yields the history.

use super::{
    gang::{GangRun, forget_checkpoints},
    history,
    model_folder::ModelFolder,
    spool::Spool,
};
use crate::{
    Error, Result, TrainObserver,
    train::{Statistics, SubjectOverlap, TrainJob, job::TRAIN},
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
        stream::RecordBatchStreamAdapter,
    },
};
use futures::stream;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tokio::sync::oneshot;
use voxelflow_stage::{GRID_METADATA_KEY, Grid, ProgressSink};

/// Executes [`TrainNode`](crate::TrainNode); one partition, one row for each epoch.
#[derive(Debug)]
pub struct TrainExec {
    job: Arc<TrainJob>,
    /// Rows to train on, rows to validate on if `validates`, members of the gang.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    validates: bool,
    properties: Arc<PlanProperties>,
}

impl TrainExec {
    /// Trains on `inputs[0]` and, if it `validates`, validates on `inputs[1]`; the others show the gang.
    pub fn new(job: Arc<TrainJob>, inputs: Vec<Arc<dyn ExecutionPlan>>, validates: bool) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(history::arrow_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { job, inputs, validates, properties: Arc::new(properties) }
    }
}

impl DisplayAs for TrainExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TrainExec: {}", self.job)
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
        Ok(Arc::new(Self::new(Arc::clone(&self.job), children, self.validates)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let Some(train) = self.inputs.first().filter(|_| partition == 0).cloned() else {
            return internal_err!("TrainExec has one partition and an input, not partition {partition}");
        };
        let validation = self.inputs.get(1).filter(|_| self.validates).cloned();
        let job = Arc::clone(&self.job);
        let rows = stream::once(async move { train_on(job, &train, validation.as_ref(), &context).await });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// Sets the flag when the query is dropped, so that the threads of its gang end.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn train_on(
    job: Arc<TrainJob>,
    train: &Arc<dyn ExecutionPlan>,
    validation: Option<&Arc<dyn ExecutionPlan>>,
    context: &Arc<TaskContext>,
) -> PlanResult<RecordBatch> {
    let folder = ModelFolder::prepare(&job.folder)?;
    let cancelled = CancelOnDrop(Arc::default());
    let observer = context.session_config().get_extension::<TrainObserver>();
    if let Some(observer) = &observer {
        observer.register(&cancelled.0);
    }
    let rows = Arc::new(Spool::fill(train, TRAIN, context).await?);
    let validation = match validation {
        Some(plan) => Some(Arc::new(Spool::fill(plan, "VALIDATE ON", context).await?)),
        None => None,
    };
    check_rows(&job, &rows, validation.as_deref())?;
    let training = Training {
        grid: grid_of(&train.schema())?,
        progress: observer.and_then(|o| o.progress()),
        cancelled: Arc::clone(&cancelled.0),
        job,
        rows,
        validation,
        folder,
    };
    // Training blocks for as long as it takes: not on a thread of the async runtime.
    let (tell, told) = oneshot::channel();
    let name = format!("train {}", training.job.model);
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            // Nobody listens when the query was dropped.
            let _ = tell.send(training.run());
        })
        .map_err(DataFusionError::IoError)?;
    let done = told.await.map_err(|e| DataFusionError::External(Box::new(e)))?;
    drop(cancelled);
    done
}

fn grid_of(schema: &SchemaRef) -> Result<Option<Grid>> {
    Ok(schema.metadata().contains_key(GRID_METADATA_KEY).then(|| Grid::of(schema)).transpose()?)
}

/// What only the rows themselves can tell.
fn check_rows(job: &TrainJob, train: &Spool, validation: Option<&Spool>) -> Result<()> {
    if train.rows() == 0 {
        return Err(Error::NoRows { model: job.model.clone() });
    }
    let subjects = train.subjects();
    let refused = match job.subject_overlap {
        SubjectOverlap::Auto => subjects.len() > 1,
        SubjectOverlap::Error => true,
        SubjectOverlap::Allow => false,
    };
    let both = validation.filter(|_| refused).map(|v| &v.subjects() & &subjects).unwrap_or_default();
    if both.is_empty() {
        return Ok(());
    }
    Err(Error::SubjectOverlap { subjects: both.into_iter().map(str::to_owned).collect() })
}

/// A training whose rows are ready.
struct Training {
    job: Arc<TrainJob>,
    rows: Arc<Spool>,
    validation: Option<Arc<Spool>>,
    grid: Option<Grid>,
    progress: Option<Arc<dyn ProgressSink>>,
    cancelled: Arc<AtomicBool>,
    folder: ModelFolder,
}

impl Training {
    fn run(self) -> PlanResult<RecordBatch> {
        let Self { job, rows, validation, grid, progress, cancelled, folder } = self;
        let statistics = Statistics::of(&rows, validation.as_ref(), grid).map_err(Error::from)?;
        let fingerprint = blake3::hash(format!("{} {}", job.identity(), statistics.data_hash).as_bytes());
        let checkpoints = folder.checkpoints(fingerprint.to_hex().as_str());
        let keeps = job.settings.checkpoint_every > 0 || job.settings.checkpoint_steps > 0;
        let run = GangRun {
            job: &job,
            train: &rows,
            validation: validation.as_ref(),
            progress,
            checkpoints: Some(checkpoints.as_path()).filter(|_| keeps),
            cancelled: &cancelled,
        };
        let fitted = run.fit()?;
        folder.finish(&job, &fitted, &statistics)?;
        forget_checkpoints(&checkpoints);
        history::batch(&job, &statistics, &fitted.history)
    }
}
