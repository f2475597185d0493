//! `TRAIN MODEL` as a node of a logical plan.

use crate::{
    series_column::SeriesColumn,
    train::{TrainJob, history},
};
use arrow::datatypes::Schema;
use datafusion::{
    common::{DFSchemaRef, plan_err},
    error::Result,
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
};
use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};
use voxelflow_stage::KEY_COLUMNS;

/// Trains a model. Its inputs are the rows to train on, the rows to validate on if there are any, features if there are
/// any, and the members of the gang; it yields one row for each epoch.
#[derive(Clone, Debug)]
pub struct TrainNode {
    job: Arc<TrainJob>,
    identity: String,
    train: LogicalPlan,
    validation: Option<LogicalPlan>,
    features: Option<LogicalPlan>,
    members: Vec<LogicalPlan>,
    schema: DFSchemaRef,
}

impl TrainNode {
    /// Trains as `job` says.
    ///
    /// # Errors
    /// Never: the columns of the history have different names.
    pub fn try_new(
        job: Arc<TrainJob>,
        train: LogicalPlan,
        validation: Option<LogicalPlan>,
        features: Option<LogicalPlan>,
    ) -> Result<Self> {
        let leaf = |member| LogicalPlan::Extension(Extension { node: Arc::new(member) });
        let members = job.members().into_iter().map(leaf).collect();
        let (identity, schema) = (job.identity(), history::schema()?);
        Ok(Self { identity, train, validation, features, members, schema, job })
    }

    /// What is trained.
    pub fn job(&self) -> &Arc<TrainJob> {
        &self.job
    }

    /// Whether the second input holds rows to validate on.
    pub(crate) fn validates(&self) -> bool {
        self.validation.is_some()
    }

    /// Whether the input after the rows holds features.
    pub(crate) fn has_features(&self) -> bool {
        self.features.is_some()
    }
}

/// Columns that a training reads: the series and what orders and names its rows.
fn necessary(schema: &Schema, column: &SeriesColumn) -> Vec<usize> {
    let read = |name: &String| *name == column.name || KEY_COLUMNS.contains(&name.as_str());
    schema.fields().iter().enumerate().filter(|(_, f)| read(f.name())).map(|(i, _)| i).collect()
}

impl UserDefinedLogicalNodeCore for TrainNode {
    fn name(&self) -> &str {
        "Train"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        [&self.train].into_iter().chain(&self.validation).chain(&self.features).chain(&self.members).collect()
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Train: {}", self.job)
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        if inputs.len() != self.inputs().len() {
            return plan_err!("Train has {} inputs, got {}", self.inputs().len(), inputs.len());
        }
        let mut inputs = inputs.into_iter();
        let Some(train) = inputs.next() else { return plan_err!("Train has no rows to train on") };
        let validation = if self.validation.is_some() { inputs.next() } else { None };
        let features = if self.features.is_some() { inputs.next() } else { None };
        Ok(Self { train, validation, features, members: inputs.collect(), ..self.clone() })
    }
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let rows = [&self.train].into_iter().chain(&self.validation);
        let rows = rows.enumerate().map(|(i, plan)| {
            let schema = plan.schema().as_arrow();
            let own = SeriesColumn::find("TRAIN MODEL", schema);
            necessary(
                schema,
                if i == 0 { &self.job.column } else { own.as_ref().unwrap_or(&self.job.column) },
            )
        });
        let features = self.features.iter().map(|plan| (0..plan.schema().fields().len()).collect());
        Some(rows.chain(features).chain(self.members.iter().map(|_| Vec::new())).collect())
    }
}

impl PartialEq for TrainNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.inputs() == other.inputs()
    }
}

impl Eq for TrainNode {}

impl Hash for TrainNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
        self.inputs().hash(state);
    }
}

impl PartialOrd for TrainNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.identity, self.inputs()).partial_cmp(&(&other.identity, other.inputs()))
    }
}
