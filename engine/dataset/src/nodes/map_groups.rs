//! A named function over all rows that share a key: the rows are brought together by hash, sorted by key
//! within their partition, and handed over group by group.

use super::{map_partitions::Caller, only_child, only_input};
use crate::functions::FunctionCall;
use arrow::{
    array::ArrayRef,
    compute::concat_batches,
    datatypes::{Schema, SchemaRef},
    record_batch::RecordBatch,
    row::{OwnedRow, RowConverter, SortField},
};
use datafusion::physical_expr::OrderingRequirements;
use datafusion::{
    common::{DFSchema, DFSchemaRef, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::TaskContext,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_expr::{
        EquivalenceProperties, LexRequirement, PhysicalExpr, PhysicalSortRequirement, expressions::Column,
    },
    physical_plan::{
        DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
        InputDistributionRequirements, Partitioning, PlanProperties, SendableRecordBatchStream,
        execution_plan::EmissionType, stream::RecordBatchStreamAdapter,
    },
};
use futures::{Stream, StreamExt, stream};
use std::{cmp::Ordering, collections::VecDeque, fmt, sync::Arc};

/// Rows of one group that are gathered before a folding function is called on them.
const FOLD_ROWS: usize = 65_536;

/// `map_groups` and, with `fold`, `reduce_by_key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapGroupsNode {
    keys: Vec<String>,
    call: FunctionCall,
    /// The function may be called on its own answers, so that a large group need not be held.
    fold: bool,
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl MapGroupsNode {
    /// The groups of `input` by the columns `keys`.
    pub(crate) fn try_new(
        input: LogicalPlan,
        keys: &[&str],
        call: FunctionCall,
        schema: &Schema,
        fold: bool,
    ) -> Result<Self> {
        let schema = Arc::new(DFSchema::try_from(schema.clone())?);
        Ok(Self { keys: keys.iter().map(|k| (*k).to_owned()).collect(), call, fold, input, schema })
    }

    pub(super) fn execution(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let keys: Result<Vec<Column>> =
            self.keys.iter().map(|k| Column::new_with_schema(k, &input.schema())).collect();
        let schema = Arc::new(self.schema.as_arrow().clone());
        Ok(Arc::new(MapGroupsExec::try_new(input, keys?, self.call.clone(), schema, self.fold)?))
    }
}

impl PartialOrd for MapGroupsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.keys, &self.call, &self.input).partial_cmp(&(&other.keys, &other.call, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for MapGroupsNode {
    fn name(&self) -> &str {
        "MapGroups"
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
        write!(
            f,
            "MapGroups: by {} {} {}",
            self.keys.join(", "),
            self.call.display_name(),
            self.call.arguments
        )
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { input: only_input(inputs, self.name())?, ..self.clone() })
    }
}

/// Executes [`MapGroupsNode`].
#[derive(Debug)]
pub struct MapGroupsExec {
    keys: Vec<Column>,
    call: FunctionCall,
    fold: bool,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl MapGroupsExec {
    pub(crate) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<Column>,
        call: FunctionCall,
        schema: SchemaRef,
        fold: bool,
    ) -> Result<Self> {
        call.resolve()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            input.properties().boundedness,
        );
        Ok(Self { keys, call, fold, input, properties: Arc::new(properties) })
    }

    fn key_expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.keys.iter().map(|k| Arc::new(k.clone()) as Arc<dyn PhysicalExpr>).collect()
    }
}

impl DisplayAs for MapGroupsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let keys: Vec<&str> = self.keys.iter().map(Column::name).collect();
        write!(f, "MapGroupsExec: by {} {}", keys.join(", "), self.call.display_name())
    }
}

impl ExecutionPlan for MapGroupsExec {
    fn name(&self) -> &str {
        "MapGroupsExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::KeyPartitioned(self.key_expressions())])
    }
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let by = self.key_expressions().into_iter().map(|key| PhysicalSortRequirement::new(key, None));
        vec![LexRequirement::new(by).map(OrderingRequirements::new)]
    }
    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for key in self.key_expressions() {
            if f(&key)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = only_child(children, self.name())?;
        Ok(Arc::new(Self::try_new(input, self.keys.clone(), self.call.clone(), self.schema(), self.fold)?))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = self.properties.partitioning.partition_count();
        let caller = Caller::new(self.call.resolve()?, self.schema(), partition, partitions, &context);
        let rows = self.input.execute(partition, context)?;
        let groups = Groups::try_new(caller, &self.keys, self.input.schema(), self.fold)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), group_stream(rows, groups))))
    }
}

fn group_stream(rows: SendableRecordBatchStream, groups: Groups) -> impl Stream<Item = Result<RecordBatch>> {
    let start = (Some(rows), groups, VecDeque::new());
    stream::try_unfold(start, |(mut rows, mut groups, mut ready)| async move {
        loop {
            if let Some(batch) = ready.pop_front() {
                return Ok(Some((batch, (rows, groups, ready))));
            }
            let Some(open) = rows.as_mut() else { return Ok(None) };
            match open.next().await {
                Some(Ok(batch)) => groups.push(&batch, &mut ready)?,
                Some(Err(e)) => {
                    groups.caller.fail();
                    return Err(e);
                }
                None => {
                    rows = None;
                    groups.close(&mut ready)?;
                }
            }
        }
    })
}

/// The group whose rows are coming in; rows are sorted by key, so there is one at a time.
struct Groups {
    caller: Caller,
    converter: RowConverter,
    keys: Vec<usize>,
    schema: SchemaRef,
    fold: bool,
    current: Option<OwnedRow>,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
}

impl Groups {
    fn try_new(caller: Caller, keys: &[Column], schema: SchemaRef, fold: bool) -> Result<Self> {
        let keys: Vec<usize> = keys.iter().map(Column::index).collect();
        let fields = keys.iter().map(|k| SortField::new(schema.field(*k).data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        Ok(Self {
            caller,
            converter,
            keys,
            schema,
            fold,
            current: None,
            pending: Vec::new(),
            pending_rows: 0,
        })
    }

    fn push(&mut self, batch: &RecordBatch, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        let columns: Vec<ArrayRef> = self.keys.iter().map(|k| Arc::clone(batch.column(*k))).collect();
        let rows = self.converter.convert_columns(&columns)?;
        let mut start = 0;
        for row in 0..batch.num_rows() {
            if self.current.as_ref().is_some_and(|current| current.row() == rows.row(row)) {
                continue;
            }
            self.add(batch.slice(start, row - start))?;
            self.close(ready)?;
            self.current = Some(rows.row(row).owned());
            start = row;
        }
        self.add(batch.slice(start, batch.num_rows() - start))
    }

    fn add(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.pending_rows += rows.num_rows();
        self.pending.push(rows);
        if self.fold && self.pending_rows >= FOLD_ROWS && self.pending.len() > 1 {
            let folded = self.call()?;
            self.pending_rows = folded.iter().map(RecordBatch::num_rows).sum();
            self.pending = folded;
        }
        Ok(())
    }

    /// Hands the current group over.
    fn close(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        if self.pending_rows > 0 {
            ready.extend(self.call()?);
            self.pending.clear();
            self.pending_rows = 0;
        }
        Ok(())
    }

    fn call(&mut self) -> Result<Vec<RecordBatch>> {
        let group = concat_batches(&self.schema, &self.pending).map_err(DataFusionError::from)?;
        self.caller.call(group)
    }
}
