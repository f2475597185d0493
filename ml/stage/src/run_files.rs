//! Files that belong to the runs of a table, carried as Arrow schema metadata beside the grid.
//!
//! Rows say by their key columns which run they are of; here stands what an operator over them may need to read.

use crate::{Error, Result};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Key of the schema metadata whose value is a list of [`RunFiles`] in JSON.
pub const RUNS_METADATA_KEY: &str = "voxelflow.runs";

/// An image of one run and what belongs to it. Files are absolute paths or URLs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFiles {
    /// Subject, session, task and run, as in the key columns.
    pub keys: [Option<String>; 4],
    /// The image.
    pub image: String,
    /// Confounds: a table with named columns (`.tsv`), or movement regressors of the HCP pipelines (`.txt`).
    pub confounds: Option<String>,
    /// JSON files that describe the confounds; of a key that several have, the last counts.
    pub confounds_sidecars: Vec<String>,
    /// Seconds from the beginning of a volume to the moment that its values stand for.
    pub start_time: Option<f64>,
}

impl RunFiles {
    /// The runs of a schema; none where it does not tell.
    ///
    /// # Errors
    /// [`Error::Data`] for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Vec<Self>> {
        let Some(text) = schema.metadata().get(RUNS_METADATA_KEY) else { return Ok(Vec::new()) };
        serde_json::from_str(text).map_err(|e| Error::Data {
            what: format!("schema metadata {RUNS_METADATA_KEY}"),
            reason: e.to_string(),
        })
    }

    /// The schema metadata that carry `runs`.
    ///
    /// # Errors
    /// Never for finite times.
    pub fn to_metadata(runs: &[Self]) -> Result<HashMap<String, String>> {
        let text = serde_json::to_string(runs)
            .map_err(|e| Error::Data { what: "runs".into(), reason: e.to_string() })?;
        Ok(HashMap::from([(RUNS_METADATA_KEY.to_owned(), text)]))
    }

    /// `sub-01 ses-a task-x run-1`, for messages.
    pub fn label(&self) -> String {
        let names = ["sub", "ses", "task", "run"];
        let parts: Vec<String> = names
            .iter()
            .zip(&self.keys)
            .filter_map(|(name, value)| Some(format!("{name}-{}", value.as_ref()?)))
            .collect();
        if parts.is_empty() { "a run without a name".into() } else { parts.join(" ") }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runs_come_back_from_the_schema() {
        let run = RunFiles {
            keys: [Some("01".into()), None, Some("motor".into()), Some("2".into())],
            confounds: Some("s3://lab/c.tsv".into()),
            start_time: Some(0.5),
            ..RunFiles::default()
        };
        assert_eq!(run.label(), "sub-01 task-motor run-2");
        let metadata = RunFiles::to_metadata(std::slice::from_ref(&run)).unwrap();
        let schema = Schema::empty().with_metadata(metadata);
        assert_eq!(RunFiles::of(&schema).unwrap(), [run]);
        assert_eq!(RunFiles::of(&Schema::empty()).unwrap(), []);
        let broken = HashMap::from([(RUNS_METADATA_KEY.to_owned(), "{}".to_owned())]);
        assert!(RunFiles::of(&Schema::empty().with_metadata(broken)).is_err());
    }
}
