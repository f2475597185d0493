//! `TRAIN MODEL`: from a request to a plan, to a gang of ranks, to a folder with the model.
//!
//! ```text
//!  TrainNode ──planned──► TrainExec ──► spool (rows of all partitions, in one order)
//!    ├ train rows                         │ rank r reads its range, any number of times
//!    ├ validation rows                    ▼
//!    ├ Rank 0, Rank 1, …              threads ◄─ GradientSync ─► parameter shards
//!    └ ParameterShard 0, …                │
//!                                         ▼ model folder, whole or not at all; rows of history
//! ```

mod exec;
mod gang;
mod history;
mod job;
mod member;
mod model_folder;
mod node;
mod row_order;
mod spool;
mod statistics;

pub use exec::TrainExec;
pub use job::{SubjectOverlap, TrainJob, TrainOptions};
pub use member::{GangMember, GangMemberExec};
pub use node::TrainNode;
pub use statistics::Statistics;
