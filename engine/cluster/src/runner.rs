//! Runs plans on a cluster: the seam of datasets, filled by Ballista.

use crate::{
    address::ClusterAddress,
    codec::VoxelflowCodec,
    control::{self, ControlClient, Guard},
    error::{Error, Result},
    job::{Job, Places, SchedulerLink},
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
    FutureExt, Stream, StreamExt, TryStreamExt,
    future::{BoxFuture, Shared},
    stream,
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

/// Runs plans on a cluster.
pub struct ClusterRunner {
    address: ClusterAddress,
    link: SchedulerLink,
    codec: VoxelflowCodec,
    secrecy: Secrecy,
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

/// How secrets reach executors.
#[derive(Clone, Debug)]
pub enum Secrecy {
    /// Sealed with the key that executors have too.
    Key(ClusterKey),
    /// As they are: the user knows that whoever reaches the cluster's ports can read them.
    Insecure,
    /// Not at all.
    Refused,
}

impl fmt::Debug for ClusterRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterRunner").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

impl ClusterRunner {
    /// Runs plans on the cluster of the scheduler at `address`. It is dialled when the first plan is run. Must be
    /// made within a runtime.
    ///
    /// # Errors
    /// An address that is none; a program that cannot read itself.
    pub fn connect(address: ClusterAddress, secrecy: Secrecy) -> Result<Self> {
        let link = SchedulerLink::new(&address.http())?;
        Ok(Self { address, link, codec: VoxelflowCodec::try_new()?, secrecy, own: None })
    }

    /// Runs plans on `cluster`, which ends with the runner.
    ///
    /// # Errors
    /// As [`ClusterRunner::connect`].
    pub fn of_local(cluster: LocalCluster) -> Result<Self> {
        let runner = Self::connect(cluster.address().clone(), Secrecy::Key(cluster.key().clone()))?;
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
        Ok(Self { own: Some(Arc::new(Own::OnNodes(nodes))), ..Self::connect(address, Secrecy::Key(key))? })
    }

    /// Where its scheduler is.
    pub fn address(&self) -> &ClusterAddress {
        &self.address
    }

    /// A job of this cluster, as others may name it: `df://host:port/id`.
    fn job_name(&self, id: &str) -> String {
        format!("{}/{id}", self.address)
    }

    /// The control service beside its scheduler.
    fn control(&self) -> Result<ControlClient> {
        let guard = match &self.secrecy {
            Secrecy::Key(key) => Guard::of_key(key)?,
            Secrecy::Insecure | Secrecy::Refused => Guard::open(),
        };
        Ok(ControlClient::new(&self.address, &guard)?)
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

    async fn submit(&self, plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<Job> {
        let mut config = with_job_settings(context.session_config().clone());
        if GangExec::find(plan.as_ref()).is_some() {
            // Each member can fail and be replaced alone.
            config = config.set_str("ballista.scheduler.max_partitions_per_task", "1");
        }
        let bytes = self.encode(submitted(plan, &context.session_id())?)?;
        let submitted = self.link.submit(bytes, config.to_key_value_pairs(), &context.session_id()).await;
        submitted.map_err(|e| with_logs(e, self.own.as_deref()))
    }
}

#[async_trait]
impl PlanRunner for ClusterRunner {
    async fn run(&self, plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> PlanResult<PlanRun> {
        let plan = distribute(plan, self, &context).await?;
        let (schema, partitions) = (plan.schema(), plan.output_partitioning().partition_count());
        let (needed, tells) = (calls_functions(plan.as_ref()), tells_ledger(plan.as_ref()));
        let job = Arc::new(self.submit(plan, &context).await?);
        let finished = finished(Arc::clone(&job), self.own.clone(), self.control()?);
        let stream = |partition| {
            let (job, finished) = (Arc::clone(&job), finished.clone());
            let rows = stream::once(async move {
                let places = finished.await.map_err(DataFusionError::Shared)?;
                Ok::<_, DataFusionError>(partition_rows(job, &places, partition))
            })
            .try_flatten();
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows)) as SendableRecordBatchStream
        };
        let streams = (0..partitions).map(stream).collect();
        let name = self.job_name(job.id());
        Ok(PlanRun { streams, counts: Arc::new(JobCounts { job, context, needed, tells }), job: Some(name) })
    }

    async fn cancel(&self, job: &str) -> PlanResult<()> {
        let Some(id) = job.strip_prefix(&self.job_name("")) else { return Ok(()) };
        match self.control()?.cancel(id).await {
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
        match &self.secrecy {
            Secrecy::Key(key) => seal(secret, key).map_err(|e| DataFusionError::External(Box::new(e))),
            Secrecy::Insecure => Ok(secret.to_vec()),
            Secrecy::Refused => {
                let reason = "ranks of a training get credentials, which must not be read by others: give the file of \
                              the key that the executors have, or say --insecure if the network keeps strangers out";
                Err(Error::Setting { what: "--cluster-key", reason: reason.into() }.into())
            }
        }
    }
}

type Finished = Shared<BoxFuture<'static, Result<Arc<Places>, Arc<DataFusionError>>>>;

/// The end of a job, for all of its partitions.
fn finished(job: Arc<Job>, own: Option<Arc<Own>>, control: ControlClient) -> Finished {
    let end = async move {
        match job.finish().await {
            Ok(places) => Ok(Arc::new(places)),
            Err(e) => Err(Arc::new(with_logs(with_tail(e, &control).await, own.as_deref()).into())),
        }
    };
    end.boxed().shared()
}

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

/// The rows of one partition, part by part.
fn partition_rows(
    job: Arc<Job>,
    places: &Places,
    partition: usize,
) -> impl Stream<Item = PlanResult<RecordBatch>> + Send + use<> {
    let parts = stream::iter(places.partition(partition));
    let opened = parts.then(move |part| {
        let job = Arc::clone(&job);
        async move { job.fetch(part).await.map_err(DataFusionError::from) }
    });
    opened.try_flatten()
}

/// What the operators of a job counted.
struct JobCounts {
    job: Arc<Job>,
    context: Arc<TaskContext>,
    /// Sums that the program reads are among them.
    needed: bool,
    /// What is for the ledger is among them.
    tells: bool,
}

#[async_trait]
impl RunCounts for JobCounts {
    async fn gather(&self) -> PlanResult<Ledger> {
        let metrics = match self.job.metrics().await {
            Ok(metrics) => metrics,
            Err(e) if self.needed => return Err(e.into()),
            Err(e) => {
                // Ballista cannot tell the metrics of every plan (a union of constants, for example): the rows are
                // not the worse for it.
                log::info!("what was counted is not known: {e}");
                return Ok(unknown_ledger(self.tells, &e.to_string()));
            }
        };
        Ok(absorb_metrics(&self.context, metrics.iter().map(|(name, value)| (name.as_str(), *value))))
    }
}
