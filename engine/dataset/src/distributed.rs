//! A plan made ready for a cluster, where a task runs some partitions of a stage and sees no others.
//!
//! Operators keep their meaning; those that look beyond their partition are put in other words:
//!
//! ```text
//!   RepartitionRowsExec, CoalesceExec   rows get an address, and are sent by its hash   (nodes/address.rs)
//!   HashJoinExec of one partition       is said to be partitioned, so that it keeps that partition
//!   ZipWithIndexExec                    partitions are counted first, by a plan of its own
//!   all others of ours                  know the number of their partition from a row   (nodes/unary.rs)
//!   sources of other crates             as they say themselves                           ([`Distribute`])
//! ```

use crate::{
    PlanRunner,
    nodes::{
        Address, AddressRows, CoalesceExec, CountRows, MapGroups, MapPartitions, ParquetFiles,
        RepartitionExec, UnaryExec, ZipWithIndex, ZipWithIndexExec, send_rows, unary,
    },
};
use arrow::{array::AsArray, datatypes::UInt64Type};
use datafusion::{
    common::tree_node::{Transformed, TreeNode},
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties,
        joins::{HashJoinExec, PartitionMode},
        replace_children_if_necessary,
    },
};
use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use std::sync::Arc;

/// The node to run instead; nothing when it is another kind of node, or when it is ready.
pub type RewriteNode = fn(&Arc<dyn ExecutionPlan>) -> Option<Result<Arc<dyn ExecutionPlan>>>;

/// How a node of another crate is put for a cluster; a leaf, for example, whose partitions nobody can pick.
/// Registered with `inventory::submit!`.
#[derive(Debug)]
pub struct Distribute {
    /// How.
    pub rewrite: RewriteNode,
}

inventory::collect!(Distribute);

/// `plan` made ready for the cluster of `runner`. A plan that is ready stays as it is.
///
/// # Errors
/// Partitions that cannot be counted before they are numbered.
pub async fn distribute(
    plan: Arc<dyn ExecutionPlan>,
    runner: &dyn PlanRunner,
    context: &Arc<TaskContext>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = counted(plan, runner, context).await?;
    Ok(plan
        .transform_up(|node| {
            rewrite(&node).map(|new| new.map_or_else(|| Transformed::no(node), Transformed::yes))
        })?
        .data)
}

/// Counts, from the leaves up, the partitions of what is to be numbered.
fn counted<'a>(
    plan: Arc<dyn ExecutionPlan>,
    runner: &'a dyn PlanRunner,
    context: &'a Arc<TaskContext>,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    async move {
        let mut children = Vec::new();
        for child in plan.children() {
            children.push(counted(Arc::clone(child), runner, context).await?);
        }
        let plan = replace_children_if_necessary(plan, children)?;
        let Some(zip) = plan.downcast_ref::<ZipWithIndexExec>() else { return Ok(plan) };
        let partitions = zip.input().output_partitioning().partition_count();
        if !zip.operator().must_be_counted(partitions) {
            return Ok(plan);
        }
        let rows = count_partitions(zip.input(), runner, context).await?;
        Ok(Arc::new(UnaryExec::try_new(zip.operator().counted(rows), Arc::clone(zip.input()))?) as _)
    }
    .boxed()
}

async fn count_partitions(
    input: &Arc<dyn ExecutionPlan>,
    runner: &dyn PlanRunner,
    context: &Arc<TaskContext>,
) -> Result<Vec<u64>> {
    let count = Arc::new(UnaryExec::try_new(CountRows::default(), Arc::clone(input))?);
    let mut rows = Vec::new();
    for partition in runner.run(count, Arc::clone(context)).await?.streams {
        let counts: Vec<_> = partition.try_collect().await?;
        let one = counts.iter().find_map(|b| {
            let counts = b.columns().first()?.as_primitive_opt::<UInt64Type>()?;
            counts.values().first().copied()
        });
        rows.push(one.ok_or_else(|| DataFusionError::Internal("a partition was not counted".into()))?);
    }
    Ok(rows)
}

fn rewrite(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(deal) = node.downcast_ref::<RepartitionExec>() {
        return send_rows(Arc::clone(deal.input()), Address::InTurn, deal.partitions()).map(Some);
    }
    if let Some(coalesce) = node.downcast_ref::<CoalesceExec>() {
        let partitions = coalesce.properties().output_partitioning().partition_count();
        return send_rows(Arc::clone(coalesce.input()), Address::Neighbours, partitions).map(Some);
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>().filter(|join| may_be_swapped(join)) {
        let join = join.builder().with_partition_mode(PartitionMode::Partitioned).build()?;
        return Ok(Some(Arc::new(join)));
    }
    let own = [
        unary::placed::<MapPartitions>,
        unary::placed::<MapGroups>,
        unary::placed::<ZipWithIndex>,
        unary::placed::<ParquetFiles>,
        unary::placed::<CountRows>,
        unary::placed::<AddressRows>,
    ];
    let own = own.iter().find_map(|placed| placed(node.as_ref()));
    own.or_else(|| inventory::iter::<Distribute>().find_map(|other| (other.rewrite)(node))).transpose()
}

/// Whether Ballista might change the number of partitions that come out of `join`: when the sizes of its sides are known
/// it swaps them, and a side that was collected is then read in as many partitions as it was written in.
fn may_be_swapped(join: &HashJoinExec) -> bool {
    let one = |side: &Arc<dyn ExecutionPlan>| side.output_partitioning().partition_count() == 1;
    *join.partition_mode() == PartitionMode::CollectLeft
        && !join.null_aware
        && one(join.left())
        && one(join.right())
}
