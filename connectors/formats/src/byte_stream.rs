//! The decompressed bytes of a file, with the place in the stored file known at every moment.
//!
//! Gzip is recognised by content. All members of a gzip file are read, each one's CRC and length are
//! checked, zero padding after the last is allowed, anything else there is an error.

use crate::opening::{POINTER_BYTES, pointer};
use crate::{Error, Result};
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

/// Large enough that a system call or an HTTP chunk costs little, small enough for the cache.
const READ_BUFFER: usize = 256 * 1024;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

type Origin = io::Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>;

/// Counts what was taken from the stored file and remembers whether the file itself failed, so that a
/// failing disk is not taken for a damaged gzip stream.
struct Counted {
    inner: BufReader<Origin>,
    offset: u64,
    failed: bool,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer).inspect_err(|e| self.failed = e.kind() != ErrorKind::Interrupted)?;
        self.offset += n as u64;
        Ok(n)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let failed = &mut self.failed;
        self.inner.fill_buf().inspect_err(|e| *failed = e.kind() != ErrorKind::Interrupted)
    }
    fn consume(&mut self, n: usize) {
        self.offset += n as u64;
        self.inner.consume(n);
    }
}

enum Coding {
    Plain(Counted),
    /// The decoder is `None` only while one member's decoder is replaced by the next one's.
    Gzip(Option<Box<GzDecoder<Counted>>>),
}

/// The decompressed bytes of one file.
pub(crate) struct ByteStream {
    path: String,
    coding: Coding,
    at_end: bool,
}

impl ByteStream {
    /// Looks at the first bytes and chooses the decoding.
    pub(crate) fn try_new(mut source: Box<dyn Read + Send>, path: &str) -> Result<Self> {
        let mut first = Vec::with_capacity(POINTER_BYTES);
        source.by_ref().take(POINTER_BYTES as u64).read_to_end(&mut first).map_err(|source| Error::Read {
            path: path.into(),
            offset: 0,
            source,
        })?;
        let is_gzip = first.starts_with(&GZIP_MAGIC);
        if let Some(reason) = pointer(&first) {
            return Err(Error::Elsewhere { path: path.into(), reason });
        }
        if !is_gzip && named_gzip(path) {
            return Err(not_gzip(path, first.get(..4).unwrap_or(&first)));
        }
        let inner = BufReader::with_capacity(READ_BUFFER, Cursor::new(first).chain(source));
        let counted = Counted { inner, offset: 0, failed: false };
        let coding = if is_gzip {
            Coding::Gzip(Some(Box::new(GzDecoder::new(counted))))
        } else {
            Coding::Plain(counted)
        };
        Ok(Self { path: path.into(), coding, at_end: false })
    }

    pub(crate) fn is_gzip(&self) -> bool {
        matches!(self.coding, Coding::Gzip(_))
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Bytes of the stored (compressed) file that were used so far.
    pub(crate) fn offset(&self) -> u64 {
        self.counted().map_or(0, |c| c.offset)
    }

    fn counted(&self) -> Option<&Counted> {
        match &self.coding {
            Coding::Plain(counted) => Some(counted),
            Coding::Gzip(decoder) => decoder.as_ref().map(|member| member.get_ref()),
        }
    }

    /// Fills `buffer` as far as there are bytes; fewer than its length means the end of the file, and
    /// that every gzip trailer was right.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], place: &dyn Fn() -> String) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && !self.at_end {
            match self.read_some(&mut buffer[filled..]) {
                Ok(0) => self.at_end = true,
                Ok(n) => filled += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.explain(e, place)),
            }
        }
        Ok(filled)
    }

    /// Fills `buffer` or fails with [`Error::Truncated`].
    pub(crate) fn fill_exactly(&mut self, buffer: &mut [u8], place: &dyn Fn() -> String) -> Result<()> {
        if self.fill(buffer, place)? < buffer.len() {
            return Err(Error::Truncated { path: self.path.clone(), offset: self.offset(), place: place() });
        }
        Ok(())
    }

    /// Passes over `bytes` bytes or fails with [`Error::Truncated`]; `scratch` is overwritten.
    pub(crate) fn pass_over(
        &mut self,
        bytes: u64,
        scratch: &mut [u8],
        place: &dyn Fn() -> String,
    ) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let length = left.min(scratch.len() as u64) as usize;
            self.fill_exactly(&mut scratch[..length], place)?;
            left -= length as u64;
        }
        Ok(())
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.coding {
            Coding::Plain(counted) => counted.read(buffer),
            Coding::Gzip(decoder) => loop {
                let Some(member) = decoder else { return Ok(0) };
                let n = member.read(buffer)?;
                if n > 0 || !another_member(member.get_mut())? {
                    return Ok(n);
                }
                *decoder = decoder.take().map(|member| Box::new(GzDecoder::new(member.into_inner())));
            },
        }
    }

    fn explain(&self, source: io::Error, place: &dyn Fn() -> String) -> Error {
        let (path, offset) = (self.path.clone(), self.offset());
        if self.counted().is_none_or(|c| c.failed) || !self.is_gzip() {
            return Error::Read { path, offset, source };
        }
        match source.kind() {
            ErrorKind::UnexpectedEof => Error::Truncated { path, offset, place: place() },
            _ => Error::Gzip { path, offset, reason: source.to_string() },
        }
    }
}

/// True when a further gzip member follows; false at the end of the file.
fn another_member(rest: &mut Counted) -> io::Result<bool> {
    loop {
        let ahead = rest.fill_buf()?;
        match ahead.iter().position(|&byte| byte != 0) {
            _ if ahead.is_empty() => return Ok(false),
            None => {
                let zeros = ahead.len();
                rest.consume(zeros);
            }
            Some(zeros) => {
                let next = ahead[zeros];
                rest.consume(zeros);
                // The second magic byte may lie in the next buffer: the decoder checks it.
                if next == GZIP_MAGIC[0] {
                    return Ok(true);
                }
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "rubbish after the end of the gzip stream",
                ));
            }
        }
    }
}

/// True when the name of a file promises gzip.
pub(crate) fn named_gzip(path: &str) -> bool {
    let ends = |ending: &[u8]| {
        path.len()
            .checked_sub(ending.len())
            .is_some_and(|at| path.as_bytes()[at..].eq_ignore_ascii_case(ending))
    };
    ends(b".gz") || ends(b".mgz")
}

fn not_gzip(path: &str, first: &[u8]) -> Error {
    let found = if first.is_empty() {
        "nothing (the file is empty)".to_owned()
    } else {
        first.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let plain = first.try_into().is_ok_and(|size: [u8; 4]| {
        [348, 540].contains(&i32::from_le_bytes(size)) || [348, 540].contains(&i32::from_be_bytes(size))
    });
    let advice = if plain {
        "it looks like an uncompressed NIfTI image: rename it to .nii or compress it"
    } else {
        "gzip begins with 1f 8b: copy or download it again"
    };
    Error::NotGzip { path: path.into(), found, advice: advice.into() }
}
