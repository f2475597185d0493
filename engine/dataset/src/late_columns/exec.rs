//! The two operators: lists go, lists come back.

use super::shelf::{Shelf, ShelfWriter, take};
use crate::nodes::only_child;
use arrow::{
    array::ArrayRef,
    compute::BatchCoalescer,
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use datafusion::{
    common::{Statistics, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, utils::collect_columns},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        SendableRecordBatchStream,
        execution_plan::CardinalityEffect,
        statistics::{ChildStats, StatisticsArgs},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Rows of a batch without lists.
const NARROW_ROWS: usize = 8192;

/// Metadata of a column of addresses: which shelf they are of.
const ASIDE: &str = "voxelflow.aside";

/// The number of the shelf that the addresses in `field` are of; none of another column.
pub(super) fn shelf_of(field: &Field) -> Option<usize> {
    field.metadata().get(ASIDE)?.parse().ok()
}

/// Puts lists aside, or takes them back.
#[derive(Debug)]
pub(super) struct LateExec {
    step: Step,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes the lists of some columns to files, and gives their addresses.
    PutAside { columns: BTreeSet<usize>, number: usize, shelf: Arc<Shelf> },
    /// Reads the lists that the addresses of the input stand for.
    TakeBack { shelves: Arc<[Arc<Shelf>]> },
}

impl LateExec {
    /// The lists in `columns` of `input`, on shelf `number`.
    pub fn put_aside(
        input: Arc<dyn ExecutionPlan>,
        columns: BTreeSet<usize>,
        (number, shelf): (usize, Arc<Shelf>),
    ) -> Self {
        let schema = input.schema();
        let field = |(at, field): (usize, &Arc<Field>)| match columns.contains(&at) {
            false => Arc::clone(field),
            true => {
                let metadata = [(ASIDE.to_owned(), number.to_string())].into();
                Arc::new(Field::new(field.name(), DataType::UInt64, true).with_metadata(metadata))
            }
        };
        let fields: Vec<_> = schema.fields().iter().enumerate().map(field).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        // Operators above have been planned for the order that the rows have.
        let stays = |order: &&LexOrdering| {
            let mut used = order.iter().flat_map(|part| collect_columns(&part.expr));
            used.all(|column| !columns.contains(&column.index()))
        };
        let orders = input.properties().equivalence_properties().oeq_class().iter().filter(stays).cloned();
        let order = EquivalenceProperties::new_with_orderings(schema, orders.collect::<Vec<_>>());
        let properties = PlanProperties::new(
            order,
            input.output_partitioning().clone(),
            input.properties().emission_type,
            input.properties().boundedness,
        );
        Self { step: Step::PutAside { columns, number, shelf }, input, properties: Arc::new(properties) }
    }

    /// `input` as the plan with `properties` was before some of its lists were put aside.
    pub fn take_back(
        input: Arc<dyn ExecutionPlan>,
        shelves: Arc<[Arc<Shelf>]>,
        properties: Arc<PlanProperties>,
    ) -> Self {
        Self { step: Step::TakeBack { shelves }, input, properties }
    }
}

impl DisplayAs for LateExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let narrow = match self.step {
            Step::PutAside { .. } => self.schema(),
            Step::TakeBack { .. } => self.input.schema(),
        };
        let aside = narrow.fields().iter().filter(|field| shelf_of(field).is_some());
        let names: Vec<&str> = aside.map(|field| field.name().as_str()).collect();
        write!(f, "{}: {}", self.name(), names.join(", "))
    }
}

impl ExecutionPlan for LateExec {
    fn name(&self) -> &str {
        match self.step {
            Step::PutAside { .. } => "PutAsideExec",
            Step::TakeBack { .. } => "TakeBackExec",
        }
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = only_child(children, self.name())?;
        Ok(Arc::new(match &self.step {
            Step::PutAside { columns, number, shelf } => {
                Self::put_aside(input, columns.clone(), (*number, Arc::clone(shelf)))
            }
            Step::TakeBack { shelves } => {
                Self::take_back(input, Arc::clone(shelves), Arc::clone(&self.properties))
            }
        }))
    }
    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::Skip]
    }
    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }
    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        match &self.step {
            Step::PutAside { columns, shelf, .. } => {
                put_aside(rows, columns.clone(), shelf.writer(&context)?, self.schema())
            }
            Step::TakeBack { shelves } => {
                // Rows are many to a batch while they are narrow.
                let most = context.session_config().batch_size().max(1);
                take_back(rows, Arc::clone(shelves), most, self.schema())
            }
        }
    }
}

/// `rows` with the addresses of the lists in `columns`.
fn put_aside(
    rows: SendableRecordBatchStream,
    columns: BTreeSet<usize>,
    mut writer: ShelfWriter,
    schema: SchemaRef,
) -> Result<SendableRecordBatchStream> {
    // Rows that were few to a batch are many now, and no longer parts of large ones.
    let mut narrow = BatchCoalescer::new(Arc::clone(&schema), NARROW_ROWS);
    let given = Arc::clone(&schema);
    let rows = rows.map(Some).chain(stream::once(async { None })).map(move |batch| {
        match batch.transpose()? {
            Some(batch) => {
                let column = |(at, column): (usize, &ArrayRef)| -> Result<ArrayRef> {
                    Ok(if columns.contains(&at) { Arc::new(writer.put(column)?) } else { Arc::clone(column) })
                };
                let all = batch.columns().iter().enumerate().map(column).collect::<Result<_>>()?;
                narrow.push_batch(batch_of(&schema, all, batch.num_rows())?)?;
            }
            None => narrow.finish_buffered_batch()?,
        }
        let whole: Vec<_> = std::iter::from_fn(|| narrow.next_completed_batch()).map(Ok).collect();
        Ok::<_, DataFusionError>(stream::iter(whole))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(given, rows.try_flatten())))
}

/// `rows` with their lists, at most `most` to a batch.
fn take_back(
    rows: SendableRecordBatchStream,
    shelves: Arc<[Arc<Shelf>]>,
    most: usize,
    schema: SchemaRef,
) -> Result<SendableRecordBatchStream> {
    let given = Arc::clone(&schema);
    let parts = rows.map_ok(move |batch| {
        let starts = (0..batch.num_rows()).step_by(most);
        let part = move |from| Ok::<_, DataFusionError>(batch.slice(from, most.min(batch.num_rows() - from)));
        stream::iter(starts.map(part))
    });
    let rows = parts.try_flatten().map(move |part| whole(&part?, &schema, &shelves));
    Ok(Box::pin(RecordBatchStreamAdapter::new(given, rows)))
}

/// The rows of `part` with their lists.
fn whole(part: &RecordBatch, schema: &SchemaRef, shelves: &[Arc<Shelf>]) -> Result<RecordBatch> {
    let fields = part.schema();
    let columns = part.columns().iter().zip(fields.fields()).zip(schema.fields());
    let columns = columns.map(|((column, narrow), field)| match shelf_of(narrow) {
        None => Ok(Arc::clone(column)),
        Some(number) => {
            let shelf = shelves.get(number);
            let shelf =
                shelf.ok_or_else(|| DataFusionError::Internal(format!("no shelf {number} of series")))?;
            take(shelf, column, field)
        }
    });
    batch_of(schema, columns.collect::<Result<_>>()?, part.num_rows())
}

fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
