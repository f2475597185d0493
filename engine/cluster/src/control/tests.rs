//! The control service with Ballista's own scheduler behind it, asked over the network.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::{
    CANCELLED, ControlClient, Error, Guard, Scheduler, SchedulerControl, control_port,
    messages::{JobPhase, JobSummary, LogPush},
};
use crate::{ClusterAddress, policy::ExecutorName};
use arrow::{
    array::RecordBatch,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use ballista_core::{
    config::TaskSchedulingPolicy,
    serde::scheduler::{
        ExecutorData, ExecutorMetadata, ExecutorOperatingSystemSpecification, ExecutorSpecification,
    },
    utils::{default_config_producer, default_session_builder},
};
use ballista_scheduler::{config::SchedulerConfig, scheduler_process::create_scheduler};
use datafusion::prelude::SessionContext;
use futures::future::BoxFuture;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use voxelflow_dataset::{
    log_tail::LogLine,
    nodes::{GangFunction, GangRequest, GangTask, gang_plan},
};
use voxelflow_sync::network::ClusterKey;

const LIMIT: Duration = Duration::from_secs(30);

/// Nobody gets as far as running it: no executor of these tests answers.
fn idle(_: GangTask) -> BoxFuture<'static, datafusion::error::Result<RecordBatch>> {
    Box::pin(async { Ok(RecordBatch::new_empty(no_columns())) })
}

fn no_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("member", DataType::UInt64, false)]))
}

inventory::submit! { GangFunction { name: "control_test_idle", schema: no_columns, run: idle } }

struct Bench {
    control: Arc<SchedulerControl>,
    scheduler: Scheduler,
    address: ClusterAddress,
    serving: JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Bench {
    async fn start(guard: Guard) -> Self {
        let control = Arc::new(SchedulerControl::new(BTreeMap::new()));
        let cluster =
            control.cluster("test", Arc::new(default_session_builder), Arc::new(default_config_producer));
        let config = SchedulerConfig {
            scheduling_policy: TaskSchedulingPolicy::PushStaged,
            task_distribution: control.policy(),
            ..SchedulerConfig::default()
        };
        let scheduler: Scheduler = create_scheduler(cluster, Arc::new(config)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn({
            let (control, scheduler) = (Arc::clone(&control), scheduler.clone());
            async move { control.serve(scheduler, listener, &guard).await.unwrap() }
        });
        Self { control, scheduler, address: ClusterAddress::new("127.0.0.1", port - 1), serving }
    }

    fn client(&self, guard: &Guard) -> ControlClient {
        ControlClient::new(&self.address, guard).unwrap()
    }

    /// An executor in the scheduler's books; there is no process.
    async fn register(&self, slots: u32) {
        let id = ExecutorName::new("cpu", 1 << 30, 0).unwrap().id("1");
        let metadata = ExecutorMetadata {
            id: id.clone(),
            host: "127.0.0.1".into(),
            port: 9,
            grpc_port: 9,
            specification: ExecutorSpecification::default().with_vcores(slots),
            os_info: ExecutorOperatingSystemSpecification::default(),
        };
        let data = ExecutorData { executor_id: id, total_vcores: slots, available_vcores: slots };
        self.control.cluster.register_executor(metadata, data).await.unwrap();
    }

    async fn submit(&self, members: usize, deadline_seconds: f64) -> String {
        let request = GangRequest {
            name: "idlers".into(),
            members,
            min_members: members,
            strict: true,
            deadline_seconds,
            ..GangRequest::default()
        };
        let plan = gang_plan(request, "control_test_idle", Arc::from([])).unwrap();
        let session = Arc::new(SessionContext::new_with_config(default_config_producer()));
        let job = self.scheduler.submit_physical_plan("a test", session, plan, None).await;
        job.unwrap().to_string()
    }
}

/// Asks until `done` says what it was waited for.
async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, done: impl Fn() -> F) -> T {
    let by = Instant::now() + LIMIT;
    loop {
        if let Some(found) = done().await {
            return found;
        }
        assert!(Instant::now() < by, "waited {LIMIT:?} for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ended(client: &ControlClient, job: &str) -> JobSummary {
    wait_for("the job's end", || async {
        client.jobs().await.unwrap().into_iter().find(|j| j.id == job && j.phase.has_ended())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_that_does_not_fit_says_why_and_is_given_up() {
    let key = ClusterKey::generate().unwrap();
    let guard = Guard::of_key(&key).unwrap();
    let bench = Bench::start(guard.clone()).await;
    bench.register(3).await;
    let client = bench.client(&guard);
    let job = bench.submit(4, 2.0).await;
    let waits = wait_for("a reason", || async {
        let waits = client.why_waiting(&job).await.unwrap_or_default();
        (!waits.stages.is_empty()).then_some(waits)
    })
    .await;
    assert_eq!(waits.phase, Some(JobPhase::Running));
    let reason = "waits for 4 slots: the cluster has 3 in all; add executors, or ask for fewer";
    assert_eq!(waits.stages[0].reason, reason);
    let jobs = client.jobs().await.unwrap();
    assert_eq!((jobs[0].id.as_str(), jobs[0].name.as_str()), (job.as_str(), "a test"));
    assert_eq!((jobs[0].tasks.waiting, jobs[0].tasks.running, jobs[0].stages), (4, 0, 1));
    let given_up = ended(&client, &job).await;
    assert_eq!(given_up.phase, JobPhase::Failed);
    assert_eq!(given_up.error.unwrap(), format!("gang idlers found no room within 2 s: it {reason}"));
    assert!(client.why_waiting(&job).await.unwrap().stages.is_empty());
    let executors = client.executors().await.unwrap();
    assert_eq!((executors.len(), executors[0].slots, executors[0].pool.as_str()), (1, 3, "cpu"));
    assert_eq!((executors[0].memory_bytes, executors[0].slots_used), (1 << 30, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_waits_can_be_cancelled_and_its_lines_are_kept() {
    let bench = Bench::start(Guard::open()).await;
    let client = bench.client(&Guard::open());
    let job = bench.submit(2, 0.0).await;
    let missing = client.cancel("none").await.unwrap_err();
    assert!(missing.is_input() && missing.to_string().contains(&job), "{missing}");
    client.cancel(&job).await.unwrap();
    let cancelled = ended(&client, &job).await;
    assert_eq!((cancelled.phase, cancelled.error.as_deref()), (JobPhase::Cancelled, Some(CANCELLED)));
    let again = client.cancel(&job).await.unwrap_err();
    assert!(again.to_string().contains("has ended already: it is cancelled"), "{again}");

    let line = |text: &str| LogLine {
        time_ms: 1,
        level: "WARN".into(),
        target: "test".into(),
        task: format!("{job}/1/0"),
        text: text.into(),
    };
    let push = LogPush { process: "cpu-1".into(), lines: vec![line("first"), line("second")] };
    client.push_logs(push).await.unwrap();
    let page = client.logs(&job, 0, 100).await.unwrap();
    assert!(page.ended && page.lines.iter().all(|l| l.process == "cpu-1"));
    let last = client.logs(&job, 0, 1).await.unwrap();
    assert_eq!((last.lines.len(), last.lines[0].line.text.as_str(), last.next), (1, "second", page.next));
    assert!(matches!(client.logs("none", 0, 1).await.unwrap_err(), Error::Job(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_with_the_key_are_let_in() {
    let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
    let bench = Bench::start(Guard::of_key(&key).unwrap()).await;
    assert!(bench.client(&Guard::of_key(&key).unwrap()).jobs().await.is_ok());
    for stranger in [Guard::of_key(&other).unwrap(), Guard::open()] {
        let refusal = bench.client(&stranger).jobs().await.unwrap_err().to_string();
        assert!(refusal.contains("does it have the same key"), "{refusal}");
    }
    let nobody = ControlClient::new(&ClusterAddress::new("127.0.0.1", 1), &Guard::open()).unwrap();
    let refusal = nobody.jobs().await.unwrap_err();
    assert!(!refusal.is_input() && refusal.to_string().contains("is the scheduler running"), "{refusal}");
    assert!(control_port(u16::MAX).is_err());
}
