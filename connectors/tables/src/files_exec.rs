//! The plan node that reads files of series: one partition a file, or, where a plan is run in parts, one partition a
//! row of `numbers`, which says which file it is.

use crate::not_finite::note_not_finite;
use crate::travel::file_number;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Statistics, stats::Precision, tree_node::TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, expressions::Column};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;
use voxelflow_dataset::LedgerNotes;

/// Bytes of series in a batch, unless one series alone is longer.
const BATCH_BYTES: usize = 4 << 20;

/// Rows of a batch of series of `points` values.
pub(crate) fn batch_rows(points: usize, context: &TaskContext) -> usize {
    (BATCH_BYTES / (4 * points.max(1))).clamp(1, context.session_config().batch_size().max(1))
}

/// What is read of which files: the part of the node that differs by format.
pub trait FileRows: Clone + fmt::Debug + Send + Sync + 'static {
    /// The node's name in plans.
    const NODE: &'static str;

    /// The columns that are read.
    fn schema(&self) -> &SchemaRef;

    /// How many files there are.
    fn files(&self) -> usize;

    /// The column by which the rows of a file are sorted, if it is read.
    fn sorted_by(&self) -> Option<usize>;

    /// Rows of a file, where that is known before it is read.
    fn rows(&self, file: usize) -> Option<usize>;

    /// Rows of a file that are read at most.
    fn limit(&self) -> Option<usize>;

    /// What plans show beside files and columns, with a comma after it.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads a file; what is done to its values goes to `notes`.
    ///
    /// # Errors
    /// A number that no file has.
    fn read(
        &self,
        file: usize,
        context: Arc<TaskContext>,
        notes: &Arc<LedgerNotes>,
    ) -> PlanResult<SendableRecordBatchStream>;
}

/// Reads the files of a table.
#[derive(Debug)]
pub struct FilesExec<R> {
    reader: R,
    numbers: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    /// What is for the ledger.
    metrics: ExecutionPlanMetricsSet,
}

impl<R: FileRows> FilesExec<R> {
    pub(crate) fn new(reader: R, numbers: Option<Arc<dyn ExecutionPlan>>) -> Self {
        let mut equivalence = EquivalenceProperties::new(Arc::clone(reader.schema()));
        if let Some(at) = reader.sorted_by() {
            let name = reader.schema().field(at).name();
            equivalence.add_ordering([PhysicalSortExpr::new_default(Arc::new(Column::new(name, at)))]);
        }
        let partitions = match &numbers {
            Some(numbers) => numbers.output_partitioning().partition_count(),
            None => reader.files(),
        };
        let properties = Arc::new(PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { reader, numbers, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    pub(crate) fn reader(&self) -> &R {
        &self.reader
    }

    pub(crate) fn numbers(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        self.numbers.as_ref()
    }
}

impl<R: FileRows> DisplayAs for FilesExec<R> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.reader.schema().fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, "{}: files={}, ", R::NODE, self.reader.files())?;
        self.reader.describe(f)?;
        write!(f, "columns=[{}]", names.join(", "))?;
        self.reader.limit().map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl<R: FileRows> ExecutionPlan for FilesExec<R> {
    fn name(&self) -> &'static str {
        R::NODE
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.numbers.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.reader.clone(), children.pop())))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.reader.clone(), children.pop())))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(self.reader.schema());
        let rows: Option<usize> = match args.partition() {
            // Which files they are is in the rows of `numbers`.
            _ if self.numbers.is_some() => None,
            Some(partition) => self.reader.rows(partition),
            None => (0..self.reader.files()).map(|file| self.reader.rows(file)).sum(),
        };
        statistics.num_rows = rows.map_or(Precision::Absent, Precision::Exact);
        Ok(Arc::new(statistics))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let numbers =
            self.numbers.as_ref().map(|n| n.execute(partition, Arc::clone(&context))).transpose()?;
        let reader = self.reader.clone();
        let notes = LedgerNotes::new(&self.metrics, partition);
        let (read, noted) = (Arc::clone(&notes), Arc::clone(&notes));
        // A file is opened when its rows are asked for: of a table of many, a few are read at a time.
        let rows = stream::once(async move {
            let file = match numbers {
                Some(numbers) => file_number(numbers).await?,
                None => partition,
            };
            reader.read(file, context, &read)
        });
        let rows = rows.try_flatten();
        let rows = rows.map(move |batch| batch.and_then(|b| note_not_finite(&noted, &b).map(|()| b)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), notes.until_end(rows))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
