//! What ranks did and chose, for people: `ridge.json` of the model's folder.

use crate::{options::Precision, repeats::CeilingOf};
use serde::{Deserialize, Serialize};
use std::path::Path;
use voxelflow_stage::{Error, Result};
use voxelflow_sync::{Communicator, CommunicatorExt};

/// What was fitted and chosen.
#[derive(Debug, Serialize)]
pub(crate) struct FitReport<Chosen> {
    /// Names of the columns of the coefficients.
    pub features: Vec<String>,
    /// Of the numbers that it was fitted in.
    pub precision: Precision,
    pub n_samples: usize,
    /// Of each run.
    pub run_samples: Vec<usize>,
    pub n_features: usize,
    pub n_targets: usize,
    /// Targets that are constant or not finite.
    pub unfit: u64,
    /// By the stage.
    #[serde(flatten)]
    pub chosen: Chosen,
    /// Whose repeats the ceilings are of, where there are any.
    pub ceiling_of: Option<CeilingOf>,
    pub ranks: Vec<RankReport>,
}

/// What one rank has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankReport {
    pub rank: usize,
    pub targets: usize,
    pub decompositions: usize,
    /// Of its process, user and system, while it fitted; ranks that are threads of one process share them.
    pub cpu_seconds: f64,
    pub seconds: f64,
}

impl RankReport {
    /// Those of all ranks, on every rank.
    ///
    /// # Errors
    /// Ranks that are lost.
    pub fn gathered(&self, c: &mut dyn Communicator) -> Result<Vec<Self>> {
        let reports = c.all_gather(serde_json::to_vec(self).unwrap_or_default())?;
        Ok(reports.iter().filter_map(|bytes| serde_json::from_slice(bytes).ok()).collect())
    }
}

/// Name of the file.
pub(crate) const REPORT: &str = "ridge.json";

impl<Chosen: Serialize> FitReport<Chosen> {
    /// Writes it into `folder`.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(REPORT);
        let failed = |reason: String| Error::Rows { path: path.display().to_string(), reason };
        let text = serde_json::to_string_pretty(self).map_err(|e| failed(e.to_string()))?;
        std::fs::write(&path, text + "\n").map_err(|e| failed(e.to_string()))
    }
}

/// Seconds that this process has computed, user and system; 0 where the system does not say.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
    // utime and stime are the 12th and 13th after the name, in ticks of 1/100 s on Linux.
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / 100.0
}
