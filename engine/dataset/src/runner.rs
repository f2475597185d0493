//! Where a plan runs: in this process, or on a cluster. The plan is the same.
//!
//! ```text
//!   Dataset ─► physical plan ─┬─► LocalRunner: this process
//!                             └─► a cluster's runner: executors, one stream a partition comes back
//! ```
//!
//! A node that holds a conversation with the user's process (training, for example) is a [`DriverNode`]: a plan
//! with one runs in the driver, and the node sends its inputs through the [`Runner`] of its session.

use crate::{
    error::in_partition,
    functions::Accumulators,
    late_columns::with_late_columns,
    ledger::{self, Finding, Ledger, LedgerEntry, Level, RunKey},
    nodes::{MapGroupsExec, MapPartitionsExec},
};
use async_trait::async_trait;
use datafusion::{
    error::{DataFusionError, Result},
    execution::{TaskContext, memory_pool::MemoryLimit, runtime_env::RuntimeEnv},
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream,
        recursive_query::RecursiveQueryExec, stream::RecordBatchStreamAdapter,
    },
};
use futures::TryStreamExt;
use std::{fmt, net::IpAddr, sync::Arc};

/// Runs plans somewhere.
#[async_trait]
pub trait PlanRunner: Send + Sync + fmt::Debug {
    /// Starts every partition of `plan` and gives their streams, in the order of the partitions. Dropping the
    /// streams before their end stops the work.
    ///
    /// # Errors
    /// A plan that cannot be run there.
    async fn run(&self, plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<PlanRun>;

    /// The address under which executors reach this process; none where they are this process.
    fn driver_address(&self) -> Option<IpAddr>;

    /// Settings of DataFusion without which plans do not run there, by name; they are set once, on the session.
    fn session_settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether `error` says that whoever gives out the work is gone, and all that was running with it: the same plan
    /// may be run again when it is back.
    fn is_lost(&self, error: &DataFusionError) -> bool {
        let _ = error;
        false
    }

    /// Ends what runs there as `job` (a [`PlanRun::job`], also one of an earlier driver), and comes back when it has
    /// ended. A job of another place, or one that has ended, is let be.
    ///
    /// # Errors
    /// A cluster that does not answer.
    async fn cancel(&self, job: &str) -> Result<()> {
        let _ = job;
        Ok(())
    }

    /// Seals `secret` so that only those who run this runner's plans can read it (see [`unseal`]).
    ///
    /// # Errors
    /// A cluster that was not given a key.
    fn seal(&self, secret: &[u8]) -> Result<Vec<u8>>;
}

/// A plan that runs.
pub struct PlanRun {
    /// The rows, one stream a partition, in the order of the partitions.
    pub streams: Vec<SendableRecordBatchStream>,
    /// What nodes counted, to be asked for when the streams have ended.
    pub counts: Arc<dyn RunCounts>,
    /// What it is called where it runs, by which another driver can end it; none where it ends with this process.
    pub job: Option<String>,
}

impl fmt::Debug for PlanRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanRun").field("partitions", &self.streams.len()).finish_non_exhaustive()
    }
}

/// What the nodes of a plan counted while it ran.
#[async_trait]
pub trait RunCounts: Send + Sync {
    /// What nodes have for the data-quality ledger (see [`LedgerNotes`](crate::LedgerNotes)). Where the plan ran
    /// elsewhere, what named functions added to accumulators is added to the session's too; ask once.
    ///
    /// # Errors
    /// A cluster that does not answer.
    async fn gather(&self) -> Result<Ledger>;
}

/// The runner of a session, as plan nodes find it: an extension of the session's configuration.
#[derive(Clone, Debug)]
pub struct Runner(pub Arc<dyn PlanRunner>);

impl Runner {
    /// The runner of the session that `context` is of; this process where none was set.
    pub fn of(context: &TaskContext) -> Arc<dyn PlanRunner> {
        match context.session_config().get_extension::<Self>() {
            Some(runner) => Arc::clone(&runner.0),
            None => Arc::new(LocalRunner),
        }
    }
}

/// Opens sealed bytes.
pub type Unseal = dyn Fn(&[u8]) -> Result<Vec<u8>> + Send + Sync;

/// Opens what a [`PlanRunner::seal`] has sealed: an extension of the configuration of sessions in executors.
pub struct Unsealer(pub Box<Unseal>);

/// The secret in `sealed`, for a node that runs; within one process nothing is sealed.
///
/// # Errors
/// What was sealed for another cluster.
pub fn unseal(context: &TaskContext, sealed: &[u8]) -> Result<Vec<u8>> {
    match context.session_config().get_extension::<Unsealer>() {
        Some(unsealer) => (unsealer.0)(sealed),
        None => Ok(sealed.to_vec()),
    }
}

/// Whether an error is the fault of the user's input, for those who know the errors of all crates: an extension of
/// the configuration of sessions in executors, where errors become words.
#[derive(Clone, Copy)]
pub struct Fault(pub fn(&DataFusionError) -> bool);

impl Fault {
    /// Whether `error`, of a plan that runs in the session of `context`, is the fault of the user's input.
    pub fn is_input(context: &TaskContext, error: &DataFusionError) -> bool {
        context.session_config().get_extension::<Self>().is_some_and(|fault| (fault.0)(error))
    }
}

/// The name of a plan node that runs in the driver.
#[derive(Debug)]
pub struct DriverNode(pub &'static str);

inventory::collect!(DriverNode);

// What shows or reads the session itself.
inventory::submit! { DriverNode("ExplainExec") }
inventory::submit! { DriverNode("AnalyzeExec") }
inventory::submit! { DriverNode("StreamingTableExec") }
// DataFusion's own writers (`COPY … TO 'x.csv'`, `INSERT`) name their files themselves: a task that is run again, or that
// was taken for lost and goes on, would add to what was written. Tables of Parquet have a writer of ours.
inventory::submit! { DriverNode("DataSinkExec") }

/// Whether `plan` must run in the driver: it has a [`DriverNode`], or a recursion (of which the rows alone would travel)
/// over what has something to tell the ledger.
pub fn runs_in_driver(plan: &dyn ExecutionPlan) -> bool {
    inventory::iter::<DriverNode>().any(|node| node.0 == plan.name())
        || (plan.is::<RecursiveQueryExec>() && tells_ledger(plan))
        || plan.children().into_iter().any(|child| runs_in_driver(child.as_ref()))
}

/// Whether `plan` calls named functions, which may add to accumulators.
pub fn calls_functions(plan: &dyn ExecutionPlan) -> bool {
    plan.downcast_ref::<MapPartitionsExec>().is_some()
        || plan.downcast_ref::<MapGroupsExec>().is_some()
        || plan.children().into_iter().any(|child| calls_functions(child.as_ref()))
}

/// Takes up what nodes have counted in other processes, given as the names and values of their metrics: sums go to
/// the accumulators of the session that `context` is of; what is for the ledger is the answer.
pub fn absorb_metrics<'a>(
    context: &TaskContext,
    metrics: impl IntoIterator<Item = (&'a str, u64)>,
) -> Ledger {
    let accumulators = context.session_config().get_extension::<Accumulators>();
    let mut found = Ledger::default();
    for (name, value) in metrics {
        match ledger::entry_in(name) {
            Some(entry) => found.extend(entry),
            None => accumulators.iter().for_each(|a| a.absorb(name, value)),
        }
    }
    found
}

/// The ledger of `plan` where what its nodes have counted cannot be learned, which `reason` says: empty if none of them
/// would have told the ledger anything.
pub fn unknown_ledger(plan_may_tell: bool, reason: &str) -> Ledger {
    let entry = || {
        let reason = format!("what was left out or changed is not known: {reason}");
        LedgerEntry::of_run(RunKey::default(), Level::Run, Finding::Unknown, reason, 1)
    };
    plan_may_tell.then(entry).into_iter().collect()
}

/// Whether a node of `plan` may have something to tell the ledger: it is a [`LedgerNode`](crate::LedgerNode).
pub fn tells_ledger(plan: &dyn ExecutionPlan) -> bool {
    ledger::is_expected(plan)
}

/// Runs plans in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalRunner;

#[async_trait]
impl PlanRunner for LocalRunner {
    async fn run(&self, plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<PlanRun> {
        let plan = with_late_columns(plan, pool_bytes(&context.runtime_env()))?;
        let partitions = plan.output_partitioning().partition_count();
        let stream = |partition| {
            let rows = plan.execute(partition, Arc::clone(&context));
            let rows = rows.map_err(|e| in_partition(e, partition, partitions))?;
            let schema = rows.schema();
            let named = rows.map_err(move |e| in_partition(e, partition, partitions));
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, named)) as SendableRecordBatchStream)
        };
        let streams = (0..partitions).map(stream).collect::<Result<_>>()?;
        Ok(PlanRun { streams, counts: Arc::new(LocalCounts(plan)), job: None })
    }

    fn driver_address(&self) -> Option<IpAddr> {
        None
    }

    fn seal(&self, secret: &[u8]) -> Result<Vec<u8>> {
        Ok(secret.to_vec())
    }
}

/// Bytes that the operators of a session share; all there are where nobody limits them.
pub fn pool_bytes(runtime: &RuntimeEnv) -> usize {
    match runtime.memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    }
}

/// The counts are in the plan itself.
struct LocalCounts(Arc<dyn ExecutionPlan>);

#[async_trait]
impl RunCounts for LocalCounts {
    async fn gather(&self) -> Result<Ledger> {
        Ok(Ledger::of_plan(self.0.as_ref()).concluded())
    }
}
