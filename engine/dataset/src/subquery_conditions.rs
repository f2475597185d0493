//! Conditions on a subquery wherever they stand: `x IN (…)`, `x NOT IN (…)`, `EXISTS (…)`.
//!
//! DataFusion makes joins of those in WHERE and HAVING. Of one within OR or CASE it makes a mark that is true or false, never
//! null, so that `NOT IN` is true where it should be null; of `NOT IN` with a correlated query, a join that lets a null of one
//! outer row decide for all; outside WHERE and HAVING it knows none. Here these count the subquery's rows instead:
//!
//! ```text
//!   x IN (SELECT y …)  =  CASE WHEN rows with y = x > 0                    THEN true
//!                              WHEN x IS NOT NULL AND rows without y = 0   THEN false
//!                              WHEN rows = 0                               THEN false END
//! ```

use datafusion::{
    common::{
        JoinType, Result, ScalarValue,
        config::ConfigOptions,
        plan_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    functions_aggregate::expr_fn::count,
    logical_expr::{
        BinaryExpr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
        expr::{Exists, Expr, InSubquery},
        expr_rewriter::NamePreserver,
        lit, not, when,
    },
    optimizer::AnalyzerRule,
};
use std::sync::Arc;

/// The column of a count.
const COUNTED: &str = "__rows_of_subquery";

/// Puts conditions that would be answered wrongly, or not at all, in other words.
#[derive(Debug)]
pub(crate) struct SubqueryConditions;

impl AnalyzerRule for SubqueryConditions {
    fn name(&self) -> &str {
        "subquery_conditions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(of_node)?.data)
    }
}

fn of_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Filter(Filter { predicate, input, .. }) if asks(&predicate)? => {
            let predicate = condition(predicate, &input, true)?;
            Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
        }
        LogicalPlan::Projection(_) => {
            let input = Arc::new(node.inputs()[0].clone());
            let names = NamePreserver::new(&node);
            let changed = node.map_expressions(|expr| {
                if !asks(&expr)? {
                    return Ok(Transformed::no(expr));
                }
                let name = names.save(&expr);
                Ok(Transformed::yes(name.restore(value(expr, &input, true)?)))
            })?;
            if changed.transformed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
        }
        // DataFusion makes a filter of what an inner join asks.
        LogicalPlan::Join(ref join) if join.join_type == JoinType::Inner => Ok(Transformed::no(node)),
        other => {
            other.apply_expressions(|expr| match asks(expr)? {
                true => plan_err!(
                    "IN, NOT IN or EXISTS of a subquery is not understood in {}; compute it in a query below, as a column",
                    place(&other)
                ),
                false => Ok(TreeNodeRecursion::Continue),
            })?;
            Ok(Transformed::no(other))
        }
    }
}

fn place(node: &LogicalPlan) -> &'static str {
    match node {
        LogicalPlan::Join(_) => "ON of an outer join",
        LogicalPlan::Aggregate(_) => "an aggregate or GROUP BY",
        LogicalPlan::Window(_) => "a window",
        LogicalPlan::Sort(_) => "ORDER BY",
        _ => "this place",
    }
}

/// True if a subquery decides about something in `expr`.
fn asks(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))))
}

/// A condition of which null means no more than false: it chooses rows. `alone`: no other condition can make up for it.
fn condition(expr: Expr, input: &Arc<LogicalPlan>, alone: bool) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let alone = alone && op == Operator::And;
            let (left, right) = (condition(*left, input, alone)?, condition(*right, input, alone)?);
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        Expr::Not(inner) => match *inner {
            Expr::Not(inner) => condition(*inner, input, alone),
            Expr::InSubquery(asked) => {
                let asked = InSubquery { negated: !asked.negated, ..asked };
                condition(Expr::InSubquery(asked), input, alone)
            }
            Expr::Exists(asked) => Ok(Expr::Exists(Exists { negated: !asked.negated, ..asked })),
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let op = if op == Operator::And { Operator::Or } else { Operator::And };
                let parts = BinaryExpr::new(Box::new(not(*left)), op, Box::new(not(*right)));
                condition(Expr::BinaryExpr(parts), input, alone)
            }
            other => value(not(other), input, false),
        },
        // A join or a mark is right for these.
        Expr::Exists(_) => Ok(expr),
        Expr::InSubquery(ref asked)
            if !asked.negated || (alone && is_apart(asked)) || !is_nullable(asked, input)? =>
        {
            Ok(expr)
        }
        // Each row outside has a list of its own: one that has it, or that may have it, is looked for.
        Expr::InSubquery(asked) if asked.negated && !is_apart(&asked) => {
            let (x, y) = sides(&asked, input)?;
            let rows = list(&asked.subquery)?.filter(y.eq(x).is_not_false())?.build()?;
            Ok(Expr::Exists(Exists { subquery: over(rows, &asked.subquery), negated: true }))
        }
        other => value(other, input, false),
    }
}

/// A value, of which null may mean something. Marks, which `everything` is to be without, are known in a filter only.
fn value(expr: Expr, input: &Arc<LogicalPlan>, everything: bool) -> Result<Expr> {
    let replaced = expr.transform_down(|expr| match expr {
        Expr::InSubquery(asked) if everything || is_nullable(&asked, input)? => {
            Ok(Transformed::new(is_in(asked, input)?, true, TreeNodeRecursion::Jump))
        }
        Expr::Exists(Exists { subquery, negated }) if everything => {
            let rows = rows_of(&subquery, None)?;
            Ok(Transformed::yes(if negated { rows.eq(lit(0_i64)) } else { rows.gt(lit(0_i64)) }))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(replaced.data)
}

fn is_apart(asked: &InSubquery) -> bool {
    asked.subquery.outer_ref_columns.is_empty()
}

fn is_nullable(asked: &InSubquery, input: &LogicalPlan) -> Result<bool> {
    let found = asked.subquery.subquery.schema().fields().iter().any(|field| field.is_nullable());
    Ok(found || asked.expr.nullable(input.schema())?)
}

fn is_in(asked: InSubquery, input: &LogicalPlan) -> Result<Expr> {
    let (outer, y) = sides(&asked, input)?;
    let InSubquery { expr: x, subquery, negated } = asked;
    let none = || lit(0_i64);
    let equal = rows_of(&subquery, Some(y.clone().eq(outer)))?;
    let unknown = rows_of(&subquery, Some(y.is_null()))?;
    let is_in = when(equal.gt(none()), lit(!negated))
        .when(x.is_not_null().and(unknown.eq(none())), lit(negated))
        .when(rows_of(&subquery, None)?.eq(none()), lit(negated))
        .otherwise(lit(ScalarValue::Boolean(None)))?;
    Ok(is_in)
}

/// What is looked for, as the subquery has it, and the subquery's column.
fn sides(asked: &InSubquery, input: &LogicalPlan) -> Result<(Expr, Expr)> {
    let outer = asked.expr.as_ref().clone().transform(|expr| match expr {
        Expr::Column(column) => {
            let (_, field) = input.schema().qualified_field_from_column(&column)?;
            Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let mut columns = list(&asked.subquery)?.schema().columns();
    Ok((outer.data, Expr::Column(columns.swap_remove(0))))
}

/// The rows of a subquery under a name of their own: what it reads may have the name of what is outside. One that asks the row
/// outside has named it apart already, and is joined by columns that such a name would hide.
fn list(of: &Subquery) -> Result<LogicalPlanBuilder> {
    let rows = LogicalPlanBuilder::from(Arc::clone(&of.subquery));
    if of.outer_ref_columns.is_empty() { rows.alias("__list") } else { Ok(rows) }
}

/// `rows`, made of the subquery `of`.
fn over(rows: LogicalPlan, of: &Subquery) -> Subquery {
    let outer_ref_columns = rows.all_out_ref_exprs();
    Subquery { subquery: Arc::new(rows), outer_ref_columns, spans: of.spans.clone() }
}

/// How many rows of a subquery meet `condition`.
fn rows_of(of: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    let mut rows = list(of)?;
    if let Some(condition) = condition {
        rows = rows.filter(condition)?;
    }
    let rows = rows.aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?;
    // A count outside has the same name.
    let counted = Expr::Column(rows.schema().columns().swap_remove(0)).alias(COUNTED);
    Ok(Expr::ScalarSubquery(over(rows.project([counted])?.build()?, of)))
}
