//! Running a plan: every partition as a stream of its own, which says its number when it fails.

use crate::{
    Dataset,
    error::{Error, Result, in_partition},
    ledger,
    persist::mend,
};
use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{
    error::DataFusionError,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream,
        stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter},
    },
};
use futures::{StreamExt, TryStreamExt};
use std::{collections::BTreeMap, future::Future, sync::Arc};
use tokio::{sync::Semaphore, task::JoinSet};

/// Batches of one partition that may wait for the reader.
const READ_AHEAD: usize = 2;

/// A physical plan that is about to be run.
pub(crate) struct Run {
    plan: Arc<dyn ExecutionPlan>,
    dataset: Dataset,
}

impl Run {
    pub(crate) async fn of(dataset: &Dataset) -> Result<Self> {
        mend(dataset.engine(), dataset.logical_plan()?).await?;
        let plan = dataset.to_frame()?.create_physical_plan().await?;
        Ok(Self { plan, dataset: dataset.clone() })
    }

    pub(crate) fn partitions(&self) -> usize {
        self.plan.output_partitioning().partition_count()
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// What nodes counted for the ledger so far.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        ledger::counts(self.plan.as_ref())
    }

    pub(crate) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// All partitions' streams; nothing runs before they are polled.
    pub(crate) fn streams(&self) -> Result<Vec<SendableRecordBatchStream>> {
        let partitions = self.partitions();
        let task = self.dataset.engine().context().task_ctx();
        let stream = |partition| {
            let rows = self
                .plan
                .execute(partition, Arc::clone(&task))
                .map_err(|e| in_partition(e, partition, partitions))?;
            let schema = rows.schema();
            let named = rows.map_err(move |e| in_partition(e, partition, partitions));
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, named)) as SendableRecordBatchStream)
        };
        (0..partitions).map(stream).collect()
    }

    /// Runs `consume` on every partition, at most `at_once` side by side, and gives what they gave, in order.
    /// The first failure ends the others.
    pub(crate) async fn for_each<T, F, Fut>(&self, at_once: usize, consume: F) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Fn(usize, SendableRecordBatchStream) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let free = Arc::new(Semaphore::new(at_once.max(1)));
        let mut tasks = JoinSet::new();
        for (partition, rows) in self.streams()?.into_iter().enumerate() {
            let (work, free) = (consume(partition, rows), Arc::clone(&free));
            tasks.spawn(async move {
                let _permit = free.acquire_owned().await;
                (partition, work.await)
            });
        }
        let mut done: Vec<Option<T>> = (0..self.partitions()).map(|_| None).collect();
        while let Some(finished) = tasks.join_next().await {
            let (partition, outcome) =
                finished.map_err(|e| Error::from(DataFusionError::ExecutionJoin(Box::new(e))))?;
            done[partition] = Some(outcome?);
        }
        Ok(done.into_iter().flatten().collect())
    }

    /// Runs all partitions to their end.
    pub(crate) async fn collect(&self) -> Result<Vec<Vec<RecordBatch>>> {
        self.for_each(self.partitions(), |_, rows| async move { Ok(rows.try_collect().await?) }).await
    }

    /// Runs all partitions side by side as they are read; their batches come as they are ready.
    pub(crate) fn merged(&self) -> Result<SendableRecordBatchStream> {
        let mut merged =
            RecordBatchReceiverStream::builder(self.schema(), READ_AHEAD * self.partitions().max(1));
        for mut rows in self.streams()? {
            let to = merged.tx();
            merged.spawn(async move {
                while let Some(batch) = rows.next().await {
                    let failed = batch.is_err();
                    if to.send(batch).await.is_err() || failed {
                        break;
                    }
                }
                Ok(())
            });
        }
        Ok(merged.build())
    }
}
