//! A part of a column chunk in memory, from which whole pages are read.

use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a file from `start` on; pages that are not all there are an error.
#[derive(Debug)]
pub(super) struct Window {
    start: u64,
    bytes: Bytes,
    /// Where the page that was asked for last ends.
    wanted: AtomicU64,
}

impl Window {
    pub fn new(start: u64, bytes: Bytes) -> Self {
        Self { start, bytes, wanted: AtomicU64::new(start) }
    }

    /// Where it ends in the file.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Where the page that was asked for last ends in the file: beyond the window, if it could not be given.
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Bytes of the file from `start` on, as far as they are here.
    fn from(&self, start: u64) -> Option<Bytes> {
        let at = usize::try_from(start.checked_sub(self.start)?).ok()?;
        (at <= self.bytes.len()).then(|| self.bytes.slice(at..))
    }
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.end()
    }
}

impl ChunkReader for Window {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.from(start).map(Buf::reader).ok_or_else(missing)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.wanted.store(start.saturating_add(length as u64), Ordering::Relaxed);
        let bytes = self.from(start).filter(|bytes| length <= bytes.len()).ok_or_else(missing)?;
        Ok(bytes.slice(..length))
    }
}

fn missing() -> ParquetError {
    ParquetError::EOF("a page ends outside of what was read".to_owned())
}
