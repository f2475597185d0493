//! A file that appears whole or not at all.
//!
//! Bytes go to a temporary file in the target's folder, which gets the target's name when it is whole and on
//! the disk.

use crate::byte_stream::named_gzip;
use crate::{Error, Result};
use flate2::{Compression, write::GzEncoder};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Floats hardly get smaller at higher levels, only slower.
const COMPRESSION: Compression = Compression::fast();

enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }
    /// Writes what is buffered and waits until the disk has it.
    fn finish(self) -> io::Result<()> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Gzip(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

/// Removes the temporary file unless it was published.
struct Temporary {
    path: PathBuf,
    published: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // Nothing better can be done with a failure here.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file while it is written. Dropped before [`Self::publish`] it leaves nothing behind.
pub(crate) struct WholeFile {
    target: PathBuf,
    // Declared before `temporary`: the file is closed before it is removed.
    sink: Sink,
    temporary: Temporary,
}

impl WholeFile {
    /// Begins a file, compressed when its name ends in `.gz`.
    pub(crate) fn create(target: &Path) -> Result<Self> {
        let temporary = Temporary { path: temporary_name(target), published: false };
        let file = File::create_new(&temporary.path).map_err(|source| failed(target, source))?;
        let file = BufWriter::with_capacity(256 * 1024, file);
        let sink = if named_gzip(&target.display().to_string()) {
            Sink::Gzip(Box::new(GzEncoder::new(file, COMPRESSION)))
        } else {
            Sink::Plain(file)
        };
        Ok(Self { target: target.to_path_buf(), sink, temporary })
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write_all(bytes).map_err(|source| failed(&self.target, source))
    }

    /// Gives the file its name, replacing what had it before.
    pub(crate) fn publish(mut self) -> Result<()> {
        self.sink
            .finish()
            .and_then(|()| fs::rename(&self.temporary.path, &self.target))
            .map_err(|source| failed(&self.target, source))?;
        self.temporary.published = true;
        Ok(())
    }

    /// An error about what should be written.
    pub(crate) fn refuse(&self, reason: String) -> Error {
        Error::Content { path: self.target.display().to_string(), reason }
    }
}

fn failed(target: &Path, source: io::Error) -> Error {
    Error::Write { path: target.display().to_string(), source }
}

/// A hidden name beside `target` that no other writer uses: the time tells machines on one file system,
/// and a process from a killed one with its id, apart.
fn temporary_name(target: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}-{count}-{now}.partial", std::process::id()));
    target.with_file_name(name)
}
