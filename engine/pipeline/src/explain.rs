//! What `EXPLAIN` of our statements answers: rows like those of DataFusion's `EXPLAIN`.

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
    error::ArrowError,
};
use datafusion::{
    common::Result as DataFusionResult, logical_expr::LogicalPlan, physical_plan::displayable,
    prelude::SessionContext,
};
use std::sync::Arc;

/// One row of an `EXPLAIN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRow {
    /// `logical_plan`, `physical_plan`, or what DataFusion calls its others.
    pub plan_type: String,
    /// The plan, a node a line, inputs indented.
    pub plan: String,
}

impl ExplainRow {
    pub(crate) fn new(plan_type: &str, plan: impl Into<String>) -> Self {
        Self { plan_type: plan_type.into(), plan: plan.into() }
    }
}

/// The rows as a table with the columns `plan_type` and `plan`.
///
/// # Errors
/// None in practice: the columns fit the schema.
pub fn explain_batch(rows: &[ExplainRow]) -> Result<RecordBatch, ArrowError> {
    let field = |name| Field::new(name, DataType::Utf8, false);
    let types: StringArray = rows.iter().map(|r| Some(r.plan_type.as_str())).collect();
    let plans: StringArray = rows.iter().map(|r| Some(r.plan.as_str())).collect();
    let schema = Schema::new(vec![field("plan_type"), field("plan")]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(types) as ArrayRef, Arc::new(plans)])
}

/// The plan as written (if `verbose`), optimised, and as it would be executed.
pub(crate) async fn explain(
    context: &SessionContext,
    plan: &LogicalPlan,
    verbose: bool,
) -> DataFusionResult<Vec<ExplainRow>> {
    let mut rows = Vec::new();
    if verbose {
        rows.push(ExplainRow::new("initial_logical_plan", plan.display_indent_schema().to_string()));
    }
    let state = context.state();
    let optimised = state.optimize(plan)?;
    rows.push(ExplainRow::new("logical_plan", optimised.display_indent().to_string()));
    let physical = state.query_planner().create_physical_plan(&optimised, &state).await?;
    rows.push(ExplainRow::new("physical_plan", displayable(physical.as_ref()).indent(verbose).to_string()));
    Ok(rows)
}
