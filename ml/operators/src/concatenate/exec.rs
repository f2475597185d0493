//! Concatenation as it runs: rows come sorted by group and voxel, and leave as one row a voxel.

use super::{APART, CONCATENATE, ConcatenateNode, MissingRun, gather::Gather, runs::RunOrder};
use arrow::{
    datatypes::{Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{internal_err, plan_err},
    error::Result,
    physical_expr::{
        LexRequirement, OrderingRequirements, PhysicalExpr, PhysicalSortRequirement, expressions::Column,
    },
    physical_plan::{Distribution, SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, fmt, sync::Arc};
use voxelflow_dataset::{
    LedgerNode, LedgerNotes, NodeCodec,
    node_codec::WireSchema,
    nodes::unary::{self, UnaryOperator, UnaryTask},
};

/// Settings of the concatenation. Columns are held by name and position.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Concatenate {
    /// Columns whose rows are joined, those of the point last.
    pub group: Vec<(String, usize)>,
    /// Columns that tell the runs apart.
    pub apart: Vec<(String, usize)>,
    /// Columns that must be the same in all runs of a voxel.
    pub common: Vec<(String, usize)>,
    pub series: (String, usize),
    pub time_points: usize,
    pub order: RunOrder,
    pub missing: MissingRun,
    schema: WireSchema,
}

inventory::submit! {
    NodeCodec {
        name: Concatenate::NAME,
        encode: unary::encode::<Concatenate>,
        decode: unary::decode::<Concatenate>,
    }
}

inventory::submit! { LedgerNode(Concatenate::NAME) }

impl Concatenate {
    pub fn try_new(node: &ConcatenateNode, input: &Schema, schema: WireSchema) -> Result<Self> {
        let place = |name: &str| Ok((name.to_owned(), input.index_of(name)?));
        let group = node.by.iter().chain(&node.point).map(|name| place(name)).collect::<Result<Vec<_>>>()?;
        let apart = node.order.columns().iter().map(|name| place(name)).collect::<Result<Vec<_>>>()?;
        let series = place(&node.series.name)?;
        let others = input.fields().iter().enumerate().map(|(at, field)| (field.name().clone(), at));
        let common = others.filter(|c| *c != series && !group.contains(c) && !apart.contains(c)).collect();
        let time_points = node.series.time_points;
        Ok(Self {
            group,
            apart,
            common,
            series,
            time_points,
            order: node.order.clone(),
            missing: node.missing,
            schema,
        })
    }

    fn all(&self) -> impl Iterator<Item = &(String, usize)> {
        self.group.iter().chain(&self.apart).chain(&self.common).chain([&self.series])
    }
}

impl UnaryOperator for Concatenate {
    const NAME: &'static str = "ConcatenateExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        let fits = |(name, at): &(String, usize)| input.fields().get(*at).is_some_and(|f| f.name() == name);
        if let Some((name, at)) = self.all().find(|column| !fits(column)) {
            return plan_err!("column {at} of the rows of {CONCATENATE} is not `{name}`");
        }
        match input.fields().len() == self.schema.0.fields().len()
            && self.all().count() == input.fields().len()
        {
            true => Ok(()),
            false => internal_err!("{CONCATENATE} knows other columns than {input}"),
        }
    }
    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        Arc::clone(&self.schema.0)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.group.iter().map(|(name, _)| name.as_str()).collect();
        write!(
            f,
            "by {}, {}: {}",
            columns.join(", "),
            self.order.columns().join("/"),
            self.order.labels().join(", ")
        )
    }
    fn distribution(&self) -> Distribution {
        Distribution::KeyPartitioned(self.expressions())
    }
    fn ordering(&self) -> Option<OrderingRequirements> {
        let by = self.expressions().into_iter().map(|key| PhysicalSortRequirement::new(key, None));
        LexRequirement::new(by).map(OrderingRequirements::new)
    }
    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.group.iter().map(|(name, at)| Arc::new(Column::new(name, *at)) as _).collect()
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let notes = LedgerNotes::new(&task.metrics, task.metrics_partition);
        let gather =
            Gather::try_new(self, Arc::clone(&task.schema), &task.input.schema(), Arc::clone(&notes))?;
        let rows = notes.until_end(joined(task.rows, gather));
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, rows)))
    }
}

fn joined(rows: SendableRecordBatchStream, gather: Gather) -> impl Stream<Item = Result<RecordBatch>> {
    let start = (Some(rows), gather, VecDeque::new());
    stream::try_unfold(start, |(mut rows, mut gather, mut ready)| async move {
        loop {
            if let Some(batch) = ready.pop_front() {
                return Ok(Some((batch, (rows, gather, ready))));
            }
            let Some(open) = rows.as_mut() else { return Ok(None) };
            match open.next().await.transpose()? {
                Some(batch) => gather.push(&batch, &mut ready)?,
                None => {
                    rows = None;
                    gather.close(&mut ready)?;
                }
            }
            // A task that was cancelled ends here.
            tokio::task::yield_now().await;
        }
    })
}

/// Names of columns that say where a voxel is.
pub(super) fn is_position(name: &str) -> bool {
    ["i", "j", "k"].contains(&name) && !APART.contains(&name)
}
