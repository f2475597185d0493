//! The folder of a cluster on this machine, and those that drivers have left behind that were killed.
//!
//! ```text
//!   voxelflow-cluster-<id>/
//!     owner            locked by the driver as long as it lives; the kernel unlocks it, however that ends
//!     key, *.log, executor-1/ …
//! ```
//! A folder whose owner nobody holds is nobody's. One that an error has pointed at has no owner, and stays.

use crate::error::{Error, Result};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use uuid::Uuid;

/// What names of such folders begin with.
const PREFIX: &str = "voxelflow-cluster-";
/// The file that says whose a folder is.
const OWNER: &str = "owner";

/// A folder for the files of one cluster; removed in the end, unless it is kept.
#[derive(Debug)]
pub(crate) struct ClusterFolder {
    path: PathBuf,
    keep: AtomicBool,
    _owner: File,
}

impl ClusterFolder {
    /// A folder in `parent`, from which folders without a living owner are removed.
    ///
    /// # Errors
    /// A parent that cannot be written to.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        sweep(parent);
        let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        let failed = || Error::io(format!("cluster's folder {}", path.display()));
        fs::create_dir_all(&path).map_err(failed())?;
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

impl Drop for ClusterFolder {
    fn drop(&mut self) {
        if !*self.keep.get_mut() {
            // Temporary files; nobody is left to tell.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// Removes folders in `parent` whose owner is gone. What cannot be removed, such as another user's, is let be.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if named && entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_left_behind(&entry.path()) {
            log::info!("{} is removed: the driver that made it is gone", entry.path().display());
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
    fn what_a_killed_driver_has_left_is_removed_and_nothing_else() {
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
        let living = ClusterFolder::create(parent.path()).unwrap();
        stay.push(living.path().to_owned());
        let second = ClusterFolder::create(parent.path()).unwrap();
        stay.push(second.path().to_owned());
        stay.sort();
        assert_eq!(names(parent.path()), stay);

        second.keep();
        let kept = second.path().to_owned();
        drop((living, second));
        drop(ClusterFolder::create(parent.path()).unwrap());
        assert!(kept.is_dir(), "an error has pointed there");
        assert_eq!(names(parent.path()).len(), 3);
    }
}
