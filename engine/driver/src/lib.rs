//! voxelflow: a dataflow engine with pluggable ML stages, made for brain imaging.
//!
//! A [`Session`] is the entry. It reads Parquet, NIfTI and tables as [`Dataset`](dataset::Dataset)s, partitioned
//! rows that are described lazily and run by an action; stages are trained on them, and their models are
//! applied to them. The same can be said in a pipeline file, which [`pipeline::run`] runs.
//!
//! ```no_run
//! use voxelflow::prelude::*;
//!
//! #[voxelflow::main]
//! async fn main(session: Session) -> Result<()> {
//!     let series = session.read_parquet("series/").await?.filter(col("task").eq(lit("motor")));
//!     let model = series.train("dist_dca", TrainConfig::downpour().ranks(4)).await?;
//!     let hidden = series.transform(model.encoder()).write_parquet("hidden/").await?;
//!     println!("{} series, loss {:.4}", hidden.rows, model.history.last_loss());
//!     Ok(())
//! }
//! ```

// First, for its macro.
#[macro_use]
mod output;

mod clock;
mod codecs;
pub mod command;
mod confounds;
mod driver_main;
mod error;
mod events;
pub mod flags;
mod model_store;
pub mod pipeline;
pub mod progress;
mod rows;
mod session;
mod source_identity;
mod stages;
mod stores;

pub use error::{Error, Result};
pub use session::{DEFAULT_OUT, Session, SessionBuilder};
pub use voxelflow_dataset as dataset;
pub use voxelflow_dataset::function;
pub use voxelflow_macros::main;

#[doc(hidden)]
pub mod __private {
    pub use crate::driver_main::driver_main;
}

/// What driver programs use.
pub mod prelude {
    pub use crate::{Error, Result, Session};
    pub use arrow::{self, record_batch::RecordBatch};
    pub use datafusion::{
        common::JoinType,
        prelude::{col, lit},
    };
    pub use voxelflow_dataset::{Dataset, ReduceOp, StageSpec, TrainConfig, WriteOptions, function};
    pub use voxelflow_nn::DistDcaConfig as DistDca;
}
