//! Operators of DataFusion that a scheduler leaves as they are.
//!
//! A scheduler that cuts a plan into stages plans each of them again: it swaps the sides of joins, sends a side to all
//! tasks, takes away merges that nobody asked for, and repartitions within a task, all without knowing what the other
//! tasks hold. What an operator needs was settled when the plan was made, so it goes on in a shell that a scheduler does
//! not look into. The shell says one thing only: which inputs must be whole, in one partition.
//!
//! ```text
//!   HashJoinExec ─► KeptExec { HashJoinExec over its inputs, whole: [true, false] }
//!     left            left      comes from a stage of its own, whole
//!     right           right     partition by partition
//! ```

use super::only_child;
use crate::node_codec::{NodeCodec, damaged, one_input};
use datafusion::{
    common::{Statistics, plan_err, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::{LexOrdering, OrderingRequirements, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, Distribution, EmptyRecordBatchStream, ExecutionPlan,
        ExecutionPlanProperties, InputDistributionRequirements, Partitioning, PlanProperties,
        SendableRecordBatchStream,
        metrics::MetricsSet,
        replace_children_if_necessary,
        sorts::sort::SortExec,
        statistics::{ChildStats, StatisticsArgs},
    },
};
use datafusion_proto::{
    physical_plan::{AsExecutionPlan, PhysicalExtensionCodec, PhysicalProtoConverterExtension},
    protobuf::PhysicalPlanNode,
};
use std::{fmt, sync::Arc};

/// An operator of DataFusion that runs as it was planned.
#[derive(Debug)]
pub struct KeptExec {
    operator: Arc<dyn ExecutionPlan>,
    /// For each input: it must be in one partition.
    whole: Vec<bool>,
}

inventory::submit! { NodeCodec { name: KeptExec::NAME, encode: KeptExec::encode, decode: KeptExec::decode } }

impl KeptExec {
    /// Its name in plans.
    pub const NAME: &'static str = "KeptExec";

    /// `operator`, kept. Inputs that it has in one partition stay in one.
    pub fn new(operator: Arc<dyn ExecutionPlan>) -> Self {
        let needs = operator.input_distribution_requirements();
        let needs =
            needs.per_child_distributions().map(|needed| matches!(needed, Distribution::SinglePartition));
        let inputs = operator.children().into_iter();
        let whole = inputs
            .zip(needs)
            .map(|(input, needed)| needed || input.output_partitioning().partition_count() == 1);
        Self { whole: whole.collect(), operator }
    }

    /// The operator, over its inputs.
    pub fn operator(&self) -> &Arc<dyn ExecutionPlan> {
        &self.operator
    }

    fn encode(plan: &dyn ExecutionPlan) -> Option<Result<Vec<u8>>> {
        let kept = plan.downcast_ref::<Self>()?;
        let encoded = encode_over_inputs(&kept.operator).map(|operator| {
            let whole = kept.whole.iter().map(|whole| u8::from(*whole));
            whole_bytes(kept.whole.len()).chain(whole).chain(operator).collect()
        });
        Some(encoded)
    }

    fn decode(
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let unfit = || damaged(Self::NAME, "its inputs are not those that were sent");
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(unfit)?;
        let count = u32::from_le_bytes(*count) as usize;
        if count == 0 || count != inputs.len() {
            return Err(unfit());
        }
        let (whole, operator) = rest.split_at_checked(count).ok_or_else(unfit)?;
        let operator = decode_over_inputs(operator, inputs, context)?;
        if operator.children().len() != count {
            return Err(unfit());
        }
        Ok(Arc::new(Self { operator, whole: whole.iter().map(|whole| *whole != 0).collect() }))
    }
}

fn whole_bytes(count: usize) -> impl Iterator<Item = u8> {
    u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes().into_iter()
}

impl DisplayAs for KeptExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: whole={:?}, ", Self::NAME, self.whole)?;
        self.operator.fmt_as(format, f)
    }
}

impl ExecutionPlan for KeptExec {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        self.operator.properties()
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.operator.children()
    }
    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(self.whole.iter().map(|whole| distribution(*whole)).collect())
    }
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.operator.required_input_ordering()
    }
    /// Said of none: a scheduler that moves a sort below the operator would have to know its columns.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false; self.whole.len()]
    }
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.whole.len()]
    }
    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.operator.apply_expressions(f)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let operator = replace_children_if_necessary(Arc::clone(&self.operator), children)?;
        Ok(Arc::new(Self { operator, whole: self.whole.clone() }))
    }
    fn metrics(&self) -> Option<MetricsSet> {
        self.operator.metrics()
    }
    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.operator.child_stats_requests(partition)
    }
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.operator.statistics_from_inputs(inputs, arguments)
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.operator.execute(partition, context)
    }
}

/// All rows of its input, in one partition and in their order, whatever a scheduler does to what is below.
#[derive(Debug)]
pub struct WholeExec {
    input: Arc<dyn ExecutionPlan>,
    ordering: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

inventory::submit! { NodeCodec { name: WholeExec::NAME, encode: WholeExec::encode, decode: WholeExec::decode } }

impl WholeExec {
    /// Its name in plans.
    pub const NAME: &'static str = "WholeExec";

    /// The rows of `input`, which has one partition, in the order that they have there.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let ordering = input.output_ordering().cloned();
        Self { properties: Arc::clone(input.properties()), input, ordering }
    }

    fn encode(plan: &dyn ExecutionPlan) -> Option<Result<Vec<u8>>> {
        let whole = plan.downcast_ref::<Self>()?;
        let encoded = match &whole.ordering {
            // An order travels as the sort that makes it.
            Some(ordering) => encode_over_inputs(
                &(Arc::new(SortExec::new(ordering.clone(), Arc::clone(&whole.input))) as _),
            ),
            None => Ok(Vec::new()),
        };
        Some(encoded)
    }

    fn decode(
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = one_input(Self::NAME, inputs)?;
        let ordering = match bytes {
            [] => None,
            bytes => {
                let sort = decode_over_inputs(bytes, inputs, context)?;
                let sort = sort.downcast_ref::<SortExec>();
                Some(sort.ok_or_else(|| damaged(Self::NAME, "its order is no order"))?.expr().clone())
            }
        };
        Ok(Arc::new(Self { properties: Arc::clone(input.properties()), input, ordering }))
    }
}

impl DisplayAs for WholeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(Self::NAME)?;
        self.ordering.as_ref().map_or(Ok(()), |ordering| write!(f, ": [{ordering}]"))
    }
}

impl ExecutionPlan for WholeExec {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.ordering.clone().map(OrderingRequirements::from)]
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }
    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for sorted in self.ordering.iter().flatten() {
            if f(&sorted.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = only_child(children, Self::NAME)?;
        Ok(Arc::new(Self {
            properties: Arc::clone(input.properties()),
            input,
            ordering: self.ordering.clone(),
        }))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}

/// The rows of one input of a union. A task of a stage with a union runs partitions of some inputs, and holds the others
/// with no partition at all, which many operators were not made for. An input that has a partition whatever happens
/// becomes a stage of its own instead.
#[derive(Debug)]
pub struct BranchExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

inventory::submit! {
    NodeCodec {
        name: BranchExec::NAME,
        encode: |plan| plan.is::<BranchExec>().then(|| Ok(Vec::new())),
        decode: |_, inputs, _| Ok(Arc::new(BranchExec::new(one_input(BranchExec::NAME, inputs)?))),
    }
}

impl BranchExec {
    /// Its name in plans.
    pub const NAME: &'static str = "BranchExec";

    /// The rows of `input`.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = if input.output_partitioning().partition_count() == 0 {
            let one =
                input.properties().as_ref().clone().with_partitioning(Partitioning::UnknownPartitioning(1));
            Arc::new(one)
        } else {
            Arc::clone(input.properties())
        };
        Self { input, properties }
    }
}

impl DisplayAs for BranchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

impl ExecutionPlan for BranchExec {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
        Ok(Arc::new(Self::new(only_child(children, Self::NAME)?)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if self.input.output_partitioning().partition_count() == 0 {
            return Ok(Box::pin(EmptyRecordBatchStream::new(self.schema())));
        }
        self.input.execute(partition, context)
    }
}

fn distribution(whole: bool) -> Distribution {
    if whole { Distribution::SinglePartition } else { Distribution::UnspecifiedDistribution }
}

/// `operator` in bytes, without its inputs: they travel by themselves.
fn encode_over_inputs(operator: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
    let inputs = operator.children().into_iter().enumerate().map(|(at, input)| {
        Arc::new(InputExec { at, properties: Arc::clone(input.properties()) }) as Arc<dyn ExecutionPlan>
    });
    let alone = replace_children_if_necessary(Arc::clone(operator), inputs.collect())?;
    let mut bytes = Vec::new();
    PhysicalPlanNode::try_from_physical_plan(alone, &Inputs::default())?.try_encode(&mut bytes)?;
    Ok(bytes)
}

/// The operator again, over `inputs`.
fn decode_over_inputs(
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    PhysicalPlanNode::try_decode(bytes)?.try_into_physical_plan(context, &Inputs(inputs.to_vec()))
}

/// Stands for an input of an operator that is written without it.
#[derive(Debug)]
struct InputExec {
    at: usize,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for InputExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "InputExec: {}", self.at)
    }
}

impl ExecutionPlan for InputExec {
    fn name(&self) -> &str {
        "InputExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal("the place of an input has no rows".into()))
    }
}

/// Writes the places of inputs, and puts inputs into their places when it reads.
#[derive(Debug, Default)]
struct Inputs(Vec<Arc<dyn ExecutionPlan>>);

impl PhysicalExtensionCodec for Inputs {
    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(input) = node.downcast_ref::<InputExec>() else {
            return plan_err!(
                "`{}` runs in the driver's process only; run this without a cluster",
                node.name()
            );
        };
        buffer.extend(u32::try_from(input.at).unwrap_or(u32::MAX).to_le_bytes());
        Ok(())
    }

    fn try_decode(
        &self,
        bytes: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _context: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let at = <[u8; 4]>::try_from(bytes).ok().map(|at| u32::from_le_bytes(at) as usize);
        let input = at.and_then(|at| self.0.get(at)).cloned();
        input.ok_or_else(|| damaged(KeptExec::NAME, "it names an input that it does not have"))
    }
}
