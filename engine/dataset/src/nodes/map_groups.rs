//! A named function over all rows that share a key: the rows are brought together by hash, sorted by key
//! within their partition, and handed over group by group.

use super::{
    map_partitions::Caller,
    only_input,
    unary::{self, UnaryExec, UnaryOperator, UnaryTask},
};
use crate::{
    functions::{CarriedBroadcasts, FunctionCall},
    node_codec::{NodeCodec, WireSchema},
};
use arrow::{
    array::ArrayRef,
    compute::concat_batches,
    datatypes::{Schema, SchemaRef},
    record_batch::RecordBatch,
    row::{OwnedRow, RowConverter, SortField},
};
use datafusion::{
    common::{DFSchema, DFSchemaRef, plan_err},
    error::{DataFusionError, Result},
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_expr::{
        LexRequirement, OrderingRequirements, PhysicalExpr, PhysicalSortRequirement, expressions::Column,
    },
    physical_plan::{
        Distribution, ExecutionPlan, SendableRecordBatchStream, stream::RecordBatchStreamAdapter,
    },
};
use futures::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, collections::VecDeque, fmt, sync::Arc};

/// Rows of one group that are gathered before a folding function is called on them.
const FOLD_ROWS: usize = 65_536;

/// `map_groups` and, with `fold`, `reduce_by_key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapGroupsNode {
    keys: Vec<String>,
    call: FunctionCall,
    /// The function may be called on its own answers, so that a large group need not be held.
    fold: bool,
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl MapGroupsNode {
    /// The groups of `input` by the columns `keys`.
    pub(crate) fn try_new(
        input: LogicalPlan,
        keys: &[&str],
        call: FunctionCall,
        schema: &Schema,
        fold: bool,
    ) -> Result<Self> {
        let schema = Arc::new(DFSchema::try_from(schema.clone())?);
        Ok(Self { keys: keys.iter().map(|k| (*k).to_owned()).collect(), call, fold, input, schema })
    }

    pub(super) fn execution(
        &self,
        input: Arc<dyn ExecutionPlan>,
        broadcasts: CarriedBroadcasts,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let place = |name: &String| Ok((name.clone(), input.schema().index_of(name)?));
        let operator = MapGroups {
            keys: self.keys.iter().map(place).collect::<Result<_>>()?,
            call: self.call.clone(),
            fold: self.fold,
            schema: WireSchema(Arc::new(self.schema.as_arrow().clone())),
            broadcasts,
        };
        Ok(Arc::new(UnaryExec::try_new(operator, input)?))
    }
}

impl PartialOrd for MapGroupsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.keys, &self.call, &self.input).partial_cmp(&(&other.keys, &other.call, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for MapGroupsNode {
    fn name(&self) -> &str {
        "MapGroups"
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
    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "MapGroups: by {} {} {}",
            self.keys.join(", "),
            self.call.display_name(),
            self.call.arguments
        )
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { input: only_input(inputs, self.name())?, ..self.clone() })
    }
}

/// Executes [`MapGroupsNode`].
pub type MapGroupsExec = UnaryExec<MapGroups>;

/// Settings of [`MapGroupsExec`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapGroups {
    /// Names and positions of the key columns.
    keys: Vec<(String, usize)>,
    call: FunctionCall,
    fold: bool,
    schema: WireSchema,
    broadcasts: CarriedBroadcasts,
}

inventory::submit! {
    NodeCodec {
        name: MapGroups::NAME,
        encode: unary::encode::<MapGroups>,
        decode: unary::decode::<MapGroups>,
    }
}

impl UnaryOperator for MapGroups {
    const NAME: &'static str = "MapGroupsExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        let fits = |(name, at): &(String, usize)| input.fields().get(*at).is_some_and(|f| f.name() == name);
        match self.keys.iter().find(|key| !fits(key)) {
            Some((name, at)) => plan_err!("column {at} of the groups' rows is not the key `{name}`"),
            None => Ok(self.call.resolve().map(drop)?),
        }
    }
    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        Arc::clone(&self.schema.0)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.keys.iter().map(|(name, _)| name.as_str()).collect();
        write!(f, "by {} {}", keys.join(", "), self.call.display_name())
    }
    fn distribution(&self) -> Distribution {
        Distribution::KeyPartitioned(self.expressions())
    }
    fn ordering(&self) -> Option<OrderingRequirements> {
        let by = self.expressions().into_iter().map(|key| PhysicalSortRequirement::new(key, None));
        LexRequirement::new(by).map(OrderingRequirements::new)
    }
    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.keys.iter().map(|(name, at)| Arc::new(Column::new(name, *at)) as _).collect()
    }
    fn to_send(&self) -> Result<Self> {
        Ok(Self { broadcasts: self.broadcasts.filled(&self.call)?, ..self.clone() })
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let caller = Caller::new(self.call.resolve()?, self.broadcasts.open(), &task);
        let groups = Groups::try_new(caller, &self.keys, task.input.schema(), self.fold)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, group_stream(task.rows, groups))))
    }
}

fn group_stream(rows: SendableRecordBatchStream, groups: Groups) -> impl Stream<Item = Result<RecordBatch>> {
    let start = (Some(rows), groups, VecDeque::new());
    stream::try_unfold(start, |(mut rows, mut groups, mut ready)| async move {
        loop {
            if let Some(batch) = ready.pop_front() {
                return Ok(Some((batch, (rows, groups, ready))));
            }
            let Some(open) = rows.as_mut() else { return Ok(None) };
            match open.next().await {
                Some(Ok(batch)) => groups.push(&batch, &mut ready)?,
                Some(Err(e)) => {
                    groups.caller.fail();
                    return Err(e);
                }
                None => {
                    rows = None;
                    groups.close(&mut ready)?;
                }
            }
            // As in map_partitions: a task that was cancelled ends here.
            tokio::task::yield_now().await;
        }
    })
}

/// The group whose rows are coming in; rows are sorted by key, so there is one at a time.
struct Groups {
    caller: Caller,
    converter: RowConverter,
    keys: Vec<usize>,
    schema: SchemaRef,
    fold: bool,
    current: Option<OwnedRow>,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
}

impl Groups {
    fn try_new(caller: Caller, keys: &[(String, usize)], schema: SchemaRef, fold: bool) -> Result<Self> {
        let keys: Vec<usize> = keys.iter().map(|(_, at)| *at).collect();
        let fields = keys.iter().map(|k| SortField::new(schema.field(*k).data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        Ok(Self {
            caller,
            converter,
            keys,
            schema,
            fold,
            current: None,
            pending: Vec::new(),
            pending_rows: 0,
        })
    }

    fn push(&mut self, batch: &RecordBatch, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        let columns: Vec<ArrayRef> = self.keys.iter().map(|k| Arc::clone(batch.column(*k))).collect();
        let rows = self.converter.convert_columns(&columns)?;
        let mut start = 0;
        for row in 0..batch.num_rows() {
            if self.current.as_ref().is_some_and(|current| current.row() == rows.row(row)) {
                continue;
            }
            self.add(batch.slice(start, row - start))?;
            self.close(ready)?;
            self.current = Some(rows.row(row).owned());
            start = row;
        }
        self.add(batch.slice(start, batch.num_rows() - start))
    }

    fn add(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.pending_rows += rows.num_rows();
        self.pending.push(rows);
        if self.fold && self.pending_rows >= FOLD_ROWS && self.pending.len() > 1 {
            let folded = self.call()?;
            self.pending_rows = folded.iter().map(RecordBatch::num_rows).sum();
            self.pending = folded;
        }
        Ok(())
    }

    /// Hands the current group over.
    fn close(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        if self.pending_rows > 0 {
            ready.extend(self.call()?);
            self.pending.clear();
            self.pending_rows = 0;
        }
        Ok(())
    }

    fn call(&mut self) -> Result<Vec<RecordBatch>> {
        let group = concat_batches(&self.schema, &self.pending).map_err(DataFusionError::from)?;
        self.caller.call(group)
    }
}
