//! Where lists are put aside, and where they are taken back.
//!
//! From the scans up: an operator that holds rows gets them narrow, if it only passes lists on and they may be too large to be
//! held; operators that only pass them on keep them narrow; whatever looks at them, or is not known here, gets them whole.

use super::{
    exec::{LateExec, shelf_of},
    shelf::{Shelf, value_width},
};
use crate::{
    row_width::{WIDE, row_bytes, value_bytes},
    runner::DriverNode,
};
use arrow::datatypes::Schema;
use datafusion::{
    common::{JoinSide, tree_node::TreeNodeRecursion},
    error::Result,
    physical_expr::{PhysicalExpr, utils::collect_columns},
    physical_plan::{
        ExecutionPlan,
        aggregates::{AggregateExec, AggregateInputMode},
        coalesce_partitions::CoalescePartitionsExec,
        coop::CooperativeExec,
        execution_plan::CardinalityEffect,
        expressions::Column,
        filter::FilterExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, utils::JoinFilter},
        limit::{GlobalLimitExec, LocalLimitExec},
        projection::ProjectionExec,
        recursive_query::RecursiveQueryExec,
        repartition::RepartitionExec,
        replace_children_if_necessary,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        statistics::{StatisticsArgs, StatisticsContext},
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};
use std::{collections::BTreeSet, sync::Arc};

/// What an operator may hold whole: this part of the memory that operators share.
const PART_OF_POOL: usize = 16;

type Plan = Arc<dyn ExecutionPlan>;

/// `plan`, about to run in this process, whose operators share `pool` bytes: those that may hold much hold rows without
/// their lists.
///
/// # Errors
/// Operators that do not take the inputs that they had.
pub fn with_late_columns(plan: Plan, pool: usize) -> Result<Plan> {
    let mut rule = Rule { most: pool / PART_OF_POOL, shelves: Vec::new() };
    let narrow = rule.narrow(&plan)?;
    Ok(rule.whole(narrow, &plan))
}

struct Rule {
    /// Bytes that an operator may hold whole.
    most: usize,
    shelves: Vec<Arc<Shelf>>,
}

impl Rule {
    /// `plan`, whose lists may be aside.
    fn narrow(&mut self, plan: &Plan) -> Result<Plan> {
        if is_left_alone(plan.as_ref()) {
            return Ok(Arc::clone(plan));
        }
        let sides = sides(plan.as_ref())?;
        let mut inputs = Vec::new();
        for (side, input) in plan.children().into_iter().enumerate() {
            let mut narrow = self.narrow(input)?;
            match sides.get(side) {
                Some(Side { looks_at, holds, compares }) => {
                    let fit = |(column, shelf): (usize, usize)| {
                        !looks_at.contains(&column)
                            && (!compares
                                || self.shelves.get(shelf).is_some_and(|shelf| shelf.is_of_equals()))
                    };
                    if !aside(&narrow.schema()).all(fit) {
                        narrow = self.whole(narrow, input);
                    }
                    if *holds && self.may_be_large(narrow.as_ref())? {
                        let schema = narrow.schema();
                        let columns = wide(&schema).filter(|column| !looks_at.contains(column)).collect();
                        narrow = self.put_aside(narrow, &columns, *compares)?;
                    }
                }
                None => narrow = self.whole(narrow, input),
            }
            inputs.push(narrow);
        }
        let same = plan.children().into_iter().zip(&inputs).all(|(before, now)| Arc::ptr_eq(before, now));
        match inputs.as_slice() {
            _ if same => Ok(Arc::clone(plan)),
            [input] => over(plan, input),
            _ => replace_children_if_necessary(Arc::clone(plan), inputs),
        }
    }

    /// `narrow` as `like` was.
    fn whole(&self, narrow: Plan, like: &Plan) -> Plan {
        if aside(&narrow.schema()).next().is_none() {
            return narrow;
        }
        Arc::new(LateExec::take_back(narrow, self.shelves.as_slice().into(), Arc::clone(like.properties())))
    }

    /// `plan` with the lists in `columns` aside: below what only deals rows out, so that this is done to narrow ones.
    fn put_aside(&mut self, plan: Plan, columns: &BTreeSet<usize>, compares: bool) -> Result<Plan> {
        if columns.is_empty() {
            return Ok(plan);
        }
        let deals = plan.is::<RepartitionExec>()
            || plan.is::<CoalescePartitionsExec>()
            || plan.is::<CooperativeExec>();
        if let (true, [input]) = (deals, plan.children().as_slice())
            && !uses(plan.as_ref())?.iter().any(|column| columns.contains(column))
        {
            let input = self.put_aside(Arc::clone(input), columns, compares)?;
            return replace_children_if_necessary(plan, vec![input]);
        }
        let shelf = Arc::new(if compares { Shelf::of_equals() } else { Shelf::default() });
        self.shelves.push(Arc::clone(&shelf));
        Ok(Arc::new(LateExec::put_aside(plan, columns.clone(), (self.shelves.len() - 1, shelf))))
    }

    fn may_be_large(&self, plan: &dyn ExecutionPlan) -> Result<bool> {
        let schema = plan.schema();
        let widest = wide(&schema).next().is_some();
        Ok(widest && most_rows(plan)?.is_none_or(|rows| rows.saturating_mul(row_bytes(&schema)) > self.most))
    }
}

/// How an operator treats the rows of an input that it passes on.
struct Side {
    /// Columns that decide about something, and are not merely passed on.
    looks_at: BTreeSet<usize>,
    /// Many rows may be held at once.
    holds: bool,
    /// Lists that are passed on are compared with each other, by which equal ones become one.
    compares: bool,
}

/// The inputs of `plan`; none of an operator that may look at anything.
fn sides(plan: &dyn ExecutionPlan) -> Result<Vec<Side>> {
    let sort_holds = plan.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none());
    let window = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
    Ok(if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let mut sides = sides_of(join.filter());
        for (left, right) in join.on() {
            sides[0].looks_at.extend(columns_of(left));
            sides[1].looks_at.extend(columns_of(right));
        }
        sides
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        sides_of(join.filter())
    } else if plan.is::<CrossJoinExec>() {
        sides_of(None)
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let computed = projection.expr().iter().filter(|projected| !projected.expr.is::<Column>());
        let looks_at = computed.flat_map(|projected| columns_of(&projected.expr)).collect();
        vec![Side { looks_at, holds: false, compares: false }]
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let Some(grouped) = grouped(aggregate) else { return Ok(Vec::new()) };
        let all = 0..aggregate.input().schema().fields().len();
        let looks_at = all.filter(|column| !grouped.contains(column)).collect();
        vec![Side { looks_at, holds: true, compares: true }]
    } else if sort_holds || window {
        vec![Side { looks_at: uses(plan)?, holds: true, compares: false }]
    } else if plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
    {
        vec![Side { looks_at: uses(plan)?, holds: false, compares: false }]
    } else {
        Vec::new()
    })
}

/// The two sides of a join, the first of which is held.
fn sides_of(filter: Option<&JoinFilter>) -> Vec<Side> {
    let of = |side: JoinSide| {
        let columns =
            filter.iter().flat_map(|filter| filter.column_indices()).filter(|column| column.side == side);
        columns.map(|column| column.index).collect()
    };
    vec![
        Side { looks_at: of(JoinSide::Left), holds: true, compares: false },
        Side { looks_at: of(JoinSide::Right), holds: false, compares: false },
    ]
}

/// `plan` over another input. These two would keep the types of their columns.
fn over(plan: &Plan, input: &Plan) -> Result<Plan> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return Ok(Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), Arc::clone(input))?));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let again = AggregateExec::try_new(
            *aggregate.mode(),
            aggregate.group_expr().clone(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            Arc::clone(input),
            aggregate.input_schema(),
        )?;
        return Ok(Arc::new(again.with_limit_options(aggregate.limit_options())));
    }
    replace_children_if_necessary(Arc::clone(plan), vec![Arc::clone(input)])
}

/// Columns of its input by which it groups, and which it does not look at otherwise; none where it groups by several sets.
fn grouped(aggregate: &AggregateExec) -> Option<BTreeSet<usize>> {
    let groups = aggregate.group_expr();
    if !groups.is_single() || groups.expr().is_empty() {
        return None;
    }
    let column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index);
    let bare: BTreeSet<usize> = groups.expr().iter().filter_map(|(expr, _)| column(expr)).collect();
    let computed = groups.expr().iter().map(|(expr, _)| expr).filter(|expr| column(expr).is_none());
    let mut used: BTreeSet<usize> = computed.flat_map(columns_of).collect();
    if aggregate.mode().input_mode() == AggregateInputMode::Raw {
        let filters = aggregate.filter_expr().iter().flatten().flat_map(columns_of);
        used.extend(filters);
        for function in aggregate.aggr_expr() {
            let expressions = function.all_expressions();
            used.extend(expressions.args.iter().chain(&expressions.order_by_exprs).flat_map(columns_of));
        }
    }
    Some(bare.difference(&used).copied().collect())
}

/// A recursion runs its parts again and again; a driver's node has its inputs run elsewhere, to which files do not travel.
fn is_left_alone(plan: &dyn ExecutionPlan) -> bool {
    let of_driver = inventory::iter::<DriverNode>().any(|node| node.0 == plan.name());
    plan.is::<RecursiveQueryExec>() || (of_driver && plan.name() != "DataSinkExec")
}

fn columns_of(expr: &Arc<dyn PhysicalExpr>) -> impl Iterator<Item = usize> + use<> {
    collect_columns(expr).into_iter().map(|column| column.index())
}

/// Columns in the expressions of an operator with one input.
fn uses(plan: &dyn ExecutionPlan) -> Result<BTreeSet<usize>> {
    let mut used = BTreeSet::new();
    plan.apply_expressions(&mut |expr| {
        used.extend(columns_of(expr));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(used)
}

/// Columns of addresses, and the shelf that each is of.
fn aside(schema: &Schema) -> impl Iterator<Item = (usize, usize)> {
    schema.fields().iter().enumerate().filter_map(|(at, field)| Some((at, shelf_of(field)?)))
}

/// Columns of long lists that can be put aside.
fn wide(schema: &Schema) -> impl Iterator<Item = usize> {
    let is_wide = |field: &Arc<arrow::datatypes::Field>| {
        value_width(field.data_type()).is_some() && value_bytes(field.data_type()) >= WIDE
    };
    schema.fields().iter().enumerate().filter(move |(_, field)| is_wide(field)).map(|(at, _)| at)
}

/// How many rows `plan` gives at most, as far as the counts of what it reads say.
fn most_rows(plan: &dyn ExecutionPlan) -> Result<Option<usize>> {
    if let Some(rows) = StatisticsContext::new().compute(plan, &StatisticsArgs::new())?.num_rows.get_value() {
        return Ok(Some(*rows));
    }
    match plan.children().as_slice() {
        // What no counts are known of may still give no more rows than it is given.
        [only] if !matches!(plan.cardinality_effect(), CardinalityEffect::GreaterEqual) => {
            most_rows(only.as_ref())
        }
        _ => Ok(None),
    }
}
