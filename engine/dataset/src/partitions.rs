//! Running a plan: every partition as a stream of its own, wherever it runs.

use crate::{
    Dataset, Ledger, PlanRun,
    error::{Error, Result},
    functions::Accumulators,
    persist::mend,
    row_width::in_bounded_batches,
    runner::{LocalRunner, PlanRunner, pool_bytes, runs_in_driver},
};
use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{
    error::{DataFusionError, Result as PlanResult},
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream, stream::RecordBatchReceiverStream,
    },
};
use futures::{StreamExt, TryStreamExt};
use std::{future::Future, sync::Arc};
use tokio::{sync::Semaphore, task::JoinSet};

/// Batches of one partition that may wait for the reader.
const READ_AHEAD: usize = 2;

/// Bytes of the session's pool for every partition that runs side by side with others.
const PARTITION_BYTES: usize = 256 << 20;

/// How many partitions may run side by side where operators share `pool` bytes: one a core, as far as memory goes.
pub(crate) fn partitions_at_once(pool: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (pool / PARTITION_BYTES).clamp(1, cores)
}

/// What partitions gave, in their order, and what nodes have for the ledger.
pub(crate) type Ended<T> = (Vec<T>, Ledger);

/// A physical plan that is about to be run.
pub(crate) struct Run {
    plan: Arc<dyn ExecutionPlan>,
    dataset: Dataset,
    /// Where functions add up, if not in the session; then what is for the ledger is the caller's alone, too.
    apart: Option<Arc<Accumulators>>,
}

impl Run {
    pub(crate) async fn of(dataset: &Dataset) -> Result<Self> {
        mend(dataset.engine(), dataset.logical_plan()?).await?;
        let plan = dataset.to_frame()?.create_physical_plan().await?;
        Ok(Self { plan, dataset: dataset.clone(), apart: None })
    }

    /// What is counted goes to the caller instead of the session: sums to `sums`, the ledger as the answer.
    pub(crate) fn counted_apart(self, sums: Option<&Arc<Accumulators>>) -> Self {
        Self { apart: sums.cloned(), ..self }
    }

    /// The same with an operator on top.
    pub(crate) fn under(
        self,
        operator: impl FnOnce(Arc<dyn ExecutionPlan>) -> PlanResult<Arc<dyn ExecutionPlan>>,
    ) -> Result<Self> {
        Ok(Self { plan: operator(self.plan)?, ..self })
    }

    pub(crate) fn partitions(&self) -> usize {
        self.plan.output_partitioning().partition_count()
    }

    /// How many partitions may run side by side.
    pub(crate) fn at_once(&self) -> usize {
        partitions_at_once(pool_bytes(&self.dataset.engine().context().runtime_env()))
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    pub(crate) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// All partitions' streams.
    async fn start(&self) -> Result<PlanRun> {
        let engine = self.dataset.engine();
        let here = runs_in_driver(self.plan.as_ref());
        let runner: &dyn PlanRunner = if here { &LocalRunner } else { engine.runner().as_ref() };
        let task = engine.context().task_ctx();
        let pool = pool_bytes(&task.runtime_env());
        let task = in_bounded_batches(self.plan.as_ref(), task, pool);
        let task =
            self.apart.as_ref().map_or_else(|| Arc::clone(&task), |sums| sums.in_place_of_session(&task));
        Ok(runner.run(Arc::clone(&self.plan), task).await?)
    }

    /// Runs `consume` on every partition, at most `at_once` side by side, and gives what they gave, in order.
    /// The first failure ends the others.
    pub(crate) async fn for_each<T, F, Fut>(&self, at_once: usize, consume: F) -> Result<Ended<T>>
    where
        T: Send + 'static,
        F: Fn(SendableRecordBatchStream) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let free = Arc::new(Semaphore::new(at_once.max(1)));
        let mut tasks = JoinSet::new();
        let PlanRun { streams, counts, .. } = self.start().await?;
        let mut done: Vec<Option<T>> = streams.iter().map(|_| None).collect();
        for (partition, rows) in streams.into_iter().enumerate() {
            let (work, free) = (consume(rows), Arc::clone(&free));
            tasks.spawn(async move {
                let _permit = free.acquire_owned().await;
                (partition, work.await)
            });
        }
        while let Some(finished) = tasks.join_next().await {
            let (partition, outcome) =
                finished.map_err(|e| Error::from(DataFusionError::ExecutionJoin(Box::new(e))))?;
            done[partition] = Some(outcome?);
        }
        let ledger = counts.gather().await?;
        if self.apart.is_none() {
            self.dataset.engine().add_to_ledger(&ledger);
        }
        Ok((done.into_iter().flatten().collect(), ledger))
    }

    /// Runs all partitions to their end.
    pub(crate) async fn collect(&self) -> Result<Vec<Vec<RecordBatch>>> {
        Ok(self.collect_at_once(self.partitions()).await?.0)
    }

    /// Runs all partitions to their end, at most `at_once` side by side.
    pub(crate) async fn collect_at_once(&self, at_once: usize) -> Result<Ended<Vec<RecordBatch>>> {
        self.for_each(at_once, |rows| async move { Ok(rows.try_collect().await?) }).await
    }

    /// Runs all partitions side by side as they are read; their batches come as they are ready.
    pub(crate) async fn merged(&self) -> Result<SendableRecordBatchStream> {
        let PlanRun { streams, counts, .. } = self.start().await?;
        let mut merged =
            RecordBatchReceiverStream::builder(self.schema(), READ_AHEAD * self.partitions().max(1));
        let engine = self.dataset.engine().clone();
        let mut readers = JoinSet::new();
        for mut rows in streams {
            let to = merged.tx();
            readers.spawn(async move {
                while let Some(batch) = rows.next().await {
                    let failed = batch.is_err();
                    if to.send(batch).await.is_err() || failed {
                        return false;
                    }
                }
                true
            });
        }
        merged.spawn(async move {
            let mut whole = true;
            while let Some(ended) = readers.join_next().await {
                whole &= ended.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
            }
            if whole {
                engine.add_to_ledger(&counts.gather().await?);
            }
            Ok(())
        });
        Ok(merged.build())
    }
}
