//! What an ML stage is, seen from outside: an [`Estimator`] that a gang of ranks fits to series, and the
//! [`Model`] that comes out. Engines, connectors and reports see stages only through this crate.
//!
//! ```text
//!   rows ─► SeriesFeed ─► Estimator::fit(feed, Gang) ─► Fitted { model, history } ─► model folder
//!                              ▲ GradientSync                 │
//!                              ▼ other ranks                  └─► Model::apply("encode", series)
//! ```

mod atlas;
mod error;
mod estimator;
mod feed;
mod grid;
mod history;
mod lineage;
mod metadata;
mod model;
mod needs;
mod options;
mod run_files;
mod run_keys;
mod run_lengths;
mod run_volumes;
mod runs_at_once;
mod samples;
mod segments;
mod series_origin;
mod settings;

pub use atlas::{ATLAS_METADATA_KEY, Atlas, AtlasKind};
pub use error::{Error, Result};
pub use estimator::{Estimator, Fitted, Gang, ProgressSink, StageKind};
pub use feed::{FeatureFeed, MemoryFeed, SeriesFeed};
pub use grid::{GRID_METADATA_KEY, Grid, KEY_COLUMNS, PARCEL_COLUMNS, SERIES_COLUMN};
pub use history::{EpochRecord, History, StepRecord};
pub use lineage::{LINEAGE_METADATA_KEY, Lineage, Seen};
pub use model::{Choice, LayerFilters, Model, ModelFunction, Predictor};
pub use needs::{Needs, Room};
pub use options::{Options, nearest, parse_options};
pub use run_files::{EventFiles, RUNS_METADATA_KEY, RunEvent, RunFiles};
pub use run_keys::{key_in, known_key, run_index};
pub use run_lengths::{LENGTHS_METADATA_KEY, RunLengths};
pub use run_volumes::{KeptVolumes, RunVolumes, VOLUMES_METADATA_KEY};
pub use runs_at_once::look_at_runs;
pub use samples::{Explained, SampleRun, Samples};
pub use segments::{SEGMENTS_METADATA_KEY, Segments};
pub use series_origin::{
    ORIGIN_METADATA_KEY, OriginVolume, PLACE_COLUMNS, Provenance, SeriesOrigin, Structure,
};
pub use settings::{Placement, TrainSettings};
