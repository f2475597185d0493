//! How an executor runs tasks: as Ballista does, and a task that is cancelled ends.
//!
//! ```text
//!   task's future ──holds──► guard ──dropped──► token
//!                                                 │ cancelled
//!   writer ◄── operators ◄── StoppableExec ◄── leaf, or a gang
//! ```
//!
//! Ballista cancels a task by dropping its future, but its writer goes on in tasks of its own, and with it all
//! operators: rows would be read, and members of gangs would work, to the end. So what rows come from ends with
//! an error as soon as the future is gone.

use crate::{connections::Connections, control::Guard};
use async_trait::async_trait;
use ballista_core::{
    JobId,
    serde::protobuf::{RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport},
};
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
        metrics::MetricsSet, stream::RecordBatchStreamAdapter,
    },
    prelude::SessionConfig,
};
use futures::{StreamExt, stream};
use std::{fmt, sync::Arc};
use tokio_util::sync::CancellationToken;
use voxelflow_dataset::{
    log_tail::{task_of, task_scope},
    nodes::GangExec,
};

/// Ballista's engine, whose tasks end when they are cancelled.
pub(crate) struct TaskEngine {
    inner: DefaultExecutionEngine,
}

impl TaskEngine {
    /// An engine whose tasks fetch rows from executors with the same key as `guard`.
    pub(crate) fn new(guard: &Guard) -> Self {
        let connections = Arc::new(Connections::new(guard));
        Self { inner: DefaultExecutionEngine::with_client_pool(connections) }
    }
}

impl ExecutionEngine for TaskEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let token = CancellationToken::new();
        let plan = stoppable(plan, &token)?;
        let outputs = global_output_partition_ids;
        let inner =
            self.inner.create_query_stage_exec(job_id, stage_id, task_id, outputs, plan, work_dir, config)?;
        Ok(Arc::new(Task { inner, token }))
    }
}

/// A task of Ballista, and what stops it.
#[derive(Debug)]
struct Task {
    inner: Arc<dyn QueryStageExecutor>,
    token: CancellationToken,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl QueryStageExecutor for Task {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let guard = self.token.clone().drop_guard();
        let name = task_of(&context).unwrap_or_default();
        let written = task_scope(name, self.inner.execute_query_stage(task_id, context)).await;
        // Dropped before this line, the guard stops what the task has left behind; after a failure there may be
        // partitions that still run.
        if written.is_ok() {
            guard.disarm();
        }
        written
    }
    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.inner.collect_plan_metrics()
    }
    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.inner.collect_runtime_stats_reports()
    }
    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.inner.collect_window_state_reports()
    }
    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.inner.collect_column_stats()
    }
}

/// `plan` with everything that rows come from, and gangs, ending when `token` is cancelled.
fn stoppable(plan: Arc<dyn ExecutionPlan>, token: &CancellationToken) -> Result<Arc<dyn ExecutionPlan>> {
    let stopped = plan.transform_up(|node| {
        if !node.children().is_empty() && node.downcast_ref::<GangExec>().is_none() {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(Arc::new(StoppableExec { input: node, token: token.clone() })))
    })?;
    Ok(stopped.data)
}

/// Rows of its input, until the task is cancelled. It counts nothing, so that Ballista finds the operators' counts
/// in their places.
#[derive(Debug)]
struct StoppableExec {
    input: Arc<dyn ExecutionPlan>,
    token: CancellationToken,
}

impl DisplayAs for StoppableExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("StoppableExec")
    }
}

impl ExecutionPlan for StoppableExec {
    fn name(&self) -> &str {
        "StoppableExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }
    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self { input, token: self.token.clone() })),
            _ => Err(DataFusionError::Internal("StoppableExec takes one input".into())),
        }
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let start = (self.input.execute(partition, context)?, self.token.clone());
        // An error, not an end: what has come so far must not be taken for all there is.
        let rows = stream::try_unfold(start, |(mut rows, token)| async move {
            let batch = tokio::select! {
                biased;
                () = token.cancelled() => {
                    return Err(DataFusionError::Execution("the task was cancelled".into()));
                }
                batch = rows.next() => batch.transpose()?,
            };
            Ok(batch.map(|batch| (batch, (rows, token))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::{
        array::{Int64Array, RecordBatch},
        datatypes::{DataType, Field, Schema},
    };
    use datafusion::{
        datasource::memory::MemorySourceConfig, physical_plan::coalesce_partitions::CoalescePartitionsExec,
        prelude::SessionContext,
    };
    use futures::TryStreamExt;

    #[tokio::test]
    async fn rows_end_with_an_error_when_the_task_is_cancelled() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let batch = |n: i64| {
            let column = Arc::new(Int64Array::from(vec![n]));
            RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap()
        };
        let parts = [vec![batch(1), batch(2)], vec![batch(3)]];
        let source = MemorySourceConfig::try_new_exec(&parts, Arc::clone(&schema), None).unwrap();
        let plan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(source));
        let token = CancellationToken::new();
        let stopped = stoppable(Arc::clone(&plan), &token).unwrap();
        let shown = datafusion::physical_plan::displayable(stopped.as_ref()).indent(false).to_string();
        assert_eq!(shown.matches("StoppableExec").count(), 1, "{shown}");
        let counted = ballista_core::utils::collect_plan_metrics;
        assert_eq!(counted(stopped.as_ref()).len(), counted(plan.as_ref()).len());

        let context = SessionContext::new().task_ctx();
        let all: Vec<_> = stopped.execute(0, Arc::clone(&context)).unwrap().try_collect().await.unwrap();
        assert_eq!(all.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        let mut rows = stopped.children()[0].execute(0, context).unwrap();
        assert!(rows.next().await.unwrap().is_ok());
        token.cancel();
        let error = rows.next().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("the task was cancelled"), "{error}");
        assert!(rows.next().await.is_none());
    }
}
