//! Reads frames one at a time, then the footer.

use super::header::MghHeader;
use crate::byte_stream::ByteStream;
use crate::datatype::{Endian, Value};
use crate::nifti::PLAUSIBLE_T_R;
use crate::opening::open_checked;
use crate::stored_values::StoredValues;
use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// Reads frames one at a time in memory of one frame.
///
/// After an error the reader gives the end of the file.
pub struct MghReader {
    header: MghHeader,
    values: StoredValues,
    next: usize,
    /// The footer's first number, milliseconds; known after the last frame.
    repetition_ms: Option<f32>,
}

impl MghReader {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`]. A plain `.mgh` that is shorter than its header says
    /// is refused here already.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        open_checked(
            path.as_ref(),
            Self::from_reader,
            |reader| (!reader.header.gzip).then(|| reader.header.end()),
            |reader, _| format!("{} frame(s) of {} values", reader.header.frames, reader.header.values()),
        )
    }

    /// Reads from `source`; `name` is its path or URL, for messages and to compare its ending with the content.
    ///
    /// # Errors
    /// [`Error::Header`] for a header that is not of MGH version 1 or has values that cannot be,
    /// [`Error::Truncated`], [`Error::NotGzip`], [`Error::Gzip`], [`Error::Read`].
    pub fn from_reader(source: impl Read + Send + 'static, name: &str) -> Result<Self> {
        let mut stream = ByteStream::try_new(Box::new(source), name)?;
        let header = MghHeader::read(&mut stream)?;
        let values = StoredValues::new(stream, header.data_type, Endian::Big, None);
        Ok(Self { header, values, next: 0, repetition_ms: None })
    }

    /// The header.
    pub fn header(&self) -> &MghHeader {
        &self.header
    }

    /// Replaces the content of `into` by the next frame's values, `[width·height·depth]` with the first axis
    /// fastest; false, and `into` empty, after the last.
    ///
    /// The last frame is given only when the rest of the file was read and every gzip checksum was right.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Gzip`], [`Error::Read`].
    pub fn next_frame<T: Value>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        into.clear();
        if self.next >= self.header.frames {
            return Ok(false);
        }
        let outcome = self.read_frame(into);
        self.next = if outcome.is_ok() { self.next + 1 } else { self.header.frames };
        outcome.inspect_err(|_| into.clear())?;
        Ok(true)
    }

    /// The repetition time in seconds that stands in the footer, once the last frame was read; `None` where
    /// there is no footer, where it says 0, and before. Programs that sample volumes on surfaces often leave 1 s
    /// there: what a sidecar says outranks it.
    ///
    /// # Errors
    /// [`Error::RepetitionTime`] for a value outside 0.01 s to 100 s.
    pub fn t_r(&self) -> Result<Option<f64>> {
        let Some(stored) = self.repetition_ms.filter(|&stored| stored != 0.0) else { return Ok(None) };
        // To the decimal that was stored: 800.1 ms is 0.8001 s, not 0.800099975.
        let milliseconds = stored.to_string().parse::<f64>().unwrap_or(f64::NAN);
        let seconds = milliseconds / 1000.0;
        if PLAUSIBLE_T_R.contains(&seconds) {
            return Ok(Some(seconds));
        }
        let guess = if PLAUSIBLE_T_R.contains(&milliseconds) { " (stored in seconds?)" } else { "" };
        let reason = format!("is {stored} ms in the footer, implausible outside 0.01 s to 100 s{guess}");
        Err(Error::RepetitionTime { path: self.header.path.clone(), reason })
    }

    fn read_frame<T: Value>(&mut self, into: &mut Vec<T>) -> Result<()> {
        let (frame, frames) = (self.next + 1, self.header.frames);
        self.values.read(self.header.values(), &|| format!("frame {frame} of {frames}"), into)?;
        if frame == frames {
            let footer = self.values.rest(4)?;
            self.repetition_ms = footer.try_into().ok().map(f32::from_be_bytes);
        }
        Ok(())
    }
}

impl std::fmt::Debug for MghReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MghReader").field("header", &self.header).field("next", &self.next).finish()
    }
}
