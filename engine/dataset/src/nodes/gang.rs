//! Members that must run at the same time, as a plan: one row names one member, one partition runs it.
//!
//! ```text
//!   DataSourceExec (memory)        GangExec                        rows that the members give
//!   partition 0: member 0 ──►  function(member 0, payload)  ──►  partition 0
//!   partition 1: member 1 ──►  function(member 1, payload)  ──►  partition 1
//!        …                            …   all of them together       …
//! ```
//!
//! The members are data, not a property of the node: a scheduler that hands out partitions one by one hands out
//! members one by one, and a plan that it narrows to some partitions runs those members only. What a member does is
//! a function that both sides know by name ([`GangFunction`]); what it needs is the payload, bytes that this crate
//! does not look into. The node asks for nothing by itself: whoever binds tasks to machines reads its
//! [`GangRequest`].

use super::only_child;
use crate::{
    NodeCodec,
    error::{Error, Result as OwnResult, similar},
    log_tail::{task_of, task_scope},
    node_codec::{one_input, read_settings, write_settings},
};
use arrow::{
    array::{ArrayRef, AsArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
    record_batch::RecordBatch,
};
use datafusion::{
    common::tree_node::TreeNodeRecursion,
    datasource::memory::MemorySourceConfig,
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType, SchedulingType},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{FutureExt, TryStreamExt, future::BoxFuture, stream};
use serde::{Deserialize, Serialize};
use std::{
    any::Any,
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// The node's name.
const NAME: &str = "GangExec";
/// The column that names the members.
const MEMBER: &str = "member";

static MEMBERS: LazyLock<SchemaRef> =
    LazyLock::new(|| Arc::new(Schema::new(vec![Field::new(MEMBER, DataType::UInt64, false)])));

/// What a gang needs before it can start, for whoever gives out machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GangRequest {
    /// Whose gang it is, for messages.
    pub name: String,
    /// Rows of the gang: all that it would like to have.
    pub members: usize,
    /// With so many it can work.
    pub min_members: usize,
    /// Nobody starts before there is room for all of `members`.
    pub strict: bool,
    /// Only executors of this pool; any if not given.
    pub pool: Option<String>,
    /// Bytes of memory of each member; 0: not counted.
    pub memory_bytes: u64,
    /// Accelerator cards of each member.
    pub cards: u32,
    /// The queue whose share it takes; empty: the common one.
    pub queue: String,
    /// Seconds that it may wait for room before it is refused; 0: as long as it takes.
    pub deadline_seconds: f64,
}

/// One member about to run.
pub struct GangTask {
    /// Its number, from 0.
    pub member: usize,
    /// What was asked for.
    pub request: Arc<GangRequest>,
    /// What whoever made the plan wants it to know.
    pub payload: Arc<[u8]>,
    /// The session that it runs in.
    pub context: Arc<TaskContext>,
    /// Set when nobody waits for it any more: work on other threads must look at it.
    pub cancelled: Arc<AtomicBool>,
}

/// The payload may hold credentials.
impl fmt::Debug for GangTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, request, payload, .. } = self;
        let mut text = f.debug_struct("GangTask");
        text.field("member", member).field("request", request).field("payload", &payload.len());
        text.finish_non_exhaustive()
    }
}

/// What the members of a gang do, under a name that is the same in every process of one build:
/// `inventory::submit! { GangFunction { name: …, schema: …, run: … } }`.
pub struct GangFunction {
    /// Its name.
    pub name: &'static str,
    /// Columns of what a member gives.
    pub schema: fn() -> SchemaRef,
    /// Runs a member. Work that blocks belongs on a thread of its own, which looks at [`GangTask::cancelled`].
    pub run: fn(GangTask) -> BoxFuture<'static, Result<RecordBatch>>,
}

inventory::collect!(GangFunction);

impl fmt::Debug for GangFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GangFunction").field(&self.name).finish()
    }
}

impl GangFunction {
    /// The function `name` of this build.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`] with similar names.
    pub fn find(name: &str) -> OwnResult<&'static Self> {
        let all = || inventory::iter::<Self>.into_iter();
        all().find(|f| f.name == name).ok_or_else(|| Error::UnknownFunction {
            name: name.to_owned(),
            nearest: similar(name, all().map(|f| f.name)),
            known: all().count(),
        })
    }
}

/// The plan of a gang: `function` runs `request.members` times, each time with `payload`.
///
/// # Errors
/// A function that this build does not have, a request for nobody.
pub fn gang_plan(request: GangRequest, function: &str, payload: Arc<[u8]>) -> OwnResult<Arc<GangExec>> {
    let members: Vec<usize> = (0..request.members).collect();
    gang_plan_in_order(request, &members, function, payload)
}

/// As [`gang_plan`], with the members in the order in which they are dealt out to executors: neighbours are likely
/// to share one.
///
/// # Errors
/// As [`gang_plan`]; other than `request.members` members.
pub fn gang_plan_in_order(
    request: GangRequest,
    order: &[usize],
    function: &str,
    payload: Arc<[u8]>,
) -> OwnResult<Arc<GangExec>> {
    let GangRequest { name, members, min_members, .. } = &request;
    if *members == 0 || min_members > members || order.len() != *members {
        let given = order.len();
        return Err(Error::plan(
            "gang",
            format!(
                "{name} asks for {members} members, at least {min_members}, and names {given}: name as many as it \
                 asks for, 1 or more, and ask for no more at least than in all"
            ),
        ));
    }
    let row = |member: &usize| -> Result<Vec<RecordBatch>> {
        let column: ArrayRef = Arc::new(UInt64Array::from_value(*member as u64, 1));
        Ok(vec![RecordBatch::try_new(Arc::clone(&MEMBERS), vec![column])?])
    };
    let rows: Vec<_> = order.iter().map(row).collect::<Result<_>>()?;
    let members = MemorySourceConfig::try_new_exec(&rows, Arc::clone(&MEMBERS), None)?;
    Ok(Arc::new(GangExec::try_new(request, function, payload, members)?))
}

/// Runs a function for every member that its input names; partitions are those of the input.
pub struct GangExec {
    request: Arc<GangRequest>,
    function: &'static GangFunction,
    payload: Arc<[u8]>,
    members: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl GangExec {
    /// Runs `function` with `payload` for each row of `members`.
    ///
    /// # Errors
    /// A function that this build does not have.
    pub fn try_new(
        request: GangRequest,
        function: &str,
        payload: Arc<[u8]>,
        members: Arc<dyn ExecutionPlan>,
    ) -> OwnResult<Self> {
        Ok(Self::with_members(Arc::new(request), GangFunction::find(function)?, payload, members))
    }

    fn with_members(
        request: Arc<GangRequest>,
        function: &'static GangFunction,
        payload: Arc<[u8]>,
        members: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new((function.schema)()),
            Partitioning::UnknownPartitioning(members.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Self { request, function, payload, members, properties }
    }

    /// What the gang needs.
    pub fn request(&self) -> &GangRequest {
        &self.request
    }

    /// Name of the function that its members run.
    pub fn function(&self) -> &'static str {
        self.function.name
    }

    /// The gang in `plan`, if there is one: the node itself or the first below it.
    pub fn find(plan: &dyn ExecutionPlan) -> Option<&Self> {
        let below = || plan.children().into_iter().find_map(|child| Self::find(child.as_ref()));
        plan.downcast_ref::<Self>().or_else(below)
    }
}

impl fmt::Debug for GangExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("GangExec");
        text.field("request", &self.request).field("function", &self.function.name);
        text.field("payload", &self.payload.len()).finish_non_exhaustive()
    }
}

impl DisplayAs for GangExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let GangRequest { name, members, min_members, strict, .. } = self.request.as_ref();
        let together = if *strict { "all at once" } else { "elastic" };
        write!(
            f,
            "GangExec: {name}, function={}, members={members}, at least {min_members}, {together}",
            self.function.name
        )
    }
}

impl ExecutionPlan for GangExec {
    fn name(&self) -> &str {
        NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.members]
    }
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }
    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let members = only_child(children, self.name())?;
        let (request, payload) = (Arc::clone(&self.request), Arc::clone(&self.payload));
        Ok(Arc::new(Self::with_members(request, self.function, payload, members)))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let members = self.members.execute(partition, Arc::clone(&context))?;
        let task = Template {
            request: Arc::clone(&self.request),
            function: self.function,
            payload: Arc::clone(&self.payload),
            context,
        };
        let rows = stream::once(run_members(task, members)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// A member whose number is not known yet.
struct Template {
    request: Arc<GangRequest>,
    function: &'static GangFunction,
    payload: Arc<[u8]>,
    context: Arc<TaskContext>,
}

/// Sets the flag when the stream of a partition is dropped, so that threads of its member end.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the members that `rows` names side by side, and gives what they gave in that order.
async fn run_members(
    template: Template,
    rows: SendableRecordBatchStream,
) -> Result<impl stream::Stream<Item = Result<RecordBatch>>> {
    let mut members = Vec::new();
    for batch in rows.try_collect::<Vec<_>>().await? {
        let column = batch.column_by_name(MEMBER).and_then(|c| c.as_primitive_opt::<UInt64Type>());
        let column = column.ok_or_else(|| {
            DataFusionError::Internal(format!("the rows of a gang have no column `{MEMBER}` of type UInt64"))
        })?;
        members.extend(column.values().iter().map(|member| *member as usize));
    }
    let given = futures::future::try_join_all(members.into_iter().map(|m| template.run(m))).await?;
    Ok(stream::iter(given.into_iter().map(Ok)))
}

impl Template {
    async fn run(&self, member: usize) -> Result<RecordBatch> {
        let cancelled = CancelOnDrop(Arc::default());
        let task = GangTask {
            member,
            request: Arc::clone(&self.request),
            payload: Arc::clone(&self.payload),
            context: Arc::clone(&self.context),
            cancelled: Arc::clone(&cancelled.0),
        };
        let (run, name) = (self.function.run, task_of(&self.context).unwrap_or_default());
        let outcome = AssertUnwindSafe(task_scope(name, async move { run(task).await })).catch_unwind().await;
        outcome.unwrap_or_else(|panic| {
            Err(Error::GangMember {
                gang: self.request.name.clone(),
                function: self.function.name,
                member,
                members: self.request.members,
                reason: message_of(&*panic),
            }
            .into())
        })
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without a message".into()))
}

/// What is written of a gang; the payload follows as it is.
#[derive(Serialize, Deserialize)]
struct Written {
    request: GangRequest,
    function: String,
}

/// Settings in JSON behind their length (u32, little-endian), then the payload.
fn encode(plan: &dyn ExecutionPlan) -> Option<Result<Vec<u8>>> {
    let gang = plan.downcast_ref::<GangExec>()?;
    let written = Written { request: gang.request().clone(), function: gang.function().to_owned() };
    Some(encode_settings(&written, &gang.payload))
}

fn encode_settings(written: &Written, payload: &[u8]) -> Result<Vec<u8>> {
    let settings = write_settings(NAME, written)?;
    let length = u32::try_from(settings.len()).map_err(|e| DataFusionError::External(Box::new(e)))?;
    Ok([&length.to_le_bytes()[..], &settings, payload].concat())
}

fn decode(
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    _context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let parts = bytes
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
    let (settings, payload) =
        parts.ok_or_else(|| DataFusionError::Plan(format!("{NAME} was received damaged: it is cut off")))?;
    let Written { request, function } = read_settings(NAME, settings)?;
    Ok(Arc::new(GangExec::try_new(request, &function, payload.into(), one_input(NAME, inputs)?)?))
}

inventory::submit! { NodeCodec { name: NAME, encode, decode } }

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use datafusion::prelude::SessionContext;
    use proptest::prelude::*;
    use std::{
        sync::{Condvar, Mutex},
        time::Duration,
    };
    use tokio::task::JoinSet;

    /// Counts those that are there; each goes on when all are.
    struct Meeting {
        arrived: Mutex<Vec<usize>>,
        changed: Condvar,
    }

    impl Meeting {
        const fn new() -> Self {
            Self { arrived: Mutex::new(Vec::new()), changed: Condvar::new() }
        }

        fn meet(&self, member: usize, members: usize) -> bool {
            let mut arrived = self.arrived.lock().unwrap();
            arrived.push(member);
            self.changed.notify_all();
            let limit = Duration::from_secs(20);
            let waited = self.changed.wait_timeout_while(arrived, limit, |a| a.len() < members).unwrap();
            !waited.1.timed_out()
        }
    }

    static MEETING: Meeting = Meeting::new();
    static STARTED: Meeting = Meeting::new();
    static STOPPED: Meeting = Meeting::new();

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("said", DataType::UInt64, false)]))
    }

    fn row(value: usize) -> Result<RecordBatch> {
        Ok(RecordBatch::try_new(schema(), vec![Arc::new(UInt64Array::from_value(value as u64, 1))])?)
    }

    /// Meets the others; a payload of one byte is the number of the member that panics then.
    fn meet(task: GangTask) -> BoxFuture<'static, Result<RecordBatch>> {
        Box::pin(async move {
            let (member, members, payload) = (task.member, task.request.members, task.payload);
            if let [odd] = payload[..] {
                assert_ne!(member, usize::from(odd), "was told to");
                return row(member);
            }
            let met = tokio::task::spawn_blocking(move || MEETING.meet(member, members)).await.unwrap();
            assert!(met, "member {member} met nobody");
            row(10 * member + payload.len())
        })
    }

    /// Works on a thread until it is cancelled.
    fn endless(task: GangTask) -> BoxFuture<'static, Result<RecordBatch>> {
        Box::pin(async move {
            let work = tokio::task::spawn_blocking(move || {
                STARTED.meet(task.member, 0);
                while !task.cancelled.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                STOPPED.meet(task.member, 0);
            });
            work.await.unwrap();
            row(0)
        })
    }

    inventory::submit! { GangFunction { name: "test_meet", schema, run: meet } }
    inventory::submit! { GangFunction { name: "test_endless", schema, run: endless } }

    fn request(members: usize) -> GangRequest {
        GangRequest { name: "a test".into(), members, min_members: members, ..GangRequest::default() }
    }

    async fn run(plan: Arc<dyn ExecutionPlan>) -> Result<Vec<u64>> {
        let context = SessionContext::new().task_ctx();
        let mut partitions = JoinSet::new();
        for partition in 0..plan.output_partitioning().partition_count() {
            let rows = plan.execute(partition, Arc::clone(&context))?;
            partitions.spawn(async move { (partition, rows.try_collect::<Vec<_>>().await) });
        }
        let mut said = vec![None; plan.output_partitioning().partition_count()];
        while let Some(done) = partitions.join_next().await {
            let (partition, batches) = done.unwrap();
            let [batch] = &batches?[..] else { unreachable!("one batch a member") };
            said[partition] = Some(batch.column(0).as_primitive::<UInt64Type>().value(0));
        }
        Ok(said.into_iter().map(Option::unwrap).collect())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_member_runs_once_and_all_of_them_together() {
        let plan = gang_plan(request(5), "test_meet", Arc::from(*b"xyz")).unwrap();
        assert_eq!(GangExec::find(plan.as_ref()).unwrap().request().members, 5);
        assert_eq!(run(plan).await.unwrap(), [3, 13, 23, 33, 43]);
        let mut arrived = MEETING.arrived.lock().unwrap().clone();
        arrived.sort_unstable();
        assert_eq!(arrived, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn a_panic_names_the_function_and_the_member() {
        let plan = gang_plan(request(3), "test_meet", Arc::from([1_u8])).unwrap();
        let error = Error::from(run(plan).await.unwrap_err()).to_string();
        let expected = "member 1 of 3 of a test (function `test_meet`): it panicked: ";
        assert!(error.starts_with(expected) && error.contains("was told to"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_dropped_stream_cancels_its_member() {
        let plan = gang_plan(request(1), "test_endless", Arc::from([])).unwrap();
        let rows = plan.execute(0, SessionContext::new().task_ctx()).unwrap();
        let reader = tokio::spawn(rows.try_collect::<Vec<_>>());
        let wait = |meeting: &'static Meeting, member: usize| {
            tokio::task::spawn_blocking(move || {
                let limit = Duration::from_secs(20);
                let arrived = meeting.arrived.lock().unwrap();
                let done = meeting.changed.wait_timeout_while(arrived, limit, |a| !a.contains(&member));
                !done.unwrap().1.timed_out()
            })
        };
        assert!(wait(&STARTED, 0).await.unwrap(), "the member never started");
        reader.abort();
        assert!(wait(&STOPPED, 0).await.unwrap(), "the member went on");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let nobody = gang_plan(request(0), "test_meet", Arc::from([])).unwrap_err();
        assert!(nobody.to_string().contains("asks for 0 members"), "{nobody}");
        let odd = gang_plan_in_order(request(2), &[1], "test_meet", Arc::from([])).unwrap_err();
        assert!(odd.to_string().contains("names 1"), "{odd}");
        let unknown = gang_plan(request(1), "test_met", Arc::from([])).unwrap_err().to_string();
        assert!(unknown.contains("`test_met`, did you mean `test_meet`"), "{unknown}");
    }

    #[test]
    fn a_gang_travels_and_its_payload_is_not_shown() {
        let plan = gang_plan(request(2), "test_meet", Arc::from(*b"secret")).unwrap();
        let bytes = encode(plan.as_ref()).unwrap().unwrap();
        let inputs: Vec<_> = plan.children().into_iter().cloned().collect();
        let context = SessionContext::new().task_ctx();
        let copy = decode(&bytes, &inputs, &context).unwrap();
        let copy = GangExec::find(copy.as_ref()).unwrap();
        assert_eq!((copy.request(), copy.function()), (plan.request(), "test_meet"));
        assert_eq!(copy.payload, plan.payload);
        let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(true).to_string();
        assert!(!format!("{plan:?} {shown}").contains("secret"));
        assert!(encode(inputs[0].as_ref()).is_none());
    }

    proptest! {
        #[test]
        fn damaged_settings_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let plan = gang_plan(request(1), "test_meet", Arc::from([])).unwrap();
            let inputs: Vec<_> = plan.children().into_iter().cloned().collect();
            prop_assert!(decode(&bytes, &inputs, &SessionContext::new().task_ctx()).is_err());
        }
    }
}
