//! The longest series of a table that does not say it: a lab's own Parquet, whose lists are of any length.

use crate::{Error, features::refused};
use arrow::{
    array::AsArray,
    compute::{cast, max},
    datatypes::{DataType, UInt64Type},
};
use datafusion::{
    error::Result,
    execution::TaskContext,
    functions_nested::length::array_length_udf,
    physical_expr::{PhysicalExpr, ScalarFunctionExpr, expressions::Column},
    physical_plan::{ExecutionPlan, execution_plan::reset_plan_states, projection::ProjectionExec},
};
use futures::TryStreamExt;
use std::sync::Arc;
use voxelflow_dataset::Runner;

/// Points of the longest list in the column `series` of `input`, which runs once more for it: only lengths come here.
///
/// # Errors
/// An input that fails, or has lists without numbers only.
pub(super) async fn longest(
    input: &Arc<dyn ExecutionPlan>,
    series: &str,
    context: &Arc<TaskContext>,
) -> Result<usize> {
    let schema = input.schema();
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new_with_schema(series, &schema)?);
    let options = Arc::clone(context.session_config().options());
    let length = ScalarFunctionExpr::try_new(array_length_udf(), vec![column], &schema, options)?;
    let lengths: Arc<dyn PhysicalExpr> = Arc::new(length);
    // What the input has for the ledger is counted when its rows are spooled.
    let own = reset_plan_states(Arc::clone(input))?;
    let plan = ProjectionExec::try_new([(lengths, "points".to_owned())], own)?;
    let run = Runner::of(context).run(Arc::new(plan), Arc::clone(context)).await?;
    let mut most = 0;
    for mut rows in run.streams {
        while let Some(batch) = rows.try_next().await? {
            let lengths = cast(batch.column(0), &DataType::UInt64)?;
            most = most.max(max(lengths.as_primitive::<UInt64Type>()).unwrap_or(0));
        }
    }
    let none: Error = refused(format!("the lists of `{series}` hold no numbers"));
    usize::try_from(most).ok().filter(|most| *most > 0).ok_or_else(|| none.into())
}
