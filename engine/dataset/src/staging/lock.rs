//! One writer a target: a file beside it that is locked as long as the writer lives. The kernel unlocks it, however
//! the writer ends.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The right to write a target; ends when it is dropped.
#[derive(Debug)]
pub struct WriterLock {
    path: PathBuf,
    file: File,
}

/// Who may write.
#[derive(Debug)]
pub enum Claim {
    /// Nobody else.
    Alone(WriterLock),
    /// Another writer lives.
    Busy,
    /// The file system has no locks: nothing is known of others.
    Unknown,
}

impl WriterLock {
    /// Claims what `path` is the lock of.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub(super) fn claim(path: &Path) -> io::Result<Claim> {
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Claim::Busy),
                Err(TryLockError::Error(e)) => {
                    log::debug!("{} cannot be locked: {e}", path.display());
                    drop(fs::remove_file(path));
                    return Ok(Claim::Unknown);
                }
            }
            // Its last writer may have removed it between the opening and the locking.
            if is_at(&file, path)? {
                return Ok(Claim::Alone(Self { path: path.to_owned(), file }));
            }
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // Removed while it is locked: whoever opens it now finds that it is no longer there. One that cannot be
        // removed is a file of no bytes that the next writer uses.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Whether `path` still names `file`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let inode = |m: &fs::Metadata| (m.dev(), m.ino());
    match fs::metadata(path) {
        Ok(there) => Ok(inode(&there) == inode(&file.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
