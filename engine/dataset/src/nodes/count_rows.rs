//! The number of rows of each partition, as one row.

use super::{
    UnaryOperator,
    unary::{self, UnaryTask},
};
use crate::node_codec::NodeCodec;
use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    error::Result,
    physical_plan::{SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Settings of `CountRowsExec`: none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountRows {}

inventory::submit! {
    NodeCodec { name: CountRows::NAME, encode: unary::encode::<CountRows>, decode: unary::decode::<CountRows> }
}

impl UnaryOperator for CountRows {
    const NAME: &'static str = "CountRowsExec";

    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("rows", DataType::UInt64, false)]))
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("of each partition")
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let UnaryTask { mut rows, schema, .. } = task;
        let output = Arc::clone(&schema);
        let counted = stream::once(async move {
            let mut count = 0;
            while let Some(batch) = rows.next().await.transpose()? {
                count += batch.num_rows() as u64;
            }
            Ok(RecordBatch::try_new(output, vec![Arc::new(UInt64Array::from(vec![count]))])?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)))
    }
}
