//! What a hash join tells the scan below it, while it runs, of the keys that it has: only for scans of series.
//!
//! A scan that leaves out rows whose key no row of the other side has need not read their series. Of rows of keys and numbers
//! there is nothing to save: to ask for each of them costs more than to join it.
//!
//! Partitions of a join that tells wait for each other, so that all of them must run side by side.

use crate::row_width::{WIDE, row_bytes};
use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    config::ConfigOptions,
    error::Result,
    physical_optimizer::{PhysicalOptimizerRule, filter_pushdown::FilterPushdown},
    physical_plan::{ExecutionPlan, ExecutionPlanProperties, joins::HashJoinExec},
};
use std::sync::Arc;

/// DataFusion's rule that hands the conditions of joins, sorts and aggregates down while they run.
#[derive(Debug)]
pub(crate) struct JoinFilters {
    rule: FilterPushdown,
    /// Partitions that run side by side at least.
    at_once: usize,
}

impl JoinFilters {
    /// In a session that runs so many partitions side by side.
    pub fn of_partitions(at_once: usize) -> Self {
        Self { rule: FilterPushdown::new_post_optimization(), at_once }
    }
}

impl PhysicalOptimizerRule for JoinFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (mut wide, mut side_by_side) = (false, true);
        plan.apply(|node| {
            if let Some(join) = node.downcast_ref::<HashJoinExec>() {
                wide |= row_bytes(&join.right().schema()) >= WIDE;
                side_by_side &= join.right().output_partitioning().partition_count() <= self.at_once;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if wide && side_by_side {
            return self.rule.optimize(plan, config);
        }
        let mut config = config.clone();
        config.optimizer.enable_join_dynamic_filter_pushdown = false;
        self.rule.optimize(plan, &config)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}
