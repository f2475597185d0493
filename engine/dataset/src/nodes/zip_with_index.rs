//! A running number over all rows: partition by partition, in their order.
//!
//! Where there is one partition, rows are numbered as they pass. With more, a partition starts at the sum of
//! the row counts of those before it, so these are counted first (by running the input once more, counting
//! only), as Spark does. The counts are checked when the rows pass: an input that is not the same twice is
//! refused rather than numbered wrongly.

use super::{only_child, only_input, unordered};
use crate::functions::Accumulators;
use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{DFSchema, DFSchemaRef, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::TaskContext,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        SendableRecordBatchStream, execution_plan::reset_plan_states, stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use std::{cmp::Ordering, fmt, sync::Arc};
use tokio::{sync::OnceCell, task::JoinSet};

/// `zip_with_index(name)`: one more column, UInt64, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZipWithIndexNode {
    column: String,
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl ZipWithIndexNode {
    /// `input` and the column `column`.
    ///
    /// # Errors
    /// A column that is there already.
    pub fn try_new(input: LogicalPlan, column: &str) -> Result<Self> {
        let schema = with_index(input.schema().as_arrow(), column);
        if input.schema().field_with_unqualified_name(column).is_ok() {
            return Err(DataFusionError::Plan(format!("there is a column `{column}` already")));
        }
        Ok(Self { column: column.to_owned(), input, schema: Arc::new(DFSchema::try_from(schema)?) })
    }

    pub(super) fn execution(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(ZipWithIndexExec::new(input, &self.column))
    }
}

fn with_index(schema: &Schema, column: &str) -> Schema {
    let index = Arc::new(Field::new(column, DataType::UInt64, false));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([index]).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

impl PartialOrd for ZipWithIndexNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.column, &self.input).partial_cmp(&(&other.column, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for ZipWithIndexNode {
    fn name(&self) -> &str {
        "ZipWithIndex"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ZipWithIndex: {}", self.column)
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Self::try_new(only_input(inputs, self.name())?, &self.column)
    }
}

/// Executes [`ZipWithIndexNode`].
#[derive(Debug)]
pub struct ZipWithIndexExec {
    column: String,
    input: Arc<dyn ExecutionPlan>,
    /// Where each partition starts and how many rows it was counted to have; counted once for all partitions.
    spans: Arc<OnceCell<Vec<Span>>>,
    properties: Arc<PlanProperties>,
}

/// The numbers of one partition's rows; a partition that is alone is not counted.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    counted: Option<u64>,
}

impl ZipWithIndexExec {
    /// `input` and its index as `column`.
    pub fn new(input: Arc<dyn ExecutionPlan>, column: &str) -> Self {
        let schema = Arc::new(with_index(&input.schema(), column));
        let properties = unordered(schema, input.output_partitioning().partition_count(), &input);
        Self { column: column.to_owned(), input, spans: Arc::default(), properties }
    }
}

impl DisplayAs for ZipWithIndexExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ZipWithIndexExec: {}", self.column)
    }
}

impl ExecutionPlan for ZipWithIndexExec {
    fn name(&self) -> &str {
        "ZipWithIndexExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    /// More partitions would only mean more to count.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }
    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(only_child(children, self.name())?, &self.column)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        let (input, spans, schema) = (Arc::clone(&self.input), Arc::clone(&self.spans), self.schema());
        let numbered = stream::once(async move {
            let spans = spans.get_or_try_init(|| count_partitions(input, context)).await?;
            let span = spans.get(partition).copied().unwrap_or(Span { start: 0, counted: None });
            Ok::<_, DataFusionError>(number(rows, span, partition, schema))
        })
        .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), numbered)))
    }
}

/// Rows with their numbers, and an error at the end if there were not as many as counted.
fn number(
    rows: SendableRecordBatchStream,
    span: Span,
    partition: usize,
    schema: SchemaRef,
) -> impl futures::Stream<Item = Result<RecordBatch>> {
    stream::try_unfold((rows, 0_u64), move |(mut rows, seen)| {
        let schema = Arc::clone(&schema);
        async move {
            let Some(batch) = rows.next().await.transpose()? else {
                return match span.counted {
                    Some(counted) if counted != seen => Err(DataFusionError::Execution(format!(
                        "zip_with_index: partition {partition} had {counted} rows when counted and {seen} when \
                         read; its input is not the same twice: `persist` it before"
                    ))),
                    _ => Ok(None),
                };
            };
            let first = span.start + seen;
            let length = batch.num_rows() as u64;
            let mut columns = batch.columns().to_vec();
            columns.push(Arc::new(UInt64Array::from_iter_values(first..first + length)));
            Ok(Some((RecordBatch::try_new(schema, columns)?, (rows, seen + length))))
        }
    })
}

/// Counts the rows of all partitions side by side, on a copy of the plan.
async fn count_partitions(input: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Vec<Span>> {
    let partitions = input.output_partitioning().partition_count();
    if partitions == 1 {
        return Ok(vec![Span { start: 0, counted: None }]);
    }
    let copy = reset_plan_states(input)?;
    // What functions add up must not be added twice: the counting pass adds to accumulators of its own.
    let config = context.session_config().clone().with_extension(Arc::new(Accumulators::default()));
    let context = Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ));
    let mut tasks = JoinSet::new();
    // All partitions are run: operators below may wait until each of their outputs is read.
    for partition in 0..partitions {
        let mut rows = copy.execute(partition, Arc::clone(&context))?;
        tasks.spawn(async move {
            let mut count = 0;
            while let Some(batch) = rows.next().await {
                count += batch?.num_rows() as u64;
            }
            Ok::<_, DataFusionError>((partition, count))
        });
    }
    let mut counts = vec![0; partitions];
    while let Some(done) = tasks.join_next().await {
        let (partition, count) = done.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
        counts[partition] = count;
    }
    let mut start = 0;
    let spans = counts.into_iter().map(|count| {
        let span = Span { start, counted: Some(count) };
        start += count;
        span
    });
    Ok(spans.collect())
}
