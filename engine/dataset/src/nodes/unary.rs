//! What the operators of this crate have in common: one input, as many partitions as it has, settings that can
//! be written down.
//!
//! ```text
//!   in process            on a cluster, where a task holds some partitions only
//!   Operator              Operator
//!     input                 input
//!                           places: one row a partition, which says what partition it is of the whole
//! ```
//!
//! Whoever narrows a plan to some partitions narrows `places` with the input, so an operator knows its partition's
//! number wherever it runs.

use super::only_child;
use crate::node_codec::{read_settings, write_settings};
use arrow::{
    array::{AsArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{Statistics, tree_node::TreeNodeRecursion},
    datasource::memory::MemorySourceConfig,
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, OrderingRequirements, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
        InputDistributionRequirements, Partitioning, PlanProperties, SendableRecordBatchStream,
        execution_plan::{CardinalityEffect, EmissionType},
        metrics::{ExecutionPlanMetricsSet, MetricsSet},
        statistics::{ChildStats, StatisticsArgs},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    sync::{Arc, LazyLock},
};

/// Settings of an operator, and what it does with a partition.
pub trait UnaryOperator: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The operator's name in plans.
    const NAME: &'static str;

    /// Whether it can work on such rows.
    ///
    /// # Errors
    /// What is wrong, found when the plan is made or received.
    fn check(&self, input: &SchemaRef) -> Result<()> {
        let _ = input;
        Ok(())
    }

    /// Columns that it gives for rows of `input`.
    fn schema(&self, input: &SchemaRef) -> SchemaRef;

    /// What plans show after the name.
    ///
    /// # Errors
    /// The formatter's.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Whether it gives the rows of its input, all of them and no others, as they are: then what is known of them before
    /// they are read is known of what it gives.
    fn keeps_rows(&self) -> bool {
        false
    }

    /// How rows must be spread over partitions before.
    fn distribution(&self) -> Distribution {
        Distribution::UnspecifiedDistribution
    }

    /// How rows must be ordered before.
    fn ordering(&self) -> Option<OrderingRequirements> {
        None
    }

    /// Expressions over the input.
    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    /// The rows of one partition.
    ///
    /// # Errors
    /// Settings that this process cannot follow.
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream>;

    /// The settings with all that another process needs.
    ///
    /// # Errors
    /// What cannot be sent, and why.
    fn to_send(&self) -> Result<Self> {
        Ok(self.clone())
    }
}

/// A partition of the whole plan, which may run in parts in several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub partition: usize,
    /// Partitions of the step.
    pub partitions: usize,
}

/// One partition about to run.
pub struct UnaryTask {
    /// Rows that come in.
    pub rows: SendableRecordBatchStream,
    /// What they come from.
    pub input: Arc<dyn ExecutionPlan>,
    /// Which partition it is.
    pub place: Place,
    /// Its number in this process: for metrics.
    pub metrics_partition: usize,
    /// Columns to give.
    pub schema: SchemaRef,
    /// The session.
    pub context: Arc<TaskContext>,
    /// Where to count.
    pub metrics: ExecutionPlanMetricsSet,
}

/// An operator over its input.
#[derive(Debug)]
pub struct UnaryExec<T> {
    operator: T,
    input: Arc<dyn ExecutionPlan>,
    places: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<T: UnaryOperator> UnaryExec<T> {
    /// `operator` over `input`.
    ///
    /// # Errors
    /// Rows that the operator cannot work on.
    pub fn try_new(operator: T, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        operator.check(&input.schema())?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(operator.schema(&input.schema())),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            input.properties().boundedness,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { operator, input, places: None, properties: Arc::new(properties), metrics })
    }

    /// The settings.
    pub fn operator(&self) -> &T {
        &self.operator
    }

    /// The input.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// The same, ready to be run in parts.
    ///
    /// # Errors
    /// Those of memory tables.
    pub fn with_places(&self) -> Result<Self> {
        let places = places(self.input.output_partitioning().partition_count())?;
        Ok(Self { places: Some(places), ..Self::try_new(self.operator.clone(), Arc::clone(&self.input))? })
    }

    fn of(operator: T, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Self> {
        let places = if children.len() == 2 { children.pop() } else { None };
        Ok(Self { places, ..Self::try_new(operator, only_child(children, T::NAME)?)? })
    }
}

/// Whether the node already is ready to be run in parts, if it is a `UnaryExec<T>`; made so otherwise.
pub(crate) fn placed<T: UnaryOperator>(plan: &dyn ExecutionPlan) -> Option<Result<Arc<dyn ExecutionPlan>>> {
    let exec = plan.downcast_ref::<UnaryExec<T>>().filter(|exec| exec.places.is_none())?;
    Some(exec.with_places().map(|placed| Arc::new(placed) as Arc<dyn ExecutionPlan>))
}

/// [`NodeCodec::encode`](crate::NodeCodec) of an operator.
pub fn encode<T: UnaryOperator>(plan: &dyn ExecutionPlan) -> Option<Result<Vec<u8>>> {
    let exec = plan.downcast_ref::<UnaryExec<T>>()?;
    Some(exec.operator.to_send().and_then(|operator| write_settings(T::NAME, &operator)))
}

/// [`NodeCodec::decode`](crate::NodeCodec) of an operator.
///
/// # Errors
/// Damaged settings, or rows that the operator cannot work on.
pub fn decode<T: UnaryOperator>(
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    _context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let operator: T = read_settings(T::NAME, bytes)?;
    Ok(Arc::new(UnaryExec::of(operator, inputs.to_vec())?))
}

impl<T: UnaryOperator> DisplayAs for UnaryExec<T> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: ", T::NAME)?;
        self.operator.describe(f)
    }
}

impl<T: UnaryOperator> ExecutionPlan for UnaryExec<T> {
    fn name(&self) -> &str {
        T::NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        std::iter::once(&self.input).chain(&self.places).collect()
    }
    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let places = self.places.iter().map(|_| Distribution::UnspecifiedDistribution);
        InputDistributionRequirements::new(
            std::iter::once(self.operator.distribution()).chain(places).collect(),
        )
    }
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        std::iter::once(self.operator.ordering()).chain(self.places.iter().map(|_| None)).collect()
    }
    /// The partitions are the user's.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }
    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expression in self.operator.expressions() {
            if f(&expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::of(self.operator.clone(), children)?))
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        let input = if self.operator.keeps_rows() { ChildStats::At(partition) } else { ChildStats::Skip };
        std::iter::once(input).chain(self.places.iter().map(|_| ChildStats::Skip)).collect()
    }
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs.first().filter(|_| self.operator.keeps_rows()) {
            Some(input) => Ok(Arc::clone(input)),
            None => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
    fn cardinality_effect(&self) -> CardinalityEffect {
        if self.operator.keeps_rows() { CardinalityEffect::Equal } else { CardinalityEffect::Unknown }
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let task = UnaryTask {
            rows: self.input.execute(partition, Arc::clone(&context))?,
            input: Arc::clone(&self.input),
            place: Place { partition, partitions: self.properties.partitioning.partition_count() },
            metrics_partition: partition,
            schema: self.schema(),
            context: Arc::clone(&context),
            metrics: self.metrics.clone(),
        };
        let Some(places) = &self.places else { return self.operator.run(task) };
        let (operator, mut place) = (self.operator.clone(), places.execute(partition, context)?);
        let rows = stream::once(async move {
            let place = read_place(&mut place).await?;
            operator.run(UnaryTask { place, ..task })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.try_flatten())))
    }
}

static PLACE: LazyLock<SchemaRef> = LazyLock::new(|| {
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    Arc::new(Schema::new(vec![number("partition"), number("partitions")]))
});

/// One row a partition: its number, and how many there are.
fn places(partitions: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let row = |partition: usize| -> Result<Vec<RecordBatch>> {
        let number = |n: usize| Arc::new(UInt64Array::from(vec![n as u64])) as _;
        Ok(vec![RecordBatch::try_new(Arc::clone(&PLACE), vec![number(partition), number(partitions)])?])
    };
    let rows = (0..partitions).map(row).collect::<Result<Vec<_>>>()?;
    Ok(MemorySourceConfig::try_new_exec(&rows, Arc::clone(&PLACE), None)?)
}

async fn read_place(rows: &mut SendableRecordBatchStream) -> Result<Place> {
    let unknown = || DataFusionError::Plan("a partition was received without its number".into());
    while let Some(batch) = rows.next().await.transpose()? {
        if batch.num_rows() == 0 {
            continue;
        }
        let number = |column: usize| {
            let numbers = batch.columns().get(column)?.as_primitive_opt::<UInt64Type>()?;
            usize::try_from(numbers.value(0)).ok()
        };
        let (Some(partition), Some(partitions)) = (number(0), number(1)) else { return Err(unknown()) };
        return Ok(Place { partition, partitions });
    }
    Err(unknown())
}
