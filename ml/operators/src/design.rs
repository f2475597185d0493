//! `FROM design(bold, hrf_model => 'glover', …)`: what happened in the runs of a table, as regressors.
//!
//! ```text
//!   bold ─► its runs (distinct keys) ─► DesignNode: events of each ─► one row per run and regressor
//!           filters of the table choose the runs
//! ```
//!
//! Only key columns of the table are read. Which events a run has, and how long it is, stands in the table's schema.

use crate::design_runs::{Points, RunDesigns};
use crate::{DesignExec, DesignOptions, Error, Result, series_column::SeriesColumn};
use arrow::datatypes::{DataType, Field};
use datafusion::{
    common::{Column, DFSchema, DFSchemaRef, DataFusionError, TableReference, plan_err},
    logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore},
    physical_plan::ExecutionPlan,
};
use std::{
    cmp::Ordering,
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};
use voxelflow_dataset::{OptionMap, StageError};
use voxelflow_stage::{KEY_COLUMNS, Provenance, RunFiles, RunVolumes, SERIES_COLUMN, parse_options};

/// Name of the operator in the pipeline language.
pub const DESIGN: &str = "design";
/// Key of the schema metadata that say with which options a design was made, in JSON.
pub const DESIGN_METADATA_KEY: &str = "voxelflow.design";
/// The column of names of regressors.
pub(crate) const REGRESSOR_COLUMN: &str = "regressor";
/// Key columns that tell runs apart.
pub(crate) const RUN_COLUMNS: usize = 4;

/// Designs as a node of a logical plan: rows of its input are the keys of runs, rows of its output their regressors.
#[derive(Clone)]
pub struct DesignNode {
    input: LogicalPlan,
    designs: Arc<RunDesigns>,
    identity: String,
    schema: DFSchemaRef,
}

impl DesignNode {
    /// Designs of the runs of `table`, which has their keys and series.
    ///
    /// # Errors
    /// A table without series or without key columns, or that knows no runs; options that do not fit it.
    pub fn try_new(table: LogicalPlan, options: DesignOptions) -> Result<Self> {
        let columns = table.schema().as_arrow();
        let SeriesColumn { time_points, lengths, .. } = SeriesColumn::find_told(DESIGN, columns)?;
        let t_r = Provenance::of(columns)?.as_ref().and_then(Provenance::t_r);
        let points = Points { longest: time_points, lengths, kept: RunVolumes::of(columns)? };
        let designs = RunDesigns::try_new(RunFiles::of(columns)?, options, points, t_r)?;
        let keys: Vec<Expr> = KEY_COLUMNS[..RUN_COLUMNS]
            .iter()
            .map(|name| Ok(Expr::Column(key_column(table.schema(), name)?)))
            .collect::<Result<_>>()?;
        let runs = LogicalPlanBuilder::from(table)
            .project(keys)
            .and_then(LogicalPlanBuilder::distinct)
            .and_then(LogicalPlanBuilder::build)
            .map_err(|e| voxelflow_stage::Error::Data { what: DESIGN.into(), reason: e.to_string() })?;
        Self::over(runs, Arc::new(designs))
    }

    fn over(input: LogicalPlan, designs: Arc<RunDesigns>) -> Result<Self> {
        let identity = designs.identity()?;
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> =
            input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        fields.push((None, Arc::new(Field::new(REGRESSOR_COLUMN, DataType::Utf8, false))));
        fields.push((None, Arc::new(Field::new(SERIES_COLUMN, designs.series_type(), false))));
        let schema = DFSchema::new_with_metadata(fields, designs.metadata()?)
            .map_err(|e| voxelflow_stage::Error::Data { what: DESIGN.into(), reason: e.to_string() })?;
        Ok(Self { input, designs, identity, schema: Arc::new(schema) })
    }
}

fn key_column(schema: &DFSchema, name: &'static str) -> Result<Column> {
    schema
        .iter()
        .find(|(_, field)| field.name() == name && field.data_type().is_string())
        .map(|(qualifier, field)| Column::new(qualifier.cloned(), field.name()))
        .ok_or_else(|| Error::Column {
            operator: DESIGN,
            column: name,
            needed: "Utf8, to tell the runs of a table apart",
            found: "which the table lacks".into(),
            columns: schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect(),
        })
}

/// Plans `design(table, options…)`.
///
/// # Errors
/// An unknown option or a value that does not fit the data, with the option's name.
pub fn plan_design(table: LogicalPlan, options: &OptionMap) -> Result<LogicalPlan, StageError> {
    let options = parse_options::<DesignOptions>(DESIGN, options).map_err(Error::from)?;
    let node = Arc::new(DesignNode::try_new(table, options)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The physical plan of `node` over its planned input.
///
/// # Errors
/// Not exactly one input.
pub fn plan_design_exec(
    node: &DesignNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let [input] = inputs else {
        return plan_err!("{DESIGN} has one input, not {}", inputs.len());
    };
    Ok(Arc::new(DesignExec::try_new(Arc::clone(input), Arc::clone(&node.designs))?))
}

impl UserDefinedLogicalNodeCore for DesignNode {
    fn name(&self) -> &str {
        "Design"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    /// A run has its design by itself, so runs may be filtered before; what is made here may not.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::from([REGRESSOR_COLUMN, SERIES_COLUMN].map(str::to_owned))
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Design: {}", self.identity)
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self, DataFusionError> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self::over(input, Arc::clone(&self.designs))?),
            _ => plan_err!("{DESIGN} has one input"),
        }
    }

    /// All keys, whatever is asked for: they say which run it is.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..RUN_COLUMNS).collect()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

impl fmt::Debug for DesignNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DesignNode").field("input", &self.input).field("options", &self.identity).finish()
    }
}

impl PartialEq for DesignNode {
    fn eq(&self, other: &Self) -> bool {
        self.designs == other.designs && self.input == other.input
    }
}

impl Eq for DesignNode {}

impl Hash for DesignNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for DesignNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.identity, &self.input).partial_cmp(&(&other.identity, &other.input))
    }
}
