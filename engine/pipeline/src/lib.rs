//! The pipeline language: SQL and a few statements more, from text to plans.
//!
//! ```text
//!   file.vf ─► tokens ($name filled) ─► Statement ─► rewrite ─────────────► LogicalPlan ─► Planned
//!              variables                parser       models, operators      DataFusion     planner
//!                                                    │                      │
//!                                                    └── PipelineError ◄────┘  line, caret, did you mean
//! ```
//!
//! Nothing runs here and nothing is written. What stages do is seen only through
//! [`StagePlanner`](voxelflow_dataset::StagePlanner).
//!
//! ```
//! use std::sync::Arc;
//! use voxelflow_pipeline::{Source, StatementKind, Variables, parse};
//!
//! let text = "TRAIN MODEL dca USING dist_dca (lambda => 0.006) ON series WITH (ranks => $ranks);";
//! let set = Variables::from([("ranks".to_string(), "13".to_string())]);
//! let statements = parse(&Arc::new(Source::new("first.vf", text)), &set)?;
//! let StatementKind::Train(train) = &statements[0].kind else { panic!("not a TRAIN") };
//! assert_eq!(train.settings.to_map()["ranks"], 13);
//! # Ok::<(), voxelflow_pipeline::PipelineError>(())
//! ```

mod diagnose;
mod error;
mod explain;
mod inputs;
mod key;
mod model;
mod model_relation;
mod options;
mod parser;
mod planner;
mod relation;
mod source;
mod statement;
mod variables;

pub use diagnose::refusal;
pub use error::{PipelineError, Result};
pub use explain::{ExplainRow, explain_batch};
pub use inputs::Inputs;
pub use key::statement_key;
pub use parser::parse;
pub use planner::{LEDGER, MapsSource, Planned, PlannedTable, PlannedTrain, Planner};
pub use source::{Source, Span};
pub use statement::{
    Explain, ExportMaps, Name, NamedOption, NamedOptions, Relation, Report, Statement, StatementKind, Train,
};
pub use variables::Variables;
