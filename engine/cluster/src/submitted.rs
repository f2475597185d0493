//! The top of every plan that is sent to a cluster: it changes nothing, and belongs to this build, so that a
//! scheduler of another build refuses also a plan that has no other node of ours.

use arrow::datatypes::SchemaRef;
use datafusion::{
    error::Result,
    physical_plan::{ExecutionPlan, SendableRecordBatchStream},
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use voxelflow_dataset::{
    NodeCodec,
    nodes::{
        UnaryExec, UnaryOperator,
        unary::{self, UnaryTask},
    },
};

/// Settings of `SubmittedExec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Submitted {
    /// What the job is called.
    by: String,
}

inventory::submit! {
    NodeCodec { name: Submitted::NAME, encode: unary::encode::<Submitted>, decode: unary::decode::<Submitted> }
}

/// `plan`, ready to be sent; `by` is shown with it.
pub(crate) fn submitted(plan: Arc<dyn ExecutionPlan>, by: &str) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(UnaryExec::try_new(Submitted { by: by.to_owned() }, plan)?))
}

impl UnaryOperator for Submitted {
    const NAME: &'static str = "SubmittedExec";

    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        Arc::clone(input)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by)
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        Ok(task.rows)
    }
}
