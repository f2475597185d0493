//! Plans whose partitions stand by themselves: what one gives follows from its number and from what the plan reads.
//!
//! Partitions of such a plan that were written by a run that was killed are those that the next run would write. Where
//! rows pass from one partition to another, who gets which may depend on who was faster.

use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// The name of a node whose partition gives the same rows, in the same order, whenever it is run: they follow from
/// the partition of the same number of each input. What it counts, it counts for the ledger only.
#[derive(Debug)]
pub struct PartitionWise(pub &'static str);

inventory::collect!(PartitionWise);

inventory::submit! { PartitionWise("CooperativeExec") }
inventory::submit! { PartitionWise("FilterExec") }
inventory::submit! { PartitionWise("ProjectionExec") }

/// Whether every node of `plan` is [`PartitionWise`], with as many partitions above as below.
pub(crate) fn is_partition_wise(plan: &dyn ExecutionPlan) -> bool {
    let partitions = plan.output_partitioning().partition_count();
    inventory::iter::<PartitionWise>().any(|node| node.0 == plan.name())
        && plan.children().into_iter().all(|child| {
            child.output_partitioning().partition_count() == partitions && is_partition_wise(child.as_ref())
        })
}
