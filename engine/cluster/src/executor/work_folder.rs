//! The folder of an executor: rows that its tasks have written, until their jobs are forgotten.
//!
//! ```text
//!   --work-dir/
//!     voxelflow-executor-<id>/        this process's own; the next one removes those of processes that are gone
//!       <job>/<stage>/…               rows for other stages, and for the driver
//! ```

use crate::{error::Result, owned_folder::OwnedFolder};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A disk with less room than this is full: rows are written some megabytes at a time.
pub(super) const FULL_BELOW: u64 = 64 << 20;

/// The folder of an executor.
#[derive(Debug)]
pub(super) struct WorkFolder {
    parent: PathBuf,
    own: OwnedFolder,
    /// Jobs whose files are to go. What a task that is being aborted still writes goes with the next sweep.
    forgotten: Mutex<BTreeSet<String>>,
}

impl WorkFolder {
    /// A folder of this process's own in `parent`.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub(super) fn create(parent: &Path) -> Result<Self> {
        let own = OwnedFolder::create(parent, "voxelflow-executor-")?;
        Ok(Self { parent: parent.to_owned(), own, forgotten: Mutex::default() })
    }

    /// What the user has named.
    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    /// Where rows are.
    pub(super) fn path(&self) -> &Path {
        self.own.path()
    }

    /// The same as text, which Ballista asks for.
    pub(super) fn text(&self) -> String {
        self.own.path().display().to_string()
    }

    /// The files of `job` are not needed any more.
    pub(super) fn forget(&self, job: &str) {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).insert(job.to_owned());
    }

    /// Removes the files of jobs that were forgotten; jobs of which a task still runs, as `runs` says, keep theirs until
    /// it has ended.
    pub(super) fn sweep(&self, runs: impl Fn(&str) -> bool) {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.retain(|job| {
            let is_name = Path::new(job).components().count() == 1 && !job.starts_with('.');
            if !is_name {
                return false;
            }
            match fs::remove_dir_all(self.path().join(job)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    log::warn!("files of job {job} cannot be removed: {e}");
                    true
                }
                _ => runs(job),
            }
        });
    }

    /// Removes the files of all jobs: nobody will ask for them.
    pub(super) fn clear(&self) {
        for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
    }

    /// Bytes that are free on its disk; 0 if that cannot be told.
    pub(super) fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(self.path()).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_go_when_their_job_is_forgotten_and_its_tasks_have_ended() {
        let parent = tempfile::tempdir().unwrap();
        let folder = WorkFolder::create(parent.path()).unwrap();
        let write = |job: &str| {
            let stage = folder.path().join(job).join("1");
            fs::create_dir_all(&stage).unwrap();
            fs::write(stage.join("data.arrow"), "rows").unwrap();
        };
        let is_there = |job: &str| folder.path().join(job).exists();
        ["a", "b"].into_iter().for_each(write);
        folder.forget("a");
        folder.forget("../..");
        folder.sweep(|job| job == "a");
        assert!(!is_there("a") && is_there("b"));
        write("a");
        folder.sweep(|_| false);
        assert!(!is_there("a"), "what a task wrote while it was aborted goes too");
        assert!(parent.path().exists(), "nothing outside is touched");
        folder.clear();
        assert!(!is_there("b") && folder.free_bytes() > 0);
    }
}
