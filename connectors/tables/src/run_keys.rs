//! The key columns that are names: which run rows come from.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, path::Path};
use voxelflow_dataset::RunKey;
use voxelflow_formats::bids::{BidsRun, entities_in};
use voxelflow_stage::{RunLengths, run_index};

/// Subject, session, task, run and space, without their prefixes; `None` where nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunKeys {
    /// `sub-`
    pub subject: Option<String>,
    /// `ses-`
    pub session: Option<String>,
    /// `task-`
    pub task: Option<String>,
    /// `run-`, an index: without leading zeros.
    pub run: Option<String>,
    /// `space-`
    pub space: Option<String>,
}

impl RunKeys {
    /// Reads the last part of `path`, also where it follows the rules of BIDS only in places. A name that follows none
    /// gives nothing, and nothing is believed that it says twice.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let value = |key: &str| {
            let mut values = entities_in(&name).filter(|(k, _)| *k == key).map(|(_, value)| value);
            values.next().filter(|first| values.all(|other| other == *first)).map(str::to_owned)
        };
        Self {
            subject: value("sub"),
            session: value("ses"),
            task: value("task"),
            run: index(value("run")),
            space: value("space"),
        }
    }

    /// The values in the order of the key columns.
    pub fn values(&self) -> [Option<&str>; 5] {
        [&self.subject, &self.session, &self.task, &self.run, &self.space].map(Option::as_deref)
    }

    /// The run, as the ledger names it.
    pub(crate) fn run(&self) -> RunKey {
        [&self.subject, &self.session, &self.task, &self.run].map(Clone::clone)
    }

    /// As texts of rows: an absent key is empty.
    pub(crate) fn texts(&self) -> [String; 5] {
        self.values().map(|value| value.unwrap_or_default().to_owned())
    }

    /// What `self` says, else what `other` says.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            subject: self.subject.or(other.subject),
            session: self.session.or(other.session),
            task: self.task.or(other.task),
            run: index(self.run).or(other.run),
            space: self.space.or(other.space),
        }
    }
}

impl From<&BidsRun> for RunKeys {
    fn from(run: &BidsRun) -> Self {
        Self {
            subject: Some(run.subject.clone()),
            session: run.session.clone(),
            task: run.task.clone(),
            run: index(run.run.clone()),
            space: run.space.clone(),
        }
    }
}

/// Runs are numbers where their names are.
fn index(run: Option<String>) -> Option<String> {
    run.map(|run| run_index(&run).into_owned())
}

/// How long each run is, where runs differ, as schema metadata: of every file its run, its points and its name.
///
/// # Errors
/// Two lengths of one run.
pub(crate) fn lengths<'a>(
    files: impl Iterator<Item = (&'a RunKeys, usize, String)> + Clone,
) -> Result<HashMap<String, String>> {
    let found = RunLengths::of_runs(files.clone().map(|(keys, points, _)| (keys.run(), points)));
    match found {
        Ok(None) => Ok(HashMap::new()),
        Ok(Some(lengths)) => Ok(lengths.to_metadata()?),
        Err(run) => {
            let mut own =
                files.filter(|(keys, ..)| keys.run() == *run).map(|(_, points, name)| (points, name));
            let first = own.next().unwrap_or_default();
            let (points, path) = own.find(|(points, _)| *points != first.0).unwrap_or_default();
            let reason = format!(
                "it has {points} volumes, but {} has {}, and by their names they are of one run: make one table for each \
                 length",
                first.1, first.0
            );
            Err(Error::Image { path, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_read_without_their_prefix() {
        let name = RunKeys::of(Path::new("x/sub-01_ses-a_task-x_run-01_space-Y_desc-preproc_bold.nii.gz"));
        assert_eq!(name.values(), [Some("01"), Some("a"), Some("x"), Some("1"), Some("Y")]);
        let name = RunKeys::of(Path::new("ds003_sub-01_mc.nii.gz"));
        assert_eq!(name.values(), [Some("01"), None, None, None, None]);
    }

    #[test]
    fn another_name_gives_nothing() {
        for name in ["bold.nii", "sub-_x.nii.gz", "functional-old.nii", "sub-1_sub-2_bold.nii", ""] {
            assert_eq!(RunKeys::of(Path::new(name)), RunKeys::default(), "{name}");
        }
    }
}
