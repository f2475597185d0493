//! Stages as plans: the only crate that sees both ML stages and DataFusion.
//!
//! ```text
//!   TRAIN MODEL dca USING dist_dca …   ─► StageCatalog::plan_train ─► TrainNode ─► TrainExec ─► model folder
//!   FROM clean(series, …)              ─► plan_clean               ─► CleanNode ─► CleanExec
//!   FROM design(series, …)             ─► plan_design              ─► DesignNode ─► DesignExec
//!   FROM split(series, …)              ─► plan_split               ─► SplitNode ─► a join with the groups' parts
//!   FROM concatenate(series, …)        ─► plan_concatenate         ─► ConcatenateNode ─► ConcatenateExec
//!   FROM predict(enc, features)        ─► plan_predict             ─► PredictNode ─► PredictExec
//!   encode(dca, series), pearson_r(…)  ─► functions of a session
//! ```
//!
//! A session is set up with [`extension_planners`], the functions of a [`StageCatalog`], what
//! [`prepare`](voxelflow_dataset::StagePlanner::prepare) puts into its configuration (ranks find their stage there by
//! name), and, to hear of progress, a [`TrainObserver`].

mod catalog;
mod clean;
mod clean_batch;
mod clean_confounds;
mod clean_exec;
mod clean_ledger;
mod clean_lists;
mod concatenate;
mod confound_options;
mod confounds_memory;
mod confounds_reader;
mod design;
mod design_exec;
mod design_runs;
mod error;
mod events_reader;
mod features;
mod functions;
mod join_keys;
mod lineage;
mod observer;
mod planner;
mod predict;
mod same_grid;
mod series_column;
mod split;
mod train;

pub use catalog::StageCatalog;
pub use clean::{CLEAN, CleanNode, CleanOptions, NotFinite, plan_clean, plan_clean_exec};
pub use clean_exec::CleanExec;
pub use concatenate::{CONCATENATE, ConcatenateNode, ConcatenateOptions, MissingRun, plan_concatenate};
pub use confound_options::ConfoundOptions;
pub use confounds_reader::{ConfoundsReader, RunTable, SessionStores};
pub use design::{DESIGN, DESIGN_METADATA_KEY, DesignNode, plan_design, plan_design_exec};
pub use design_exec::DesignExec;
pub use design_runs::{DesignOptions, MissingDuration, StartTime};
pub use error::{Error, Result};
pub use events_reader::EventsReader;
pub use functions::{ModelSource, series_functions};
pub use join_keys::NoteJoinKeys;
pub use observer::TrainObserver;
pub use planner::{OperatorsPlanner, extension_planners};
pub use predict::{PREDICT, PredictNode, PredictOptions};
pub use same_grid::SameGrid;
pub use series_column::SeriesColumn;
pub use split::{FOLD_COLUMN, SPLIT, SPLIT_COLUMN, SplitNode, SplitOptions, plan_split};
pub use train::{
    FailureCause, GangMember, GangMemberExec, GangOptions, RankFailure, RunVoxels, Statistics,
    SubjectOverlap, TrainExec, TrainJob, TrainNode, TrainOptions, end_cut_off,
};
