//! Verbs that make one dataset from another, row by row or partition by partition.

use crate::{
    Dataset,
    error::{Error, Result},
    functions::Function,
    nodes::{self, CoalesceNode, MapPartitionsNode, RepartitionNode, ZipWithIndexNode},
    row_hash,
};
use arrow::datatypes::Schema;
use datafusion::{
    error::Result as PlanResult,
    logical_expr::{
        Expr, Extension, LogicalPlan, LogicalPlanBuilder, SortExpr, UserDefinedLogicalNode, ident,
    },
};
use serde::Serialize;
use std::sync::Arc;

/// A plan whose top is `node`.
pub(crate) fn extension(node: impl UserDefinedLogicalNode + 'static) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// All columns of `plan`.
pub(crate) fn all_columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// Columns and rows.
impl Dataset {
    /// The columns that `expressions` compute.
    pub fn select(&self, expressions: impl IntoIterator<Item = Expr>) -> Self {
        let expressions: Vec<Expr> = expressions.into_iter().collect();
        self.then_frame("select", |frame| frame.select(expressions))
    }

    /// The columns called `names`, spelled as they are.
    pub fn select_columns(&self, names: &[&str]) -> Self {
        self.then_frame("select_columns", |frame| frame.select(names.iter().map(|n| ident(*n))))
    }

    /// All columns but those called `names`.
    pub fn drop_columns(&self, names: &[&str]) -> Self {
        self.try_then(|dataset| {
            let frame = dataset.to_frame()?;
            for name in names {
                let found = frame.schema().field_with_unqualified_name(name);
                found.map_err(|e| Error::planning("drop_columns", e))?;
            }
            let frame = frame.drop_columns(names).map_err(|e| Error::planning("drop_columns", e))?;
            Ok(frame.into_unoptimized_plan())
        })
    }

    /// The rows for which `predicate` is true.
    pub fn filter(&self, predicate: Expr) -> Self {
        self.then_frame("filter", |frame| frame.filter(predicate))
    }

    /// A column more, or another in place of the one that is called so.
    pub fn with_column(&self, name: &str, expression: Expr) -> Self {
        self.then_frame("with_column", |frame| frame.with_column(name, expression))
    }

    /// The rows in order; all in one partition at the end, sorted in parts before, spilling where memory is short.
    pub fn sort_by(&self, by: impl IntoIterator<Item = SortExpr>) -> Self {
        let by: Vec<SortExpr> = by.into_iter().collect();
        self.then_frame("sort_by", |frame| frame.sort(by))
    }

    /// At most `rows` rows, whichever come first.
    pub fn limit(&self, rows: usize) -> Self {
        self.then_frame("limit", |frame| frame.limit(0, Some(rows)))
    }

    /// The rows of both; the columns must be the same, by position.
    pub fn union(&self, other: &Self) -> Self {
        self.try_then(|dataset| {
            let (left, right) = (dataset.logical_plan()?.clone(), other.logical_plan()?.clone());
            same_columns(left.schema().as_arrow(), right.schema().as_arrow())?;
            build(LogicalPlanBuilder::from(left).union(right)).map_err(|e| Error::planning("union", e))
        })
    }

    /// Every row once.
    pub fn distinct(&self) -> Self {
        self.then_frame("distinct", |frame| frame.distinct())
    }

    /// A share of about `fraction` of the rows. A row is in or out by a hash of `seed` and its values, so the
    /// sample is the same for any number of partitions and any order; equal rows are in or out together.
    /// Where rows repeat, or are wide and have a key, use [`Dataset::sample_by`].
    pub fn sample(&self, fraction: f64, seed: u64) -> Self {
        self.sampled("sample", fraction, seed, |plan| Ok(all_columns(plan)))
    }

    /// As [`Dataset::sample`] by the columns `keys` alone: rows with equal keys are in or out together, and
    /// the other columns of the rows that are out need not be read.
    pub fn sample_by(&self, keys: &[&str], fraction: f64, seed: u64) -> Self {
        self.sampled("sample_by", fraction, seed, |_| Ok(keys.iter().map(|k| ident(*k)).collect()))
    }

    fn sampled(
        &self,
        verb: &'static str,
        fraction: f64,
        seed: u64,
        columns: impl FnOnce(&LogicalPlan) -> Result<Vec<Expr>>,
    ) -> Self {
        self.try_then(|dataset| {
            if !(0.0..=1.0).contains(&fraction) {
                return Err(Error::plan(verb, format!("a fraction of {fraction} is not between 0 and 1")));
            }
            let plan = dataset.logical_plan()?.clone();
            let keep = row_hash::keep(fraction, seed, columns(&plan)?);
            build(LogicalPlanBuilder::from(plan).filter(keep)).map_err(|e| Error::planning(verb, e))
        })
    }

    /// A running number as the column `column` (UInt64, from 0), partition by partition.
    ///
    /// With several partitions the input is run twice: first to count its rows. An input that is not the same
    /// twice is refused; [`Dataset::persist`] it before.
    pub fn zip_with_index(&self, column: &str) -> Self {
        self.then("zip_with_index", |plan| Ok(extension(ZipWithIndexNode::try_new(plan, column)?)))
    }
}

/// Partitions.
impl Dataset {
    /// The rows dealt out evenly over `partitions` partitions.
    pub fn repartition(&self, partitions: usize) -> Self {
        self.with_partitions("repartition", partitions, |plan| {
            extension(RepartitionNode::new(plan, partitions))
        })
    }

    /// At most `partitions` partitions, made of neighbouring ones without moving rows.
    pub fn coalesce(&self, partitions: usize) -> Self {
        self.with_partitions("coalesce", partitions, |plan| extension(CoalesceNode::new(plan, partitions)))
    }

    fn with_partitions(
        &self,
        verb: &'static str,
        partitions: usize,
        next: impl FnOnce(LogicalPlan) -> LogicalPlan,
    ) -> Self {
        self.try_then(|dataset| {
            let plan = dataset.logical_plan()?.clone();
            if partitions == 0 { Err(Error::plan(verb, "0 partitions hold no rows")) } else { Ok(next(plan)) }
        })
    }
}

/// Named functions.
impl Dataset {
    /// The batches that `function` gives for the batches of every partition, one after the other.
    ///
    /// The columns are those of its answer to an empty batch, which it is given when the plan is made; schema
    /// metadata that it does not set are kept. Rows may be more or fewer than they were.
    pub fn map_partitions<A: Serialize>(&self, function: Function<A>, arguments: A) -> Self {
        self.mapped(function, &arguments, None)
    }

    /// As [`Dataset::map_partitions`], with the columns told.
    pub fn map_partitions_to<A: Serialize>(
        &self,
        schema: &Schema,
        function: Function<A>,
        arguments: A,
    ) -> Self {
        self.mapped(function, &arguments, Some(schema))
    }

    /// As [`Dataset::map_partitions`]: for a function that gives several batches for one.
    pub fn flat_map<A: Serialize>(&self, function: Function<A>, arguments: A) -> Self {
        self.mapped(function, &arguments, None)
    }

    fn mapped<A: Serialize>(&self, function: Function<A>, arguments: &A, schema: Option<&Schema>) -> Self {
        self.try_then(|dataset| {
            let call = function.call(arguments)?;
            let schema = match schema {
                Some(schema) => schema.clone(),
                None => nodes::output_schema(&call, &dataset.schema()?, dataset.engine().broadcasts())?,
            };
            let node = MapPartitionsNode::try_new(dataset.logical_plan()?.clone(), call, &schema, false);
            Ok(extension(node.map_err(|e| Error::planning("map_partitions", e))?))
        })
    }

    /// The plan that calls `function` for its effect.
    pub(crate) fn for_effect<A: Serialize>(&self, function: Function<A>, arguments: &A) -> Self {
        self.try_then(|dataset| {
            let (call, schema) = (function.call(arguments)?, dataset.schema()?);
            let node = MapPartitionsNode::try_new(dataset.logical_plan()?.clone(), call, &schema, true);
            Ok(extension(node.map_err(|e| Error::planning("foreach_partition", e))?))
        })
    }
}

fn same_columns(left: &Schema, right: &Schema) -> Result<()> {
    let (l, r) = (left.fields().len(), right.fields().len());
    if l != r {
        return Err(Error::plan(
            "union",
            format!("{l} columns and {r} columns: select the same columns of both"),
        ));
    }
    match left.fields().iter().zip(right.fields()).find(|(a, b)| a.name() != b.name()) {
        Some((a, b)) => {
            let reason =
                format!("column `{}` meets column `{}`: select the same columns of both", a.name(), b.name());
            Err(Error::plan("union", reason))
        }
        None => Ok(()),
    }
}

/// The plan of a builder that may have failed.
fn build(builder: PlanResult<LogicalPlanBuilder>) -> PlanResult<LogicalPlan> {
    builder.and_then(LogicalPlanBuilder::build)
}
