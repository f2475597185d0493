//! Fewer partitions without moving rows: neighbouring partitions are read one after the other.

use super::{only_child, only_input, unordered};
use datafusion::{
    common::{DFSchemaRef, tree_node::TreeNodeRecursion},
    error::Result,
    execution::TaskContext,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        SendableRecordBatchStream, stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use std::{cmp::Ordering, collections::HashSet, fmt, ops::Range, sync::Arc};

/// `coalesce(n)`: at most `n` partitions, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoalesceNode {
    partitions: usize,
    input: LogicalPlan,
}

impl CoalesceNode {
    /// At most `partitions` (one at least) partitions of `input`.
    pub fn new(input: LogicalPlan, partitions: usize) -> Self {
        Self { partitions: partitions.max(1), input }
    }

    pub(super) fn execution(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(CoalesceExec::new(input, self.partitions))
    }
}

impl PartialOrd for CoalesceNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.partitions, &self.input).partial_cmp(&(other.partitions, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for CoalesceNode {
    fn name(&self) -> &str {
        "Coalesce"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    /// Rows pass unchanged: filters may go below.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Coalesce: {} partitions", self.partitions)
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { partitions: self.partitions, input: only_input(inputs, self.name())? })
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

/// Executes [`CoalesceNode`].
#[derive(Debug)]
pub struct CoalesceExec {
    wanted: usize,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl CoalesceExec {
    /// At most `partitions` partitions of `input`.
    pub fn new(input: Arc<dyn ExecutionPlan>, partitions: usize) -> Self {
        let count = partitions.min(input.output_partitioning().partition_count());
        let properties = unordered(input.schema(), count, &input);
        Self { wanted: partitions, input, properties }
    }

    pub(crate) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// The input partitions that make up output partition `partition`.
    fn sources(&self, partition: usize) -> Range<usize> {
        let inputs = self.input.output_partitioning().partition_count();
        let outputs = self.properties.partitioning.partition_count();
        partition * inputs / outputs..(partition + 1) * inputs / outputs
    }
}

impl DisplayAs for CoalesceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "CoalesceExec: partitions={}", self.properties.partitioning.partition_count())
    }
}

impl ExecutionPlan for CoalesceExec {
    fn name(&self) -> &str {
        "CoalesceExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
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
        Ok(Arc::new(Self::new(only_child(children, self.name())?, self.wanted)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = Arc::clone(&self.input);
        // A source is opened when the one before it has ended.
        let batches = stream::iter(self.sources(partition))
            .map(move |source| input.execute(source, Arc::clone(&context)))
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
