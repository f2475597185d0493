//! From Ballista's state to a [`ClusterView`].

use super::{
    cluster_view::{ClusterView, Demand, Executor, GangNeed, Room, Running, StageKey, Waiting},
    executor_name::ExecutorName,
    job_options::JobOptions,
    waiting_room::WaitingRoom,
};
use ballista_core::{
    JobId,
    execution_plans::{RangeShuffleReaderExec, ShuffleReaderExec},
    serde::{
        protobuf::{job_status, task_status},
        scheduler::ExecutorMetadata,
    },
};
use ballista_scheduler::state::{
    execution_graph::ExecutionGraph,
    execution_stage::{ExecutionStage, RunningStage},
    task_manager::JobInfoCache,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use voxelflow_dataset::nodes::{GangExec, GangRequest};

/// What is read while a view is made.
pub(super) struct Snapshot<'a> {
    pub(super) waiting_room: &'a WaitingRoom,
    pub(super) now: Instant,
    /// What the members of gangs have of memory and cards, by executor.
    taken: BTreeMap<String, Vec<(Room, u32)>>,
    view: ClusterView,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(waiting_room: &'a WaitingRoom, weights: &BTreeMap<String, u32>, now: Instant) -> Self {
        let view = ClusterView { weights: weights.clone(), ..ClusterView::default() };
        Self { waiting_room, now, taken: BTreeMap::new(), view }
    }

    /// The view of `jobs` on `executors`, which have so many slots left as `free` says; none where it is silent.
    pub(super) async fn take(
        mut self,
        executors: Vec<ExecutorMetadata>,
        free: &BTreeMap<String, u32>,
        jobs: &HashMap<JobId, JobInfoCache>,
    ) -> ClusterView {
        for (id, job) in jobs {
            if !matches!(job.status, Some(job_status::Status::Running(_))) {
                continue;
            }
            let mut graph = job.execution_graph.write().await;
            if matches!(graph.status().status, Some(job_status::Status::Failed(_))) {
                continue;
            }
            // Stages whose inputs have just ended become ready here.
            graph.revive();
            self.add_job(id, graph.as_ref());
        }
        self.view.executors = executors.into_iter().map(|e| self.executor(e, free)).collect();
        self.view
    }

    fn add_job(&mut self, id: &JobId, graph: &dyn ExecutionGraph) {
        let config = graph.session_config();
        let options = JobOptions::of(config.options());
        let mut stages: Vec<&RunningStage> = graph.stages().values().filter_map(running_stage).collect();
        stages.sort_by_key(|stage| stage.stage_id);
        for stage in stages {
            let gang = GangExec::find(stage.plan.as_ref()).map(GangExec::request);
            let asks = |own: Option<&str>, session: &str| match own {
                Some(own) if !own.is_empty() => own.to_owned(),
                _ => session.to_owned(),
            };
            let queue = asks(gang.map(|g| g.queue.as_str()), &options.queue);
            let pool = asks(gang.and_then(|g| g.pool.as_deref()), &options.pool);
            self.add_running(id, stage, &queue, gang);
            let pending = count(stage.pending.remaining());
            if pending == 0 {
                continue;
            }
            let key = StageKey { job: id.to_string(), stage: stage.stage_id };
            let waited = self.waiting_room.waited(&key, stage.stage_attempt_num, self.now);
            let demand = match gang {
                Some(gang) => Demand::Gang(need_of(gang, count(stage.partitions), waited)),
                None if brings_together(&stage.plan) => Demand::Together,
                None => Demand::Each,
            };
            let pool = (!pool.is_empty()).then_some(pool);
            self.view.waiting.push(Waiting { key, queue, pool, pending, demand });
        }
    }

    fn add_running(&mut self, id: &JobId, stage: &RunningStage, queue: &str, gang: Option<&GangRequest>) {
        for info in &stage.task_infos {
            let task_status::Status::Running(task) = &info.task_status else { continue };
            if let Some(gang) = gang {
                let taken = self.taken.entry(task.executor_id.clone()).or_default();
                taken
                    .push((Room { slots: 0, ..room_of(gang) }, count(info.global_input_partition_ids.len())));
            }
            self.view.running.push(Running {
                job: id.to_string(),
                queue: queue.to_owned(),
                executor: task.executor_id.clone(),
                slots: info.vcores_consumed,
            });
        }
    }

    fn executor(&self, executor: ExecutorMetadata, free: &BTreeMap<String, u32>) -> Executor {
        let name = ExecutorName::of(&executor.id);
        let total = name.room(executor.specification.vcores);
        let taken = self.taken.get(&executor.id).map(Vec::as_slice).unwrap_or_default();
        let left = taken.iter().fold(total, |left, (each, times)| left.without(each, *times));
        let slots = free.get(&executor.id).copied().unwrap_or(0);
        Executor {
            pool: name.pool().to_owned(),
            total: Room { slots: total.slots.max(slots), ..total },
            free: Room { slots, ..left },
            id: executor.id,
        }
    }
}

fn running_stage(stage: &ExecutionStage) -> Option<&RunningStage> {
    match stage {
        ExecutionStage::Running(stage) => Some(stage),
        _ => None,
    }
}

fn room_of(gang: &GangRequest) -> Room {
    Room { slots: 1, memory_bytes: gang.memory_bytes, cards: gang.cards }
}

/// What a gang of `members` needs. A deadline that is no time at all is none.
fn need_of(gang: &GangRequest, members: u32, waited: Duration) -> GangNeed {
    let at_least = if gang.strict { members } else { count(gang.min_members).clamp(1, members.max(1)) };
    let deadline = Some(gang.deadline_seconds).filter(|seconds| *seconds > 0.0);
    GangNeed {
        name: gang.name.clone(),
        each: room_of(gang),
        members,
        at_least,
        waited,
        deadline: deadline.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    }
}

/// Whether an operator of the stage brings all rows together, so that its partitions cannot be divided between
/// tasks: one below the root gives one partition, before the rows of another stage are read.
pub(super) fn brings_together(root: &Arc<dyn ExecutionPlan>) -> bool {
    let mut node = root;
    while let [child] = node.children()[..] {
        node = child;
        let reads_stage = node.downcast_ref::<ShuffleReaderExec>().is_some()
            || node.downcast_ref::<RangeShuffleReaderExec>().is_some();
        if reads_stage {
            return false;
        }
        if node.output_partitioning().partition_count() == 1 {
            return true;
        }
    }
    false
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
