//! Who belongs to a cluster, and which tasks have its slots: the executors' books, as Ballista asks for them.
//!
//! ```text
//!   attendance ──join, hear, leave──►            ◄──bind, metadata── Ballista's scheduler
//!                                     Members
//!   tasks that end ──release────────►            ◄──free slots────── GangPolicy
//! ```
//!
//! A slot is had by a lease, which carries the task's name. It ends with the task's end as its executor tells it, with
//! the executor, or when the executor has taken the task up and no longer knows it. Counters that are added to and
//! subtracted from would drift whenever a message comes twice or never.

use super::messages::{Registration, SchedulerSays, TaskName, Vitals};
use crate::policy::ExecutorName;
use async_trait::async_trait;
use ballista_core::{
    JobId,
    error::{BallistaError, Result},
    serde::{
        protobuf::{AvailableVcores, ExecutorHeartbeat, ExecutorStatus, executor_status},
        scheduler::{
            ExecutorData, ExecutorMetadata, ExecutorOperatingSystemSpecification, ExecutorSpecification,
        },
    },
};
use ballista_scheduler::{
    cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot},
    config::TaskDistributionPolicy,
    state::task_manager::JobInfoCache,
};
use futures::stream;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};

/// How long an executor whose disk was full is given nothing, unless it has more room before.
const SET_ASIDE: Duration = Duration::from_secs(10);

/// The members of a cluster.
#[derive(Debug)]
pub(super) struct Members {
    books: Mutex<BTreeMap<String, Member>>,
    /// Held while tasks are bound: whoever has waited for it sees all tasks that were bound before.
    binding: AsyncMutex<()>,
    /// Raised when an executor joins or leaves.
    changed: watch::Sender<u64>,
}

/// A member.
#[derive(Debug)]
struct Member {
    metadata: ExecutorMetadata,
    registration: Registration,
    vitals: Vitals,
    leases: HashMap<TaskName, Lease>,
    /// What is to be said to it.
    outbox: mpsc::UnboundedSender<SchedulerSays>,
    /// Messages that were put there.
    sent: u64,
    heard: SystemTime,
    /// Its disk was full then, with so many bytes free.
    full: Option<(Instant, u64)>,
}

/// A task's slots.
#[derive(Clone, Copy, Debug)]
struct Lease {
    slots: u32,
    /// The number of the message that brought the task, once it was sent.
    sent: Option<u64>,
}

/// A member as others see it.
#[derive(Clone, Debug)]
pub(super) struct MemberView {
    pub(super) registration: Registration,
    pub(super) vitals: Vitals,
    pub(super) slots_used: u32,
    pub(super) heard: SystemTime,
    pub(super) set_aside: bool,
}

impl Member {
    fn used(&self) -> u32 {
        self.leases.values().map(|lease| lease.slots).sum()
    }

    fn is_set_aside(&self) -> bool {
        self.full.is_some_and(|(since, free)| {
            // Files of jobs that are over have gone, or somebody has made room.
            since.elapsed() < SET_ASIDE && self.vitals.disk_free_bytes <= free.saturating_mul(2) + (64 << 20)
        })
    }

    fn say(&mut self, message: SchedulerSays) -> Option<u64> {
        self.outbox.send(message).ok()?;
        self.sent += 1;
        Some(self.sent)
    }
}

impl Default for Members {
    fn default() -> Self {
        Self { books: Mutex::default(), binding: AsyncMutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Members {
    fn books(&self) -> MutexGuard<'_, BTreeMap<String, Member>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_changed(&self) {
        self.changed.send_modify(|times| *times += 1);
    }

    /// Takes an executor in; what is put into `outbox` reaches it.
    ///
    /// # Errors
    /// An executor of this id is a member.
    pub(super) fn join(
        &self,
        registration: Registration,
        outbox: mpsc::UnboundedSender<SchedulerSays>,
    ) -> std::result::Result<(), String> {
        let metadata = ExecutorMetadata {
            id: registration.id.clone(),
            host: registration.host.clone(),
            port: registration.port,
            grpc_port: 0,
            specification: ExecutorSpecification::default().with_vcores(registration.slots),
            os_info: ExecutorOperatingSystemSpecification::default(),
        };
        let mut books = self.books();
        if books.contains_key(&registration.id) {
            return Err(format!("an executor {} is there already", registration.id));
        }
        let member = Member {
            metadata,
            vitals: Vitals::default(),
            leases: HashMap::new(),
            outbox,
            sent: 0,
            heard: SystemTime::now(),
            full: None,
            registration,
        };
        books.insert(member.registration.id.clone(), member);
        drop(books);
        self.has_changed();
        Ok(())
    }

    /// An executor is no member any more. Comes back when all tasks that were bound to it before are in the graphs of
    /// their jobs; none will be after.
    pub(super) async fn leave(&self, executor: &str) {
        self.books().remove(executor);
        drop(self.binding.lock().await);
        self.has_changed();
    }

    /// An executor has said how it is. Gives whether slots became free.
    pub(super) fn hear(&self, executor: &str, vitals: Vitals) -> bool {
        let mut books = self.books();
        let Some(member) = books.get_mut(executor) else { return false };
        member.heard = SystemTime::now();
        let before = member.leases.len();
        let running: HashSet<&TaskName> = vitals.running.iter().collect();
        let is_forgotten = |lease: &Lease| lease.sent.is_some_and(|sent| sent <= vitals.received);
        member.leases.retain(|task, lease| running.contains(task) || !is_forgotten(lease));
        let was_aside = member.full.is_some();
        member.vitals = vitals;
        if !member.is_set_aside() {
            member.full = None;
        }
        member.leases.len() < before || (was_aside && member.full.is_none())
    }

    /// A task has ended.
    pub(super) fn release(&self, executor: &str, task: &TaskName) {
        if let Some(member) = self.books().get_mut(executor) {
            member.leases.remove(task);
        }
    }

    /// An executor has told that its disk is full: it gets nothing for a while.
    pub(super) fn set_aside(&self, executor: &str) {
        if let Some(member) = self.books().get_mut(executor) {
            member.full = Some((Instant::now(), member.vitals.disk_free_bytes));
        }
    }

    /// Whether there is a member besides `executor` that gets tasks.
    pub(super) fn has_another(&self, executor: &str) -> bool {
        self.books().iter().any(|(id, member)| id != executor && !member.is_set_aside())
    }

    /// Brings a task to an executor. If it has left, the job knows already.
    pub(super) fn run(&self, executor: &str, name: &TaskName, task: Vec<u8>) {
        let mut books = self.books();
        let Some(member) = books.get_mut(executor) else { return };
        let sent = member.say(SchedulerSays::Run(task));
        if let Some(lease) = member.leases.get_mut(name) {
            lease.sent = sent;
        }
    }

    /// Says something to all.
    pub(super) fn say_to_all(&self, message: &SchedulerSays) {
        self.books().values_mut().for_each(|member| {
            member.say(message.clone());
        });
    }

    /// All members, by id.
    pub(super) fn all(&self) -> Vec<MemberView> {
        let view = |member: &Member| MemberView {
            registration: member.registration.clone(),
            vitals: member.vitals.clone(),
            slots_used: member.used(),
            heard: member.heard,
            set_aside: member.is_set_aside(),
        };
        self.books().values().map(view).collect()
    }

    /// Where an executor is, for messages: its id and its host.
    pub(super) fn shown(&self, executor: &str) -> String {
        match self.books().get(executor) {
            Some(member) => format!("{executor} at {}", member.registration.host),
            None => executor.to_owned(),
        }
    }

    /// Whether `executor` is a member.
    pub(super) fn is_there(&self, executor: &str) -> bool {
        self.books().contains_key(executor)
    }

    /// Whether there is no member at all.
    pub(super) fn is_empty(&self) -> bool {
        self.books().is_empty()
    }

    /// Tells when executors join or leave.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// The name of a task that was bound.
fn name_of((_, task): &BoundTask) -> TaskName {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    TaskName {
        job: task.key.job_id.to_string(),
        stage: number(task.key.stage_id),
        attempt: number(task.stage_attempt_num),
        task: number(task.key.task_id),
    }
}

/// What members do by themselves Ballista is not asked to do: they register and are heard through
/// [`attend`](super::attendance).
fn by_session(what: &str) -> BallistaError {
    BallistaError::NotImplemented(format!("{what}: executors are members through their sessions"))
}

#[async_trait]
impl ClusterState for Members {
    async fn bind_schedulable_tasks(
        &self,
        distribution: TaskDistributionPolicy,
        active_jobs: Arc<HashMap<JobId, JobInfoCache>>,
        _: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        let TaskDistributionPolicy::Custom(policy) = distribution else {
            return Err(BallistaError::Configuration("tasks are bound by the policy of gangs only".into()));
        };
        let _binding = self.binding.lock().await;
        let mut free: Vec<AvailableVcores> = {
            let books = self.books();
            let room = |member: &Member| member.registration.slots.saturating_sub(member.used());
            let takes = books.values().filter(|member| !member.is_set_aside() && room(member) > 0);
            takes.map(|m| AvailableVcores { executor_id: m.metadata.id.clone(), vcores: room(m) }).collect()
        };
        let bound = policy.bind_tasks(free.iter_mut().collect(), active_jobs).await?;
        let mut books = self.books();
        for task in &bound {
            if let Some(member) = books.get_mut(&task.0) {
                member.leases.insert(name_of(task), Lease { slots: task.1.vcores_consumed, sent: None });
            }
        }
        Ok(bound)
    }

    /// Leases end with what they are for.
    async fn unbind_tasks(&self, _: Vec<ExecutorSlot>) -> Result<()> {
        Ok(())
    }

    async fn register_executor(&self, _: ExecutorMetadata, _: ExecutorData) -> Result<()> {
        Err(by_session("registration"))
    }

    async fn save_executor_metadata(&self, _: ExecutorMetadata) -> Result<()> {
        Err(by_session("registration"))
    }

    async fn get_executor_metadata(&self, executor: &str) -> Result<ExecutorMetadata> {
        let metadata = self.books().get(executor).map(|member| member.metadata.clone());
        metadata.ok_or_else(|| BallistaError::General(format!("executor {executor} is no member any more")))
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.books().values().map(|member| member.metadata.clone()).collect()
    }

    async fn save_executor_heartbeat(&self, _: ExecutorHeartbeat) -> Result<()> {
        Err(by_session("heartbeat"))
    }

    async fn remove_executor(&self, executor: &str) -> Result<()> {
        self.books().remove(executor);
        Ok(())
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        let books = self.books();
        books.keys().filter_map(|id| Some((id.clone(), heartbeat(books.get(id)?)))).collect()
    }

    fn get_executor_heartbeat(&self, executor: &str) -> Option<ExecutorHeartbeat> {
        self.books().get(executor).map(heartbeat)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        Ok(Box::pin(stream::empty()))
    }
}

/// A member is alive as long as it is one: its session decides that, not its heartbeat's age.
fn heartbeat(member: &Member) -> ExecutorHeartbeat {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let active = executor_status::Status::Active(String::new());
    ExecutorHeartbeat {
        executor_id: member.metadata.id.clone(),
        timestamp: now.as_secs(),
        metrics: Vec::new(),
        status: Some(ExecutorStatus { status: Some(active) }),
        peak_proc_physical_memory: member.vitals.memory_used_bytes,
        peak_proc_virtual_memory: 0,
    }
}

impl MemberView {
    /// What its name says that it has.
    pub(super) fn name(&self) -> ExecutorName {
        ExecutorName::of(&self.registration.id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn registration(id: &str) -> Registration {
        let (build, version, host) = ("b".to_owned(), "1".to_owned(), "127.0.0.1".to_owned());
        Registration { id: id.to_owned(), build, version, host, port: 9, slots: 2 }
    }

    fn task(number: u32) -> TaskName {
        TaskName { job: "j1".into(), stage: 1, attempt: 0, task: number }
    }

    fn members(leases: u32) -> (Members, mpsc::UnboundedReceiver<SchedulerSays>) {
        let (members, (outbox, inbox)) = (Members::default(), mpsc::unbounded_channel());
        members.join(registration("cpu-1"), outbox.clone()).unwrap();
        assert!(members.join(registration("cpu-1"), outbox).unwrap_err().contains("is there already"));
        let lease = |n| (task(n), Lease { slots: 1, sent: None });
        members.books().get_mut("cpu-1").unwrap().leases.extend((0..leases).map(lease));
        (members, inbox)
    }

    fn used(members: &Members) -> u32 {
        members.all()[0].slots_used
    }

    #[test]
    fn a_lease_ends_once_with_its_task() {
        let (members, _inbox) = members(2);
        assert_eq!(used(&members), 2);
        members.release("cpu-1", &task(0));
        members.release("cpu-1", &task(0));
        assert_eq!(used(&members), 1, "the same end told twice frees one slot");
        members.release("cpu-1", &TaskName { attempt: 1, ..task(1) });
        assert_eq!(used(&members), 1, "the end of another attempt frees nothing");
    }

    #[test]
    fn a_task_that_its_executor_does_not_know_any_more_has_no_slot() {
        let (members, mut inbox) = members(2);
        members.run("cpu-1", &task(0), vec![1]);
        members.run("cpu-1", &task(1), vec![2]);
        assert!(matches!(inbox.try_recv().unwrap(), SchedulerSays::Run(_)));
        let heard = |received, running: &[u32]| {
            let running = running.iter().map(|n| task(*n)).collect();
            members.hear("cpu-1", Vitals { received, running, ..Vitals::default() })
        };
        assert!(!heard(0, &[]), "it has not taken them up yet");
        assert!(!heard(1, &[0]), "the second is on its way");
        assert_eq!(used(&members), 2);
        assert!(heard(2, &[1]), "the first has ended, and nobody said so");
        assert_eq!(used(&members), 1);
    }

    #[tokio::test]
    async fn one_that_has_left_is_said_nothing_and_has_nothing() {
        let (members, mut inbox) = members(1);
        let mut changes = members.changes();
        members.leave("cpu-1").await;
        assert!(changes.has_changed().unwrap() && members.is_empty());
        changes.mark_unchanged();
        members.say_to_all(&SchedulerSays::Forget { job: "j1".into() });
        assert!(inbox.recv().await.is_none());
        assert!(members.get_executor_heartbeat("cpu-1").is_none(), "to Ballista it is dead");
        assert!(!members.hear("cpu-1", Vitals::default()));
    }

    #[test]
    fn one_whose_disk_is_full_waits_until_it_has_room() {
        let (members, _inbox) = members(0);
        let says = |free: u64| {
            members.hear("cpu-1", Vitals { disk_free_bytes: free, ..Vitals::default() });
            members.all()[0].set_aside
        };
        assert!(!says(0), "a small disk is no full one");
        members.set_aside("cpu-1");
        assert!(says(1 << 20));
        assert!(!members.has_another("cpu-2") && !members.has_another("cpu-1"));
        assert!(!says(1 << 30));
        assert!(members.has_another("cpu-2"));
    }
}
