//! Rows dealt out evenly over a number of partitions.
//!
//! DataFusion's own round-robin deals whole batches, and its optimizer drops or adds such steps as it sees
//! fit. Here every batch is cut into as many slices as there are partitions, so that few large batches are
//! spread too, and the number of partitions is the user's.

use super::{only_child, only_input, unordered};
use arrow::record_batch::RecordBatch;
use datafusion::{
    common::{DFSchemaRef, tree_node::TreeNodeRecursion},
    error::Result,
    execution::TaskContext,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        SendableRecordBatchStream, repartition::RepartitionExec as BatchDealer,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, stream};
use std::{cmp::Ordering, collections::HashSet, fmt, iter, sync::Arc};

/// `repartition(n)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepartitionNode {
    partitions: usize,
    input: LogicalPlan,
}

impl RepartitionNode {
    /// `partitions` (one at least) partitions of `input`'s rows.
    pub fn new(input: LogicalPlan, partitions: usize) -> Self {
        Self { partitions: partitions.max(1), input }
    }

    pub(super) fn execution(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(RepartitionExec::try_new(input, self.partitions)?))
    }
}

impl PartialOrd for RepartitionNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.partitions, &self.input).partial_cmp(&(other.partitions, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for RepartitionNode {
    fn name(&self) -> &str {
        "RepartitionRows"
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
    /// Filters may go below: the rows that remain are dealt out evenly.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RepartitionRows: {} partitions", self.partitions)
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { partitions: self.partitions, input: only_input(inputs, self.name())? })
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

/// Executes [`RepartitionNode`]: [`DealRowsExec`] cuts, DataFusion's round-robin hands out.
#[derive(Debug)]
pub struct RepartitionExec {
    partitions: usize,
    input: Arc<dyn ExecutionPlan>,
    dealer: Arc<BatchDealer>,
    properties: Arc<PlanProperties>,
}

impl RepartitionExec {
    /// `partitions` partitions of `input`'s rows.
    ///
    /// # Errors
    /// Those of DataFusion's round-robin.
    pub fn try_new(input: Arc<dyn ExecutionPlan>, partitions: usize) -> Result<Self> {
        let slices: Arc<dyn ExecutionPlan> = Arc::new(DealRowsExec::new(Arc::clone(&input), partitions));
        let dealer = Arc::new(BatchDealer::try_new(slices, Partitioning::RoundRobinBatch(partitions))?);
        let properties = unordered(input.schema(), partitions, &input);
        Ok(Self { partitions, input, dealer, properties })
    }

    pub(crate) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    pub(crate) fn partitions(&self) -> usize {
        self.partitions
    }
}

impl DisplayAs for RepartitionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RepartitionRowsExec: partitions={}", self.partitions)
    }
}

impl ExecutionPlan for RepartitionExec {
    fn name(&self) -> &str {
        "RepartitionRowsExec"
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
        Ok(Arc::new(Self::try_new(only_child(children, self.name())?, self.partitions)?))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.dealer.execute(partition, context)
    }
}

/// Cuts every batch into slices of equal size, without copying.
#[derive(Debug)]
pub struct DealRowsExec {
    slices: usize,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl DealRowsExec {
    /// Cuts for `slices` takers.
    pub fn new(input: Arc<dyn ExecutionPlan>, slices: usize) -> Self {
        let properties = unordered(input.schema(), input.output_partitioning().partition_count(), &input);
        Self { slices, input, properties }
    }
}

/// Lengths of the slices of a batch of `rows`, as round-robin hands them out in turn: one equal share for
/// everybody, then single rows for those whose turn it is, so that over many batches nobody gets more than
/// one row above another. (Round-robin passes over empty slices, so none is made.)
fn deal(rows: usize, slices: usize) -> impl Iterator<Item = usize> {
    let (share, left) = (rows / slices, rows % slices);
    let shares = if share == 0 { 0 } else { slices };
    iter::repeat_n(share, shares).chain(iter::repeat_n(1, left))
}

impl DisplayAs for DealRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "DealRowsExec: slices={}", self.slices)
    }
}

impl ExecutionPlan for DealRowsExec {
    fn name(&self) -> &str {
        "DealRowsExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
        Ok(Arc::new(Self::new(only_child(children, self.name())?, self.slices)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let slices = self.slices;
        let batches = self.input.execute(partition, context)?.flat_map(move |batch| {
            let cut: Vec<Result<RecordBatch>> = match batch {
                Ok(batch) => {
                    let mut offset = 0;
                    let cut = deal(batch.num_rows(), slices).map(|length| {
                        let slice = batch.slice(offset, length);
                        offset += length;
                        Ok(slice)
                    });
                    cut.collect()
                }
                Err(e) => vec![Err(e)],
            };
            stream::iter(cut)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::deal;

    #[test]
    fn every_slice_gets_its_share_over_batches_of_any_size() {
        let (mut turn, mut totals) = (0, [0_usize; 7]);
        for rows in [1, 1, 5, 20, 3, 8192, 2, 13, 0] {
            assert_eq!(deal(rows, 7).sum::<usize>(), rows);
            for length in deal(rows, 7) {
                totals[turn] += length;
                turn = (turn + 1) % 7;
            }
        }
        assert!(totals.iter().max().unwrap() - totals.iter().min().unwrap() <= 1, "{totals:?}");
    }
}
