//! Joins by the keys of runs say what their keys do: an analyzer's rule puts a node on both sides of such a join, through
//! which rows pass as they are, and which takes down their keys for the ledger.
//!
//! ```text
//!   series s ─► JoinKeys ─┐
//!                         ├─► Join (s.subject = d.subject, s.run = d.run) ─► …
//!   design d ─► JoinKeys ─┘
//! ```

use arrow::{
    array::{ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType, SchemaRef},
    record_batch::RecordBatch,
    row::{OwnedRow, RowConverter, SortField},
};
use datafusion::{
    common::{
        Column, DFSchema, DFSchemaRef, config::ConfigOptions, internal_err, plan_err, tree_node::Transformed,
    },
    error::Result,
    logical_expr::{
        BinaryExpr, Expr, Extension, Join, LogicalPlan, Operator, UserDefinedLogicalNodeCore,
        utils::split_conjunction,
    },
    optimizer::AnalyzerRule,
    physical_plan::{ExecutionPlan, SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use voxelflow_dataset::{
    KeyJoin, LedgerEntry, LedgerNode, LedgerNotes, NodeCodec, RUN_KEYS,
    nodes::UnaryExec,
    nodes::unary::{self, UnaryOperator, UnaryTask},
};
use voxelflow_stage::key_in;

/// Distinct keys after which a side takes down no more: they are of other tables than of runs.
const MOST_KEYS: usize = 100_000;

/// Has joins by keys of runs take down what they meet, for a session's analyzer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoteJoinKeys;

impl AnalyzerRule for NoteJoinKeys {
    fn name(&self) -> &str {
        "note_join_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let noted = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) => noting(join),
            other => Ok(Transformed::no(other)),
        });
        noted.map(|noted| noted.data)
    }
}

/// The join with its sides noted, if it is one by keys of runs.
fn noting(join: Join) -> Result<Transformed<LogicalPlan>> {
    let is_noted = |side: &LogicalPlan| match side {
        LogicalPlan::Extension(extension) => extension.node.as_any().is::<JoinKeysNode>(),
        _ => false,
    };
    let pairs = compared(&join);
    let is_key = |column: &Column| RUN_KEYS.contains(&column.name.as_str());
    let on: Vec<&(Column, Column)> = pairs.iter().filter(|(a, b)| is_key(a) || is_key(b)).collect();
    if on.is_empty() || is_noted(&join.left) || is_noted(&join.right) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    // What the condition names in any way is not left out.
    let on_exprs = join.on.iter().flat_map(|(a, b)| [a, b]);
    let named: HashSet<&Column> = on_exprs.chain(&join.filter).flat_map(Expr::column_refs).collect();
    let key = |side: &LogicalPlan, name: &str| {
        let (qualifier, field) = side.schema().qualified_field_with_unqualified_name(name).ok()?;
        let column = Column::from((qualifier, field));
        (field.data_type().is_string() && !named.contains(&column)).then_some(column)
    };
    let left_out: Vec<(Column, Column)> =
        RUN_KEYS.iter().filter_map(|name| Some((key(&join.left, name)?, key(&join.right, name)?))).collect();
    let names = |(a, b): &(Column, Column)| [a.name.clone(), b.name.clone()];
    let of = Arc::new(KeyJoin {
        sides: [side_name(&join.left, "the left side"), side_name(&join.right, "the right side")],
        on: on.iter().map(|pair| names(pair)).collect(),
        left_out: left_out.iter().map(|(a, _)| a.name.clone()).collect(),
    });
    let all = || on.iter().copied().chain(&left_out);
    let side = |input: &Arc<LogicalPlan>, right: bool, columns: Vec<Column>| {
        let node = JoinKeysNode { input: input.as_ref().clone(), join: Arc::clone(&of), right, columns };
        Arc::new(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    };
    let left = side(&join.left, false, all().map(|(a, _)| a.clone()).collect());
    let right = side(&join.right, true, all().map(|(_, b)| b.clone()).collect());
    Ok(Transformed::yes(LogicalPlan::Join(Join { left, right, ..join })))
}

/// Pairs of columns, of the left side and of the right one, that the join has equal.
fn compared(join: &Join) -> Vec<(Column, Column)> {
    let (left, right) = (join.left.schema(), join.right.schema());
    let pair = |a: &Expr, b: &Expr| {
        let (a, b) = (column_of(a)?, column_of(b)?);
        let is_in = |schema: &DFSchema, column: &Column| schema.index_of_column(column).is_ok();
        match (is_in(left, a) && is_in(right, b), is_in(left, b) && is_in(right, a)) {
            (true, _) => Some((a.clone(), b.clone())),
            (false, true) => Some((b.clone(), a.clone())),
            (false, false) => None,
        }
    };
    let in_filter =
        join.filter.iter().flat_map(|filter| split_conjunction(filter)).filter_map(|part| match part {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => pair(left, right),
            _ => None,
        });
    join.on.iter().filter_map(|(a, b)| pair(a, b)).chain(in_filter).collect()
}

/// The column that an expression is, whatever it is cast to.
fn column_of(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Cast(cast) => column_of(&cast.expr),
        _ => None,
    }
}

/// What the tables of a side are called.
fn side_name(side: &LogicalPlan, otherwise: &str) -> String {
    let names: BTreeSet<String> =
        side.schema().iter().filter_map(|(q, _)| Some(q?.table().to_owned())).collect();
    if names.is_empty() { otherwise.into() } else { names.into_iter().collect::<Vec<_>>().join(" with ") }
}

/// One side of a join: its rows as they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub(crate) struct JoinKeysNode {
    input: LogicalPlan,
    join: Arc<KeyJoin>,
    right: bool,
    /// Columns of the input, as [`KeyJoin::columns`] has their names.
    columns: Vec<Column>,
}

impl JoinKeysNode {
    fn places(&self) -> Result<Vec<usize>> {
        let schema = self.input.schema();
        self.columns.iter().map(|column| schema.index_of_column(column)).collect()
    }
}

impl UserDefinedLogicalNodeCore for JoinKeysNode {
    fn name(&self) -> &str {
        "JoinKeys"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    /// Rows pass as they are: what is left out above may be left out below.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.join.columns(self.right).collect();
        write!(f, "JoinKeys: {}", names.join(", "))
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self { input, ..self.clone() }),
            _ => plan_err!("a side of a join has one input"),
        }
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut needed: BTreeSet<usize> = output_columns.iter().copied().collect();
        needed.extend(self.places().ok()?);
        Some(vec![needed.into_iter().collect()])
    }
}

/// The physical plan of `node` over its planned input.
///
/// # Errors
/// An input that is not its own.
pub(crate) fn plan_join_keys(
    node: &JoinKeysNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let [input] = inputs else { return plan_err!("a side of a join has one input, not {}", inputs.len()) };
    let keys = JoinKeys { join: node.join.as_ref().clone(), right: node.right, places: node.places()? };
    Ok(Arc::new(UnaryExec::try_new(keys, Arc::clone(input))?))
}

/// Takes down the keys of rows that pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JoinKeys {
    join: KeyJoin,
    right: bool,
    /// Columns of the input.
    places: Vec<usize>,
}

inventory::submit! {
    NodeCodec {
        name: JoinKeys::NAME,
        encode: unary::encode::<JoinKeys>,
        decode: unary::decode::<JoinKeys>,
    }
}

inventory::submit! { LedgerNode(JoinKeys::NAME) }

impl UnaryOperator for JoinKeys {
    const NAME: &'static str = "JoinKeysExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        match self.places.iter().find(|at| **at >= input.fields().len()) {
            None => Ok(()),
            Some(at) => internal_err!("there is no column {at} among {}", input.fields().len()),
        }
    }
    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        Arc::clone(input)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.join.columns(self.right).collect();
        write!(f, "{}", names.join(", "))
    }
    fn keeps_rows(&self) -> bool {
        true
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let notes = LedgerNotes::new(&task.metrics, task.metrics_partition);
        let met = Arc::new(Met {
            keys: self.clone(),
            notes: Arc::clone(&notes),
            seen: Mutex::new(Seen::try_new(self.places.len())?),
        });
        let rows = task.rows.and_then(move |batch| {
            let taken = met.take(&batch).map(|()| batch);
            futures::future::ready(taken)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, notes.until_end(rows))))
    }
}

/// What one partition has met; it notes that when its rows end, or are not wanted any more.
struct Met {
    keys: JoinKeys,
    notes: Arc<LedgerNotes>,
    seen: Mutex<Seen>,
}

/// Distinct keys.
struct Seen {
    converter: RowConverter,
    keys: HashSet<OwnedRow>,
    last: Option<OwnedRow>,
}

impl Seen {
    fn try_new(columns: usize) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(DataType::Utf8); columns])?;
        Ok(Self { converter, keys: HashSet::new(), last: None })
    }

    fn add(&mut self, columns: &[ArrayRef]) -> Result<Vec<OwnedRow>> {
        let mut new = Vec::new();
        let rows = self.converter.convert_columns(columns)?;
        for row in &rows {
            // Neighbours mostly are of one run.
            if self.last.as_ref().is_some_and(|last| last.row() == row) {
                continue;
            }
            let row = row.owned();
            if self.keys.len() < MOST_KEYS && self.keys.insert(row.clone()) {
                new.push(row.clone());
            }
            self.last = Some(row);
        }
        Ok(new)
    }
}

impl Met {
    fn take(&self, batch: &RecordBatch) -> Result<()> {
        let text = |at: &usize| Ok(cast(batch.column(*at), &DataType::Utf8)?);
        let columns = self.keys.places.iter().map(text).collect::<Result<Vec<_>>>()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new = seen.add(&columns)?;
        if new.is_empty() {
            return Ok(());
        }
        let columns = seen.converter.convert_rows(new.iter().map(OwnedRow::row))?;
        let value =
            |column: &ArrayRef, row: usize| key_in(column.as_string(), row).unwrap_or_default().to_owned();
        let keys =
            (0..new.len()).map(|row| columns.iter().map(|column| value(column, row)).collect::<Vec<_>>());
        self.notes.note(LedgerEntry::of_join(&self.keys.join, self.keys.right, keys));
        Ok(())
    }
}
