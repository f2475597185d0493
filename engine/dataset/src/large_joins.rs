//! Joins that are larger than memory: a hash join holds one side whole and cannot spill, a sort-merge join can.
//!
//! ```text
//!   HashJoinExec            ProjectionExec
//!     build side    ──►       SortMergeJoinExec
//!     probe side                SortExec (spills) ◄─ RepartitionExec by the keys ◄─ build side
//!                               SortExec (spills) ◄─ RepartitionExec by the keys ◄─ probe side
//! ```
//! Hash joins stay where the held side surely fits: they are faster, and keep what order the other side has.

use crate::row_width::row_bytes;
use datafusion::{
    arrow::compute::SortOptions,
    common::tree_node::{Transformed, TreeNode},
    config::ConfigOptions,
    error::Result,
    physical_expr::{LexOrdering, PhysicalExprRef, PhysicalSortExpr},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, Partitioning, PhysicalExpr,
        execution_plan::CardinalityEffect,
        expressions::Column,
        joins::{HashJoinExec, PartitionMode, SortMergeJoinExec},
        projection::ProjectionExec,
        repartition::RepartitionExec,
        sorts::sort::SortExec,
        statistics::{StatisticsArgs, StatisticsContext},
    },
};
use std::sync::Arc;

/// Rows from which on series whose number nobody knows are taken to be too many.
const WIDE: usize = 512;

/// Turns hash joins whose held side may not fit into sort-merge joins. After DataFusion's own rules: DataFusion 55 pushes
/// `ORDER BY … LIMIT` below sort-merge joins, and so loses rows.
#[derive(Debug)]
pub(crate) struct LargeJoins {
    /// Bytes that a held side may take.
    most: usize,
}

impl LargeJoins {
    /// In a session whose operators share `pool` bytes. A third is for what one join holds: its table of hashes comes on
    /// top, and other operators need some.
    pub(crate) fn in_pool(pool: usize) -> Self {
        Self { most: pool / 3 }
    }
}

impl PhysicalOptimizerRule for LargeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            let merged = match node.downcast_ref::<HashJoinExec>() {
                Some(join) if self.may_not_fit(join.left().as_ref())? => sort_merge_join(join)?,
                _ => None,
            };
            Ok(merged.map_or_else(|| Transformed::no(node), Transformed::yes))
        });
        Ok(changed?.data)
    }

    fn name(&self) -> &'static str {
        "large_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl LargeJoins {
    fn may_not_fit(&self, side: &dyn ExecutionPlan) -> Result<bool> {
        let width = row_bytes(&side.schema());
        Ok(match most_rows(side)? {
            Some(rows) => rows.saturating_mul(width) > self.most,
            None => width >= WIDE,
        })
    }
}

/// How many rows `plan` gives at most, as far as the counts of what it reads say.
fn most_rows(plan: &dyn ExecutionPlan) -> Result<Option<usize>> {
    if let Some(rows) = StatisticsContext::new().compute(plan, &StatisticsArgs::new())?.num_rows.get_value() {
        return Ok(Some(*rows));
    }
    match plan.children().as_slice() {
        // What no counts are known of may still give no more rows than it is given.
        [only] if !matches!(plan.cardinality_effect(), CardinalityEffect::GreaterEqual) => {
            most_rows(only.as_ref())
        }
        _ => Ok(None),
    }
}

/// The join by sorting; none where only a hash join can do it.
fn sort_merge_join(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // What stands above was planned for the order and the partitions that a hash join keeps of its probe side.
    let relied_on = join.properties().output_ordering().is_some()
        || (*join.partition_mode() == PartitionMode::CollectLeft
            && matches!(join.properties().output_partitioning(), Partitioning::Hash(..)));
    if join.null_aware || join.fetch().is_some() || relied_on {
        return Ok(None);
    }
    let partitions = join.properties().output_partitioning().partition_count();
    let (left_keys, right_keys): (Vec<PhysicalExprRef>, Vec<PhysicalExprRef>) =
        join.on().iter().cloned().unzip();
    let left = sorted_by(join.left(), left_keys, partitions)?;
    let right = sorted_by(join.right(), right_keys, partitions)?;
    let order = vec![SortOptions::default(); join.on().len()];
    let (on, filter) = (join.on().to_vec(), join.filter().cloned());
    let merged =
        SortMergeJoinExec::try_new(left, right, on, filter, *join.join_type(), order, join.null_equality());
    let Ok(merged) = merged else { return Ok(None) };
    let merged: Arc<dyn ExecutionPlan> = Arc::new(merged);
    let Some(columns) = &join.projection else { return Ok(Some(merged)) };
    let schema = merged.schema();
    let column = |index: &usize| {
        let name = schema.field(*index).name();
        (Arc::new(Column::new(name, *index)) as Arc<dyn PhysicalExpr>, name.clone())
    };
    Ok(Some(Arc::new(ProjectionExec::try_new(columns.iter().map(column).collect::<Vec<_>>(), merged)?)))
}

/// Rows of `side` dealt out by their keys, each partition in the keys' order.
fn sorted_by(
    side: &Arc<dyn ExecutionPlan>,
    keys: Vec<PhysicalExprRef>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let sort = keys.iter().map(|key| PhysicalSortExpr::new_default(Arc::clone(key)));
    let order = LexOrdering::new(sort.collect::<Vec<_>>());
    let by_keys = Partitioning::Hash(keys, partitions.max(1));
    let dealt = match (&by_keys, side.output_partitioning()) {
        (_, already) if *already == by_keys => Arc::clone(side),
        _ => Arc::new(RepartitionExec::try_new(Arc::clone(side), by_keys)?) as Arc<dyn ExecutionPlan>,
    };
    Ok(match order {
        Some(order) => Arc::new(SortExec::new(order, dealt).with_preserve_partitioning(true)),
        None => dealt,
    })
}
