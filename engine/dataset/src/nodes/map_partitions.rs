//! A named function over the batches of every partition, streamed: one batch is in hand at a time.

use super::{
    only_input,
    unary::{self, Place, UnaryExec, UnaryOperator, UnaryTask},
};
use crate::{
    Error,
    functions::{
        Accumulators, BoundFunction, Broadcasts, CarriedBroadcasts, FunctionCall, FunctionContext,
        publish_totals,
    },
    node_codec::{NodeCodec, WireSchema},
};
use arrow::{
    datatypes::{Field, FieldRef, Schema, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use datafusion::{
    common::{DFSchema, DFSchemaRef},
    error::Result,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_plan::{
        ExecutionPlan, SendableRecordBatchStream,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, collections::VecDeque, fmt, sync::Arc};

/// `map_partitions`, `flat_map` and `foreach_partition`: they differ in the batches that a function gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapPartitionsNode {
    pub(crate) call: FunctionCall,
    /// The function is called for its effect; what it gives is dropped.
    pub(crate) discard: bool,
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl MapPartitionsNode {
    /// Rows of `schema` from `input`'s.
    pub(crate) fn try_new(
        input: LogicalPlan,
        call: FunctionCall,
        schema: &Schema,
        discard: bool,
    ) -> Result<Self> {
        let schema = Arc::new(DFSchema::try_from(schema.clone())?);
        Ok(Self { call, discard, input, schema })
    }

    pub(super) fn execution(
        &self,
        input: Arc<dyn ExecutionPlan>,
        broadcasts: CarriedBroadcasts,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = WireSchema(Arc::new(self.schema.as_arrow().clone()));
        let operator = MapPartitions { call: self.call.clone(), discard: self.discard, schema, broadcasts };
        Ok(Arc::new(UnaryExec::try_new(operator, input)?))
    }
}

impl PartialOrd for MapPartitionsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.call, &self.input).partial_cmp(&(&other.call, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for MapPartitionsNode {
    fn name(&self) -> &str {
        "MapPartitions"
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
        write!(f, "MapPartitions: {} {}", self.call.display_name(), self.call.arguments)
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { input: only_input(inputs, self.name())?, ..self.clone() })
    }
}

/// Executes [`MapPartitionsNode`].
pub type MapPartitionsExec = UnaryExec<MapPartitions>;

/// Settings of [`MapPartitionsExec`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapPartitions {
    call: FunctionCall,
    discard: bool,
    schema: WireSchema,
    broadcasts: CarriedBroadcasts,
}

inventory::submit! {
    NodeCodec {
        name: MapPartitions::NAME,
        encode: unary::encode::<MapPartitions>,
        decode: unary::decode::<MapPartitions>,
    }
}

impl UnaryOperator for MapPartitions {
    const NAME: &'static str = "MapPartitionsExec";

    fn check(&self, _input: &SchemaRef) -> Result<()> {
        Ok(self.call.resolve().map(drop)?)
    }
    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        Arc::clone(&self.schema.0)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.display_name())
    }
    fn to_send(&self) -> Result<Self> {
        Ok(Self { broadcasts: self.broadcasts.filled(&self.call)?, ..self.clone() })
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let caller = Caller::new(self.call.resolve()?, self.broadcasts.open(), &task);
        let metrics = BaselineMetrics::new(&task.metrics, task.metrics_partition);
        let mapped = map_stream(task.rows, caller, self.discard);
        let counted = mapped.inspect_ok(move |batch| metrics.record_output(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, counted)))
    }
}

fn map_stream(
    input: SendableRecordBatchStream,
    caller: Caller,
    discard: bool,
) -> impl Stream<Item = Result<RecordBatch>> {
    let start = (input, caller, VecDeque::new());
    stream::try_unfold(start, move |(mut input, mut caller, mut ready)| async move {
        loop {
            if let Some(batch) = ready.pop_front() {
                return Ok(Some((batch, (input, caller, ready))));
            }
            match input.next().await {
                None => return Ok(None),
                Some(Err(e)) => {
                    caller.fail();
                    return Err(e);
                }
                Some(Ok(batch)) if discard => caller.call_for_effect(batch)?,
                Some(Ok(batch)) => ready.extend(caller.call(batch)?),
            }
            // A function may take long, and its rows may always be there: a task that was cancelled ends here.
            tokio::task::yield_now().await;
        }
    })
}

/// Calls a function for one partition and says which partition and function it was if that fails.
pub(super) struct Caller {
    function: BoundFunction,
    context: FunctionContext,
    accumulators: Option<Arc<Accumulators>>,
    schema: SchemaRef,
    place: Place,
    metrics: (ExecutionPlanMetricsSet, usize),
    failed: bool,
}

impl Caller {
    pub(super) fn new(
        function: BoundFunction,
        broadcasts: Option<Arc<Broadcasts>>,
        task: &UnaryTask,
    ) -> Self {
        Self {
            function,
            context: FunctionContext::new(broadcasts).of_task(&task.context),
            accumulators: task.context.session_config().get_extension::<Accumulators>(),
            schema: Arc::clone(&task.schema),
            place: task.place,
            metrics: (task.metrics.clone(), task.metrics_partition),
            failed: false,
        }
    }

    /// The partition has failed: what its functions added is not to be counted.
    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    fn call_for_effect(&mut self, batch: RecordBatch) -> Result<()> {
        let outcome = self.function.call(batch, &self.context);
        outcome.map(drop).map_err(|reason| self.failure(reason))
    }

    /// The function's batches, all of the planned schema, the empty ones dropped.
    pub(super) fn call(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let batches = self.function.call(batch, &self.context).map_err(|reason| self.failure(reason))?;
        let filled = batches.into_iter().filter(|b| b.num_rows() > 0);
        filled.map(|b| with_schema(b, &self.schema).map_err(|reason| self.failure(reason))).collect()
    }

    fn failure(&mut self, reason: String) -> datafusion::error::DataFusionError {
        self.fail();
        let function = self.function.registration;
        let error = Error::Function {
            partition: self.place.partition,
            partitions: self.place.partitions,
            function: function.short_name().to_owned(),
            location: function.location(),
            reason,
        };
        error.into()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        match &self.accumulators {
            _ if self.failed => {}
            Some(accumulators) => accumulators.merge(&self.context.totals),
            // The driver's sums are in another process: they come to it as metrics.
            None => publish_totals(&self.context.totals, &self.metrics.0, self.metrics.1),
        }
    }
}

/// `batch` under `schema`, which adds the metadata that a function's own schema lacks.
fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let given = batch.schema();
    let same = given.fields().len() == schema.fields().len()
        && given
            .fields()
            .iter()
            .zip(schema.fields())
            .all(|(g, s)| g.name() == s.name() && g.data_type() == s.data_type());
    if !same {
        return Err(format!(
            "it gave the columns {}, but for an empty batch it gave {}: it must give the same for every batch",
            columns(&given),
            columns(schema)
        ));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
        .map_err(|e| e.to_string())
}

fn columns(schema: &Schema) -> String {
    let all: Vec<String> =
        schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
    format!("({})", all.join(", "))
}

/// The schema that `call` gives for rows of `input`: that of its answer to an empty batch. Metadata that the
/// function does not set are the input's.
pub(crate) fn output_schema(
    call: &FunctionCall,
    input: &SchemaRef,
    broadcasts: &Arc<Broadcasts>,
) -> crate::Result<Schema> {
    let function = call.resolve()?;
    let context = FunctionContext::new(Some(Arc::clone(broadcasts)));
    let (name, location) = (function.registration.short_name(), function.registration.location());
    let refuse = |reason: &str| {
        let reason = format!(
            "function `{name}` at {location}, called with an empty batch to learn its columns: {reason}; \
             let it accept an empty batch, or give the schema with `map_partitions_to`"
        );
        Error::plan("map_partitions", reason)
    };
    let batches = function
        .call(RecordBatch::new_empty(Arc::clone(input)), &context)
        .map_err(|reason| refuse(&reason))?;
    let schema = batches.first().ok_or_else(|| refuse("it gave no batch"))?.schema();
    let fields: Vec<_> = schema.fields().iter().map(|field| nullable_like(field, input)).collect();
    let mut metadata = input.metadata().clone();
    metadata.extend(schema.metadata().clone());
    Ok(Schema::new_with_metadata(fields, metadata))
}

/// Whether a column holds nulls does not show in an empty batch: a column of the input keeps what it was, a
/// new one may.
fn nullable_like(field: &FieldRef, input: &Schema) -> FieldRef {
    let before = input.field_with_name(field.name()).ok().filter(|f| f.data_type() == field.data_type());
    let nullable = field.is_nullable() || before.is_none_or(Field::is_nullable);
    Arc::new(field.as_ref().clone().with_nullable(nullable))
}
