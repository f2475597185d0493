//! A running number over all rows: partition by partition, in their order.
//!
//! Where there is one partition, rows are numbered as they pass. With more, a partition starts at the sum of
//! the row counts of those before it, so these are counted first (by running the input once more, counting
//! only), as Spark does. The counts are checked when the rows pass: an input that is not the same twice is
//! refused rather than numbered wrongly.

use super::{
    only_input,
    unary::{self, UnaryExec, UnaryOperator, UnaryTask},
};
use crate::{functions::Accumulators, node_codec::NodeCodec};
use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{DFSchema, DFSchemaRef},
    error::{DataFusionError, Result},
    execution::TaskContext,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream, execution_plan::reset_plan_states,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
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

    pub(super) fn execution(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let operator = ZipWithIndex { column: self.column.clone(), spans: None, counted: Arc::default() };
        Ok(Arc::new(UnaryExec::try_new(operator, input)?))
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
pub type ZipWithIndexExec = UnaryExec<ZipWithIndex>;

/// Settings of [`ZipWithIndexExec`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZipWithIndex {
    column: String,
    /// Where each partition starts and how many rows it was counted to have.
    spans: Option<Vec<Span>>,
    /// The same, counted by the partition that comes first where they were not told.
    #[serde(skip)]
    counted: Arc<OnceCell<Vec<Span>>>,
}

/// The numbers of one partition's rows; a partition that is alone is not counted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Span {
    start: u64,
    counted: Option<u64>,
}

inventory::submit! {
    NodeCodec {
        name: ZipWithIndex::NAME,
        encode: unary::encode::<ZipWithIndex>,
        decode: unary::decode::<ZipWithIndex>,
    }
}

impl ZipWithIndex {
    /// Whether somebody who sees all partitions must count them before: not when a partition is alone.
    pub(crate) fn must_be_counted(&self, partitions: usize) -> bool {
        self.spans.is_none() && partitions > 1
    }

    /// The same, with the rows of each partition told.
    pub(crate) fn counted(&self, rows: Vec<u64>) -> Self {
        Self { spans: Some(spans(rows)), ..self.clone() }
    }
}

impl UnaryOperator for ZipWithIndex {
    const NAME: &'static str = "ZipWithIndexExec";

    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        Arc::new(with_index(input, &self.column))
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.column)
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let UnaryTask { rows, input, place, schema, context, .. } = task;
        let (told, counted) = (self.spans.clone(), Arc::clone(&self.counted));
        let output = Arc::clone(&schema);
        let numbered = stream::once(async move {
            let spans = match &told {
                Some(spans) => spans,
                None if place.partitions == 1 => &vec![Span { start: 0, counted: None }],
                None => counted.get_or_try_init(|| count_partitions(input, context)).await?,
            };
            let span = spans.get(place.partition).copied().ok_or_else(|| {
                let (partition, counted) = (place.partition, spans.len());
                DataFusionError::Execution(format!(
                    "zip_with_index: partition {partition} was not counted, only {counted} were: `persist` its input"
                ))
            })?;
            Ok::<_, DataFusionError>(number(rows, span, place.partition, output))
        })
        .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, numbered)))
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
    let copy = reset_plan_states(input)?;
    // What functions add up must not be added twice: the counting pass adds to accumulators of its own.
    let context = Arc::new(Accumulators::default()).in_place_of_session(&context);
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
    Ok(spans(counts))
}

fn spans(counts: Vec<u64>) -> Vec<Span> {
    let mut start = 0;
    let spans = counts.into_iter().map(|count| {
        let span = Span { start, counted: Some(count) };
        start += count;
        span
    });
    spans.collect()
}
