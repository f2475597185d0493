//! The tasks of an executor: from the scheduler's message to the word that they have ended.
//!
//! ```text
//!   Run ──► taken up: it has a name ──► decoded ──► TaskEngine ──► Ended
//!                 │                        │ errors, panics        ▲
//!   Forget ───────┴─► aborted ─────────────┴───────────────────────┘
//! ```
//!
//! Whatever happens to a task, one end of it is told, and nothing happens to the others: a plan that panics when it is
//! decoded, or while it runs, fails its own task. Tasks run on threads of their own, at a lower priority, so that the
//! executor can say that it is alive while they compute.

use super::work_folder::{FULL_BELOW, WorkFolder};
use crate::{
    codec::VoxelflowCodec,
    control::messages::{ExecutorSays, TaskEnd, TaskName},
    error::{Error, Result},
    session::Sessions,
    task_engine::TaskEngine,
};
use ballista_core::{
    ConfigProducer,
    error::BallistaError,
    registry::BallistaFunctionRegistry,
    serde::{
        BallistaCodec, BallistaLogicalExtensionCodec,
        protobuf::{
            FailedTask, MultiTaskDefinition, OperatorMetricsSet, SuccessfulTask, TaskStatus, task_status,
        },
        scheduler::{TaskDefinition, from_proto::get_task_definition_vec},
    },
};
use ballista_executor::{
    execution_engine::ExecutionEngine,
    runtime_cache::{DefaultSessionRuntimeCache, MemoryPoolPolicy, SessionRuntimeCache},
};
use ballista_scheduler::state::{decode_protobuf, encode_protobuf};
use datafusion::{
    error::DataFusionError,
    execution::{TaskContext, memory_pool::FairSpillPool, runtime_env::RuntimeEnvBuilder},
    prelude::SessionConfig,
};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use futures::{
    FutureExt,
    future::{AbortHandle, abortable},
};
use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc::UnboundedSender,
};
use voxelflow_dataset::{late_columns::with_late_columns, runner::pool_bytes};

/// Bytes of stack of the threads that run tasks: plans are deep, and so is the recursion over them.
const STACK_BYTES: usize = 32 << 20;
/// How nice these threads are to the rest of the process.
const NICENESS: i32 = 10;
/// Sessions whose stores and caches are kept.
const SESSIONS: usize = 16;

type Codec = BallistaCodec<LogicalPlanNode, PhysicalPlanNode>;

/// What the tasks of an executor need.
pub(super) struct Workshop {
    engine: TaskEngine,
    codec: Codec,
    functions: Arc<BallistaFunctionRegistry>,
    configs: ConfigProducer,
    runtimes: Arc<DefaultSessionRuntimeCache>,
    folder: Arc<WorkFolder>,
    /// The machine's name, for messages.
    host: String,
    slots: usize,
}

impl fmt::Debug for Workshop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workshop").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Workshop {
    /// A workshop for `slots` tasks at once, which share `memory_bytes` and write into `folder`.
    pub(super) fn new(
        sessions: &Sessions,
        configs: ConfigProducer,
        engine: TaskEngine,
        folder: Arc<WorkFolder>,
        host: String,
        (slots, memory_bytes): (usize, u64),
    ) -> Result<Self> {
        let each = usize::try_from(memory_bytes).unwrap_or(usize::MAX) / slots.max(1);
        let policy: MemoryPoolPolicy = Arc::new(move |base, _: &SessionConfig, slots: u32| {
            let pool = FairSpillPool::new(each.saturating_mul(slots.max(1) as usize));
            RuntimeEnvBuilder::from_runtime_env(&base).with_memory_pool(Arc::new(pool)).build_arc()
        });
        let logical = Arc::new(BallistaLogicalExtensionCodec::default());
        Ok(Self {
            engine,
            codec: Codec::new(logical, Arc::new(VoxelflowCodec::try_new()?)),
            functions: sessions.functions(),
            configs,
            runtimes: Arc::new(DefaultSessionRuntimeCache::new(
                sessions.runtime_producer(),
                policy,
                SESSIONS,
            )),
            folder,
            host,
            slots,
        })
    }

    /// Removes files of jobs that are over; tasks of `running` may still write some.
    pub(super) fn sweep(&self, running: &[TaskName]) {
        self.folder.sweep(|job| running.iter().any(|task| task.job == job));
    }

    /// Bytes that are free on the disk of the work folder.
    pub(super) fn free_bytes(&self) -> u64 {
        self.folder.free_bytes()
    }

    /// The task in a message of the scheduler.
    fn decode(&self, definition: MultiTaskDefinition) -> Result<TaskDefinition, BallistaError> {
        let (functions, runtimes) = (&self.functions, Arc::clone(&self.runtimes));
        let session = definition.session_id.clone();
        let tasks = get_task_definition_vec(
            definition,
            Arc::new(move |config: &SessionConfig| runtimes.produce_runtime(&session, config, 1)),
            (self.configs)(),
            functions.scalar_functions.clone(),
            functions.aggregate_functions.clone(),
            functions.window_functions.clone(),
            functions.higher_order_functions.clone(),
            self.codec.clone(),
        )?;
        tasks.into_iter().next().ok_or_else(|| BallistaError::General("a message without a task".into()))
    }

    /// Runs a task to its end.
    async fn work(
        &self,
        definition: MultiTaskDefinition,
    ) -> Result<(SuccessfulTask, Vec<OperatorMetricsSet>), BallistaError> {
        let task = self.decode(definition)?;
        let identity = format!(
            "TID {}/{}.{}/{}.{}",
            task.job_id, task.stage_id, task.stage_attempt_num, task.task_id, task.task_attempt_num
        );
        let runtime =
            self.runtimes.produce_runtime(&task.session_id, &task.session_config, task.vcores_consumed)?;
        let plan = with_late_columns(task.plan, pool_bytes(&runtime))?;
        let stage = self.engine.create_query_stage_exec(
            task.job_id.clone(),
            task.stage_id,
            task.task_id,
            task.global_output_partition_ids,
            plan,
            &self.folder.text(),
            &task.session_config,
        )?;
        let functions = &task.function_registry;
        let context = Arc::new(TaskContext::new(
            Some(identity.clone()),
            task.session_id,
            task.session_config,
            functions.scalar_functions.clone(),
            functions.higher_order_functions.clone(),
            functions.aggregate_functions.clone(),
            functions.window_functions.clone(),
            runtime,
        ));
        log::info!("Execute task  : [{identity}]");
        let partitions = stage.execute_query_stage(task.task_id, context).await?;
        log::info!("Finished task : [{identity}]");
        let metrics = stage.collect_plan_metrics().into_iter().map(TryInto::try_into);
        let done = SuccessfulTask {
            partitions,
            runtime_stats: stage.collect_runtime_stats_reports(),
            task_column_stats: stage.collect_column_stats(),
            // Later stages are wrong without them.
            window_state: stage.collect_window_state_reports()?,
            ..SuccessfulTask::default()
        };
        // Counts that cannot be told are missed by those who ask for them, not here.
        Ok((done, metrics.collect::<Result<_, _>>().unwrap_or_default()))
    }

    /// What is told of a failure, and whether it is that the disk of the work folder is full.
    fn told(&self, error: BallistaError) -> (FailedTask, bool) {
        const NO_SPACE: &str = "No space left on device";
        let failed = FailedTask::from(error);
        let free = self.folder.free_bytes();
        if !failed.error.contains(NO_SPACE) || free > FULL_BELOW {
            return (failed, false);
        }
        let error = format!(
            "the disk of the work folder {} on {} is full ({} MiB free): make room, or give the executor another \
             --work-dir",
            self.folder.parent().display(),
            self.host,
            free >> 20
        );
        let told = voxelflow_dataset::Error::told(DataFusionError::Execution(error), false);
        (FailedTask::from(BallistaError::DataFusionError(Box::new(told.into()))), true)
    }
}

/// The tasks of an executor as long as it is a member. Dropped, all of them end.
#[derive(Debug)]
pub(super) struct Tasks {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    workshop: Arc<Workshop>,
    /// The executor's name.
    executor: String,
    running: Mutex<BTreeMap<TaskName, AbortHandle>>,
    tell: UnboundedSender<ExecutorSays>,
}

impl Tasks {
    /// No tasks yet, of the executor `executor`, which tells their ends on `tell`.
    pub(super) fn new(
        workshop: Arc<Workshop>,
        executor: String,
        tell: UnboundedSender<ExecutorSays>,
    ) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workshop.slots)
            .thread_name("task")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(|| {
                // It is not worse without.
                let _ = rustix::process::setpriority_process(None, NICENESS);
            })
            .enable_all()
            .build()
            .map_err(Error::io("threads for tasks"))?;
        let shared = Shared { workshop, executor, running: Mutex::default(), tell };
        Ok(Self { runtime: Some(runtime), shared: Arc::new(shared) })
    }

    /// Takes a task up.
    pub(super) fn run(&self, definition: &[u8]) {
        let definition = match decode_protobuf::<MultiTaskDefinition>(definition) {
            Ok(definition) => definition,
            // Its lease ends with the next sign of life.
            Err(e) => return log::error!("the scheduler sent what is no task: {e}"),
        };
        let (Some(runtime), [id]) = (&self.runtime, &definition.task_ids[..]) else {
            return log::error!("the scheduler sent {} tasks in one message", definition.task_ids.len());
        };
        let name = TaskName {
            job: definition.job_id.clone(),
            stage: definition.stage_id,
            attempt: definition.stage_attempt_num,
            task: id.task_id,
        };
        let workshop = Arc::clone(&self.shared.workshop);
        let launched = (definition.launch_time, now_ms());
        let work = AssertUnwindSafe(async move { workshop.work(definition).await }).catch_unwind();
        let (work, handle) = abortable(work);
        self.shared.running().insert(name.clone(), handle);
        let shared = Arc::clone(&self.shared);
        runtime.spawn(async move {
            let ended = match work.await {
                Ok(Ok(ended)) => ended,
                Ok(Err(panic)) => Err(BallistaError::General(words(panic.as_ref()))),
                Err(_) => Err(BallistaError::Cancelled),
            };
            shared.end(&name, ended, launched);
        });
    }

    /// Stops the tasks of a job that is over, and removes its files.
    pub(super) fn forget(&self, job: &str) {
        for (_, handle) in self.shared.running().iter().filter(|(name, _)| name.job == job) {
            handle.abort();
        }
        self.shared.workshop.folder.forget(job);
    }

    /// Tasks that were taken up and have not ended.
    pub(super) fn running(&self) -> Vec<TaskName> {
        self.shared.running().keys().cloned().collect()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.running().values().for_each(AbortHandle::abort);
        // What computes without a pause is not waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, BTreeMap<TaskName, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the end of a task.
    fn end(
        &self,
        name: &TaskName,
        ended: Result<(SuccessfulTask, Vec<OperatorMetricsSet>), BallistaError>,
        (launch_time, start_exec_time): (u64, u64),
    ) {
        let executor_id = self.executor.clone();
        let (status, metrics, disk_full) = match ended {
            Ok((done, metrics)) => {
                (task_status::Status::Successful(SuccessfulTask { executor_id, ..done }), metrics, false)
            }
            Err(e) => {
                let (failed, disk_full) = self.workshop.told(e);
                log::info!(
                    "task {} of stage {} of job {}: {}",
                    name.task,
                    name.stage,
                    name.job,
                    failed.error
                );
                (task_status::Status::Failed(failed), Vec::new(), disk_full)
            }
        };
        let status = TaskStatus {
            task_id: name.task,
            job_id: name.job.clone(),
            stage_id: name.stage,
            stage_attempt_num: name.attempt,
            launch_time,
            start_exec_time,
            end_exec_time: now_ms(),
            metrics,
            status: Some(status),
        };
        match encode_protobuf(&status) {
            // When the stream has ended the executor is no member any more, and the task nobody's.
            Ok(status) => _ = self.tell.send(ExecutorSays::Ended(vec![TaskEnd { status, disk_full }])),
            Err(e) => log::error!("the end of a task cannot be told: {e}"),
        }
        self.running().remove(name);
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the task panicked: {}", said.unwrap_or("without a word"))
}
