//! Pipeline files: read, checked, planned, run, and remembered.
//!
//! ```text
//!   file.vf ─► parse ─► check (every statement, nothing runs) ─► run statement by statement ─► out/
//!                                                                  │ key known and files there: skip
//!                                                                  └► out/voxelflow.json (RunRecord), out/ledger/
//! ```

mod check;
mod file;
mod file_identity;
pub(crate) mod ledger;
mod plan_text;
mod report_ledger;
mod report_page;
mod run;
mod run_record;
mod summary;
mod unwritten;

pub use check::{Place, check};
pub use file::PipelineFile;
pub use plan_text::plan_text;
pub use run::{RunOptions, run};
pub use run_record::{FileRecord, RunRecord, StatementRecord};
pub use summary::{Outcome, OutcomeNote, summary_table};
pub(crate) use unwritten::is_parquet_folder;
