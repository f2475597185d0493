//! Verbs that bring rows together by key: grouping, reducing, joining.

use crate::{
    Dataset,
    aggregates::sum,
    error::{Error, Result},
    functions::Function,
    nodes::{self, MapGroupsNode},
    transformations::extension,
};
use arrow::datatypes::Schema;
use datafusion::{
    common::JoinType,
    dataframe::DataFrame,
    error::Result as PlanResult,
    functions::core::expr_fn::coalesce,
    functions_aggregate::expr_fn::{array_agg, avg, count, max, min},
    logical_expr::{Expr, ident, lit},
};
use serde::Serialize;

/// How the values of a key become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// How many are not null.
    Count,
}

impl ReduceOp {
    fn over(self, column: &str) -> Expr {
        let value = ident(column);
        let reduced = match self {
            Self::Sum => sum(value),
            Self::Mean => avg(value),
            Self::Min => min(value),
            Self::Max => max(value),
            Self::Count => count(value),
        };
        reduced.alias(column)
    }
}

/// Rows that are to be grouped; see [`Dataset::group_by`].
#[derive(Clone, Debug)]
pub struct Grouped {
    dataset: Dataset,
    keys: Vec<Expr>,
}

impl Grouped {
    /// One row per group: its keys and what `expressions` aggregate.
    pub fn aggregate(&self, expressions: impl IntoIterator<Item = Expr>) -> Dataset {
        let expressions: Vec<Expr> = expressions.into_iter().collect();
        self.dataset.then_frame("aggregate", |frame| frame.aggregate(self.keys.clone(), expressions))
    }

    /// One row per group: its keys and the number of its rows as `count`.
    pub fn count(&self) -> Dataset {
        self.aggregate([count(lit(1)).alias("count")])
    }
}

impl Dataset {
    /// The column `key`, computed: for verbs that take keys.
    pub fn key_by(&self, expression: Expr) -> Self {
        self.then_frame("key_by", |frame| frame.with_column("key", expression))
    }

    /// Groups by what `keys` compute.
    pub fn group_by(&self, keys: impl IntoIterator<Item = Expr>) -> Grouped {
        Grouped { dataset: self.clone(), keys: keys.into_iter().collect() }
    }

    /// One row of what `expressions` aggregate over all rows: in each partition first, then of the partitions.
    pub fn aggregate(&self, expressions: impl IntoIterator<Item = Expr>) -> Self {
        let expressions: Vec<Expr> = expressions.into_iter().collect();
        self.then_frame("aggregate", |frame| frame.aggregate(Vec::new(), expressions))
    }

    /// One row per key; every other column becomes the list of its values.
    pub fn group_by_key(&self, keys: &[&str]) -> Self {
        self.then_frame("group_by_key", |frame| {
            let values =
                other_columns(&frame, keys)?.into_iter().map(|c| array_agg(ident(&c)).alias(c)).collect();
            frame.aggregate(key_columns(keys), values)
        })
    }

    /// One row per key: the keys and `values`, each reduced, in their places.
    ///
    /// ```no_run
    /// # use voxelflow_dataset::{Dataset, ReduceOp};
    /// # fn f(measurements: Dataset) {
    /// let per_subject = measurements.reduce_by_key(&["subject"], &[("r", ReduceOp::Mean), ("n", ReduceOp::Sum)]);
    /// # }
    /// ```
    pub fn reduce_by_key(&self, keys: &[&str], values: &[(&str, ReduceOp)]) -> Self {
        let values = values.iter().map(|(column, op)| op.over(column)).collect();
        self.then_frame("reduce_by_key", |frame| frame.aggregate(key_columns(keys), values))
    }

    /// Rows reduced by a function of your own: it is given rows of one key, any number of them, and gives one
    /// row (or few) with the same columns. It must not matter how rows are put together (associative, up to
    /// order): it is called on its own answers too.
    pub fn reduce_by_key_with<A: Serialize>(
        &self,
        keys: &[&str],
        function: Function<A>,
        arguments: A,
    ) -> Self {
        self.grouped("reduce_by_key_with", keys, function, &arguments, true)
    }

    /// What `function` gives for all rows of each key, together in one batch. A group must fit in memory.
    pub fn map_groups<A: Serialize>(&self, keys: &[&str], function: Function<A>, arguments: A) -> Self {
        self.grouped("map_groups", keys, function, &arguments, false)
    }

    fn grouped<A: Serialize>(
        &self,
        verb: &'static str,
        keys: &[&str],
        function: Function<A>,
        arguments: &A,
        fold: bool,
    ) -> Self {
        self.try_then(|dataset| {
            let (plan, schema) = (dataset.logical_plan()?, dataset.schema()?);
            check_keys(verb, keys, &schema)?;
            let call = function.call(arguments)?;
            let given = nodes::output_schema(&call, &schema, dataset.engine().broadcasts())?;
            let output = if fold { same_as_input(verb, &schema, &given)? } else { given };
            let node = MapGroupsNode::try_new(plan.clone(), keys, call, &output, fold);
            Ok(extension(node.map_err(|e| Error::planning(verb, e))?))
        })
    }

    /// Rows of both whose `keys` are equal; which rows without a partner stay is `how`. Key columns come once.
    pub fn join(&self, other: &Self, keys: &[&str], how: JoinType) -> Self {
        self.try_then(|dataset| {
            let (left, right) = (dataset.to_frame()?, other.to_frame()?);
            let joined = join_frames(left, right, keys, how).map_err(|e| Error::planning("join", e))?;
            Ok(joined.into_unoptimized_plan())
        })
    }

    /// One row per key of either: its values in both, as lists, null where a side has none.
    pub fn cogroup(&self, other: &Self, keys: &[&str]) -> Self {
        self.group_by_key(keys).join(&other.group_by_key(keys), keys, JoinType::Full)
    }
}

fn key_columns(keys: &[&str]) -> Vec<Expr> {
    keys.iter().map(|k| ident(*k)).collect()
}

fn other_columns(frame: &DataFrame, keys: &[&str]) -> PlanResult<Vec<String>> {
    for key in keys {
        frame.schema().field_with_unqualified_name(key)?;
    }
    let names = frame.schema().fields().iter().map(|f| f.name().clone());
    Ok(names.filter(|name| !keys.contains(&name.as_str())).collect())
}

fn check_keys(verb: &'static str, keys: &[&str], schema: &Schema) -> Result<()> {
    if keys.is_empty() {
        return Err(Error::plan(verb, "it needs at least one key column"));
    }
    match keys.iter().find(|k| schema.field_with_name(k).is_err()) {
        Some(missing) => {
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Err(Error::plan(verb, format!("no column `{missing}`; the columns are {}", names.join(", "))))
        }
        None => Ok(()),
    }
}

/// A function that is called on its own answers gives what it takes.
pub(crate) fn same_as_input(verb: &'static str, input: &Schema, given: &Schema) -> Result<Schema> {
    let alike =
        |s: &Schema| s.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>();
    if alike(input) == alike(given) {
        return Ok(input.clone());
    }
    Err(Error::plan(verb, "the function gives other columns than it takes; it must give the same"))
}

/// Joins on equal names. Sides are renamed first, so that a dataset can be joined with itself.
fn join_frames(left: DataFrame, right: DataFrame, keys: &[&str], how: JoinType) -> PlanResult<DataFrame> {
    const RIGHT: &str = "__right_";
    let left_others = other_columns(&left, keys)?;
    let right_others = other_columns(&right, keys)?;
    let one_side = match how {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Some(true),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => Some(false),
        _ => None,
    };
    if let (None, Some(both)) = (one_side, left_others.iter().find(|c| right_others.contains(c))) {
        let reason = format!("both sides have a column `{both}`: rename or drop it on one side");
        return Err(datafusion::error::DataFusionError::Plan(reason));
    }
    let left = left.select(rename(keys.iter().copied(), &left_others, ""))?;
    let right = right.select(rename(keys.iter().copied(), &right_others, RIGHT))?;
    let right_keys: Vec<String> = keys.iter().map(|k| format!("{RIGHT}{k}")).collect();
    let right_names: Vec<&str> = right_keys.iter().map(String::as_str).collect();
    let joined = left.join(right, how, keys, &right_names, None)?;
    let restore = |name: &String| ident(format!("{RIGHT}{name}")).alias(name);
    let columns: Vec<Expr> = match one_side {
        Some(true) => keys.iter().map(|k| ident(*k)).chain(left_others.iter().map(ident)).collect(),
        Some(false) => {
            let keys = keys.iter().map(|k| ident(format!("{RIGHT}{k}")).alias(*k));
            keys.chain(right_others.iter().map(restore)).collect()
        }
        None => {
            let right_key = |key: &str| ident(format!("{RIGHT}{key}"));
            let keys = keys.iter().map(|key| match how {
                JoinType::Right => right_key(key).alias(*key),
                JoinType::Full => coalesce(vec![ident(*key), right_key(key)]).alias(*key),
                _ => ident(*key),
            });
            keys.chain(left_others.iter().map(ident)).chain(right_others.iter().map(restore)).collect()
        }
    };
    joined.select(columns)
}

fn rename<'a>(keys: impl Iterator<Item = &'a str>, others: &'a [String], prefix: &str) -> Vec<Expr> {
    keys.chain(others.iter().map(String::as_str)).map(|c| ident(c).alias(format!("{prefix}{c}"))).collect()
}
