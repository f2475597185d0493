//! The plan nodes of datasets, each beside the operator that executes it, and the planner that pairs them.
//!
//! A node holds nothing but names, numbers and JSON: it can be written down and sent to another process.

mod address;
mod coalesce;
mod count_rows;
mod gang;
mod kept;
mod map_groups;
mod map_partitions;
mod parquet_files;
mod repartition;
pub mod unary;
mod zip_with_index;

pub(crate) use address::{Address, AddressRows, send_rows};
pub use coalesce::{CoalesceExec, CoalesceNode};
pub(crate) use count_rows::CountRows;
pub use gang::{GangExec, GangFunction, GangRequest, GangTask, gang_plan, gang_plan_in_order};
pub use kept::{BranchExec, KeptExec, WholeExec};
pub use map_groups::{MapGroups, MapGroupsExec, MapGroupsNode};
pub(crate) use map_partitions::output_schema;
pub use map_partitions::{MapPartitions, MapPartitionsExec, MapPartitionsNode};
pub(crate) use parquet_files::{ParquetFiles, published, write_empty};
pub use repartition::{DealRowsExec, RepartitionExec, RepartitionNode};
pub use unary::{UnaryExec, UnaryOperator};
pub use zip_with_index::{ZipWithIndex, ZipWithIndexExec, ZipWithIndexNode};

use crate::functions::{Broadcasts, CarriedBroadcasts};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    error::{DataFusionError, Result},
    logical_expr::{LogicalPlan, UserDefinedLogicalNode, physical_planning_context::PhysicalPlanningContext},
    physical_expr::EquivalenceProperties,
    physical_plan::{ExecutionPlan, Partitioning, PlanProperties, execution_plan::EmissionType},
    physical_planner::{ExtensionPlanner, PhysicalPlanner},
};
use std::sync::Arc;

/// Plans the nodes of this crate.
#[derive(Debug, Default)]
pub struct DatasetPlanner;

#[async_trait]
impl ExtensionPlanner for DatasetPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let [input] = inputs else { return Ok(None) };
        let (node, input) = (node.as_any(), Arc::clone(input));
        let broadcasts = || CarriedBroadcasts::of(session.config().get_extension::<Broadcasts>());
        if let Some(node) = node.downcast_ref::<MapPartitionsNode>() {
            return Ok(Some(node.execution(input, broadcasts())?));
        }
        if let Some(node) = node.downcast_ref::<MapGroupsNode>() {
            return Ok(Some(node.execution(input, broadcasts())?));
        }
        if let Some(node) = node.downcast_ref::<RepartitionNode>() {
            return Ok(Some(node.execution(input)?));
        }
        if let Some(node) = node.downcast_ref::<CoalesceNode>() {
            return Ok(Some(node.execution(input)));
        }
        if let Some(node) = node.downcast_ref::<ZipWithIndexNode>() {
            return Ok(Some(node.execution(input)?));
        }
        Ok(None)
    }
}

/// Properties of an operator that gives `partitions` of unknown content, in no order, as its input comes.
fn unordered(
    schema: arrow::datatypes::SchemaRef,
    partitions: usize,
    input: &Arc<dyn ExecutionPlan>,
) -> Arc<PlanProperties> {
    let properties = PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        input.properties().boundedness,
    );
    Arc::new(properties)
}

/// The one child that a unary operator is given.
pub(crate) fn only_child(
    mut children: Vec<Arc<dyn ExecutionPlan>>,
    name: &str,
) -> Result<Arc<dyn ExecutionPlan>> {
    match (children.pop(), children.is_empty()) {
        (Some(child), true) => Ok(child),
        _ => Err(DataFusionError::Internal(format!("{name} takes one input"))),
    }
}

/// The one input that a unary logical node is given.
fn only_input(mut inputs: Vec<LogicalPlan>, name: &str) -> Result<LogicalPlan> {
    match (inputs.pop(), inputs.is_empty()) {
        (Some(input), true) => Ok(input),
        _ => Err(DataFusionError::Internal(format!("{name} takes one input"))),
    }
}
