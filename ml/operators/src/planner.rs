//! Turns our nodes of a logical plan into those that run.

use crate::{
    CleanNode, ConcatenateNode, DesignNode, GangMember, GangMemberExec, PredictNode, SplitNode, TrainExec,
    TrainNode,
    concatenate::plan_concatenate_exec,
    join_keys::{JoinKeysNode, plan_join_keys},
    plan_clean_exec, plan_design_exec,
    predict::plan_predict_exec,
    split::plan_split_exec,
};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    error::Result,
    logical_expr::{LogicalPlan, UserDefinedLogicalNode, physical_planning_context::PhysicalPlanningContext},
    physical_plan::ExecutionPlan,
    physical_planner::{ExtensionPlanner, PhysicalPlanner},
};
use std::sync::Arc;
use voxelflow_dataset::runner::DriverNode;

// Training talks to the user's process: its ranks run elsewhere, its plan here.
inventory::submit! { DriverNode("TrainExec") }

/// Plans every node of this crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorsPlanner;

/// What a session needs to run the plans of a [`StageCatalog`](crate::StageCatalog).
pub fn extension_planners() -> Vec<Arc<dyn ExtensionPlanner + Send + Sync>> {
    vec![Arc::new(OperatorsPlanner)]
}

#[async_trait]
impl ExtensionPlanner for OperatorsPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(train) = node.as_any().downcast_ref::<TrainNode>() {
            let (validates, features) = (train.validates(), train.has_features());
            let job = Arc::clone(train.job());
            let (inputs, context) = (physical_inputs.to_vec(), session.task_ctx());
            let exec = TrainExec::new(job, inputs, validates, features, &context);
            return Ok(Some(Arc::new(exec)));
        }
        if let Some(member) = node.as_any().downcast_ref::<GangMember>() {
            return Ok(Some(Arc::new(GangMemberExec::new(member.clone()))));
        }
        if let Some(clean) = node.as_any().downcast_ref::<CleanNode>() {
            return plan_clean_exec(clean, physical_inputs).map(Some);
        }
        if let Some(design) = node.as_any().downcast_ref::<DesignNode>() {
            return plan_design_exec(design, physical_inputs).map(Some);
        }
        if let Some(split) = node.as_any().downcast_ref::<SplitNode>() {
            return plan_split_exec(split, physical_inputs).map(Some);
        }
        if let Some(concatenate) = node.as_any().downcast_ref::<ConcatenateNode>() {
            return plan_concatenate_exec(concatenate, physical_inputs).map(Some);
        }
        if let Some(keys) = node.as_any().downcast_ref::<JoinKeysNode>() {
            return plan_join_keys(keys, physical_inputs).map(Some);
        }
        if let Some(predict) = node.as_any().downcast_ref::<PredictNode>() {
            return plan_predict_exec(predict, physical_inputs).map(Some);
        }
        Ok(None)
    }
}
