//! Rows beside their part: the columns of the join in the order that the statement has them.

use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{
    common::internal_err,
    error::Result,
    physical_plan::{SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use voxelflow_dataset::{
    NodeCodec,
    node_codec::WireSchema,
    nodes::unary::{self, UnaryOperator, UnaryTask},
};

/// Puts the columns of the rows first and the part last, and writes the schema's metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SplitRows {
    /// Columns of the groups, of which the last is the part; those of the rows come after.
    groups: usize,
    schema: WireSchema,
}

inventory::submit! {
    NodeCodec {
        name: SplitRows::NAME,
        encode: unary::encode::<SplitRows>,
        decode: unary::decode::<SplitRows>,
    }
}

impl SplitRows {
    pub fn new(groups: usize, schema: WireSchema) -> Self {
        Self { groups, schema }
    }

    fn places(&self, columns: usize) -> Vec<usize> {
        (self.groups..columns).chain([self.groups - 1]).collect()
    }
}

impl UnaryOperator for SplitRows {
    const NAME: &'static str = "SplitRowsExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        let columns = self.schema.0.fields();
        let fits = self.groups > 0
            && input.fields().len() + 1 == self.groups + columns.len()
            && self.places(input.fields().len()).iter().zip(columns).all(|(place, column)| {
                let found = input.field(*place);
                found.name() == column.name() && found.data_type() == column.data_type()
            });
        if fits { Ok(()) } else { internal_err!("the rows of a split are {columns:?}, not {input}") }
    }
    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        Arc::clone(&self.schema.0)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.schema.0.fields().last().map_or("", |f| f.name().as_str()))
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let (places, schema) = (self.places(task.input.schema().fields().len()), Arc::clone(&task.schema));
        let rows = task.rows.and_then(move |batch| {
            let columns = batch.project(&places).map(|batch| batch.columns().to_vec());
            let split = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&schema), columns));
            futures::future::ready(split.map_err(Into::into))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, rows)))
    }
}
