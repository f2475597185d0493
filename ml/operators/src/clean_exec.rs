//! Cleaning as it runs: one batch in, one batch out, partitions and order as they were.
//!
//! The work of a batch is spread over the rayon pool from a blocking thread, so that the threads that move
//! batches stay free.

use crate::clean_batch::{Cleaning, Work};
use crate::clean_confounds::{RunCleaners, RunConfounds};
use crate::{NotFinite, SessionStores};
use arrow::{
    array::RecordBatch,
    datatypes::{FieldRef, Fields, Schema, SchemaRef},
};
use datafusion::{
    common::{
        DataFusionError, exec_datafusion_err, internal_err, runtime::SpawnedTask,
        tree_node::TreeNodeRecursion,
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr, utils::collect_columns},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        execution_plan::CardinalityEffect,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};
use voxelflow_dataset::{
    LedgerNode, LedgerNotes, NodeCodec, PartitionWise,
    node_codec::{one_input, read_settings, write_settings},
};
use voxelflow_signal::CleanSettings;
use voxelflow_stage::SERIES_COLUMN;

const NAME: &str = "CleanExec";

/// Cleaning of the series of every batch.
///
/// Metrics: `output_rows`, `elapsed_compute`, and entries for the ledger: voxels that are constant (kept), or dropped or
/// zeroed for NaN or infinity; of each run the volumes that are dropped and the confounds that were filled. A row whose
/// `series` is null stays as it is.
#[derive(Debug)]
pub struct CleanExec {
    input: Arc<dyn ExecutionPlan>,
    work: Work,
    metadata: HashMap<String, String>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl CleanExec {
    /// Cleans what `input` yields; `metadata` is that of the output's schema.
    ///
    /// # Errors
    /// An input whose series are not those that `cleaning` is for.
    pub(crate) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        cleaning: Cleaning,
        not_finite: NotFinite,
        metadata: HashMap<String, String>,
    ) -> Result<Self, DataFusionError> {
        let columns = input.schema();
        let series = columns.index_of(SERIES_COLUMN)?;
        let found = columns.field(series).data_type();
        if !cleaning.is_for(found) {
            return internal_err!("series of other lengths are cleaned than {found}");
        }
        let cleaned = |(at, field): (usize, &FieldRef)| match at == series {
            true => Arc::new(field.as_ref().clone().with_data_type(cleaning.series_type(field.data_type()))),
            false => Arc::clone(field),
        };
        let fields: Fields = columns.fields().iter().enumerate().map(cleaned).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata.clone()));
        let properties = Arc::new(properties(&input, series, &schema));
        let work = Work { cleaning, not_finite, series, schema };
        Ok(Self { input, work, metadata, properties, metrics: ExecutionPlanMetricsSet::new() })
    }
}

/// Those of the input, but for orderings and partitionings by what is changed here.
fn properties(input: &Arc<dyn ExecutionPlan>, series: usize, schema: &SchemaRef) -> PlanProperties {
    let keeps = |expr: &Arc<dyn PhysicalExpr>| collect_columns(expr).iter().all(|c| c.index() != series);
    let orderings: Vec<Vec<_>> = input
        .equivalence_properties()
        .oeq_class()
        .iter()
        .filter(|ordering| ordering.iter().all(|sort| keeps(&sort.expr)))
        .map(|ordering| ordering.iter().cloned().collect())
        .collect();
    let partitioning = match input.output_partitioning() {
        Partitioning::Hash(keys, n) if keys.iter().all(keeps) => Partitioning::Hash(keys.clone(), *n),
        Partitioning::RoundRobinBatch(n) => Partitioning::RoundRobinBatch(*n),
        other => Partitioning::UnknownPartitioning(other.partition_count()),
    };
    PlanProperties::new(
        EquivalenceProperties::new_with_orderings(Arc::clone(schema), orderings),
        partitioning,
        input.pipeline_behavior(),
        input.boundedness(),
    )
}

/// All that another process needs to clean the same.
#[derive(Serialize, Deserialize)]
struct Sent {
    cleaning: SentCleaning,
    not_finite: NotFinite,
    metadata: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
enum SentCleaning {
    Alike {
        settings: CleanSettings,
        /// Every length that runs have.
        time_points: Vec<usize>,
        /// The bits of the number: one that was read from a header may have more digits than JSON keeps.
        t_r: Option<u64>,
    },
    /// Confounds themselves are read again where the rows are.
    ByRun(Box<RunConfounds>),
}

inventory::submit! { NodeCodec { name: NAME, encode, decode } }
inventory::submit! { LedgerNode(NAME) }
inventory::submit! { PartitionWise(NAME) }

fn encode(node: &dyn ExecutionPlan) -> Option<Result<Vec<u8>, DataFusionError>> {
    let exec = node.downcast_ref::<CleanExec>()?;
    let Work { cleaning, not_finite, .. } = &exec.work;
    let cleaning = match cleaning {
        Cleaning::Alike(cleaners) => {
            let cleaner = &cleaners.first()?.cleaner;
            SentCleaning::Alike {
                settings: cleaner.settings().clone(),
                time_points: cleaners.iter().map(|run| run.cleaner.time_points()).collect(),
                t_r: cleaner.t_r().map(f64::to_bits),
            }
        }
        Cleaning::ByRun(cleaners) => SentCleaning::ByRun(Box::new(cleaners.plan.clone())),
    };
    let metadata = exec.metadata.clone().into_iter().collect();
    Some(write_settings(NAME, &Sent { cleaning, not_finite: *not_finite, metadata }))
}

fn decode(
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    _context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let Sent { cleaning, not_finite, metadata } = read_settings(NAME, bytes)?;
    let cleaning = match cleaning {
        SentCleaning::Alike { settings, time_points, t_r } => {
            Cleaning::alike(&settings, &time_points, t_r.map(f64::from_bits))?
        }
        SentCleaning::ByRun(plan) => Cleaning::ByRun(Arc::new(RunCleaners::new(*plan))),
    };
    let input = one_input(NAME, inputs)?;
    let metadata = metadata.into_iter().collect();
    Ok(Arc::new(CleanExec::try_new(input, cleaning, not_finite, metadata)?))
}

impl DisplayAs for CleanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.work.cleaning.describe();
        let steps = steps.trim_start_matches("clean: ");
        match t {
            DisplayFormatType::TreeRender => write!(f, "{steps}"),
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "CleanExec: {steps}"),
        }
    }
}

impl ExecutionPlan for CleanExec {
    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    /// A batch is spread over all cores already.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::try_new(
                input,
                self.work.cleaning.clone(),
                self.work.not_finite,
                self.metadata.clone(),
            )?)),
            _ => internal_err!("CleanExec has one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let stores: SessionStores = Some(Arc::clone(&context.runtime_env().object_store_registry));
        let input = self.input.execute(partition, context)?;
        // Shared, since the first clone that is dropped would end its clock.
        let baseline = Arc::new(BaselineMetrics::new(&self.metrics, partition));
        let notes = LedgerNotes::new(&self.metrics, partition);
        let (work, noted) = (self.work.clone(), Arc::clone(&notes));
        let cleaned = input.and_then(move |batch| {
            let (work, notes, baseline) = (work.clone(), Arc::clone(&noted), Arc::clone(&baseline));
            let stores = stores.clone();
            async move {
                let task = SpawnedTask::spawn_blocking(move || -> Result<RecordBatch, DataFusionError> {
                    let _timer = baseline.elapsed_compute().timer();
                    let cleaned = work.clean(&batch, &stores, &notes)?;
                    baseline.record_output(cleaned.num_rows());
                    Ok(cleaned)
                });
                task.join_unwind().await.map_err(|e| exec_datafusion_err!("cleaning was stopped: {e}"))?
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), notes.until_end(cleaned))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.work.not_finite {
            NotFinite::Drop => CardinalityEffect::LowerEqual,
            NotFinite::Error | NotFinite::Zero => CardinalityEffect::Equal,
        }
    }
}
