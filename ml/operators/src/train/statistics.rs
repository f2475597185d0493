//! What a model was trained on: `statistics.json` of its folder.

use super::spool::Spool;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use voxelflow_stage::{Grid, Result, SeriesFeed};

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
    /// blake3 of the values trained on, in the order of training (little-endian f32).
    pub data_hash: String,
    /// Subjects trained on.
    pub subjects: Vec<String>,
    /// Subjects validated on.
    pub validation_subjects: Vec<String>,
    /// The grid that the rows came from, with what was done to them, if the table carried one.
    pub grid: Option<Grid>,
}

/// Rows that are read at once.
const CHUNK: usize = 1024;

impl Statistics {
    /// Reads all rows to train on, once.
    ///
    /// # Errors
    /// Storage that fails.
    pub(super) fn of(
        train: &Arc<Spool>,
        validation: Option<&Arc<Spool>>,
        grid: Option<Grid>,
    ) -> Result<Self> {
        let (rows, time_points) = (train.rows(), train.time_points());
        let mut feed = train.feed();
        let (mut sum, mut squares, mut hasher) = (0.0, 0.0, blake3::Hasher::new());
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for start in (0..rows).step_by(CHUNK) {
            let chunk: Vec<usize> = (start..rows.min(start + CHUNK)).collect();
            values.resize(chunk.len() * time_points, 0.0_f32);
            feed.read(&chunk, &mut values)?;
            bytes.clear();
            for value in &values {
                sum += f64::from(*value);
                squares += f64::from(*value) * f64::from(*value);
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            hasher.update(&bytes);
        }
        let n = (rows * time_points).max(1) as f64;
        let mean = sum / n;
        let owned = |spool: &Spool| spool.subjects().into_iter().map(str::to_owned).collect::<Vec<_>>();
        Ok(Self {
            rows,
            validation_rows: validation.map_or(0, |v| v.rows()),
            time_points,
            mean,
            std: (squares / n - mean * mean).max(0.0).sqrt(),
            data_hash: hasher.finalize().to_hex().to_string(),
            subjects: owned(train),
            validation_subjects: validation.map(|v| owned(v)).unwrap_or_default(),
            grid,
        })
    }
}
