//! A plan made ready for a cluster, where a task runs some partitions of a stage and sees no others.
//!
//! Operators keep their meaning; those that look beyond their partition are put in other words:
//!
//! ```text
//!   RepartitionRowsExec, CoalesceExec   rows get an address, and are sent by its hash   (nodes/address.rs)
//!   ZipWithIndexExec                    partitions are counted first, by a plan of its own
//!   all others of ours                  know the number of their partition from a row   (nodes/unary.rs)
//!   joins, windows, aggregates by key   run as they were planned, over inputs that are whole where
//!                                       they must be                                     (nodes/kept.rs)
//!   a merge that someone relies on      stays a merge, in its order                      (nodes/kept.rs)
//!   recursion                           runs in the driver; its rows go along
//!   sources of other crates             as they say themselves                           ([`Distribute`])
//! ```
//!
//! [`OPERATORS`] says so of every operator of DataFusion. One that is not among them, and that is not ours, is refused
//! by name: what is not known to be right in parts is not run in parts.
//!
//! A join whose unmatched rows are those of the side that is collected must see the whole other side before it gives
//! them. Of an equality both sides are sent by the hash of their keys. Without one, the sides change places where the
//! other one is small enough for every task, so that the rows in question are those of the side that is read partition
//! by partition; else, and for FULL, and where a single NULL decides about all rows (NOT IN), one task runs the join.

use crate::{
    PlanRunner,
    node_codec::codecs,
    nodes::{
        Address, AddressRows, BranchExec, CoalesceExec, CountRows, KeptExec, MapGroups, MapPartitions,
        ParquetFiles, RepartitionExec, UnaryExec, WholeExec, ZipWithIndex, ZipWithIndexExec, send_rows,
        unary,
    },
};
use arrow::{array::AsArray, datatypes::UInt64Type};
use datafusion::{
    common::{
        JoinType,
        config::ConfigOptions,
        plan_err,
        stats::Precision,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::{LexOrdering, OrderingRequirements, PhysicalExpr, expressions::Column},
    physical_plan::{
        Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning,
        aggregates::{AggregateExec, AggregateMode},
        coalesce_partitions::CoalescePartitionsExec,
        collect,
        empty::EmptyExec,
        filter::FilterExec,
        joins::{
            CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
            SymmetricHashJoinExec,
        },
        memory::LazyMemoryExec,
        projection::ProjectionExec,
        recursive_query::RecursiveQueryExec,
        repartition::RepartitionExec as ExchangeExec,
        replace_children_if_necessary,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        statistics::{StatisticsArgs, StatisticsContext},
        union::UnionExec,
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};
use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use std::{collections::BTreeSet, sync::Arc};

/// The node to run instead; nothing when it is another kind of node, or when it is ready.
pub type RewriteNode = fn(&Arc<dyn ExecutionPlan>) -> Option<Result<Arc<dyn ExecutionPlan>>>;

/// How a node of another crate is put for a cluster; a leaf, for example, whose partitions nobody can pick.
/// Registered with `inventory::submit!`.
#[derive(Debug)]
pub struct Distribute {
    /// How.
    pub rewrite: RewriteNode,
}

inventory::collect!(Distribute);

/// What becomes of an operator of DataFusion on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It runs as it is, for this reason.
    AsItIs(&'static str),
    /// It is put in other words.
    Rewritten(&'static str),
    /// The driver runs it.
    InDriver(&'static str),
    /// It is refused.
    Refused(&'static str),
}

use Treatment::{AsItIs, InDriver, Refused, Rewritten};

/// Every operator of DataFusion 55 that a plan can hold, and what becomes of it.
pub const OPERATORS: &[(&str, Treatment)] = &[
    // Sources.
    ("DataSourceExec", AsItIs("a task gets its groups of files, or its partitions of rows")),
    ("EmptyExec", AsItIs("no rows, however often")),
    (
        "LazyMemoryExec",
        Rewritten("columns that it leaves out are left out by a projection: it travels without its own"),
    ),
    ("PlaceholderRowExec", AsItIs("one row in one partition")),
    ("StreamingTableExec", InDriver("what it reads lives in the driver, for example its catalog")),
    ("WorkTableExec", InDriver("a part of a recursion")),
    // Row by row, or batch by batch.
    ("AsyncFuncExec", AsItIs("row by row")),
    ("BufferExec", AsItIs("batch by batch")),
    ("CoalesceBatchesExec", AsItIs("batch by batch")),
    ("CooperativeExec", AsItIs("batch by batch")),
    ("FilterExec", AsItIs("row by row")),
    ("ProjectionExec", AsItIs("row by row")),
    ("UnnestExec", AsItIs("row by row")),
    // Partitions among themselves.
    (
        "CoalescePartitionsExec",
        Rewritten("a stage ends below it; who relies on one partition says so, or `WholeExec` does"),
    ),
    ("InterleaveExec", AsItIs("the same partition of each input: all are sent by the same hash")),
    (
        "RepartitionExec",
        Rewritten("by hash: a stage ends there, and an order that it kept is made again; else left out"),
    ),
    ("SortPreservingMergeExec", Rewritten("as `CoalescePartitionsExec`, with its order")),
    ("UnionExec", Rewritten("an input that is more than a scan is a stage of its own")),
    // Order and limits.
    ("GlobalLimitExec", AsItIs("it asks for one partition; the order below it is held by `WholeExec`")),
    ("LocalLimitExec", AsItIs("a limit of each partition; another one follows")),
    ("PartialSortExec", Refused("it is for sources without end, and cannot be sent")),
    (
        "PartitionedTopKExec",
        Refused("it cannot be sent: SET datafusion.optimizer.enable_window_topn = false"),
    ),
    ("SortExec", AsItIs("a partition by itself, or one partition, for which it asks")),
    // Groups and windows.
    (
        "AggregateExec",
        Rewritten("partial ones run as they are, final ones ask for one partition; those by key are kept"),
    ),
    ("BoundedWindowAggExec", Rewritten("kept")),
    ("WindowAggExec", Rewritten("kept")),
    // Joins.
    ("CrossJoinExec", Rewritten("kept: every task has the whole left side")),
    ("HashJoinExec", Rewritten("kept: by key, or every task has the whole left side, or one task")),
    (
        "NestedLoopJoinExec",
        Rewritten("kept: every task has the whole left side, its sides changed, or one task"),
    ),
    (
        "PiecewiseMergeJoinExec",
        Refused("it cannot be sent: SET datafusion.optimizer.enable_piecewise_merge_join = false"),
    ),
    ("SortMergeJoinExec", Rewritten("kept: by key, or one task")),
    ("SymmetricHashJoinExec", Rewritten("kept: by key, or one task")),
    // Whole plans.
    ("AnalyzeExec", InDriver("it tells what this process does")),
    ("DataSinkExec", InDriver("it names its files itself: a task that is run again would add to them")),
    ("DmlResultExec", InDriver("what it tells has been done in the driver")),
    ("ExplainExec", InDriver("it tells of the plan")),
    ("OutputRequirementExec", Refused("it is for planners")),
    (
        "RecursiveQueryExec",
        InDriver("each of its rounds reads what the one before gave; the rows of all go along with the plan"),
    ),
    (
        "ScalarSubqueryExec",
        Refused(
            "its answer stays in one process: SET datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery = false",
        ),
    ),
];

/// `plan` made ready for the cluster of `runner`. A plan that is ready stays as it is.
///
/// # Errors
/// Partitions that cannot be counted before they are numbered, operators that are not known to be right in parts, a
/// recursion that fails.
pub async fn distribute(
    plan: Arc<dyn ExecutionPlan>,
    runner: &dyn PlanRunner,
    context: &Arc<TaskContext>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = run_before(plan, runner, context).await?;
    let settings = context.session_config().options();
    let plan = plan.transform_up(|node| rewrite(node, settings))?.data;
    // Afterwards: what was put in other words is not there any more.
    check_operators(&plan)?;
    Ok(plan)
}

/// Refuses a plan with an operator that is neither ours nor known to be right in parts.
fn check_operators(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let ours: BTreeSet<&str> = codecs().map(|codec| codec.name).collect();
    plan.apply(|node| {
        // A sort that keeps some rows only says so in brackets.
        let name = node.name().split('(').next().unwrap_or_default();
        let refused = match OPERATORS.iter().find(|(known, _)| *known == name) {
            _ if ours.contains(name) => None,
            Some((_, Refused(reason))) => Some(*reason),
            Some((_, InDriver(_))) => Some("it runs in the driver's process only"),
            Some((_, AsItIs(_) | Rewritten(_))) => None,
            None => Some("it is not known whether it may run in parts"),
        };
        match refused {
            Some(reason) => {
                plan_err!("`{name}` does not run on executors: {reason}; or run this without a cluster")
            }
            None => Ok(TreeNodeRecursion::Continue),
        }
    })?;
    Ok(())
}

/// What must have run before the plan can be sent: from the leaves up, partitions that are to be numbered are counted;
/// the rows of recursions are found here.
fn run_before<'a>(
    plan: Arc<dyn ExecutionPlan>,
    runner: &'a dyn PlanRunner,
    context: &'a Arc<TaskContext>,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    async move {
        if plan.is::<RecursiveQueryExec>() {
            let (schema, rows) = (plan.schema(), collect(plan, Arc::clone(context)).await?);
            return Ok(MemorySourceConfig::try_new_exec(&[rows], schema, None)? as _);
        }
        let mut children = Vec::new();
        for child in plan.children() {
            children.push(run_before(Arc::clone(child), runner, context).await?);
        }
        let plan = replace_children_if_necessary(plan, children)?;
        let Some(zip) = plan.downcast_ref::<ZipWithIndexExec>() else { return Ok(plan) };
        let partitions = zip.input().output_partitioning().partition_count();
        if !zip.operator().must_be_counted(partitions) {
            return Ok(plan);
        }
        let rows = count_partitions(zip.input(), runner, context).await?;
        Ok(Arc::new(UnaryExec::try_new(zip.operator().counted(rows), Arc::clone(zip.input()))?) as _)
    }
    .boxed()
}

async fn count_partitions(
    input: &Arc<dyn ExecutionPlan>,
    runner: &dyn PlanRunner,
    context: &Arc<TaskContext>,
) -> Result<Vec<u64>> {
    let count = Arc::new(UnaryExec::try_new(CountRows::default(), Arc::clone(input))?);
    let mut rows = Vec::new();
    for partition in runner.run(count, Arc::clone(context)).await?.streams {
        let counts: Vec<_> = partition.try_collect().await?;
        let one = counts.iter().find_map(|b| {
            let counts = b.columns().first()?.as_primitive_opt::<UInt64Type>()?;
            counts.values().first().copied()
        });
        rows.push(one.ok_or_else(|| DataFusionError::Internal("a partition was not counted".into()))?);
    }
    Ok(rows)
}

type Plan = Arc<dyn ExecutionPlan>;

/// `node`, whose inputs are ready, made ready itself.
fn rewrite(node: Plan, settings: &ConfigOptions) -> Result<Transformed<Plan>> {
    let held = hold_merges(node)?;
    let node = held.data;
    Ok(match rewritten(&node, settings)? {
        Some(new) => Transformed::yes(new),
        None => Transformed::new_transformed(node, held.transformed),
    })
}

fn rewritten(node: &Plan, settings: &ConfigOptions) -> Result<Option<Plan>> {
    if let Some(deal) = node.downcast_ref::<RepartitionExec>() {
        return send_rows(Arc::clone(deal.input()), Address::InTurn, deal.partitions()).map(Some);
    }
    if let Some(coalesce) = node.downcast_ref::<CoalesceExec>() {
        let partitions = coalesce.properties().output_partitioning().partition_count();
        return send_rows(Arc::clone(coalesce.input()), Address::Neighbours, partitions).map(Some);
    }
    if let Some(exchange) = node.downcast_ref::<ExchangeExec>() {
        return exchanged(exchange);
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return hash_join(node, join, settings).map(Some);
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        return nested_loop_join(node, join, settings).map(Some);
    }
    if node.is::<CrossJoinExec>() {
        return collected(node).map(Some);
    }
    if node.is::<UnionExec>() {
        return union(node);
    }
    if let Some(generated) = node.downcast_ref::<LazyMemoryExec>() {
        return all_columns(generated);
    }
    let by_key = |aggregate: &AggregateExec| {
        matches!(aggregate.mode(), AggregateMode::FinalPartitioned | AggregateMode::SinglePartitioned)
    };
    if node.is::<SortMergeJoinExec>()
        || node.is::<SymmetricHashJoinExec>()
        || node.is::<WindowAggExec>()
        || node.is::<BoundedWindowAggExec>()
        || node.downcast_ref::<AggregateExec>().is_some_and(by_key)
    {
        return kept_in_order(node).map(Some);
    }
    let own = [
        unary::placed::<MapPartitions>,
        unary::placed::<MapGroups>,
        unary::placed::<ZipWithIndex>,
        unary::placed::<ParquetFiles>,
        unary::placed::<CountRows>,
        unary::placed::<AddressRows>,
    ];
    let own = own.iter().find_map(|placed| placed(node.as_ref()));
    own.or_else(|| inventory::iter::<Distribute>().find_map(|other| (other.rewrite)(node))).transpose()
}

fn kept(operator: &Plan) -> Plan {
    Arc::new(KeptExec::new(Arc::clone(operator)))
}

/// Whether the order of `plan` is not one that an exchange below it has kept: the other side of the exchange does not know
/// of it.
fn is_sorted_here(plan: &Plan) -> bool {
    plan.is::<SortExec>()
        || is_merge(plan)
        || (!plan.is::<ExchangeExec>() && plan.children().into_iter().all(is_sorted_here))
}

/// As [`kept`], with its inputs sorted as it asks for. That they are may follow from what else is known of them (a column
/// is the same in all rows, two columns are equal), which is not known any more on the other side of an exchange.
fn kept_in_order(operator: &Plan) -> Result<Plan> {
    let asked = operator.required_input_ordering().into_iter();
    let inputs = operator.children().into_iter().zip(asked).map(|(input, asked)| {
        let Some(OrderingRequirements::Hard(_)) = &asked else { return Arc::clone(input) };
        let Some(asked) = asked.map(|asked| LexOrdering::from(asked.into_single())) else {
            return Arc::clone(input);
        };
        match input.downcast_ref::<SortExec>().map(SortExec::expr).or_else(|| input.output_ordering()) {
            Some(ordering) if is_sorted_here(input) && ordering.starts_with(&asked) => Arc::clone(input),
            _ => Arc::new(SortExec::new(asked, Arc::clone(input)).with_preserve_partitioning(true)) as Plan,
        }
    });
    let inputs = inputs.collect();
    Ok(kept(&replace_children_if_necessary(Arc::clone(operator), inputs)?))
}

fn partitions(plan: &Plan) -> usize {
    plan.output_partitioning().partition_count()
}

fn is_merge(plan: &Plan) -> bool {
    plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>()
}

/// `node` with every merge below it that it relies on, but does not ask for, held by a [`WholeExec`]: a scheduler takes
/// away the merges that nobody asks for.
fn hold_merges(node: Plan) -> Result<Transformed<Plan>> {
    if is_merge(&node)
        || node.is::<ExchangeExec>()
        || node.is::<WholeExec>()
        || !node.children().into_iter().any(is_merge)
    {
        return Ok(Transformed::no(node));
    }
    let asked = node.input_distribution_requirements();
    let ordered = node.required_input_ordering();
    let is_join = node.children().len() == 2;
    let inputs = node.children().into_iter().enumerate().map(|(at, input)| {
        let whole = matches!(asked.child_distribution(at), Some(Distribution::SinglePartition));
        let in_order =
            is_join || input.output_ordering().is_none() || ordered.get(at).is_some_and(Option::is_some);
        if is_merge(input) && !(whole && in_order) {
            Arc::new(WholeExec::new(Arc::clone(input)))
        } else {
            Arc::clone(input)
        }
    });
    let inputs = inputs.collect();
    Ok(Transformed::yes(replace_children_if_necessary(node, inputs)?))
}

/// An exchange as a scheduler makes it: by hash, and in no order.
fn exchanged(exchange: &ExchangeExec) -> Result<Option<Plan>> {
    match exchange.partitioning() {
        Partitioning::Hash(..) if !exchange.preserve_order() => Ok(None),
        Partitioning::Hash(..) => {
            let plain: Plan = Arc::new(ExchangeExec::try_new(
                Arc::clone(exchange.input()),
                exchange.partitioning().clone(),
            )?);
            Ok(Some(match exchange.properties().output_ordering() {
                Some(ordering) => {
                    Arc::new(SortExec::new(ordering.clone(), plain).with_preserve_partitioning(true))
                }
                None => plain,
            }))
        }
        Partitioning::RoundRobinBatch(_) | Partitioning::UnknownPartitioning(_) => {
            Ok(Some(Arc::clone(exchange.input())))
        }
        Partitioning::Range(_) => {
            plan_err!("rows are not sent to executors by ranges of values: run this without a cluster")
        }
    }
}

/// A union whose inputs a task may hold without a partition: scans, and stages of their own.
fn union(node: &Plan) -> Result<Option<Plan>> {
    let stays = |input: &Plan| input.is::<BranchExec>() || is_scan(input);
    if node.children().into_iter().all(stays) {
        return Ok(None);
    }
    let branch = |input: &Plan| match stays(input) {
        true => Arc::clone(input),
        false => Arc::new(BranchExec::new(Arc::clone(input))),
    };
    let inputs = node.children().into_iter().map(branch).collect();
    replace_children_if_necessary(Arc::clone(node), inputs).map(Some)
}

/// Rows that are generated, with all columns, below a projection of those that are asked for.
fn all_columns(source: &LazyMemoryExec) -> Result<Option<Plan>> {
    let [generator] = &source.generators()[..] else { return Ok(None) };
    let afresh = || generator.read().reset_state();
    let Some(first) = afresh().write().generate_next_batch()? else {
        return Ok(Some(Arc::new(EmptyExec::new(source.schema()))));
    };
    if first.schema().fields() == source.schema().fields() {
        return Ok(None);
    }
    let all: Plan = Arc::new(LazyMemoryExec::try_new(first.schema(), vec![afresh()])?);
    let (schema, mut asked) = (source.schema(), Vec::new());
    for field in schema.fields() {
        let at = first.schema().index_of(field.name())?;
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        asked.push((column, field.name().clone()));
    }
    Ok(Some(Arc::new(ProjectionExec::try_new(asked, all)?)))
}

/// Whether `plan` is a source, from which rows or columns may be left out.
fn is_scan(plan: &Plan) -> bool {
    match plan.children()[..] {
        [] => plan.is::<DataSourceExec>(),
        [input] => (plan.is::<FilterExec>() || plan.is::<ProjectionExec>()) && is_scan(input),
        _ => false,
    }
}

/// All rows of `plan` in one partition, found once.
fn whole(plan: &Plan) -> Plan {
    if is_merge(plan) || plan.is::<WholeExec>() {
        Arc::clone(plan)
    } else {
        Arc::new(CoalescePartitionsExec::new(Arc::clone(plan)))
    }
}

/// Rows of `plan` before they were brought together, where that is all that was done.
fn apart(plan: &Plan) -> Plan {
    let plan = match plan.downcast_ref::<WholeExec>() {
        Some(whole) => whole.children()[0],
        None => plan,
    };
    match plan.downcast_ref::<CoalescePartitionsExec>() {
        Some(merge) if merge.fetch().is_none() => Arc::clone(merge.input()),
        _ => Arc::clone(plan),
    }
}

/// A join that reads its left side whole; where several tasks do, it is found once for all.
fn collected(join: &Plan) -> Result<Plan> {
    let [left, right] = join.children()[..] else { return Ok(kept(join)) };
    if partitions(right) == 1 {
        return Ok(kept(join));
    }
    let inputs = vec![whole(left), Arc::clone(right)];
    Ok(kept(&replace_children_if_necessary(Arc::clone(join), inputs)?))
}

/// A join that one task runs.
fn in_one_task(join: &Plan) -> Result<Plan> {
    let several = |side: &&Plan| partitions(side) > 1;
    let side = |side: &Plan| if several(&side) { whole(side) } else { Arc::clone(side) };
    let inputs = join.children().into_iter().map(side).collect();
    Ok(kept(&replace_children_if_necessary(Arc::clone(join), inputs)?))
}

/// Whether a join gives rows of its left side that have found no partner, or that have found one, once: it must have seen
/// the whole right side.
fn tells_of_left(join: JoinType) -> bool {
    matches!(
        join,
        JoinType::Left | JoinType::Full | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
    )
}

fn hash_join(node: &Plan, join: &HashJoinExec, settings: &ConfigOptions) -> Result<Plan> {
    if join.null_aware {
        let collected = join.builder().with_partition_mode(PartitionMode::CollectLeft).build_exec()?;
        return in_one_task(&collected);
    }
    if *join.partition_mode() != PartitionMode::CollectLeft {
        return Ok(kept(node));
    }
    if partitions(join.right()) == 1 || !tells_of_left(*join.join_type()) {
        return collected(node);
    }
    let target = settings.execution.target_partitions;
    let sent = |side: &Plan, keys: Vec<Arc<dyn PhysicalExpr>>| -> Result<Plan> {
        Ok(Arc::new(ExchangeExec::try_new(apart(side), Partitioning::Hash(keys, target))?))
    };
    let (left, right) = join.on().iter().map(|(l, r)| (Arc::clone(l), Arc::clone(r))).unzip();
    let inputs = vec![sent(join.left(), left)?, sent(join.right(), right)?];
    let by_key = join.builder().with_partition_mode(PartitionMode::Partitioned);
    Ok(kept(&by_key.with_new_children(inputs)?.build_exec()?))
}

fn nested_loop_join(node: &Plan, join: &NestedLoopJoinExec, settings: &ConfigOptions) -> Result<Plan> {
    if partitions(join.right()) == 1 || !tells_of_left(*join.join_type()) {
        return collected(node);
    }
    let left = apart(join.left());
    if !join.join_type().supports_swap()
        || *join.join_type() == JoinType::Full
        || partitions(&left) == 1
        || !is_small(join.right(), settings)
    {
        return in_one_task(node);
    }
    let apart = replace_children_if_necessary(Arc::clone(node), vec![left, whole(join.right())])?;
    let Some(join) = apart.downcast_ref::<NestedLoopJoinExec>() else { return in_one_task(node) };
    let changed = join.swap_inputs()?;
    if changed.is::<NestedLoopJoinExec>() {
        return Ok(kept(&changed));
    }
    // The columns are put back into their order.
    let inputs = changed.children().into_iter().map(kept).collect();
    replace_children_if_necessary(Arc::clone(&changed), inputs)
}

/// Whether every task may have all rows of `plan`, as far as is known: the planner's own bound for the collected side of
/// a join.
fn is_small(plan: &Plan, settings: &ConfigOptions) -> bool {
    let Ok(known) = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()) else {
        return false;
    };
    let within =
        |size: Precision<usize>, bound: usize| size.get_value().map(|size| *size > 0 && *size < bound);
    let optimizer = &settings.optimizer;
    within(known.total_byte_size, optimizer.hash_join_single_partition_threshold)
        .or_else(|| within(known.num_rows, optimizer.hash_join_single_partition_threshold_rows))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{EngineConfig, LocalRunner, session_context};
    use arrow::{
        array::{ArrayRef, Int64Array, RecordBatch},
        datatypes::{DataType, Field, Schema},
        util::pretty::pretty_format_batches,
    };
    use datafusion::{
        datasource::MemTable,
        physical_plan::{
            DisplayAs, DisplayFormatType, PlanProperties, SendableRecordBatchStream, collect_partitioned,
            displayable,
        },
        prelude::SessionContext,
    };
    use datafusion_proto::{
        physical_plan::{AsExecutionPlan, PhysicalExtensionCodec, PhysicalProtoConverterExtension},
        protobuf::PhysicalPlanNode,
    };
    use std::fmt;

    /// A session with what is set on a cluster, and with the tables `a` and `b`: id, k and v in three partitions.
    fn session() -> SessionContext {
        let settings = [
            ("datafusion.optimizer.enable_round_robin_repartition", "false"),
            ("datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery", "false"),
            ("datafusion.optimizer.enable_dynamic_filter_pushdown", "false"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let config = EngineConfig { target_partitions: Some(3), settings, ..EngineConfig::default() };
        let context = session_context(Vec::new(), &config).unwrap();
        let schema = Arc::new(Schema::new(
            ["id", "k", "v"].map(|name| Field::new(name, DataType::Int64, true)).to_vec(),
        ));
        for (name, from) in [("a", 0), ("b", 4)] {
            let part = |part: i64| {
                let ids = (from..from + 12).filter(|id| id % 3 == part).collect::<Vec<_>>();
                let column = |value: fn(i64) -> Option<i64>| {
                    Arc::new(ids.iter().map(|id| value(*id)).collect::<Int64Array>()) as ArrayRef
                };
                let v = column(|id| (id != 7).then_some(id * 2));
                let columns = vec![column(Some), column(|id| Some(id % 5)), v];
                vec![RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()]
            };
            let table = MemTable::try_new(Arc::clone(&schema), (0..3).map(part).collect()).unwrap();
            context.register_table(name, Arc::new(table)).unwrap();
        }
        context
    }

    async fn planned(context: &SessionContext, query: &str) -> Plan {
        context.sql(query).await.unwrap().create_physical_plan().await.unwrap()
    }

    async fn made_ready(context: &SessionContext, query: &str) -> Plan {
        distribute(planned(context, query).await, &LocalRunner, &context.task_ctx()).await.unwrap()
    }

    fn shown(plan: &Plan) -> String {
        displayable(plan.as_ref()).indent(false).to_string()
    }

    async fn rows(plan: Plan, context: &SessionContext) -> Vec<String> {
        let parts = collect_partitioned(plan, context.task_ctx()).await.unwrap();
        let shown = pretty_format_batches(&parts.concat()).unwrap().to_string();
        let mut lines: Vec<String> =
            shown.lines().filter(|line| !line.starts_with('+')).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Queries with every kind of operator that is rewritten, and with those that need not be.
    const QUERIES: &[&str] = &[
        "SELECT count(*) FROM a WHERE v NOT IN (SELECT v FROM b)",
        "SELECT k, count(*) FROM a WHERE v NOT IN (SELECT v FROM b WHERE v IS NOT NULL) GROUP BY k",
        "SELECT a.id, b.id FROM a LEFT JOIN b ON a.v BETWEEN b.id AND b.v",
        "SELECT a.id, b.id FROM a RIGHT JOIN b ON a.v BETWEEN b.id AND b.v",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.v BETWEEN b.id AND b.v",
        "SELECT a.id, b.id FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.id = b.id",
        "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id > a.v)",
        "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id > a.v) OR a.k = 1",
        "SELECT a.id, b.id FROM a CROSS JOIN b",
        "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY id) AS s, row_number() OVER (ORDER BY id) AS n FROM a",
        "SELECT k, count(*) FROM (SELECT * FROM a ORDER BY id OFFSET 5) AS q GROUP BY k",
        "SELECT k, count(*) FROM a GROUP BY GROUPING SETS ((k), (k, v), ())",
        "SELECT DISTINCT ON (k) k, id FROM a ORDER BY k, id DESC",
        "SELECT * FROM (SELECT id FROM a UNION ALL SELECT v FROM b) AS q ORDER BY id LIMIT 7",
        "SELECT id FROM a INTERSECT SELECT id FROM b",
        "SELECT id FROM a WHERE v > (SELECT avg(v) FROM b)",
        "SELECT unnest([1, 2, id]) FROM a",
        "SELECT * FROM (VALUES (1), (2)) AS q(x) LEFT JOIN a ON a.id < q.x",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 6) SELECT a.id FROM a JOIN r ON a.id = r.n",
        "SELECT k, count(*) OVER (PARTITION BY k), sum(v) OVER (ORDER BY k, id) FROM (SELECT DISTINCT k, id, v FROM a) AS q",
        "SELECT count(*) FROM generate_series(1, 5) AS g CROSS JOIN a",
        "SELECT g.value, a.id FROM generate_series(1, 5) AS g JOIN a ON a.id = g.value",
    ];

    #[tokio::test]
    async fn a_plan_that_is_made_ready_gives_the_same_rows_and_travels() {
        let context = session();
        for query in QUERIES {
            let plan = planned(&context, query).await;
            let ready = made_ready(&context, query).await;
            let mut bytes = Vec::new();
            PhysicalPlanNode::try_from_physical_plan(Arc::clone(&ready), &Codec)
                .unwrap()
                .try_encode(&mut bytes)
                .unwrap();
            let received = PhysicalPlanNode::try_decode(&bytes).unwrap();
            let received = received.try_into_physical_plan(&context.task_ctx(), &Codec).unwrap();
            assert_eq!(shown(&received), shown(&ready), "{query}");
            let expected = rows(plan, &context).await;
            assert_eq!(rows(ready, &context).await, expected, "{query}");
            assert_eq!(rows(received, &context).await, expected, "{query}");
        }
    }

    #[tokio::test]
    async fn a_plan_that_is_ready_stays_as_it_is() {
        let context = session();
        for query in QUERIES {
            let ready = made_ready(&context, query).await;
            let again = distribute(Arc::clone(&ready), &LocalRunner, &context.task_ctx()).await.unwrap();
            assert_eq!(shown(&again), shown(&ready), "{query}");
        }
    }

    #[tokio::test]
    async fn one_task_or_the_side_that_is_read_in_parts_gives_the_rows_without_a_partner() {
        let context = session();
        for query in QUERIES {
            let ready = made_ready(&context, query).await;
            ready
                .apply(|node| {
                    let Some(kept) = node.downcast_ref::<KeptExec>() else {
                        assert!(
                            !node.name().contains("Join"),
                            "{query}: a join is not kept\n{}",
                            shown(&ready)
                        );
                        return Ok(TreeNodeRecursion::Continue);
                    };
                    let join = kept.operator();
                    let collects = join.downcast_ref::<HashJoinExec>().map(|join| {
                        (
                            *join.partition_mode() == PartitionMode::CollectLeft,
                            *join.join_type(),
                            join.null_aware,
                        )
                    });
                    let collects = collects.or_else(|| {
                        join.downcast_ref::<NestedLoopJoinExec>().map(|join| (true, *join.join_type(), false))
                    });
                    if let Some((true, kind, null_aware)) = collects
                        && (tells_of_left(kind) || null_aware)
                    {
                        assert_eq!(partitions(join.children()[1]), 1, "{query}\n{}", shown(&ready));
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
                .unwrap();
        }
    }

    #[tokio::test]
    async fn a_small_side_changes_places_so_that_the_other_is_read_in_parts() {
        let context = session();
        let ready =
            made_ready(&context, "SELECT a.id, b.id FROM a LEFT JOIN b ON a.v BETWEEN b.id AND b.v").await;
        assert!(shown(&ready).contains("NestedLoopJoinExec: join_type=Right"), "{}", shown(&ready));
        assert!(partitions(&ready) > 1, "{}", shown(&ready));
    }

    /// An operator that nobody has heard of.
    #[derive(Debug)]
    struct NovelExec(Plan);

    impl DisplayAs for NovelExec {
        fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("NovelExec")
        }
    }

    impl ExecutionPlan for NovelExec {
        fn name(&self) -> &str {
            "NovelExec"
        }
        fn properties(&self) -> &Arc<PlanProperties> {
            self.0.properties()
        }
        fn children(&self) -> Vec<&Plan> {
            vec![&self.0]
        }
        fn apply_expressions(
            &self,
            _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }
        fn with_new_children(self: Arc<Self>, mut children: Vec<Plan>) -> Result<Plan> {
            Ok(Arc::new(Self(children.remove(0))))
        }
        fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
            self.0.execute(partition, context)
        }
    }

    #[tokio::test]
    async fn an_operator_that_is_not_in_the_list_is_refused_by_name() {
        let context = session();
        let plan = Arc::new(NovelExec(planned(&context, "SELECT id FROM a").await));
        let refusal = distribute(plan, &LocalRunner, &context.task_ctx()).await.unwrap_err().to_string();
        assert!(refusal.contains("`NovelExec` does not run on executors: it is not known"), "{refusal}");
    }

    #[test]
    fn operators_stand_in_the_list_once() {
        let names: BTreeSet<&str> = OPERATORS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), OPERATORS.len());
    }

    /// As the cluster's codec, without its frame.
    #[derive(Debug)]
    struct Codec;

    impl PhysicalExtensionCodec for Codec {
        fn try_encode(
            &self,
            node: Plan,
            buffer: &mut Vec<u8>,
            _converter: &dyn PhysicalProtoConverterExtension,
        ) -> Result<()> {
            let (name, bytes) = crate::node_codec::encode(node.as_ref()).unwrap()?;
            buffer.push(name.len() as u8);
            buffer.extend(name.as_bytes());
            buffer.extend(bytes);
            Ok(())
        }
        fn try_decode(
            &self,
            bytes: &[u8],
            inputs: &[Plan],
            context: &TaskContext,
            _converter: &dyn PhysicalProtoConverterExtension,
        ) -> Result<Plan> {
            let (name, bytes) = bytes[1..].split_at(usize::from(bytes[0]));
            crate::node_codec::decode(std::str::from_utf8(name).unwrap(), bytes, inputs, context)
        }
    }
}
