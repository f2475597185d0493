//! The same plans on a Ballista cluster: scheduler, executors, how plans travel, and who runs when.
//!
//! ```text
//!   driver                         scheduler                      executors
//!   Dataset ─► ClusterRunner ────► stages, tasks ──GangPolicy──► tasks, on their slots
//!     ▲          VoxelflowCodec       VoxelflowCodec                VoxelflowCodec
//!     └──────────────── rows, partition by partition ◄───────────────────┘
//! ```
//!
//! All three are this program: [`run_scheduler`] and [`run_executor`] are started as subcommands of it, by hand on
//! many machines or by a [`LocalCluster`] on one. The only crate that names Ballista.

mod address;
mod child;
mod codec;
mod connections;
mod connections_in;
pub mod control;
mod error;
mod executor;
mod job;
mod local_cluster;
pub mod node;
mod owned_folder;
pub mod policy;
mod runner;
mod scheduler;
mod session;
mod submitted;
mod task_engine;

pub use address::{ClusterAddress, check_bind};
pub use child::{parent_gone, report_ready};
pub use codec::VoxelflowCodec;
pub use error::{Error, Result};
pub use executor::{ExecutorSettings, run_executor};
pub use local_cluster::{LocalCluster, LocalClusterSettings};
pub use runner::ClusterRunner;
pub use scheduler::{EXECUTOR_TIMEOUT, SchedulerSettings, run_scheduler};
pub use session::{MESSAGE_BYTES, SessionFactory};
