//! Files that belong to the runs of a table, carried as Arrow schema metadata beside the grid.
//!
//! Rows say by their key columns which run they are of; here stands what an operator over them may need to read.

use crate::Result;
use crate::metadata::{carried, carrying};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Key of the schema metadata whose value is a list of [`RunFiles`] in JSON.
pub const RUNS_METADATA_KEY: &str = "voxelflow.runs";

/// Where the events of a run are. Files are absolute paths or URLs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventFiles {
    /// A table with the columns `onset` and `duration`, mostly `trial_type`, maybe `modulation` (`.tsv`).
    Table(String),
    /// FSL's three columns, a file for each condition: its name and its file.
    ThreeColumns(Vec<(String, String)>),
}

impl EventFiles {
    /// The files.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Table(path) => vec![path],
            Self::ThreeColumns(files) => files.iter().map(|(_, path)| path.as_str()).collect(),
        }
    }
}

/// An event as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEvent {
    /// Seconds after the run's first stored volume; negative when it came before.
    pub onset: f64,
    /// Seconds; nothing where the file says `n/a`.
    pub duration: Option<f64>,
    /// What happened; nothing where the file does not say.
    pub condition: Option<String>,
    /// Height of the regressor while it lasts.
    pub modulation: f64,
    /// Position of its file in [`EventFiles::paths`].
    pub file: usize,
    /// The line of that file.
    pub line: u64,
}

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
    /// Events.
    pub events: Option<EventFiles>,
    /// Seconds from the beginning of a volume to the moment that its values stand for.
    pub start_time: Option<f64>,
    /// Whether confounds were removed from its series, which is done once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cleaned: bool,
}

impl RunFiles {
    /// The runs of a schema; none where it does not tell.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Vec<Self>> {
        Ok(carried(schema, RUNS_METADATA_KEY)?.unwrap_or_default())
    }

    /// The same run after confounds were removed from its series.
    #[must_use]
    pub fn after_cleaning(self) -> Self {
        Self { confounds: None, confounds_sidecars: Vec::new(), cleaned: true, ..self }
    }

    /// Files that operators may read beside the image: confounds, what describes them, events.
    pub fn beside(&self) -> impl Iterator<Item = &str> {
        let confounds = self.confounds.iter().chain(&self.confounds_sidecars).map(String::as_str);
        confounds.chain(self.events.iter().flat_map(EventFiles::paths))
    }

    /// The schema metadata that carry `runs`.
    ///
    /// # Errors
    /// Never for finite times.
    pub fn to_metadata(runs: &[Self]) -> Result<HashMap<String, String>> {
        carrying(RUNS_METADATA_KEY, runs)
    }

    /// `sub-01 ses-a task-x run-1`, for messages.
    pub fn label(&self) -> String {
        let names = ["sub", "ses", "task", "run"];
        let parts: Vec<String> = names
            .iter()
            .zip(&self.keys)
            .filter_map(|(name, value)| match value.as_ref()? {
                // A run that is told by more than its number says so itself.
                value if value.contains('-') => Some(value.replace('_', " ")),
                value => Some(format!("{name}-{value}")),
            })
            .collect();
        if parts.is_empty() { "a run without a name".into() } else { parts.join(" ") }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As tables were written before they knew events.
    const EARLIER: &str = r#"[{"keys":["01",null,null,null],"image":"a","confounds":null,"confounds_sidecars":[],"start_time":null}]"#;

    #[test]
    fn runs_come_back_from_the_schema() {
        let run = RunFiles {
            keys: [Some("01".into()), None, Some("motor".into()), Some("2".into())],
            confounds: Some("s3://lab/c.tsv".into()),
            events: Some(EventFiles::ThreeColumns(vec![("lh".into(), "/hcp/EVs/lh.txt".into())])),
            start_time: Some(0.5),
            ..RunFiles::default()
        };
        assert_eq!(run.label(), "sub-01 task-motor run-2");
        assert_eq!(run.beside().collect::<Vec<_>>(), ["s3://lab/c.tsv", "/hcp/EVs/lh.txt"]);
        let [subject, ..] = run.keys.clone();
        let scan = RunFiles { keys: [subject, None, None, Some("acq-a_run-2".into())], ..run.clone() };
        assert_eq!(scan.label(), "sub-01 acq-a run-2");
        let metadata = RunFiles::to_metadata(std::slice::from_ref(&run)).unwrap();
        let schema = Schema::empty().with_metadata(metadata);
        assert_eq!(RunFiles::of(&schema).unwrap(), [run]);
        assert_eq!(RunFiles::of(&Schema::empty()).unwrap(), []);
        let earlier = HashMap::from([(RUNS_METADATA_KEY.to_owned(), EARLIER.to_owned())]);
        assert_eq!(RunFiles::of(&Schema::empty().with_metadata(earlier)).unwrap()[0].events, None);
        let broken = HashMap::from([(RUNS_METADATA_KEY.to_owned(), "{}".to_owned())]);
        assert!(RunFiles::of(&Schema::empty().with_metadata(broken)).is_err());
    }
}
