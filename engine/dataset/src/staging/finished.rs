//! Partitions that were written to their end, noted beside their files: what a write that was killed has done already.

use crate::{ledger::Ledger, nodes::unary::Place};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

/// A partition that is whole, also one without rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FinishedPart {
    /// What was written: the plan, all that it reads, the build, and how it is written.
    pub key: String,
    /// Its number, from 0; of images in a table, the image's.
    pub partition: usize,
    /// Partitions of the write.
    pub partitions: usize,
    /// The name of its file; none where there were no rows.
    pub file: Option<String>,
    /// Rows of the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// What the plan's nodes had for the ledger in it.
    pub ledger: Ledger,
}

/// Where the partitions of one write lie, and where it is noted which of them are whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finished {
    /// The key that they must have.
    pub key: String,
    /// Folder of the files.
    pub rows: PathBuf,
    /// Folder of the notes.
    pub notes: PathBuf,
}

impl Finished {
    fn note(&self, partition: usize) -> PathBuf {
        self.notes.join(format!("{partition:05}.json"))
    }

    /// The partition at `place`, if it is whole.
    pub fn find(&self, place: Place) -> Option<FinishedPart> {
        let part = self.read(&self.note(place.partition))?;
        (part.partition == place.partition && part.partitions == place.partitions).then_some(part)
    }

    /// What is noted at `path`, if it is of this write and its file is as it was.
    fn read(&self, path: &Path) -> Option<FinishedPart> {
        let part: FinishedPart = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let whole = match &part.file {
            None => part.rows == 0,
            Some(name) => fs::metadata(self.rows.join(name)).is_ok_and(|m| m.len() == part.bytes),
        };
        (whole && part.key == self.key && self.note(part.partition) == path).then_some(part)
    }

    /// Notes that `part` is whole, once the disk has its file.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn add(&self, part: &FinishedPart) -> io::Result<()> {
        if let Some(name) = &part.file {
            File::open(self.rows.join(name))?.sync_all()?;
        }
        let partial = self.notes.join(format!(".{:05}-{}", part.partition, process::id()));
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(part)?)?;
        file.sync_all()?;
        fs::rename(&partial, self.note(part.partition))
    }

    /// Removes all files and notes that are not of whole partitions of this write.
    ///
    /// # Errors
    /// Files that cannot be removed.
    pub fn keep_whole(&self) -> io::Result<()> {
        let mut files = BTreeSet::new();
        for note in fs::read_dir(&self.notes)? {
            let note = note?.path();
            match self.read(&note) {
                Some(part) => files.extend(part.file),
                None => fs::remove_file(&note)?,
            }
        }
        for file in fs::read_dir(&self.rows)? {
            let file = file?;
            if !file.file_name().to_str().is_some_and(|name| files.contains(name)) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }
}
