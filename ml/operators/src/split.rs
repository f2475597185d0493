//! `FROM split(table, by => 'subject', test => 0.2, seed => 7)`: which rows are for training, as a column.
//!
//! ```text
//!   rows ──────────────────────────────────────────────┐
//!     └─► distinct groups ─► AssignGroups (one table) ──┴─► join by group ─► rows and `split` or `fold`
//! ```
//! The rows are read twice, the first time for the columns `by` and `stratify` only, and not cleaned. They stay where
//! they are, in the order in which they are; the table of groups goes to them.

mod assignment;
mod groups;
mod options;
mod rows;

use crate::{CleanNode, Error, NotFinite, Result};
use arrow::datatypes::{DataType, Field, Schema};
use assignment::Division;
use datafusion::{
    common::{DFSchema, DFSchemaRef, JoinType, NullEquality, plan_err},
    error::Result as PlanResult,
    logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore},
    physical_expr::{PhysicalExpr, expressions::Column},
    physical_plan::{
        ExecutionPlan,
        joins::{HashJoinExec, PartitionMode},
    },
};
use groups::AssignGroups;
pub use options::SplitOptions;
pub(crate) use options::names;
use options::refused;
use rows::SplitRows;
use serde_json::Value;
use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};
use voxelflow_dataset::{OptionMap, StageError, node_codec::WireSchema, nodes::UnaryExec};
use voxelflow_stage::{Provenance, parse_options};

/// Name of the operator in the pipeline language.
pub const SPLIT: &str = "split";
/// The column of `'train'`, `'validation'` and `'test'`.
pub const SPLIT_COLUMN: &str = "split";
/// The column of numbers of folds, from 0.
pub const FOLD_COLUMN: &str = "fold";

/// Splitting as a node of a logical plan: its inputs are the rows and their groups.
#[derive(Clone, Debug)]
pub struct SplitNode {
    rows: LogicalPlan,
    groups: LogicalPlan,
    by: Vec<String>,
    stratify: Vec<String>,
    division: Division,
    seed: u64,
    schema: DFSchemaRef,
}

impl SplitNode {
    /// # Errors
    /// Options that contradict each other, columns that are not there, a column `split` that is.
    pub fn try_new(rows: LogicalPlan, options: &SplitOptions) -> Result<Self> {
        let division = options.division()?;
        let by = columns_of(&rows, "by", &options.by)?;
        let stratify = columns_of(&rows, "stratify", &options.stratify)?;
        if by.is_empty() {
            return Err(refused("by", "names no column: write for example by => 'subject'"));
        }
        if let Some(name) = stratify.iter().find(|name| by.contains(name)) {
            return Err(refused("stratify", format!("`{name}` makes the groups already")));
        }
        let keys: BTreeSet<&String> = by.iter().chain(&stratify).collect();
        let named = keyed_alike(&rows);
        let keys = keys.into_iter().map(|name| column(named, name)).collect::<PlanResult<Vec<_>>>();
        let groups =
            keys.and_then(|keys| LogicalPlanBuilder::from(named.clone()).project(keys)?.distinct()?.build());
        let groups = groups.map_err(|e| unplanned(&e))?;
        Self::with_inputs(rows, groups, by, stratify, division, options.seed)
    }

    fn with_inputs(
        rows: LogicalPlan,
        groups: LogicalPlan,
        by: Vec<String>,
        stratify: Vec<String>,
        division: Division,
        seed: u64,
    ) -> Result<Self> {
        let (name, data_type) = division.column();
        let present = rows.schema();
        if present.field_with_unqualified_name(name).is_ok() {
            return Err(Error::Split {
                reason: format!(
                    "the table has a column `{name}` already; leave it out, as in SELECT * EXCEPT ({name})"
                ),
            });
        }
        let mut metadata = present.metadata().clone();
        let mut node =
            Self { schema: Arc::clone(present), rows: rows.clone(), groups, by, stratify, division, seed };
        if let Some(mut provenance) = Provenance::of(present.as_arrow())? {
            provenance.push_history(node.describe());
            metadata.extend(provenance.to_metadata()?);
        }
        let mut fields: Vec<_> = present.iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
        fields.push((None, Arc::new(Field::new(name, data_type, false))));
        let schema = DFSchema::new_with_metadata(fields, metadata).map_err(|e| unplanned(&e))?;
        node.schema = Arc::new(schema);
        Ok(node)
    }

    /// What it does, as it is written into the grid's history.
    pub fn describe(&self) -> String {
        let strata = match self.stratify.is_empty() {
            true => String::new(),
            false => format!(", as frequent in every part: {}", self.stratify.join(", ")),
        };
        format!("split: by {}, {}, seed {}{strata}", self.by.join(", "), self.division, self.seed)
    }
}

/// A plan whose rows have the same keys and cost less: series need not be cleaned to know whose they are.
fn keyed_alike(rows: &LogicalPlan) -> &LogicalPlan {
    match rows {
        LogicalPlan::SubqueryAlias(alias) => keyed_alike(&alias.input),
        LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<CleanNode>() {
            Some(clean) if clean.options().not_finite != NotFinite::Drop => keyed_alike(clean.input()),
            _ => rows,
        },
        _ => rows,
    }
}

/// The columns that an option names, all of which `rows` has.
fn columns_of(rows: &LogicalPlan, option: &str, value: &Value) -> Result<Vec<String>> {
    let names = names(SPLIT, option, value)?;
    let valid: Vec<String> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !valid.contains(name)) {
        let near = voxelflow_stage::nearest(unknown, &valid);
        let near = near.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
        let reason = format!("there is no column `{unknown}`{near}; the columns are: {}", valid.join(", "));
        return Err(refused(option, reason));
    }
    Ok(names)
}

/// The column `name` of `plan`, however its table is called.
fn column(plan: &LogicalPlan, name: &str) -> PlanResult<Expr> {
    let (qualifier, field) = plan.schema().qualified_field_with_unqualified_name(name)?;
    Ok(Expr::Column(datafusion::common::Column::from((qualifier, field))))
}

fn unplanned(e: &datafusion::error::DataFusionError) -> Error {
    Error::Split { reason: e.message().into_owned() }
}

/// Plans `split(rows, options…)`.
///
/// # Errors
/// An unknown option, a value that does not fit, a column that is not there.
pub fn plan_split(rows: LogicalPlan, options: &OptionMap) -> Result<LogicalPlan, StageError> {
    let options = parse_options::<SplitOptions>(SPLIT, options).map_err(Error::from)?;
    let node = Arc::new(SplitNode::try_new(rows, &options)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The physical plan of `node` over its planned inputs.
///
/// # Errors
/// Inputs that are not its own.
pub(crate) fn plan_split_exec(
    node: &SplitNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let [rows, groups] = inputs else { return plan_err!("{SPLIT} has two inputs, not {}", inputs.len()) };
    let assign = AssignGroups::try_new(&groups.schema(), node)?;
    let groups: Arc<dyn ExecutionPlan> = Arc::new(UnaryExec::try_new(assign, Arc::clone(groups))?);
    let place = |plan: &Arc<dyn ExecutionPlan>, name: &String| -> PlanResult<Arc<dyn PhysicalExpr>> {
        let index = plan.schema().index_of(name)?;
        Ok(Arc::new(Column::new(name, index)))
    };
    let on = node.by.iter().map(|name| Ok((place(&groups, name)?, place(rows, name)?)));
    let on = on.collect::<PlanResult<_>>()?;
    let first_of_rows = groups.schema().fields().len();
    let joined = HashJoinExec::try_new(
        groups,
        Arc::clone(rows),
        on,
        None,
        &JoinType::Inner,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    let schema = Schema::new_with_metadata(node.schema.fields().clone(), node.schema.metadata().clone());
    let split = SplitRows::new(first_of_rows, WireSchema(Arc::new(schema)));
    Ok(Arc::new(UnaryExec::try_new(split, Arc::new(joined))?))
}

impl UserDefinedLogicalNodeCore for SplitNode {
    fn name(&self) -> &str {
        "Split"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.rows, &self.groups]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Split: {}", self.describe().trim_start_matches("split: "))
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        let (Some(groups), Some(rows), true) = (inputs.pop(), inputs.pop(), inputs.is_empty()) else {
            return plan_err!("{SPLIT} has two inputs");
        };
        let (by, stratify, division) = (self.by.clone(), self.stratify.clone(), self.division);
        Ok(Self::with_inputs(rows, groups, by, stratify, division, self.seed)?)
    }
    /// Of the rows what is asked for and what makes the groups; of the groups all.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let rows = self.rows.schema().fields();
        let mut needed: BTreeSet<usize> =
            output_columns.iter().copied().filter(|c| *c < rows.len()).collect();
        needed.extend((0..rows.len()).filter(|c| self.by.contains(rows[*c].name())));
        let groups = (0..self.groups.schema().fields().len()).collect();
        Some(vec![needed.into_iter().collect(), groups])
    }
}

impl PartialEq for SplitNode {
    fn eq(&self, other: &Self) -> bool {
        self.describe() == other.describe() && self.rows == other.rows && self.groups == other.groups
    }
}

impl Eq for SplitNode {}

impl Hash for SplitNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.describe().hash(state);
        self.rows.hash(state);
        self.groups.hash(state);
    }
}

impl PartialOrd for SplitNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.describe(), &self.rows).partial_cmp(&(other.describe(), &other.rows))
    }
}

impl Division {
    /// Name and type of the column.
    fn column(self) -> (&'static str, DataType) {
        match self {
            Self::Shares { .. } => (SPLIT_COLUMN, DataType::Utf8),
            Self::Folds(_) => (FOLD_COLUMN, DataType::UInt32),
        }
    }
}
