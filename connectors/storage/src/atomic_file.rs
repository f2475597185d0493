//! Publishing a local file whole: it is written under a temporary name in the same folder and renamed
//! when it is complete, so a reader sees the old file, the new one, or none.
//!
//! A writer that was killed leaves its temporary file. A living one holds a lock on its own, so the next writer of the
//! same name can tell them apart and removes what nobody writes any more.

use crate::{Error, Result};
use std::ffi::OsStr;
use std::fs::{File, Permissions, TryLockError};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// What the names of temporary files end with.
const SUFFIX: &str = ".partial";
/// Letters between a name and [`SUFFIX`].
const RANDOM: usize = 6;

/// A file that appears under its name on [`AtomicFile::commit`] and leaves nothing when dropped before.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl AtomicFile {
    /// Opens a temporary file beside `path`, making the folder if it is missing.
    ///
    /// # Errors
    /// [`Error::Write`] when the folder cannot be made or written to, or `path` is a folder.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let failed = |source| Error::Write { path: path.clone(), source };
        if path.is_dir() {
            return Err(failed(io::Error::new(io::ErrorKind::IsADirectory, "a folder lies there")));
        }
        let name = path
            .file_name()
            .ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidInput, "it has no file name")))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        remove_left_behind(folder, name);
        let file = locked_in(folder, name).map_err(failed)?;
        Ok(Self { file: BufWriter::with_capacity(1 << 18, file), path })
    }

    /// The name under which the file will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name under which the file is being written, for writers that open it themselves.
    pub fn partial_path(&self) -> &Path {
        self.file.get_ref().path()
    }

    /// Flushes to the disk and renames the file to its own name, replacing what was there.
    ///
    /// # Errors
    /// [`Error::Write`] when the disk or the rename fails; then nothing new is visible.
    pub fn commit(mut self) -> Result<PathBuf> {
        let path = self.path.clone();
        let failed = |source| Error::Write { path: path.clone(), source };
        self.file.flush().map_err(failed)?;
        let file = self.file.into_inner().map_err(|e| failed(e.into_error()))?;
        file.as_file().sync_data().map_err(failed)?;
        file.persist(&path).map_err(|e| failed(e.error))?;
        Ok(path)
    }
}

/// A temporary file for `name` with this process's lock on it.
fn locked_in(folder: &Path, name: &OsStr) -> io::Result<NamedTempFile> {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX).rand_bytes(RANDOM);
    #[cfg(unix)]
    let permissions = <Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(permissions);
    loop {
        let file = builder.tempfile_in(folder)?;
        match file.as_file().try_lock() {
            // Between its making and its lock another writer may have taken it for one that was left behind.
            Ok(()) if file.path().exists() => return Ok(file),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            // A file system without locks: nothing is swept there either.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// Removes temporary files for `name` that no process writes. What cannot be looked at or removed stays: it is in
/// nobody's way.
fn remove_left_behind(folder: &Path, name: &OsStr) {
    let Some(name) = name.to_str() else { return };
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(|file| is_temporary_of(file, name)) {
            continue;
        }
        // The lock is held until the file is gone, so its writer, if it only just made it, makes another.
        if let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_temporary_of(file: &str, name: &str) -> bool {
    let random = file
        .strip_prefix('.')
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    random.is_some_and(|random| random.len() == RANDOM && random.bytes().all(|b| b.is_ascii_alphanumeric()))
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Writes `bytes` to `path`, whole or not at all.
///
/// # Errors
/// [`Error::Write`].
pub fn publish(path: impl Into<PathBuf>, bytes: &[u8]) -> Result<PathBuf> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(|source| Error::Write { path: file.path.clone(), source })?;
    file.commit()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn nothing_is_visible_before_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.bin");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        assert_eq!(file.partial_path().parent(), path.parent());
        file.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"half");
        assert_eq!(names(path.parent().unwrap()), ["a.bin"]);
    }

    #[test]
    fn a_dropped_file_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = publish(folder.path().join("a.bin"), b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.bin"]);
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        for left in [".a.binX1y2Z3.partial", ".a.bin.partial", ".a.binX1y2Z3.partia", ".b.binX1y2Z3.partial"]
        {
            std::fs::write(folder.path().join(left), b"half").unwrap();
        }
        publish(folder.path().join("a.bin"), b"whole").unwrap();
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".a.bin.partial", ".a.binX1y2Z3.partia", ".b.binX1y2Z3.partial", "a.bin"]);
    }

    #[test]
    fn what_another_writes_is_let_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let mut first = AtomicFile::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        publish(&path, b"second").unwrap();
        first.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["a.bin"]);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        publish(folder.path().join("a"), b"").unwrap();
        let e = publish(folder.path().join("a/b"), b"").unwrap_err();
        assert!(e.to_string().contains("a/b") && e.is_input(), "{e}");
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_what_was_published() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let by_hand = folder.path().join("by_hand");
        std::fs::write(&by_hand, b"").unwrap();
        let ours = publish(folder.path().join("ours"), b"").unwrap();
        let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&by_hand));
    }
}
