//! Designs as they are made: keys of runs in, their regressors out.

use crate::SessionStores;
use crate::design::{REGRESSOR_COLUMN, RUN_COLUMNS};
use crate::design_runs::{RunDesign, RunDesigns};
use arrow::{
    array::{
        ArrayRef, AsArray, FixedSizeListArray, Float32Array, ListArray, RecordBatch, StringArray, UInt32Array,
    },
    buffer::OffsetBuffer,
    compute::{cast, take},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use datafusion::{
    common::{
        DataFusionError, exec_datafusion_err, internal_err, runtime::SpawnedTask,
        tree_node::TreeNodeRecursion,
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::TryStreamExt;
use std::{fmt, sync::Arc};
use voxelflow_dataset::{
    LedgerNode, LedgerNotes, NodeCodec, PartitionWise,
    node_codec::{one_input, read_settings, write_settings},
};
use voxelflow_stage::{SERIES_COLUMN, key_in};

const NAME: &str = "DesignExec";

/// The regressors of every run whose keys the input has.
///
/// Rows of a run come in the order of the design's columns. Metrics: `output_rows`, `elapsed_compute`, and
/// entries for the ledger: events that were merged, left out or cut, regressors without any value.
#[derive(Debug)]
pub struct DesignExec {
    input: Arc<dyn ExecutionPlan>,
    designs: Arc<RunDesigns>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DesignExec {
    /// # Errors
    /// An input that is not the key columns of runs.
    pub(crate) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        designs: Arc<RunDesigns>,
    ) -> Result<Self, DataFusionError> {
        let keys = input.schema();
        if keys.fields().len() != RUN_COLUMNS || keys.fields().iter().any(|f| !f.data_type().is_string()) {
            return internal_err!("{NAME} reads {RUN_COLUMNS} columns of text, not {keys}");
        }
        let mut fields: Vec<Arc<Field>> = keys.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(REGRESSOR_COLUMN, DataType::Utf8, false)));
        fields.push(Arc::new(Field::new(SERIES_COLUMN, designs.series_type(), false)));
        let schema = Schema::new_with_metadata(fields, designs.metadata()?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { input, designs, properties: Arc::new(properties), metrics })
    }
}

inventory::submit! { NodeCodec { name: NAME, encode, decode } }
inventory::submit! { LedgerNode(NAME) }
inventory::submit! { PartitionWise(NAME) }

fn encode(node: &dyn ExecutionPlan) -> Option<Result<Vec<u8>, DataFusionError>> {
    let exec = node.downcast_ref::<DesignExec>()?;
    Some(write_settings(NAME, exec.designs.as_ref()))
}

fn decode(
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    _context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let designs: RunDesigns = read_settings(NAME, bytes)?;
    Ok(Arc::new(DesignExec::try_new(one_input(NAME, inputs)?, Arc::new(designs))?))
}

/// The regressors of the runs in `keys`, and what is to be noted of them.
fn regressors(
    keys: &RecordBatch,
    schema: &SchemaRef,
    designs: &RunDesigns,
    stores: &SessionStores,
) -> Result<(RecordBatch, Vec<RunDesign>), DataFusionError> {
    let texts: Vec<ArrayRef> =
        keys.columns().iter().map(|column| cast(column, &DataType::Utf8)).collect::<Result<_, _>>()?;
    let key = |text: &ArrayRef, row: usize| key_in(text.as_string::<i32>(), row).map(str::to_owned);
    let mut found = Vec::with_capacity(keys.num_rows());
    for row in 0..keys.num_rows() {
        let mut of_run: [Option<String>; RUN_COLUMNS] = Default::default();
        of_run.iter_mut().zip(&texts).for_each(|(to, text)| *to = key(text, row));
        found.push(designs.design(&of_run, stores)?);
    }
    let rows: UInt32Array = found
        .iter()
        .enumerate()
        .flat_map(|(row, run)| std::iter::repeat_n(row as u32, run.design.names.len()))
        .collect();
    let names: StringArray = found.iter().flat_map(|run| &run.design.names).map(Some).collect();
    let values = found.iter().flat_map(|run| run.design.columns.iter().flatten()).map(|x| *x as f32);
    let values: Float32Array = values.collect::<Vec<f32>>().into();
    let series: ArrayRef = match designs.series_type() {
        DataType::FixedSizeList(item, volumes) => {
            Arc::new(FixedSizeListArray::try_new(item, volumes, Arc::new(values), None)?)
        }
        DataType::List(item) => {
            let lengths = found.iter().flat_map(|run| run.design.columns.iter().map(Vec::len));
            Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(values), None)?)
        }
        other => return internal_err!("series are lists, not {other}"),
    };
    let mut columns: Vec<ArrayRef> =
        keys.columns().iter().map(|column| take(column, &rows, None)).collect::<Result<_, _>>()?;
    columns.push(Arc::new(names));
    columns.push(series);
    Ok((RecordBatch::try_new(Arc::clone(schema), columns)?, found))
}

impl DisplayAs for DesignExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.designs.identity().unwrap_or_default();
        match t {
            DisplayFormatType::TreeRender => write!(f, "{options}"),
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "{NAME}: {options}"),
        }
    }
}

impl ExecutionPlan for DesignExec {
    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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
            (Some(input), true) => Ok(Arc::new(Self::try_new(input, Arc::clone(&self.designs))?)),
            _ => internal_err!("{NAME} has one input"),
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
        let (schema, designs, noted) = (self.schema(), Arc::clone(&self.designs), Arc::clone(&notes));
        let made = input.and_then(move |keys| {
            let (schema, designs, notes) = (Arc::clone(&schema), Arc::clone(&designs), Arc::clone(&noted));
            let (stores, baseline) = (stores.clone(), Arc::clone(&baseline));
            async move {
                let task = SpawnedTask::spawn_blocking(move || -> Result<RecordBatch, DataFusionError> {
                    let _timer = baseline.elapsed_compute().timer();
                    let (rows, runs) = regressors(&keys, &schema, &designs, &stores)?;
                    runs.into_iter().for_each(|run| notes.note_all(run.ledger));
                    baseline.record_output(rows.num_rows());
                    Ok(rows)
                });
                task.join_unwind().await.map_err(|e| exec_datafusion_err!("designs were stopped: {e}"))?
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), notes.until_end(made))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
