//! The top of every plan that is sent to a cluster: rows go through it as they are, errors in words. It belongs to
//! this build, so that a scheduler of another build refuses also a plan that has no other node of ours.

use arrow::datatypes::SchemaRef;
use ballista_core::error::BallistaError;
use datafusion::{
    error::{DataFusionError, Result},
    physical_plan::{ExecutionPlan, SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::{error::Error as StdError, fmt, sync::Arc};
use voxelflow_dataset::{
    NodeCodec,
    nodes::{
        UnaryExec, UnaryOperator,
        unary::{self, UnaryTask},
    },
    runner::Fault,
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
    fn keeps_rows(&self) -> bool {
        true
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by)
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let (schema, context) = (Arc::clone(&task.schema), task.context);
        let in_words = move |error| in_words(error, |error| Fault::is_input(&context, error));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, task.rows.map_err(in_words))))
    }
}

/// An error as one of ours, whose cause is found again in the text that Ballista makes of it; what Ballista looks
/// into, to fetch or to try again, stays as it is.
fn in_words(error: DataFusionError, is_input: impl Fn(&DataFusionError) -> bool) -> DataFusionError {
    if matches!(error.find_root(), DataFusionError::IoError(_)) || is_of_ballista(&error) {
        return error;
    }
    let is_input = is_input(&error);
    voxelflow_dataset::Error::told(error, is_input).into()
}

fn is_of_ballista(error: &(dyn StdError + 'static)) -> bool {
    error.is::<BallistaError>() || error.source().is_some_and(is_of_ballista)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::error::ArrowError;
    use voxelflow_dataset::{Cause, cause_in};

    #[test]
    fn a_cause_survives_the_text_that_ballista_makes_of_it() {
        let is_input = |e: &DataFusionError| matches!(e.find_root(), DataFusionError::ArrowError(..));
        let told = |error| {
            format!(
                "stage 1 failed: {:?}",
                BallistaError::DataFusionError(Box::new(in_words(error, is_input)))
            )
        };
        let function = voxelflow_dataset::Error::Function {
            partition: 2,
            partitions: 4,
            function: "careless".into(),
            location: "a.rs:3".into(),
            reason: "\"⟧\"\nis no number".into(),
        };
        let words = function.to_string();
        let shared = DataFusionError::Shared(Arc::new(function.into()));
        assert_eq!(cause_in(&told(shared)), Some(Cause { words: &words, is_input: false }));
        let divided = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        let words = "Arrow error: Divide by zero error";
        assert_eq!(cause_in(&told(divided)), Some(Cause { words, is_input: true }));
    }

    #[test]
    fn what_ballista_looks_into_stays() {
        let io = DataFusionError::IoError(std::io::Error::other("reset"));
        assert!(matches!(in_words(io, |_| false), DataFusionError::IoError(_)));
        let fetch = BallistaError::FetchFailed("cpu-1".into(), 1, 2, "gone".into());
        let wrapped = DataFusionError::Shared(Arc::new(DataFusionError::External(Box::new(fetch))));
        assert!(is_of_ballista(&in_words(wrapped, |_| false)));
    }
}
