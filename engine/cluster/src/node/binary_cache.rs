//! Programs by the hash of their content: taken from a driver or a store, believed when the hash is right.
//!
//! ```text
//!   pieces ─► <cache>/.<hash>.<n>.partial ── hash is right? ─► executable ─► <cache>/<hash>
//!                                             └─ no: removed
//! ```

use super::error::{Error, Result};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// A place from which programs can be fetched, and where they are kept for the agents of other machines.
pub trait BinaryStore: Send + Sync {
    /// Writes the program with this hash into `into`; false when the store does not have it.
    ///
    /// # Errors
    /// A store that does not answer.
    fn fetch(&self, hash: &str, into: &mut dyn Write) -> io::Result<bool>;

    /// Keeps the program with this hash, which lies at `program`.
    ///
    /// # Errors
    /// A store that cannot be written.
    fn keep(&self, hash: &str, program: &Path) -> io::Result<()>;
}

/// Programs in a folder, by their hash.
#[derive(Debug)]
pub(crate) struct BinaryCache {
    folder: PathBuf,
    next: AtomicU64,
}

impl BinaryCache {
    /// A cache in `folder`, which only its owner may read.
    pub fn open(folder: PathBuf) -> Result<Self> {
        own_folder(&folder)?;
        Ok(Self { folder, next: AtomicU64::new(0) })
    }

    /// The program with this hash, if it is here and still what it was.
    pub fn find(&self, hash: &str) -> Result<Option<PathBuf>> {
        let path = self.path(hash)?;
        let found = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::file(&path, e)),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(found).map_err(|e| Error::file(&path, e))?;
        if hasher.finalize().to_hex().as_str() == hash {
            return Ok(Some(path));
        }
        fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
        Ok(None)
    }

    /// Takes in the program with this hash from `write`, which writes it, or nothing and answers false.
    ///
    /// # Errors
    /// What was written has another hash; it is removed.
    pub fn take(
        &self,
        hash: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<bool>,
    ) -> Result<Option<PathBuf>> {
        let path = self.path(hash)?;
        let partial =
            self.folder.join(format!(".{hash}.{}.partial", self.next.fetch_add(1, Ordering::Relaxed)));
        let taken = take_verified(&partial, hash, write);
        if matches!(taken, Ok(true)) {
            fs::rename(&partial, &path).map_err(|e| Error::file(&path, e))?;
            return Ok(Some(path));
        }
        // The failure that led here is the one to tell.
        drop(fs::remove_file(&partial));
        taken.map(|_| None)
    }

    /// A hash is 64 digits, so no place but one of the cache's own.
    fn path(&self, hash: &str) -> Result<PathBuf> {
        let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if hash.len() == 64 && hash.chars().all(digit) {
            return Ok(self.folder.join(hash));
        }
        Err(Error::file(&self.folder, "a program is named by 64 hexadecimal digits, its BLAKE3 hash"))
    }
}

fn take_verified(
    partial: &Path,
    hash: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<bool>,
) -> Result<bool> {
    let failed = |e: io::Error| Error::file(partial, e);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o700);
    let mut sink = Hashing { file: options.open(partial).map_err(failed)?, hasher: blake3::Hasher::new() };
    if !write(&mut sink).map_err(failed)? {
        return Ok(false);
    }
    let found = sink.hasher.finalize().to_hex();
    if found.as_str() != hash {
        let reason = format!(
            "the program was announced with hash {hash}, but what came has {found}; it is not started"
        );
        return Err(Error::file(partial, reason));
    }
    sink.file.sync_all().map_err(failed)?;
    Ok(true)
}

struct Hashing {
    file: File,
    hasher: blake3::Hasher,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes a folder that only its owner may look into, if it is not there.
pub(crate) fn own_folder(folder: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|e| Error::file(folder, e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn hash(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    fn write(bytes: &'static [u8]) -> impl FnOnce(&mut dyn Write) -> io::Result<bool> {
        |into| into.write_all(bytes).map(|()| true)
    }

    #[test]
    fn what_has_its_hash_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BinaryCache::open(folder.path().join("cache")).unwrap();
        let script = b"#!/bin/sh\necho it runs\n";
        let name = hash(script);
        assert_eq!(cache.find(&name).unwrap(), None);
        assert_eq!(cache.take(&name, |_| Ok(false)).unwrap(), None);
        let path = cache.take(&name, write(script)).unwrap().unwrap();
        assert_eq!(cache.find(&name).unwrap(), Some(path.clone()));
        let mut command = std::process::Command::new(&path);
        let said = crate::node::process::spawn(command.stdout(std::process::Stdio::piped())).unwrap();
        let said = said.wait_with_output().unwrap().stdout;
        assert_eq!(said, b"it runs\n");
        // Changed behind the cache's back: as if it were not there.
        fs::write(&path, "#!/bin/sh\necho another\n").unwrap();
        assert_eq!(cache.find(&name).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path().join("cache")).unwrap().count(), 0);
    }

    #[test]
    fn another_hash_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BinaryCache::open(folder.path().to_owned()).unwrap();
        let error = cache.take(&hash(b"this"), write(b"that")).unwrap_err().to_string();
        assert!(error.contains("it is not started") && error.contains(&hash(b"that")), "{error}");
        let broke = cache.take(&hash(b"this"), |into| {
            into.write_all(b"th")?;
            Err(io::ErrorKind::UnexpectedEof.into())
        });
        assert!(broke.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_hash_is_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BinaryCache::open(folder.path().join("cache")).unwrap();
        let long = format!("../{}", &hash(b"x")[3..]);
        for name in ["", "..", "/etc/passwd", long.as_str(), &hash(b"x").to_uppercase()] {
            assert!(cache.find(name).is_err() && cache.take(name, write(b"x")).is_err(), "{name}");
        }
    }
}
