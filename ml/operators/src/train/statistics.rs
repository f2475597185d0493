//! What a model was trained on: `statistics.json` of its folder.

use super::spool::Spool;
use serde::{Deserialize, Serialize};
use voxelflow_stage::{Grid, Lineage};

/// Normalisation and lineage of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Series trained on.
    pub rows: usize,
    /// Series validated on.
    pub validation_rows: usize,
    /// Points of every series.
    pub time_points: usize,
    /// Mean of all values trained on, in the unit of the series.
    pub mean: f64,
    /// Their standard deviation.
    pub std: f64,
    /// blake3 of the digests (64 bits) of the series trained on, in the order of training.
    pub data_hash: String,
    /// Subjects trained on.
    pub subjects: Vec<String>,
    /// Subjects validated on.
    pub validation_subjects: Vec<String>,
    /// Runs trained on, by subject, session, task and run.
    #[serde(default)]
    pub runs: Vec<String>,
    /// Runs validated on.
    #[serde(default)]
    pub validation_runs: Vec<String>,
    /// Models that the rows went through, and what those were trained on.
    #[serde(default)]
    pub upstream: Lineage,
    /// The grid that the rows came from, with what was done to them, if the table carried one.
    pub grid: Option<Grid>,
}

impl Statistics {
    /// Their file.
    pub(crate) const FILE: &'static str = "statistics.json";

    /// What was noted while the rows were spooled: they are not read again.
    pub(super) fn of(
        train: &Spool,
        validation: Option<&Spool>,
        upstream: Lineage,
        grid: Option<Grid>,
    ) -> Self {
        let (mean, std) = train.moments();
        let owned = |spool: &Spool| spool.subjects().into_iter().map(str::to_owned).collect::<Vec<_>>();
        Self {
            rows: train.rows(),
            validation_rows: validation.map_or(0, Spool::rows),
            time_points: train.place.time_points,
            mean,
            std,
            data_hash: train.hash.to_hex().to_string(),
            subjects: owned(train),
            validation_subjects: validation.map(owned).unwrap_or_default(),
            runs: train.runs().into_iter().collect(),
            validation_runs: validation.map(|v| v.runs().into_iter().collect()).unwrap_or_default(),
            upstream,
            grid,
        }
    }
}
