//! Ballista's seam for who runs where, filled by [`decide`].

use super::{
    cluster_view::{ClusterView, Demand, StageKey, Waiting},
    decide::{Binding, decide},
    snapshot::{Snapshot, brings_together},
    waiting_room::WaitingRoom,
};
use async_trait::async_trait;
use ballista_core::{
    JobId,
    config::BallistaConfig,
    serde::{protobuf::AvailableVcores, scheduler::TaskKey},
};
use ballista_scheduler::{
    cluster::{BoundTask, ClusterState, DistributionPolicy},
    state::{
        execution_graph::{TaskDescription, create_task_info},
        execution_stage::RunningStage,
        task_manager::JobInfoCache,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Instant,
};
use voxelflow_dataset::nodes::GangExec;

/// Binds tasks and gangs of all jobs. Ballista asks it whenever slots or work may have come, while it holds the
/// lock of the slots.
pub struct GangPolicy {
    cluster: Arc<dyn ClusterState>,
    waiting_room: Arc<WaitingRoom>,
    weights: BTreeMap<String, u32>,
}

impl fmt::Debug for GangPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GangPolicy").field("weights", &self.weights).finish_non_exhaustive()
    }
}

impl GangPolicy {
    /// A policy for the executors of `cluster`, with the weights of queues, that tells `waiting_room` what waits.
    pub fn new(
        cluster: Arc<dyn ClusterState>,
        waiting_room: Arc<WaitingRoom>,
        weights: BTreeMap<String, u32>,
    ) -> Self {
        Self { cluster, waiting_room, weights }
    }
}

#[async_trait]
impl DistributionPolicy for GangPolicy {
    async fn bind_tasks(
        &self,
        budgets: Vec<&mut AvailableVcores>,
        running_jobs: Arc<HashMap<JobId, JobInfoCache>>,
    ) -> datafusion::error::Result<Vec<BoundTask>> {
        let now = Instant::now();
        let free = budgets.iter().map(|b| (b.executor_id.clone(), b.vcores)).collect();
        let executors = self.cluster.registered_executor_metadata().await;
        let snapshot = Snapshot::new(&self.waiting_room, &self.weights, now);
        let view = snapshot.take(executors, &free, &running_jobs).await;
        let decision = decide(&view);
        self.waiting_room.record(&view.waiting, &decision, now);
        Ok(bind(&view, decision.bindings, budgets, &running_jobs).await)
    }

    fn name(&self) -> &str {
        "gangs"
    }
}

/// Carries the decision out.
async fn bind(
    view: &ClusterView,
    bindings: Vec<Binding>,
    budgets: Vec<&mut AvailableVcores>,
    jobs: &HashMap<JobId, JobInfoCache>,
) -> Vec<BoundTask> {
    let mut budgets: HashMap<String, &mut AvailableVcores> =
        budgets.into_iter().map(|b| (b.executor_id.clone(), b)).collect();
    let mut by_stage: BTreeMap<StageKey, Vec<Binding>> = BTreeMap::new();
    for binding in bindings {
        by_stage.entry(binding.stage.clone()).or_default().push(binding);
    }
    let mut tasks = Vec::new();
    for (key, bindings) in by_stage {
        let job_id = JobId::new(&key.job);
        let Some(job) = jobs.get(&job_id) else { continue };
        let mut graph = job.execution_graph.write().await;
        let session_id = graph.session_id().to_owned();
        let others: Vec<usize> = graph.stages().keys().copied().filter(|id| *id != key.stage).collect();
        let Some(stage) = graph.fetch_running_stage(&others) else { continue };
        let total: u32 = bindings.iter().map(|b| b.partitions).sum();
        let is_gang = |w: &Waiting| w.key == key && matches!(w.demand, Demand::Gang(_));
        if view.waiting.iter().any(is_gang) && stage.pending.remaining() < total as usize {
            // It has changed since the view was taken: the next round decides anew.
            continue;
        }
        let cut = Cut::of(stage);
        let mut binder = Binder { job_id, session_id, stage, cut };
        for binding in bindings {
            if let Some(budget) = budgets.get_mut(&binding.executor) {
                binder.bind(budget, binding.partitions, &mut tasks);
            }
        }
    }
    tasks
}

/// How the partitions of a stage are cut into tasks.
#[derive(Clone, Copy)]
enum Cut {
    /// So many to a task, at most. One for gangs: each member can fail and be replaced alone.
    Slices(usize),
    /// All to one task, on one slot.
    Together,
}

impl Cut {
    fn of(stage: &RunningStage) -> Self {
        if GangExec::find(stage.plan.as_ref()).is_some() {
            return Self::Slices(1);
        }
        if brings_together(&stage.plan) {
            return Self::Together;
        }
        let options = &stage.session_config.options().extensions;
        match options.get::<BallistaConfig>().map_or(0, BallistaConfig::max_partitions_per_task) {
            0 => Self::Slices(usize::MAX),
            most => Self::Slices(most),
        }
    }
}

/// Turns partitions of one stage into tasks.
struct Binder<'a> {
    job_id: JobId,
    session_id: String,
    stage: &'a mut RunningStage,
    cut: Cut,
}

impl Binder<'_> {
    /// Hands `partitions` to the executor of `budget`.
    fn bind(&mut self, budget: &mut AvailableVcores, partitions: u32, tasks: &mut Vec<BoundTask>) {
        let most = match self.cut {
            Cut::Slices(most) => most,
            Cut::Together => {
                let all = self.stage.pending.next_slice(usize::MAX);
                tasks.extend((!all.is_empty()).then(|| self.task(budget, all, 1)));
                return;
            }
        };
        let mut left = partitions.min(budget.vcores) as usize;
        while left > 0 {
            let slice = self.stage.pending.next_slice(left.min(most));
            if slice.is_empty() {
                return;
            }
            left -= slice.len();
            let slots = slice.len() as u32;
            tasks.push(self.task(budget, slice, slots));
        }
    }

    /// A task for `partitions`, which takes `slots`; entered in the stage's books, as Ballista expects it.
    fn task(&mut self, budget: &mut AvailableVcores, partitions: Vec<usize>, slots: u32) -> BoundTask {
        let stage = &mut *self.stage;
        let task_id = stage.task_infos.len();
        let failures = partitions.iter().filter_map(|p| stage.task_failure_numbers.get(*p));
        let task_attempt = failures.copied().max().unwrap_or(0);
        let mut info = create_task_info(budget.executor_id.clone(), task_id);
        info.global_input_partition_ids.clone_from(&partitions);
        info.vcores_consumed = slots;
        stage.task_infos.push(info);
        budget.vcores = budget.vcores.saturating_sub(slots);
        let description = TaskDescription {
            session_id: self.session_id.clone(),
            key: TaskKey { job_id: self.job_id.clone(), stage_id: stage.stage_id, task_id },
            stage_attempt_num: stage.stage_attempt_num,
            task_attempt,
            global_input_partition_ids: partitions,
            vcores_consumed: slots,
            plan: Arc::clone(&stage.plan),
            session_config: Arc::clone(&stage.session_config),
        };
        (budget.executor_id.clone(), description)
    }
}
