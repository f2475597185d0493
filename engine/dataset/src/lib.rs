//! Dataset: partitioned rows, described lazily and run by an action.
//!
//! ```text
//!   Engine ──read──► Dataset ──verbs──► Dataset ──action──► rows, files, a model
//!     │                │ LogicalPlan: DataFusion's nodes and ours (nodes/)
//!     │                └ user code by name (functions/)
//!     └ DataFusion session · StagePlanner · models · working folder
//! ```
//!
//! The engine knows Arrow and DataFusion, nothing of what rows mean. Its plans hold names and numbers only, no
//! closures, so that they can be sent to another process of the same build.
//!
//! ```
//! use datafusion::{arrow::{array::{Int64Array, RecordBatch}, error::ArrowError}, prelude::{col, lit}};
//! use std::sync::Arc;
//! use voxelflow_dataset::{Engine, EngineConfig, NoStages, function, session_context};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = session_context(Vec::new(), &EngineConfig::default())?;
//! let engine = Engine::new(context, Arc::new(NoStages), std::env::temp_dir());
//! let numbers: Arc<Int64Array> = Arc::new((0..100).collect());
//! let rows = engine.from_batches(&[RecordBatch::try_from_iter([("n", numbers as _)])?], 4)?;
//! let kept = rows
//!     .filter(col("n").gt_eq(lit(10)))
//!     .map_partitions(function!(|batch, rows: usize| batch.slice(0, batch.num_rows().min(*rows))), 5);
//! assert_eq!(kept.count().await?, 20);
//! # Ok(())
//! # }
//! ```

mod actions;
mod aggregates;
mod build_id;
mod cache_entry;
mod copy;
mod dataset;
pub mod dialect;
pub mod distributed;
mod engine;
mod error;
pub mod functions;
mod join_filters;
mod keys;
pub mod late_columns;
mod ledger;
mod lists;
pub mod log_tail;
mod nan;
mod no_stages;
pub mod node_codec;
pub mod nodes;
mod null_safe_joins;
mod parquet_lists;
mod parquet_sink;
mod parquet_tables;
mod partition_wise;
mod partitions;
mod persist;
mod plan_identity;
mod process_memory;
mod row_hash;
mod row_width;
pub mod runner;
mod series_arithmetic;
mod session_context;
mod stage_planner;
mod staging;
mod subquery_conditions;
mod target;
mod train;
mod transformations;

pub use build_id::build_id;
pub use dataset::Dataset;
pub use engine::{Engine, register_stages};
pub use error::{Cause, Error, Result, cause_in};
pub use functions::{Accumulator, Broadcast, Function};
pub use keys::{Grouped, ReduceOp};
pub use ledger::{
    Finding, Indices, KeyJoin, LISTED, Ledger, LedgerEntry, LedgerNode, LedgerNotes, Level, Places, RUN_KEYS,
    RunKey, ledger_schema,
};
pub use no_stages::NoStages;
pub use node_codec::NodeCodec;
pub use parquet_sink::{WriteOptions, WriteSummary};
pub use parquet_tables::with_tables_by_location;
pub use partition_wise::PartitionWise;
pub use plan_identity::SourceIdentity;
pub use process_memory::memory_of_process;
pub use runner::{LocalRunner, PlanRun, PlanRunner, Runner};
pub use session_context::{
    EngineConfig, ExtensionPlanners, StoresOf, memory_of_session, session_context, session_state,
};
pub use stage_planner::{MODEL_OPTION, MODEL_TABLE, OptionMap, StageError, StagePlanner, TrainRequest};
pub use staging::{Claim, WriterLock, claim_target, remove_left_behind, replace_target};
pub use train::{ModelFunction, StageSpec, TrainConfig, TrainedModel, TrainingHistory};
