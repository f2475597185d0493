//! What a decision is made from: who has room, who runs, who waits. Plain values, so that a decision can be
//! tested without a cluster.

use std::{collections::BTreeMap, fmt, time::Duration};

/// Room of an executor, or what one member of a gang takes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Task slots.
    pub slots: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Accelerator cards.
    pub cards: u32,
}

impl Room {
    /// One slot, and nothing else that is counted.
    pub const SLOT: Self = Self { slots: 1, memory_bytes: 0, cards: 0 };

    /// How often `each` fits in.
    pub fn times(&self, each: &Self) -> u32 {
        let memory = match each.memory_bytes {
            0 => u32::MAX,
            bytes => u32::try_from(self.memory_bytes / bytes).unwrap_or(u32::MAX),
        };
        let slots = self.slots.checked_div(each.slots).unwrap_or(u32::MAX);
        let cards = self.cards.checked_div(each.cards).unwrap_or(u32::MAX);
        slots.min(memory).min(cards)
    }

    /// What is left without `other`; never below nothing.
    #[must_use]
    pub fn without(&self, other: &Self, times: u32) -> Self {
        Self {
            slots: self.slots.saturating_sub(other.slots.saturating_mul(times)),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes.saturating_mul(times.into())),
            cards: self.cards.saturating_sub(other.cards.saturating_mul(times)),
        }
    }
}

/// An executor as the scheduler knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executor {
    /// Its id.
    pub id: String,
    /// The pool that it belongs to.
    pub pool: String,
    /// All that it has.
    pub total: Room,
    /// What nobody uses now.
    pub free: Room,
}

/// A stage of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageKey {
    /// The job. Ids grow with time, so their order is the order of submission.
    pub job: String,
    /// Number of the stage within the job.
    pub stage: usize,
}

impl fmt::Display for StageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {} of job {}", self.stage, self.job)
    }
}

/// A stage with partitions that nobody runs yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Which stage.
    pub key: StageKey,
    /// The queue whose share it takes.
    pub queue: String,
    /// The only pool whose executors it may use; any if not given.
    pub pool: Option<String>,
    /// Partitions that wait.
    pub pending: u32,
    /// How they are to be run.
    pub demand: Demand,
}

/// How the partitions of a stage are to be run.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// Each by itself, a slot each.
    Each,
    /// All by one task on one slot: their rows are brought together within the stage.
    Together,
    /// As members of a gang.
    Gang(GangNeed),
}

/// What a gang needs.
#[derive(Clone, Debug, PartialEq)]
pub struct GangNeed {
    /// Whose gang it is, for messages.
    pub name: String,
    /// What each member takes.
    pub each: Room,
    /// All members, running or not.
    pub members: u32,
    /// It starts with so many at once.
    pub at_least: u32,
    /// How long it has waited.
    pub waited: Duration,
    /// How long it may wait, and hold free slots meanwhile; without end if not given.
    pub deadline: Option<Duration>,
}

impl GangNeed {
    /// Whether it has waited for too long.
    pub fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.waited >= deadline)
    }
}

/// Tasks of a job on an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The job.
    pub job: String,
    /// The queue whose share it takes.
    pub queue: String,
    /// The executor.
    pub executor: String,
    /// Slots that its tasks take.
    pub slots: u32,
}

/// All that a decision is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterView {
    /// Executors that are alive.
    pub executors: Vec<Executor>,
    /// What runs.
    pub running: Vec<Running>,
    /// What waits.
    pub waiting: Vec<Waiting>,
    /// Weights of the queues; 1 for a queue that is not here.
    pub weights: BTreeMap<String, u32>,
}

impl ClusterView {
    /// Slots of the executors of `pool`, or of all.
    pub fn slots(&self, pool: Option<&str>) -> u32 {
        self.executors.iter().filter(|e| is_of(e, pool)).map(|e| e.total.slots).sum()
    }

    /// How many members, each taking `each`, the empty cluster would hold.
    pub fn capacity(&self, each: &Room, pool: Option<&str>) -> u32 {
        let fitting = self.executors.iter().filter(|e| is_of(e, pool)).map(|e| e.total.times(each));
        fitting.fold(0, u32::saturating_add)
    }
}

/// Whether `executor` may be used by those who ask for `pool`.
pub(super) fn is_of(executor: &Executor, pool: Option<&str>) -> bool {
    pool.is_none_or(|pool| executor.pool == pool)
}
