//! Runs plans on a cluster: the seam of datasets, filled by Ballista.
//!
//! A job that has lost rows with an executor is ended, and the plan is submitted again as another job, a few times at
//! most. Rows come from one job only: small results are fetched whole before the first row is given out, so that they
//! can be lost and made again; of large ones no row is given out before the job has ended, and an executor that is lost
//! while they are read ends them with an error.

use crate::{
    address::ClusterAddress,
    codec::VoxelflowCodec,
    connections::Connections,
    control::{self, ControlClient, Guard, messages::Submission},
    error::{Error, Result},
    job::{Job, Places},
    local_cluster::LocalCluster,
    node::{self, Nodes},
    session::{MESSAGE_BYTES, restricted_settings, with_job_settings},
    submitted::submitted,
};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use ballista_core::extension::SessionConfigHelperExt;
use datafusion::{
    error::{DataFusionError, Result as PlanResult},
    execution::TaskContext,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream, stream::RecordBatchStreamAdapter,
    },
};
use datafusion_proto::{physical_plan::AsExecutionPlan, protobuf::PhysicalPlanNode};
use futures::{
    FutureExt, StreamExt, TryFutureExt, TryStreamExt,
    future::{BoxFuture, Shared},
    stream::{self, BoxStream},
};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};
use voxelflow_dataset::{
    Ledger, PlanRun, PlanRunner,
    distributed::distribute,
    nodes::GangExec,
    runner::{RunCounts, absorb_metrics, calls_functions, tells_ledger, unknown_ledger},
};
use voxelflow_sync::network::{ClusterKey, seal};

/// Lines of a failed job's log that its error shows.
const TAIL_LINES: usize = 8;
/// How long these lines are waited for.
const TAIL_LIMIT: Duration = Duration::from_millis(500);
/// Bytes of a message that are not the plan.
const ENVELOPE_BYTES: usize = 1 << 20;
/// How often a plan is submitted before it is given up.
const JOBS_OF_PLAN: u32 = 4;
/// How often, and after which pause, a plan that is run again is submitted to a scheduler that does not answer.
const LATE_ANSWERS: u32 = 3;
const LATE_PAUSE: Duration = Duration::from_millis(500);
/// Results up to so many bytes, as they lie on executors, are fetched whole before the first row is given out.
const FETCHED_WHOLE: u64 = 32 << 20;
/// Partitions of such a result that are fetched at once.
const FETCHED_AT_ONCE: usize = 8;

/// Runs plans on a cluster.
pub struct ClusterRunner {
    address: ClusterAddress,
    client: ControlClient,
    connections: Arc<Connections>,
    key: ClusterKey,
    codec: VoxelflowCodec,
    /// The cluster, if it was started for this session: it ends with the last runner of it.
    own: Option<Arc<Own>>,
}

/// A cluster that was started for one session.
enum Own {
    Here(LocalCluster),
    OnNodes(Nodes),
}

impl Own {
    /// The error of the first process that has ended, if one has.
    fn ended_process(&self) -> Option<Error> {
        match self {
            Self::Here(cluster) => cluster.ended_process(),
            Self::OnNodes(nodes) => nodes.failures().into_iter().next().map(|f| node::Error::Lost(f).into()),
        }
    }
}

impl fmt::Debug for ClusterRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterRunner").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

impl ClusterRunner {
    /// Runs plans on the cluster of the scheduler at `address`, which has `key`. It is dialled when the first plan is
    /// run. Must be made within a runtime.
    ///
    /// # Errors
    /// An address that is none; a key of which no certificate can be made; a program that cannot read itself.
    pub fn connect(address: ClusterAddress, key: ClusterKey) -> Result<Self> {
        let guard = Guard::of_key(&key)?;
        let client = ControlClient::new(&address, &guard)?;
        let connections = Arc::new(Connections::new(&guard));
        Ok(Self { address, client, connections, key, codec: VoxelflowCodec::try_new()?, own: None })
    }

    /// Runs plans on `cluster`, which ends with the runner.
    ///
    /// # Errors
    /// As [`ClusterRunner::connect`].
    pub fn of_local(cluster: LocalCluster) -> Result<Self> {
        let runner = Self::connect(cluster.address().clone(), cluster.key().clone())?;
        Ok(Self { own: Some(Arc::new(Own::Here(cluster))), ..runner })
    }

    /// Runs plans on what was started on `nodes`, which ends with the runner.
    ///
    /// # Errors
    /// As [`ClusterRunner::connect`].
    pub fn of_nodes(nodes: Nodes) -> Result<Self> {
        let (scheduler, key) = (nodes.scheduler(), nodes.key().clone());
        let host = match scheduler.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let address = ClusterAddress::new(host, scheduler.port());
        Ok(Self { own: Some(Arc::new(Own::OnNodes(nodes))), ..Self::connect(address, key)? })
    }

    /// Where its scheduler is.
    pub fn address(&self) -> &ClusterAddress {
        &self.address
    }

    /// A job of this cluster, as others may name it: `df://host:port/id`.
    fn job_name(&self, id: &str) -> String {
        format!("{}/{id}", self.address)
    }

    fn encode(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        PhysicalPlanNode::try_from_physical_plan(plan, &self.codec)?.try_encode(&mut bytes)?;
        let most = MESSAGE_BYTES - ENVELOPE_BYTES;
        if bytes.len() > most {
            return Err(Error::PlanTooLarge { mib: bytes.len() >> 20, most: most >> 20 });
        }
        Ok(bytes)
    }

    /// What is submitted to run `plan`.
    fn submission(&self, plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<Submission> {
        let mut config = with_job_settings(context.session_config().clone());
        let is_gang = GangExec::find(plan.as_ref()).is_some();
        if is_gang {
            // Each member can fail and be replaced alone.
            config = config.set_str("ballista.scheduler.max_partitions_per_task", "1");
        }
        let pairs = config.to_key_value_pairs().into_iter();
        Ok(Submission {
            plan: self.encode(submitted(plan, &context.session_id())?)?,
            settings: pairs.filter_map(|pair| Some((pair.key, pair.value?))).collect(),
            session: context.session_id(),
            tries: 0,
            is_gang,
        })
    }
}

#[async_trait]
impl PlanRunner for ClusterRunner {
    async fn run(&self, plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> PlanResult<PlanRun> {
        let plan = distribute(plan, self, &context).await?;
        let (schema, partitions) = (plan.schema(), plan.output_partitioning().partition_count());
        let (needed, tells) = (calls_functions(plan.as_ref()), tells_ledger(plan.as_ref()));
        let submission = self.submission(plan, &context)?;
        let is_gang = submission.is_gang;
        let work = Work {
            submission,
            partitions,
            client: self.client.clone(),
            connections: Arc::clone(&self.connections),
            own: self.own.clone(),
            // The members of a gang are replaced one by one.
            most: if is_gang { 1 } else { JOBS_OF_PLAN },
        };
        let first = work.submit(0).await?;
        // The job of a gang can be ended by another driver; that of rows ends with this one.
        let name = is_gang.then(|| self.job_name(first.id()));
        let finished = work.finish(first).map_err(|e| Arc::new(e.into())).boxed().shared();
        let stream = |partition| {
            let finished = finished.clone();
            let rows = stream::once(async move {
                let outcome = finished.await.map_err(DataFusionError::Shared)?;
                Ok::<_, DataFusionError>(outcome.partition(partition))
            })
            .try_flatten();
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows)) as SendableRecordBatchStream
        };
        let streams = (0..partitions).map(stream).collect();
        Ok(PlanRun { streams, counts: Arc::new(JobCounts { finished, context, needed, tells }), job: name })
    }

    async fn cancel(&self, job: &str) -> PlanResult<()> {
        let Some(id) = job.strip_prefix(&self.job_name("")) else { return Ok(()) };
        match self.client.cancel(id).await {
            // It is not there, or has ended: the scheduler may have been started again since.
            Ok(()) | Err(control::Error::Job(_)) => Ok(()),
            Err(e) => Err(Error::from(e).into()),
        }
    }

    fn driver_address(&self) -> Option<IpAddr> {
        self.address.local_address()
    }

    fn session_settings(&self) -> Vec<(String, String)> {
        restricted_settings()
    }

    /// What this session has started itself does not come back: it ends with its scheduler.
    fn is_lost(&self, error: &DataFusionError) -> bool {
        let DataFusionError::External(root) = error.find_root() else { return false };
        let gone = |error: &Error| matches!(error, Error::SchedulerLost { .. } | Error::Unreachable { .. });
        self.own.is_none() && root.downcast_ref::<Error>().is_some_and(gone)
    }

    fn seal(&self, secret: &[u8]) -> PlanResult<Vec<u8>> {
        seal(secret, &self.key).map_err(|e| DataFusionError::External(Box::new(e)))
    }
}

/// A plan that is run, as often as it takes.
struct Work {
    submission: Submission,
    partitions: usize,
    client: ControlClient,
    connections: Arc<Connections>,
    own: Option<Arc<Own>>,
    /// How often it is submitted at most.
    most: u32,
}

/// A job that has ended well.
struct Outcome {
    job: Arc<Job>,
    rows: Rows,
}

/// The rows of a job.
enum Rows {
    /// Here, by partition.
    Here(Vec<Vec<RecordBatch>>),
    /// Where the job has them.
    There(Places),
}

impl Work {
    async fn submit(&self, tries: u32) -> Result<Arc<Job>> {
        // When a plan is run again the scheduler was there a moment ago: a machine that is starved answers late.
        let mut left = if tries > 0 { LATE_ANSWERS } else { 0 };
        loop {
            let submission = Submission { tries, ..self.submission.clone() };
            match Job::submit(&self.client, Arc::clone(&self.connections), submission).await {
                Err(Error::Unreachable { .. }) if left > 0 => {
                    left -= 1;
                    tokio::time::sleep(LATE_PAUSE).await;
                }
                submitted => return submitted.map_err(|e| with_logs(e, self.own.as_deref())),
            }
        }
    }

    /// Follows `first`, and the jobs that replace it, to the end.
    async fn finish(self, first: Arc<Job>) -> Result<Arc<Outcome>> {
        let (mut job, mut lost) = (first, Vec::new());
        loop {
            let (id, reason) = match self.outcome(&job).await {
                Ok(rows) => return Ok(Arc::new(Outcome { job, rows })),
                Err(Error::Lost { job, reason }) => (job, reason),
                Err(e) => return Err(with_logs(with_tail(e, &self.client).await, self.own.as_deref())),
            };
            lost.push(format!("job {id}: {reason}"));
            let tries = u32::try_from(lost.len()).unwrap_or(u32::MAX);
            if tries >= self.most {
                return Err(Error::LostAgain { lost });
            }
            log::warn!("job {id} has lost rows ({reason}): the plan is run again as another job");
            // The one before is gone first, with what it has on executors.
            drop(job);
            job = self.submit(tries).await?;
        }
    }

    /// The rows of `job`, here if there are not many.
    async fn outcome(&self, job: &Arc<Job>) -> Result<Rows> {
        let places = job.finish().await?;
        if places.bytes() > FETCHED_WHOLE {
            return Ok(Rows::There(places));
        }
        let partitions =
            stream::iter(0..self.partitions).map(|n| job.rows(places.partition(n)).try_collect());
        let rows = partitions.buffered(FETCHED_AT_ONCE).try_collect().await;
        // What cannot be fetched is made again.
        rows.map(Rows::Here)
            .map_err(|e| Error::Lost { job: job.id().to_owned(), reason: e.strip_backtrace() })
    }
}

impl Outcome {
    /// The rows of a partition.
    fn partition(self: &Arc<Self>, partition: usize) -> BoxStream<'static, PlanResult<RecordBatch>> {
        match &self.rows {
            Rows::Here(rows) => {
                let rows = rows.get(partition).cloned().unwrap_or_default();
                stream::iter(rows.into_iter().map(Ok)).boxed()
            }
            Rows::There(places) => {
                // The job lives as long as its rows are read.
                let outcome = Arc::clone(self);
                let rows = self.job.rows(places.partition(partition));
                rows.inspect(move |_| _ = &outcome).boxed()
            }
        }
    }
}

type Finished = Shared<BoxFuture<'static, Result<Arc<Outcome>, Arc<DataFusionError>>>>;

/// A job's failure with the last lines of its log: they say more than the error where user code or a rank failed.
async fn with_tail(error: Error, control: &ControlClient) -> Error {
    let Error::Job { job, reason, is_input, .. } = error else { return error };
    let read = async {
        loop {
            match control.logs(&job, 0, TAIL_LINES).await {
                // The executor may still be sending them.
                Ok(page) if page.lines.is_empty() => tokio::time::sleep(TAIL_LIMIT / 10).await,
                Ok(page) => return page.lines.iter().map(ToString::to_string).collect(),
                Err(_) => return Vec::new(),
            }
        }
    };
    let lines = tokio::time::timeout(TAIL_LIMIT, read).await.unwrap_or_default();
    Error::Job { job, reason, is_input, lines }
}

/// An error that may have its cause in one of the processes that this session has started.
fn with_logs(error: Error, own: Option<&Own>) -> Error {
    match (own, &error) {
        (Some(own), Error::Unreachable { .. } | Error::SchedulerLost { .. }) => {
            own.ended_process().unwrap_or(error)
        }
        _ => error,
    }
}

/// What the operators of a job counted.
struct JobCounts {
    /// The job whose rows were given out: what was counted in those before it is not counted.
    finished: Finished,
    context: Arc<TaskContext>,
    /// Sums that the program reads are among them.
    needed: bool,
    /// What is for the ledger is among them.
    tells: bool,
}

#[async_trait]
impl RunCounts for JobCounts {
    async fn gather(&self) -> PlanResult<Ledger> {
        let outcome = self.finished.clone().await.map_err(DataFusionError::Shared)?;
        let metrics = match outcome.job.counts().await {
            Ok(metrics) => metrics,
            Err(e) if self.needed => return Err(e.into()),
            Err(e) => {
                // Ballista cannot tell the metrics of every plan (a union of constants, for example): the rows are
                // not the worse for it.
                log::info!("what was counted is not known: {e}");
                return Ok(unknown_ledger(self.tells, &e.to_string()));
            }
        };
        let metrics = metrics.iter().map(|(name, value)| (name.as_str(), *value));
        Ok(absorb_metrics(&self.context, metrics).concluded())
    }
}
