//! Folders of processes: of a cluster on this machine, of an executor; and those that processes have left behind that
//! were killed.
//!
//! ```text
//!   voxelflow-cluster-<id>/
//!     owner            locked by the process as long as it lives; the kernel unlocks it, however that ends
//!     key, *.log, executor-1/ …
//! ```
//! A folder whose owner nobody holds is nobody's. One that an error has pointed at has no owner, and stays. Other users
//! of the machine cannot look into them.

use crate::error::{Error, Result};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use uuid::Uuid;

/// The file that says whose a folder is.
const OWNER: &str = "owner";

/// A folder for the files of one process; removed in the end, unless it is kept.
#[derive(Debug)]
pub(crate) struct OwnedFolder {
    path: PathBuf,
    keep: AtomicBool,
    _owner: File,
}

impl OwnedFolder {
    /// A folder in `parent` whose name begins with `prefix`. Others of such names without a living owner are removed.
    ///
    /// # Errors
    /// A parent that cannot be written to.
    pub(crate) fn create(parent: &Path, prefix: &str) -> Result<Self> {
        sweep(parent, prefix);
        let path = parent.join(format!("{prefix}{}", Uuid::new_v4().simple()));
        let failed = || Error::io(format!("folder {}", path.display()));
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // The parent too, if it is made here; one that is there stays as its owner has made it.
        builder.recursive(true).create(&path).map_err(failed())?;
        // Locked before it has the name by which others judge.
        let unnamed = path.join(format!(".{OWNER}"));
        let owner = File::create(&unnamed).map_err(failed())?;
        owner.lock().map_err(failed())?;
        fs::rename(&unnamed, path.join(OWNER)).map_err(failed())?;
        Ok(Self { path, keep: AtomicBool::new(false), _owner: owner })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It stays: somebody was told to look into it.
    pub(crate) fn keep(&self) {
        if !self.keep.swap(true, Ordering::Relaxed) {
            drop(fs::remove_file(self.path.join(OWNER)));
        }
    }
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        if !*self.keep.get_mut() {
            // Temporary files; nobody is left to tell.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// Removes folders of `prefix` in `parent` whose owner is gone. What cannot be removed, such as another user's, is let be.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if named && entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_left_behind(&entry.path()) {
            log::info!("{} is removed: the process that made it is gone", entry.path().display());
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Whether `folder` has an owner that nobody holds.
fn is_left_behind(folder: &Path) -> bool {
    // Opened for writing, which only its own user may.
    let owner = File::options().write(true).open(folder.join(OWNER));
    owner.is_ok_and(|owner| owner.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(parent: &Path) -> Vec<PathBuf> {
        let mut names: Vec<_> = fs::read_dir(parent).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, owner: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("executor-1.log"), "here").unwrap();
            owner.then(|| fs::write(path.join(OWNER), "").unwrap());
            path
        };
        // As after a kill: the file is there, and nobody holds it.
        make("voxelflow-cluster-left", true);
        let mut stay = vec![make("voxelflow-cluster-kept", false), make("another-folder", true)];
        let living = OwnedFolder::create(parent.path(), "voxelflow-cluster-").unwrap();
        stay.push(living.path().to_owned());
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(living.path()).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700, "others do not look in");
        let second = OwnedFolder::create(parent.path(), "voxelflow-cluster-").unwrap();
        stay.push(second.path().to_owned());
        stay.sort();
        assert_eq!(names(parent.path()), stay);

        second.keep();
        let kept = second.path().to_owned();
        drop((living, second));
        drop(OwnedFolder::create(parent.path(), "voxelflow-cluster-").unwrap());
        assert!(kept.is_dir(), "an error has pointed there");
        assert_eq!(names(parent.path()).len(), 3);
    }
}
