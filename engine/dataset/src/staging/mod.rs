//! A local folder while it is written, and what writers that were killed have left of it.
//!
//! ```text
//!   tables/
//!     .series.lock                     locked by the writer of `series` as long as it lives
//!     .series.partial-<key>/
//!        rows/part-00000.parquet …     a file has this name when it is whole
//!        notes/00000.json …            written after it: the partition is finished, and what was counted in it
//!     series/                          ◄── rename of rows/, when all partitions are there
//! ```
//!
//! The next writer of `series` finds that nobody holds the lock: a folder with its own key it goes on with, all others
//! it removes. What has a living writer is never touched.

mod finished;
mod lock;
#[cfg(test)]
mod tests;

pub(crate) use finished::{Finished, FinishedPart};

pub use lock::{Claim, WriterLock};

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// A folder that is written, and where it will be.
#[derive(Debug)]
pub(crate) struct Staging {
    target: PathBuf,
    partial: PathBuf,
    key: Option<String>,
    /// Held until the rest is dropped.
    _lock: Option<WriterLock>,
}

/// What names of folders go on with that are being written, after `.` and the target's name.
const PARTIAL: &str = ".partial-";

impl Staging {
    /// Prepares to write `target`. Under a `key`, partitions that an earlier write with the same key has finished are
    /// still there; else the folder is empty and has the name `unique`.
    ///
    /// # Errors
    /// The reason: something is there that may not be overwritten, another writer is at it, a folder that cannot be
    /// written to.
    pub fn open(target: &Path, overwrite: bool, key: Option<&str>, unique: &str) -> Result<Self, String> {
        let unwritable =
            |e: io::Error| format!("cannot be written ({e}): choose a folder that you may write to");
        let parent = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(unwritable)?;
        let (lock, key) = match WriterLock::claim(&beside(target, ".lock")).map_err(unwritable)? {
            Claim::Alone(lock) => (Some(lock), key),
            Claim::Unknown => (None, None),
            Claim::Busy => {
                return Err(
                    "another process is writing it: wait until it has ended, or choose another place".into(),
                );
            }
        };
        let partial = beside(target, &format!("{PARTIAL}{}", key.unwrap_or(unique)));
        if lock.is_some() {
            restore(target).map_err(unwritable)?;
        }
        if !overwrite && is_taken(target).map_err(unwritable)? {
            return Err("there is something already: choose another place, or overwrite it".into());
        }
        if lock.is_some() {
            for left in left_behind(target).filter(|left| *left != partial || key.is_none()) {
                fs::remove_dir_all(&left).map_err(unwritable)?;
            }
        }
        let staging = Self { target: target.to_owned(), partial, key: key.map(str::to_owned), _lock: lock };
        staging.prepare().map_err(unwritable)?;
        Ok(staging)
    }

    fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(self.rows())?;
        let Some(finished) = self.finished() else { return Ok(()) };
        fs::create_dir_all(&finished.notes)?;
        finished.keep_whole()
    }

    /// The folder to write to.
    pub fn rows(&self) -> PathBuf {
        self.partial.join("rows")
    }

    /// Where finished partitions are noted, if another writer may go on with them.
    pub fn finished(&self) -> Option<Finished> {
        let key = self.key.clone()?;
        Some(Finished { key, rows: self.rows(), notes: self.partial.join("notes") })
    }

    /// Makes the folder visible with `files`, and no others, in the place of what was there. They get the names that they
    /// are to have for good, which come after those that they have.
    ///
    /// # Errors
    /// Files that cannot be renamed or removed; then what was there is still there.
    pub fn publish(self, files: &BTreeMap<String, String>) -> io::Result<()> {
        for entry in fs::read_dir(self.rows())? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| files.contains_key(name)) {
                remove(&entry.path())?;
            }
        }
        for (name, published) in files.iter().filter(|(name, published)| name != published) {
            fs::rename(self.rows().join(name), self.rows().join(published))?;
        }
        replace_target(&self.target, &self.rows())?;
        fs::remove_dir_all(&self.partial)
    }

    /// Removes what was written.
    pub fn abandon(self) {
        // The failure that led here is the one to tell; a file that cannot be removed hides behind it.
        drop(fs::remove_dir_all(&self.partial));
    }
}

/// Claims the right to write the folder `target`; whoever has it alone finds nothing that killed writers have left of it,
/// and what they have replaced is there again.
///
/// # Errors
/// Files that cannot be made or removed.
pub fn claim_target(target: &Path) -> io::Result<Claim> {
    let claim = WriterLock::claim(&beside(target, ".lock"))?;
    if let Claim::Alone(_) = &claim {
        restore(target)?;
        left_behind(target).try_for_each(fs::remove_dir_all)?;
    }
    Ok(claim)
}

/// Makes the folder `whole` visible as `target`, in the place of what was there.
///
/// # Errors
/// Files that cannot be renamed or removed; then what was there is still there.
pub fn replace_target(target: &Path, whole: &Path) -> io::Result<()> {
    let old = beside(target, REPLACED);
    let had = fs::rename(target, &old);
    if let Err(e) = fs::rename(whole, target) {
        if had.is_ok() {
            fs::rename(&old, target)?;
        }
        return Err(e);
    }
    if had.is_ok() { remove(&old) } else { Ok(()) }
}

/// Removes what killed writers have left of all targets in `folder`. What has a living writer stays.
///
/// # Errors
/// Files that cannot be removed.
pub fn remove_left_behind(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some((target, _)) = name.to_str().and_then(|n| n.strip_prefix('.')?.split_once(PARTIAL)) else {
            continue;
        };
        let target = folder.join(target);
        claim_target(&target)?;
    }
    Ok(())
}

/// What was there before a target is replaced.
const REPLACED: &str = ".replaced";

/// The hidden name beside `target` that ends with `suffix`.
fn beside(target: &Path, suffix: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}{suffix}"))
}

/// Folders of writes of `target`.
fn left_behind(target: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}{PARTIAL}");
    let entries = target.parent().and_then(|parent| fs::read_dir(parent).ok());
    let entries = entries.into_iter().flatten().flatten();
    entries.filter(move |e| e.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path())
}

/// A writer that was killed between the two renames has left the old folder under another name.
fn restore(target: &Path) -> io::Result<()> {
    let old = beside(target, REPLACED);
    match (fs::symlink_metadata(&old).is_ok(), fs::symlink_metadata(target).is_ok()) {
        (true, false) => fs::rename(&old, target),
        (true, true) => remove(&old),
        (false, _) => Ok(()),
    }
}

fn is_taken(target: &Path) -> io::Result<bool> {
    match fs::read_dir(target) {
        Ok(mut entries) => Ok(entries.next().transpose()?.is_some()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(e) => Err(e),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
