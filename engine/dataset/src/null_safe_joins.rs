//! Joins whose NULL equals NULL (`ON a IS NOT DISTINCT FROM b`) keep their order: DataFusion's rule that puts inner joins in
//! another order gives all of them the equality of the outermost.

use datafusion::{
    common::{
        NullEquality, Result,
        tree_node::{Transformed, TreeNodeRecursion},
    },
    logical_expr::{JoinType, LogicalPlan},
    optimizer::{OptimizerConfig, OptimizerRule, eliminate_cross_join::EliminateCrossJoin},
};

/// The rule, for plans that have no such join.
#[derive(Debug, Default)]
pub(crate) struct KeepNullSafeJoins(EliminateCrossJoin);

impl OptimizerRule for KeepNullSafeJoins {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut is_there = false;
        plan.apply_with_subqueries(|node| {
            is_there |= matches!(node, LogicalPlan::Join(join) if join.join_type == JoinType::Inner
                && join.null_equality == NullEquality::NullEqualsNull);
            Ok(if is_there { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if is_there { Ok(Transformed::no(plan)) } else { self.0.rewrite(plan, config) }
    }
}
