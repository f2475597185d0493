//! `TRAIN MODEL`: from a request to a plan, to a gang of ranks, to a folder with the model.
//!
//! ```text
//!  TrainNode ──planned──► TrainExec, in the driver                          elsewhere, or in this process
//!    ├ train rows           1. the rows' plan, spooled ────────────────────►  partitions: part files
//!    ├ validation rows      2. their order ◄─ keys ─────────────────────────┘
//!    ├ features             (of a stage that explains series: gathered here, spooled for the ranks)
//!    ├ Rank 0, Rank 1, …    3. GangHost; the gang's plan ──────────────────►  ranks: train_rank
//!    └ ParameterShard 0, …  4. their rows ◄─────────────────────────────────┘  the leader: model files
//!                           5. model folder, whole or not at all; rows of history
//! ```

mod card_claim;
mod collected;
mod common_voxels;
mod exec;
mod explaining;
mod gang;
mod history;
mod host;
mod job;
mod member;
mod model_folder;
mod node;
mod outlook;
mod rank;
mod rank_row;
mod row_order;
mod run_record;
mod samples;
mod spool;
mod statistics;
mod target_table;

pub use exec::TrainExec;
pub use job::{GangOptions, RunVoxels, SubjectOverlap, TrainJob, TrainOptions};
pub use member::{GangMember, GangMemberExec};
pub use node::TrainNode;
pub use rank_row::{FailureCause, RankFailure};
pub use run_record::end_cut_off;
pub use statistics::Statistics;
pub(crate) use target_table::schema as target_schema;
