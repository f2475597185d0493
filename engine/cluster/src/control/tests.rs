//! The control service with Ballista's own scheduler behind it, asked over the network.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::{
    CANCELLED, ControlClient, Error, Guard, Scheduler, SchedulerControl,
    messages::{JobPhase, JobSummary, LogPush, Registration, SchedulerSays},
};
use crate::{ClusterAddress, policy::ExecutorName, scheduler::create_scheduler};
use arrow::{
    array::RecordBatch,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use ballista_core::{
    config::TaskSchedulingPolicy,
    utils::{default_config_producer, default_session_builder},
};
use ballista_scheduler::config::SchedulerConfig;
use datafusion::prelude::SessionContext;
use futures::future::BoxFuture;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinHandle,
    time::Instant,
};
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
    guard: Guard,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Bench {
    async fn start() -> Self {
        let guard = Guard::of_key(&ClusterKey::generate().unwrap()).unwrap();
        let control = Arc::new(SchedulerControl::new(
            "test",
            Arc::new(default_session_builder),
            Arc::new(default_config_producer),
            BTreeMap::new(),
            LIMIT,
        ));
        let config = SchedulerConfig {
            scheduling_policy: TaskSchedulingPolicy::PushStaged,
            task_distribution: control.policy(),
            ..SchedulerConfig::default()
        };
        let scheduler = create_scheduler(&control, config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn({
            let (control, scheduler, guard) = (Arc::clone(&control), scheduler.clone(), guard.clone());
            async move { control.serve(scheduler, listener, &guard).await.unwrap() }
        });
        Self { control, scheduler, address: ClusterAddress::new("127.0.0.1", port), serving, guard }
    }

    fn client(&self) -> ControlClient {
        ControlClient::new(&self.address, &self.guard).unwrap()
    }

    /// An executor in the scheduler's books; there is no process. What is said to it comes out of the answer.
    fn register(&self, slots: u32) -> UnboundedReceiver<SchedulerSays> {
        let id = ExecutorName::new("cpu", 1 << 30, 0).unwrap().id("1");
        let (build, version, host) =
            ("0123456789abcdef".to_owned(), "1.2.3".to_owned(), "127.0.0.1".to_owned());
        let (outbox, inbox) = unbounded_channel();
        let registration = Registration { id, build, version, host, port: 9, slots };
        self.control.members.join(registration, outbox).unwrap();
        inbox
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
    let bench = Bench::start().await;
    let _inbox = bench.register(3);
    let client = bench.client();
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
    assert_eq!((executors[0].build.as_str(), executors[0].version.as_str()), ("0123456789ab", "1.2.3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_waits_can_be_cancelled_and_its_lines_are_kept() {
    let bench = Bench::start().await;
    let client = bench.client();
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
    let bench = Bench::start().await;
    assert!(bench.client().jobs().await.is_ok());
    let other = Guard::of_key(&ClusterKey::generate().unwrap()).unwrap();
    let stranger = ControlClient::new(&bench.address, &other).unwrap();
    let refusal = stranger.jobs().await.unwrap_err().to_string();
    assert!(refusal.contains("does it have the same key"), "{refusal}");
    let nobody = ControlClient::new(&ClusterAddress::new("127.0.0.1", 1), &bench.guard).unwrap();
    let refusal = nobody.jobs().await.unwrap_err();
    assert!(!refusal.is_input() && refusal.to_string().contains("is the scheduler running"), "{refusal}");
}
