//! Gangs on a scheduler and executors of Ballista, in one process: who really ran, and together with whom.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::{
    ClusterAddress, ClusterRunner, ExecutorSettings, SchedulerSettings, SessionFactory,
    control::{ControlClient, Guard, messages::JobPhase},
    run_executor, run_scheduler,
};
use arrow::{
    array::{AsArray, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
};
use datafusion::{error::Result as PlanResult, prelude::SessionContext};
use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, oneshot},
};
use voxelflow_dataset::{
    EngineConfig, PlanRunner,
    nodes::{GangFunction, GangRequest, GangTask, gang_plan},
    session_state,
};
use voxelflow_sync::network::ClusterKey;

const LIMIT: Duration = Duration::from_secs(30);

/// Members that have come, by gang, and the sum of those that ever were there at once.
static CAME: LazyLock<Mutex<BTreeMap<String, Vec<usize>>>> = LazyLock::new(Mutex::default);
static CHANGED: Notify = Notify::const_new();

fn came(gang: &str) -> Vec<usize> {
    let mut members = CAME.lock().unwrap().get(gang).cloned().unwrap_or_default();
    members.sort_unstable();
    members
}

fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("member", DataType::UInt64, false)]))
}

/// Comes, and leaves when as many have come as the gang starts with.
fn meet(task: GangTask) -> BoxFuture<'static, PlanResult<RecordBatch>> {
    async move {
        let GangRequest { name, min_members, .. } = task.request.as_ref();
        CAME.lock().unwrap().entry(name.clone()).or_default().push(task.member);
        CHANGED.notify_waiters();
        let all = async {
            loop {
                let changed = CHANGED.notified();
                if came(name).len() >= *min_members {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(LIMIT, all)
            .await
            .unwrap_or_else(|_| panic!("member {} met nobody", task.member));
        let column = Arc::new(UInt64Array::from_value(task.member as u64, 1));
        Ok(RecordBatch::try_new(columns(), vec![column])?)
    }
    .boxed()
}

/// Tells under this name that a member has gone.
struct Leaves(String, usize);

impl Drop for Leaves {
    fn drop(&mut self) {
        CAME.lock().unwrap().entry(self.0.clone()).or_default().push(self.1);
        CHANGED.notify_waiters();
    }
}

/// Stays until it is cancelled.
fn stay(task: GangTask) -> BoxFuture<'static, PlanResult<RecordBatch>> {
    async move {
        let _leaves = Leaves(format!("{} left", task.request.name), task.member);
        CAME.lock().unwrap().entry(task.request.name.clone()).or_default().push(task.member);
        CHANGED.notify_waiters();
        std::future::pending().await
    }
    .boxed()
}

inventory::submit! { GangFunction { name: "policy_test_meet", schema: columns, run: meet } }
inventory::submit! { GangFunction { name: "policy_test_stay", schema: columns, run: stay } }

/// A cluster whose parts are tasks of one runtime.
struct Cluster {
    address: ClusterAddress,
    key: ClusterKey,
    runtime: Runtime,
    work: tempfile::TempDir,
}

impl Cluster {
    fn start(executors: usize, slots: usize) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(4)
            // Plans are deep, and so is the recursion over them.
            .thread_stack_size(32 << 20)
            .enable_all()
            .build()
            .unwrap();
        let work = tempfile::tempdir().unwrap();
        let sessions: SessionFactory =
            Arc::new(|| Ok(session_state(Vec::new(), &EngineConfig::default())?.build()));
        let (tell, told) = oneshot::channel();
        let key = ClusterKey::generate().unwrap();
        let settings = SchedulerSettings { port: 0, ..SchedulerSettings::new(key.clone()) };
        runtime.spawn({
            let sessions = Arc::clone(&sessions);
            async move {
                let ready = |address| _ = tell.send(address);
                run_scheduler(settings, &sessions, ready).await.unwrap();
            }
        });
        let scheduler = runtime.block_on(told).unwrap();
        let address = ClusterAddress::new(scheduler.ip().to_string(), scheduler.port());
        let cluster = Self { address, key, runtime, work };
        (0..executors).for_each(|number| cluster.add_executor(&sessions, number, slots));
        cluster
    }

    fn add_executor(&self, sessions: &SessionFactory, number: usize, slots: usize) {
        let (tell, told) = oneshot::channel();
        let folder = self.work.path().join(number.to_string());
        let settings = ExecutorSettings {
            slots,
            ..ExecutorSettings::new(self.address.clone(), folder, self.key.clone())
        };
        self.runtime.spawn({
            let sessions = Arc::clone(sessions);
            async move {
                let ready = |_: &str| _ = tell.send(());
                run_executor(settings, &sessions, ready).await.unwrap();
            }
        });
        self.runtime.block_on(told).unwrap();
    }

    /// Runs a gang and gives the members whose rows came back.
    async fn run(&self, request: GangRequest, function: &str) -> PlanResult<Vec<u64>> {
        let runner = ClusterRunner::connect(self.address.clone(), self.key.clone()).unwrap();
        let plan = gang_plan(request, function, Arc::from([])).unwrap();
        let run = runner.run(plan, SessionContext::new().task_ctx()).await?;
        let rows = run.streams.into_iter().map(|rows| rows.try_collect::<Vec<_>>());
        let rows = futures::future::try_join_all(rows).await?;
        let members =
            rows.iter().flatten().flat_map(|b| b.column(0).as_primitive::<UInt64Type>().values().to_vec());
        Ok(members.collect())
    }

    fn control(&self) -> ControlClient {
        ControlClient::new(&self.address, &Guard::of_key(&self.key).unwrap()).unwrap()
    }
}

fn request(name: &str, members: usize, min_members: usize, deadline_seconds: f64) -> GangRequest {
    let strict = members == min_members;
    GangRequest {
        name: name.into(),
        members,
        min_members,
        strict,
        deadline_seconds,
        ..GangRequest::default()
    }
}

#[test]
fn every_member_runs_once_and_all_of_them_at_once() {
    let cluster = Cluster::start(2, 3);
    for members in [1, 2, 3, 5] {
        let name = format!("gang of {members}");
        let given =
            cluster.runtime.block_on(cluster.run(request(&name, members, members, 20.0), "policy_test_meet"));
        assert_eq!(given.unwrap(), (0..members as u64).collect::<Vec<_>>());
        assert_eq!(came(&name), (0..members).collect::<Vec<_>>());
    }
}

#[test]
fn with_fewer_slots_a_strict_gang_is_given_up_and_an_elastic_one_runs() {
    let cluster = Cluster::start(1, 2);
    let strict = cluster.runtime.block_on(cluster.run(request("too many", 3, 3, 1.5), "policy_test_meet"));
    let reason = strict.unwrap_err().to_string();
    let expected = "gang too many found no room within 1.5 s: it waits for 3 slots: the cluster has 2 in all";
    assert!(reason.contains(expected), "{reason}");
    assert!(came("too many").is_empty(), "nobody has run");
    let elastic = cluster.runtime.block_on(cluster.run(request("elastic", 3, 2, 20.0), "policy_test_meet"));
    assert_eq!(elastic.unwrap(), [0, 1, 2]);
    assert_eq!(came("elastic"), [0, 1, 2]);
}

#[test]
fn a_gang_starts_when_the_one_before_it_is_cancelled() {
    let cluster = Arc::new(Cluster::start(1, 2));
    let spawn = |request, function: &'static str| {
        let cluster = Arc::clone(&cluster);
        cluster.clone().runtime.spawn(async move { cluster.run(request, function).await })
    };
    let first = spawn(request("first", 2, 2, 0.0), "policy_test_stay");
    let control = cluster.runtime.block_on(async { cluster.control() });
    let wait_for = |gang: &'static str, members: usize| async move {
        loop {
            let changed = CHANGED.notified();
            if came(gang).len() >= members {
                return;
            }
            tokio::time::timeout(LIMIT, changed).await.expect(gang);
        }
    };
    cluster.runtime.block_on(wait_for("first", 2));
    let second = spawn(request("second", 2, 2, 0.0), "policy_test_meet");
    let (waits, job) = cluster.runtime.block_on(async {
        loop {
            let jobs = control.jobs().await.unwrap();
            if let [second, first] = &jobs[..]
                && let waits = control.why_waiting(&second.id).await.unwrap()
                && !waits.stages.is_empty()
            {
                return (waits.stages[0].reason.clone(), first.id.clone());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(waits, format!("waits for 2 slots: 0 free of 2, held by job {job}"));
    cluster.runtime.block_on(control.cancel(&job)).unwrap();
    cluster.runtime.block_on(wait_for("first left", 2));
    let cancelled = cluster.runtime.block_on(first).unwrap().unwrap_err().to_string();
    assert!(cancelled.contains("it was cancelled on request"), "{cancelled}");
    assert_eq!(cluster.runtime.block_on(second).unwrap().unwrap(), [0, 1]);
    let jobs = cluster.runtime.block_on(control.jobs()).unwrap();
    assert_eq!((jobs[1].phase, jobs[1].id.as_str()), (JobPhase::Cancelled, job.as_str()));
}
