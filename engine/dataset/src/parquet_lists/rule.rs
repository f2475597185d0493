//! Puts [`ParquetLists`] over the scans that it can read.

use super::{ParquetLists, scan::ListScan};
use crate::nodes::UnaryExec;
use datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    config::ConfigOptions,
    error::Result,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::ExecutionPlan,
};
use std::sync::Arc;

/// Reads lists in Parquet by pages. The last rule: others know scans, but not what is above them.
#[derive(Debug)]
pub(crate) struct ReadListsFast;

impl PhysicalOptimizerRule for ReadListsFast {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let above = plan.transform_down(|node| match ListScan::of(node.as_ref())? {
            Some(scan) => {
                let lists = ParquetLists { columns: scan.names() };
                let lists: Arc<dyn ExecutionPlan> = Arc::new(UnaryExec::try_new(lists, node)?);
                Ok(Transformed::new(lists, true, TreeNodeRecursion::Jump))
            }
            None if node.is::<UnaryExec<ParquetLists>>() => {
                Ok(Transformed::new(node, false, TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(node)),
        });
        Ok(above?.data)
    }

    fn name(&self) -> &'static str {
        "read_lists_fast"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
