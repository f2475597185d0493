//! What has been run into a folder: the memory by which unchanged statements are not run again.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

const FILE: &str = "voxelflow.json";

/// What has been run into one folder, by what each statement makes (`table series`, `model dca`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// The last run of each statement.
    pub statements: BTreeMap<String, StatementRecord>,
}

/// One statement's last run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementRecord {
    /// Identity of its text, of what it read and of the settings in force.
    pub key: String,
    /// The build of the program that ran it: the BLAKE3 hash of its executable.
    pub build: String,
    /// Rows that it made.
    pub rows: Option<u64>,
    /// Partitions (images of a table, for example) that an earlier run had finished before it was killed.
    pub taken_over: u64,
    /// Wall-clock seconds that it took.
    pub seconds: f64,
    /// Loss before and after, of a training.
    pub loss: Option<[f64; 2]>,
    /// Ranks that trained to the end, and those that were asked for, where some were lost for good.
    pub ranks: Option<[u64; 2]>,
    /// What it wrote.
    pub files: Vec<FileRecord>,
    /// What lay where it wrote to outside the run's folder, such as a store: names, sizes, times, entity tags.
    pub written: String,
    /// What was left out, changed or found odd, over all runs: `(what level: reason, count)`.
    pub ledger: Vec<(String, u64)>,
    /// Its rows of the table `ledger`, which have runs and places; none if there was nothing to tell.
    pub ledger_file: Option<FileRecord>,
}

/// A file or folder that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Relative to the run's folder where it lies in it.
    pub path: PathBuf,
    /// Its size, of a folder that of all files in it.
    pub bytes: u64,
}

impl FileRecord {
    /// What lies at `path` now.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub fn of(path: &Path, out: &Path) -> Result<Self> {
        let bytes = size(path).map_err(|e| Error::io(path, e))?;
        Ok(Self { path: path.strip_prefix(out).unwrap_or(path).to_owned(), bytes })
    }
}

fn size(path: &Path) -> std::io::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    std::fs::read_dir(path)?.map(|entry| size(&entry?.path())).sum()
}

impl RunRecord {
    /// The record of `out`; an empty one where there is none, or a damaged one: then everything runs again, which is
    /// always right.
    pub fn read(out: &Path) -> Self {
        let text = std::fs::read(out.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The last run of `target`, if it had this key and all that it wrote is still there, unchanged in size.
    pub fn unchanged(&self, target: &str, key: &str, out: &Path) -> Option<&StatementRecord> {
        let there =
            |f: &FileRecord| FileRecord::of(&out.join(&f.path), out).is_ok_and(|now| now.bytes == f.bytes);
        self.statements
            .get(target)
            .filter(|s| s.key == key && s.files.iter().chain(&s.ledger_file).all(there))
    }

    /// Writes the record.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write(&self, out: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::input(out.display(), e))?;
        voxelflow_storage::publish(out.join(FILE), &text)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_statement_is_unchanged_while_its_key_and_its_files_are() {
        let out = tempfile::tempdir().unwrap();
        std::fs::create_dir(out.path().join("maps")).unwrap();
        let map = out.path().join("maps/r.nii");
        std::fs::write(&map, b"12345").unwrap();
        let mut record = RunRecord::default();
        let files = vec![FileRecord::of(&out.path().join("maps"), out.path()).unwrap()];
        assert_eq!((files[0].path.as_path(), files[0].bytes), (Path::new("maps"), 5));
        let statement = StatementRecord { key: "k".into(), files, ..Default::default() };
        record.statements.insert("maps".into(), statement);
        record.write(out.path()).unwrap();

        let again = RunRecord::read(out.path());
        assert_eq!(again, record);
        assert!(again.unchanged("maps", "k", out.path()).is_some());
        assert!(again.unchanged("maps", "other", out.path()).is_none());
        std::fs::write(&map, b"1").unwrap();
        assert!(again.unchanged("maps", "k", out.path()).is_none());
        std::fs::write(out.path().join(FILE), b"{ damaged").unwrap();
        assert_eq!(RunRecord::read(out.path()), RunRecord::default());
    }
}
