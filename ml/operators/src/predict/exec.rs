//! Prediction as it runs: the features of whole runs come in, rows of every target leave, block by block.

use super::{PREDICT, blocks::Blocks, named, points_text};
use crate::{Error, StageCatalog, features::FeatureTable};
use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{
    common::{exec_datafusion_err, runtime::SpawnedTask},
    error::{DataFusionError, Result},
    physical_plan::{Distribution, SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::{Stream, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, fmt, sync::Arc};
use voxelflow_dataset::{
    LedgerNode, LedgerNotes, NodeCodec,
    node_codec::WireSchema,
    nodes::unary::{self, UnaryOperator, UnaryTask},
};

/// Settings of the prediction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Predict {
    /// The model's folder, of a file system that everybody sees, or a URL.
    pub model: String,
    /// Samples of every run, where they are the same.
    pub time_points: Option<usize>,
    pub schema: WireSchema,
}

inventory::submit! {
    NodeCodec {
        name: Predict::NAME,
        encode: unary::encode::<Predict>,
        decode: unary::decode::<Predict>,
    }
}

inventory::submit! { LedgerNode(Predict::NAME) }

impl UnaryOperator for Predict {
    const NAME: &'static str = "PredictExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        Ok(FeatureTable::find(input).map(drop).map_err(named)?)
    }
    fn schema(&self, _input: &SchemaRef) -> SchemaRef {
        Arc::clone(&self.schema.0)
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model={}, time_points={}", self.model, points_text(self.time_points))
    }
    /// Runs are whole, and coefficients are read once for all of them; products use all cores.
    fn distribution(&self) -> Distribution {
        Distribution::SinglePartition
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let catalog = task.context.session_config().get_extension::<StageCatalog>();
        let catalog = catalog.ok_or_else(|| Error::NoStages { stage: PREDICT.to_owned() })?;
        let table = FeatureTable::find(&task.input.schema()).map_err(named)?;
        let notes = LedgerNotes::new(&task.metrics, task.metrics_partition);
        table.note(&notes);
        let (operator, told, rows) = (self.clone(), Arc::clone(&notes), task.rows);
        let predicted = stream::once(async move {
            let batches: Vec<RecordBatch> = rows.try_collect().await?;
            let opened = blocking(move || {
                let features = table.read(&batches).map_err(named)?;
                Ok(Blocks::open(&operator, features, &catalog, told)?)
            });
            Ok::<_, DataFusionError>(of_blocks(opened.await?))
        });
        let rows = notes.until_end(predicted.try_flatten());
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, rows)))
    }
}

/// The rows of all blocks.
fn of_blocks(blocks: Option<Blocks>) -> impl Stream<Item = Result<RecordBatch>> {
    stream::try_unfold((blocks, VecDeque::new()), |(mut blocks, mut ready)| async move {
        loop {
            if let Some(batch) = ready.pop_front() {
                return Ok(Some((batch, (blocks, ready))));
            }
            let Some(mut open) = blocks.take() else { return Ok(None) };
            let (open, next) = blocking(move || {
                let next = open.next()?;
                Ok((open, next))
            })
            .await?;
            if let Some(rows) = next {
                ready.extend(rows);
                blocks = Some(open);
            }
        }
    })
}

/// Products and files, away from the threads that move batches.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = SpawnedTask::spawn_blocking(work).join_unwind().await;
    done.map_err(|e| exec_datafusion_err!("predictions were stopped: {e}"))?
}
