//! Cleaning as it runs: one batch in, one batch out, partitions and order as they were.
//!
//! The work of a batch is spread over the rayon pool from a blocking thread, so that the threads that move
//! batches stay free.

use crate::{Error, NotFinite, Result};
use arrow::{
    array::{Array, ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, RecordBatch},
    compute::filter_record_batch,
    datatypes::{DataType, Schema, SchemaRef},
    util::display::{ArrayFormatter, FormatOptions},
};
use datafusion::{
    common::{
        DataFusionError, exec_datafusion_err, internal_datafusion_err, internal_err, runtime::SpawnedTask,
        tree_node::TreeNodeRecursion,
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr, utils::collect_columns},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        execution_plan::CardinalityEffect,
        metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricsSet},
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
    NodeCodec, ledger_counter,
    node_codec::{one_input, read_settings, write_settings},
};
use voxelflow_signal::{CleanSettings, Cleaner};
use voxelflow_stage::{KEY_COLUMNS, SERIES_COLUMN};

const NAME: &str = "CleanExec";

/// Cleaning of the series of every batch.
///
/// Metrics: `output_rows`, `elapsed_compute`, `constant_series` (kept, as zeros), `dropped_series` and
/// `zeroed_series` (NaN or infinity). A row whose `series` is null stays as it is.
#[derive(Debug)]
pub struct CleanExec {
    input: Arc<dyn ExecutionPlan>,
    work: Work,
    metadata: HashMap<String, String>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// What is done to a batch.
#[derive(Clone, Debug)]
struct Work {
    cleaner: Arc<Cleaner>,
    not_finite: NotFinite,
    series: usize,
    schema: SchemaRef,
}

/// What was met in a partition.
#[derive(Clone)]
struct Tally {
    constant: Count,
    dropped: Count,
    zeroed: Count,
}

impl CleanExec {
    /// Cleans what `input` yields; `metadata` is that of the output's schema.
    ///
    /// # Errors
    /// An input whose series are not those that `cleaner` is for.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        cleaner: Arc<Cleaner>,
        not_finite: NotFinite,
        metadata: HashMap<String, String>,
    ) -> Result<Self, DataFusionError> {
        let columns = input.schema();
        let series = columns.index_of(SERIES_COLUMN)?;
        let fits = matches!(columns.field(series).data_type(), DataType::FixedSizeList(item, points)
            if item.data_type() == &DataType::Float32 && usize::try_from(*points) == Ok(cleaner.time_points()));
        if !fits {
            let found = columns.field(series).data_type();
            return internal_err!("series of {} points are cleaned, not {found}", cleaner.time_points());
        }
        let schema = Arc::new(Schema::new_with_metadata(columns.fields().clone(), metadata.clone()));
        let properties = Arc::new(properties(&input, series, &schema));
        let work = Work { cleaner, not_finite, series, schema };
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

impl Work {
    fn clean(&self, batch: &RecordBatch, tally: &Tally) -> Result<RecordBatch, DataFusionError> {
        let list = batch.column(self.series).as_any().downcast_ref::<FixedSizeListArray>();
        let list = list.ok_or_else(|| internal_datafusion_err!("{SERIES_COLUMN} is not a FixedSizeList"))?;
        let points = self.cleaner.time_points();
        let mut values = values(list, points)?;
        let report = self.cleaner.clean(&mut values).map_err(Error::from)?;
        // Rows without a series were cleaned as zeros and are of no account.
        let constant = report.constant.iter().filter(|row| list.is_valid(**row)).count();
        tally.constant.add(constant);

        let broken = &report.not_finite;
        if let (NotFinite::Error, Some(first)) = (self.not_finite, broken.first()) {
            let first = describe(batch, *first);
            return Err(Error::NotFinite { first, count: broken.len(), rows: batch.num_rows() }.into());
        }
        if self.not_finite == NotFinite::Zero {
            broken.iter().for_each(|row| values[row * points..(row + 1) * points].fill(0.0));
            tally.zeroed.add(broken.len());
        }
        let cleaned = self.with_series(batch, list, values)?;
        if self.not_finite == NotFinite::Drop && !broken.is_empty() {
            let mut kept = vec![true; batch.num_rows()];
            broken.iter().for_each(|row| kept[*row] = false);
            tally.dropped.add(broken.len());
            return Ok(filter_record_batch(&cleaned, &BooleanArray::from(kept))?);
        }
        Ok(cleaned)
    }

    fn with_series(
        &self,
        batch: &RecordBatch,
        list: &FixedSizeListArray,
        values: Vec<f32>,
    ) -> Result<RecordBatch, DataFusionError> {
        let DataType::FixedSizeList(item, points) = list.data_type() else {
            return internal_err!("{SERIES_COLUMN} is not a FixedSizeList");
        };
        let values: ArrayRef = Arc::new(Float32Array::from(values));
        let series = FixedSizeListArray::try_new(Arc::clone(item), *points, values, list.nulls().cloned())?;
        let mut columns = batch.columns().to_vec();
        columns[self.series] = Arc::new(series);
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// A copy of the series, `[rows, points]`: zeros where a row has none, NaN where a point is null.
fn values(list: &FixedSizeListArray, points: usize) -> Result<Vec<f32>, DataFusionError> {
    // `values` of a sliced list begins at its first row.
    let items = list.values().as_any().downcast_ref::<Float32Array>();
    let items = items.ok_or_else(|| internal_datafusion_err!("{SERIES_COLUMN} does not hold Float32"))?;
    let mut values = items.values().get(..list.len() * points).map(<[f32]>::to_vec).ok_or_else(|| {
        internal_datafusion_err!("{} values are fewer than {} series of {points}", items.len(), list.len())
    })?;
    if items.null_count() > 0 {
        values.iter_mut().enumerate().filter(|(n, _)| items.is_null(*n)).for_each(|(_, x)| *x = f32::NAN);
    }
    if list.null_count() > 0 {
        values
            .chunks_exact_mut(points)
            .enumerate()
            .filter(|(row, _)| list.is_null(*row))
            .for_each(|(_, series)| series.fill(0.0));
    }
    Ok(values)
}

/// A row by its key columns, for example `subject 01, run 1, voxel 4711`.
fn describe(batch: &RecordBatch, row: usize) -> String {
    let options = FormatOptions::default();
    let keys: Vec<String> = KEY_COLUMNS
        .iter()
        .filter_map(|name| Some((name, batch.column_by_name(name)?)))
        .filter(|(_, column)| column.is_valid(row))
        .filter_map(|(name, column)| {
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options).ok()?;
            Some(format!("{name} {}", formatter.value(row).try_to_string().ok()?))
        })
        .collect();
    if keys.is_empty() { format!("row {row} of the batch") } else { keys.join(", ") }
}

/// All that another process needs to clean the same.
#[derive(Serialize, Deserialize)]
struct Sent {
    settings: CleanSettings,
    time_points: usize,
    /// The bits of the number: one that was read from a header may have more digits than JSON keeps.
    t_r: Option<u64>,
    not_finite: NotFinite,
    metadata: BTreeMap<String, String>,
}

inventory::submit! { NodeCodec { name: NAME, encode, decode } }

fn encode(node: &dyn ExecutionPlan) -> Option<Result<Vec<u8>, DataFusionError>> {
    let exec = node.downcast_ref::<CleanExec>()?;
    let Work { cleaner, not_finite, .. } = &exec.work;
    let sent = Sent {
        settings: cleaner.settings().clone(),
        time_points: cleaner.time_points(),
        t_r: cleaner.t_r().map(f64::to_bits),
        not_finite: *not_finite,
        metadata: exec.metadata.clone().into_iter().collect(),
    };
    Some(write_settings(NAME, &sent))
}

fn decode(
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    _context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let Sent { settings, time_points, t_r, not_finite, metadata } = read_settings(NAME, bytes)?;
    let cleaner = Cleaner::try_new(&settings, time_points, t_r.map(f64::from_bits)).map_err(Error::from)?;
    let input = one_input(NAME, inputs)?;
    let metadata = metadata.into_iter().collect();
    Ok(Arc::new(CleanExec::try_new(input, Arc::new(cleaner), not_finite, metadata)?))
}

impl DisplayAs for CleanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.work.cleaner.describe();
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
                Arc::clone(&self.work.cleaner),
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
        let input = self.input.execute(partition, context)?;
        // Shared, since the first clone that is dropped would end its clock.
        let baseline = Arc::new(BaselineMetrics::new(&self.metrics, partition));
        let count = |name, reason| ledger_counter(&self.metrics, name, reason, partition);
        let tally = Tally {
            constant: count("constant_series", "no variance: left at zero"),
            dropped: count("dropped_series", "NaN or infinity: row left out"),
            zeroed: count("zeroed_series", "NaN or infinity: set to zero"),
        };
        let work = self.work.clone();
        let cleaned = input.and_then(move |batch| {
            let (work, tally, baseline) = (work.clone(), tally.clone(), Arc::clone(&baseline));
            async move {
                let task = SpawnedTask::spawn_blocking(move || -> Result<RecordBatch, DataFusionError> {
                    let _timer = baseline.elapsed_compute().timer();
                    let cleaned = work.clean(&batch, &tally)?;
                    baseline.record_output(cleaned.num_rows());
                    Ok(cleaned)
                });
                task.join_unwind().await.map_err(|e| exec_datafusion_err!("cleaning was stopped: {e}"))?
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), cleaned)))
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
