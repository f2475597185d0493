//! How tasks get to executors: on the streams by which these are members.

use super::{members::Members, messages::TaskName};
use async_trait::async_trait;
use ballista_core::{
    JobId,
    error::Result,
    serde::{protobuf::MultiTaskDefinition, scheduler::ExecutorMetadata},
};
use ballista_scheduler::state::{
    encode_protobuf, executor_manager::ExecutorManager, task_manager::TaskLauncher,
};
use std::{collections::HashSet, sync::Arc};

/// Says to members what to run.
#[derive(Debug)]
pub(super) struct Launcher(pub(super) Arc<Members>);

#[async_trait]
impl TaskLauncher for Launcher {
    /// A member that has left meanwhile is no error: whoever saw it leave has ended its jobs. An error would have
    /// Ballista roll back stages, also of other jobs.
    async fn launch_tasks(
        &self,
        executor: &ExecutorMetadata,
        tasks: Vec<MultiTaskDefinition>,
        _: &ExecutorManager,
    ) -> Result<HashSet<JobId>> {
        for definition in tasks {
            // Ballista gives each task a definition of its own, for each has partitions of its own.
            for task in definition.task_ids.clone() {
                let (job, stage) = (definition.job_id.clone(), definition.stage_id);
                let name = TaskName { job, stage, attempt: definition.stage_attempt_num, task: task.task_id };
                let one = MultiTaskDefinition { task_ids: vec![task], ..definition.clone() };
                self.0.run(&executor.id, &name, encode_protobuf(&one)?);
            }
        }
        Ok(HashSet::new())
    }
}
