//! Who runs when: tasks and gangs of all jobs on the executors of a cluster.
//!
//! ```text
//!   execution graphs ──snapshot──► ClusterView ──decide──► Decision ──GangPolicy──► bound tasks
//!   free slots, executor ids            (pure)                │
//!                                                             └──► WaitingRoom: why a job waits, which gives up
//! ```
//!
//! [`decide`] is a pure function of what is known; [`GangPolicy`] reads Ballista's state for it under the lock
//! of the slots, and binds what it says.

#[cfg(test)]
mod cluster_tests;
mod cluster_view;
mod decide;
#[cfg(test)]
mod decide_tests;
mod executor_name;
mod free_room;
mod gang_policy;
mod job_options;
mod reason;
mod snapshot;
mod waiting_room;

pub use cluster_view::{ClusterView, Demand, Executor, GangNeed, Room, Running, StageKey, Waiting};
pub use decide::{Binding, Decision, PassedOver, decide};
pub use executor_name::ExecutorName;
pub use gang_policy::GangPolicy;
pub use job_options::JobOptions;
pub use reason::{Hold, Need, Reason};
pub use waiting_room::{GivenUp, WaitingRoom, WaitingStage};
