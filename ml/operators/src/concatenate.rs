//! `FROM concatenate(table, by => 'subject, session, task')`: the series of a voxel over several runs, as one series.
//!
//! ```text
//!   rows ─► by group and voxel, sorted (spilling where memory is short) ─► ConcatenateExec: one voxel at a time
//! ```
//! Which runs there are, and their order, is known when the statement is planned, so the length of the series stands in
//! their type. Key columns that tell the runs apart are empty afterwards; where each run lies is in the metadata.

mod exec;
mod gather;
mod runs;

use crate::{Error, Result, SeriesColumn, series_column::series_type, split::names};
use arrow::datatypes::{Field, Schema};
use datafusion::{
    common::{DFSchema, DFSchemaRef, plan_err},
    error::Result as PlanResult,
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_plan::ExecutionPlan,
};
use exec::Concatenate;
use runs::RunOrder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};
use voxelflow_dataset::{OptionMap, StageError, node_codec::WireSchema, nodes::UnaryExec};
use voxelflow_stage::{KEY_COLUMNS, Provenance, RUNS_METADATA_KEY, RunFiles, Segments, parse_options};

/// Name of the operator in the pipeline language.
pub const CONCATENATE: &str = "concatenate";
/// Key columns that may tell runs apart: a subject is never mixed with another one, nor a space.
const APART: [&str; 3] = ["session", "task", "run"];
/// Key columns that always make a group.
const TOGETHER: [&str; 2] = ["subject", "space"];
/// Columns that say which point of the brain a row is of; the first ones that a table has count.
const POINTS: [&[&str]; 6] =
    [&["voxel"], &["parcel"], &["grayordinate"], &["structure", "vertex"], &["vertex"], &["row"]];

/// What becomes of a voxel that some run lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingRun {
    /// The job fails and names the voxel and the run.
    #[default]
    Error,
    /// The voxel is left out, and counted.
    Drop,
}

/// Options of `concatenate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConcatenateOptions {
    /// Key columns whose rows are joined, as `'subject, session, task'` or a list; the other ones of session, task and
    /// run tell the runs apart.
    pub by: Value,
    /// The runs in their order in time, as `['1', '2']`; of several columns as `['ses-a/1', 'ses-a/2']`. Not needed
    /// where the table knows its runs, and their names say the order.
    pub runs: Value,
    /// What becomes of a voxel that some run lacks.
    pub missing: MissingRun,
}

impl Default for ConcatenateOptions {
    fn default() -> Self {
        let by = Value::String("subject, session, task".into());
        Self { by, runs: Value::Null, missing: MissingRun::Error }
    }
}

fn refused(option: &str, reason: impl Into<String>) -> Error {
    let (what, option) = (CONCATENATE.into(), option.into());
    voxelflow_stage::Error::OptionValue { what, option, reason: reason.into() }.into()
}

/// Concatenation as a node of a logical plan.
#[derive(Clone, Debug)]
pub struct ConcatenateNode {
    input: LogicalPlan,
    /// Columns whose rows are joined.
    by: Vec<String>,
    /// Columns of the point, for example the voxel.
    point: Vec<String>,
    order: RunOrder,
    missing: MissingRun,
    series: SeriesColumn,
    schema: DFSchemaRef,
}

impl ConcatenateNode {
    /// # Errors
    /// A table without voxels, a grid or series of one length; runs that are not known; options that do not fit.
    pub fn try_new(input: LogicalPlan, options: &ConcatenateOptions) -> Result<Self> {
        let columns = input.schema().as_arrow();
        if Segments::of(columns)?.is_some() {
            return Err(Error::Concatenate { reason: "the series are of several runs already".into() });
        }
        let (by, apart) = groups_and_runs(columns, &options.by)?;
        let given = names(CONCATENATE, "runs", &options.runs)?;
        let order = match given.is_empty() {
            true => RunOrder::of_files(&RunFiles::of(columns)?, &by, apart)?,
            false => RunOrder::given(given, apart)?,
        };
        Self::with_order(input, by, order, options.missing)
    }

    fn with_order(input: LogicalPlan, by: Vec<String>, order: RunOrder, missing: MissingRun) -> Result<Self> {
        let columns = input.schema().as_arrow();
        let series = SeriesColumn::find(CONCATENATE, columns)?;
        let point = point_of(columns)?;
        let schema = joined_schema(input.schema(), &series, &order, &by)?;
        Ok(Self { by, point, order, missing, series, schema: Arc::new(schema), input })
    }

    /// What it does, as it is written into the grid's history.
    pub fn describe(&self) -> String {
        describe(&self.order, &self.series, &self.by)
    }
}

fn describe(order: &RunOrder, series: &SeriesColumn, by: &[String]) -> String {
    let (runs, points) = (order.labels(), series.time_points);
    format!(
        "concatenate: by {}, {} {} ({} × {points} points)",
        by.join(", "),
        order.columns().join("/"),
        runs.join(", "),
        runs.len()
    )
}

/// The columns that say which point of the brain a row is of.
fn point_of(schema: &Schema) -> Result<Vec<String>> {
    let has = |names: &&&[&str]| names.iter().all(|name| schema.field_with_name(name).is_ok());
    let found = POINTS.iter().find(has).ok_or_else(|| Error::Column {
        operator: CONCATENATE,
        column: POINTS[0][0],
        needed: "UInt32",
        found: "which the table lacks".into(),
        columns: schema.fields().iter().map(|f| f.name().clone()).collect(),
    })?;
    Ok(found.iter().map(|name| (*name).to_owned()).collect())
}

/// Columns whose rows are joined, and those that tell the runs apart.
fn groups_and_runs(schema: &Schema, by: &Value) -> Result<(Vec<String>, Vec<String>)> {
    let named = names(CONCATENATE, "by", by)?;
    let present = |name: &&str| schema.field_with_name(name).is_ok();
    let known: Vec<&str> = TOGETHER.iter().chain(&APART[..2]).copied().collect();
    if let Some(odd) = named.iter().find(|name| !known.contains(&name.as_str())) {
        let reason = match odd.as_str() {
            "run" => "`run` tells the runs apart: leave it out".to_owned(),
            _ => format!("`{odd}` is none of {}", known.join(", ")),
        };
        return Err(refused("by", reason));
    }
    let is_named = |name: &str| named.iter().any(|n| n == name);
    let groups = KEY_COLUMNS.iter().copied().filter(present);
    let groups = groups.filter(|name| TOGETHER.contains(name) || APART.contains(name) && is_named(name));
    let apart = APART.iter().copied().filter(present).filter(|name| !is_named(name));
    let (groups, apart): (Vec<String>, Vec<String>) =
        (groups.map(str::to_owned).collect(), apart.map(str::to_owned).collect());
    if apart.is_empty() {
        return Err(refused("by", "leaves no column that tells the runs apart: session, task or run"));
    }
    Ok((groups, apart))
}

/// The columns of the input; those that told runs apart can be null, and the series are longer.
fn joined_schema(
    input: &DFSchemaRef,
    series: &SeriesColumn,
    order: &RunOrder,
    by: &[String],
) -> Result<DFSchema> {
    let columns = input.as_arrow();
    let Some(mut provenance) = Provenance::of(columns)? else {
        let reason = "the table carries no grid (or mixes several): take it from a table of images, or from tables made \
                      of one"
            .into();
        return Err(Error::Concatenate { reason });
    };
    let length = order.labels().len() * series.time_points;
    if i32::try_from(length).is_err() {
        return Err(Error::Concatenate { reason: format!("series of {length} points are too long") });
    }
    let joined = |field: &Arc<Field>| {
        let field = field.as_ref().clone();
        match field.name() {
            name if *name == series.name => field.with_data_type(series_type(length)).with_nullable(false),
            name if order.columns().contains(name) => field.with_nullable(true),
            _ => field,
        }
    };
    let fields = input.iter().map(|(q, field)| (q.cloned(), Arc::new(joined(field)))).collect();
    let mut metadata = input.metadata().clone();
    metadata.remove(RUNS_METADATA_KEY);
    let segments = Segments { runs: order.labels().to_vec(), time_points: series.time_points };
    metadata.extend(segments.to_metadata()?);
    provenance.push_history(describe(order, series, by));
    metadata.extend(provenance.to_metadata()?);
    DFSchema::new_with_metadata(fields, metadata)
        .map_err(|e| Error::Concatenate { reason: e.message().into_owned() })
}

/// Plans `concatenate(input, options…)`.
///
/// # Errors
/// An unknown option, a value that does not fit, a table that lacks what is needed.
pub fn plan_concatenate(input: LogicalPlan, options: &OptionMap) -> Result<LogicalPlan, StageError> {
    let options = parse_options::<ConcatenateOptions>(CONCATENATE, options).map_err(Error::from)?;
    let node = Arc::new(ConcatenateNode::try_new(input, &options)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The physical plan of `node` over its planned input.
///
/// # Errors
/// An input that is not its own.
pub(crate) fn plan_concatenate_exec(
    node: &ConcatenateNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let [input] = inputs else { return plan_err!("{CONCATENATE} has one input, not {}", inputs.len()) };
    let schema = WireSchema(Arc::new(node.schema.as_arrow().clone()));
    let operator = Concatenate::try_new(node, &input.schema(), schema)?;
    Ok(Arc::new(UnaryExec::try_new(operator, Arc::clone(input))?))
}

impl UserDefinedLogicalNodeCore for ConcatenateNode {
    fn name(&self) -> &str {
        "Concatenate"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Concatenate: {}", self.describe().trim_start_matches("concatenate: "))
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => {
                Ok(Self::with_order(input, self.by.clone(), self.order.clone(), self.missing)?)
            }
            _ => plan_err!("{CONCATENATE} has one input"),
        }
    }
    /// A voxel is in or out by all its runs, so rows are left out before only by what its runs have in common.
    fn prevent_predicate_push_down_columns(&self) -> std::collections::HashSet<String> {
        let common = |name: &String| self.by.contains(name) || self.point.contains(name);
        let columns = self.schema.fields().iter().map(|f| f.name().clone());
        columns.filter(|name| !common(name)).collect()
    }
    /// Beside the columns asked for: the series, the keys, and where the voxel is.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut columns: BTreeSet<usize> = output_columns.iter().copied().collect();
        let fields = self.schema.fields();
        let needed = |name: &String| {
            *name == self.series.name || self.point.contains(name) || KEY_COLUMNS.contains(&name.as_str())
        };
        columns.extend((0..fields.len()).filter(|c| needed(fields[*c].name())));
        Some(vec![columns.into_iter().collect()])
    }
}

impl PartialEq for ConcatenateNode {
    fn eq(&self, other: &Self) -> bool {
        self.describe() == other.describe() && self.missing == other.missing && self.input == other.input
    }
}

impl Eq for ConcatenateNode {}

impl Hash for ConcatenateNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.describe().hash(state);
        self.missing.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for ConcatenateNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.describe(), &self.input).partial_cmp(&(other.describe(), &other.input))
    }
}
