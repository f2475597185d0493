//! Joins keep the grid of their rows, or say that they cannot.
//!
//! A join has the schema metadata of both sides, those of the right side where both have the same key. Two tables of
//! one space may be joined in any way; of two spaces the wrong one would be written into maps, so it is refused when the
//! statement is checked.

use crate::Error;
use arrow::datatypes::Schema;
use datafusion::{
    common::{config::ConfigOptions, tree_node::TreeNodeRecursion},
    error::Result,
    logical_expr::{Join, LogicalPlan},
    optimizer::AnalyzerRule,
};
use voxelflow_stage::{GRID_METADATA_KEY, Grid};

/// Refuses joins of tables of different grids, for a session's analyzer.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameGrid;

impl AnalyzerRule for SameGrid {
    fn name(&self) -> &str {
        "same_grid"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Join(join) = node {
                check(join)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }
}

fn check(join: &Join) -> Result<(), Error> {
    let (left, right) = (join.left.schema().as_arrow(), join.right.schema().as_arrow());
    let (Some(a), Some(b)) = (grid(left)?, grid(right)?) else { return Ok(()) };
    if a.same_space(&b) {
        return Ok(());
    }
    let voxels = |schema: &Schema| schema.field_with_name("voxel").is_ok();
    let way = match (voxels(left), voxels(right)) {
        (_, false) => "write the table whose rows are voxels as the last one of the join",
        (false, true) => return Ok(()),
        (true, true) => "a voxel of one is not that of the other; resample one of the images",
    };
    let reason = format!(
        "{} and {} are on different grids ({:?} and {:?}): {way}",
        a.source, b.source, a.shape, b.shape
    );
    Err(voxelflow_stage::Error::Data { what: "join".into(), reason }.into())
}

fn grid(schema: &Schema) -> Result<Option<Grid>, Error> {
    Ok(schema.metadata().contains_key(GRID_METADATA_KEY).then(|| Grid::of(schema)).transpose()?)
}
