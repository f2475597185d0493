//! Reads the values, a grayordinate at a time.

use super::header::CiftiHeader;
use crate::byte_stream::ByteStream;
use crate::datatype::Value;
use crate::opening::open_checked;
use crate::stored_values::StoredValues;
use crate::{Error, Result};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// Reads one grayordinate's values at a time, in memory of those.
///
/// After an error the reader gives the end of the file.
pub struct CiftiReader {
    header: CiftiHeader,
    values: StoredValues,
    next: usize,
    grayordinates: usize,
}

impl CiftiReader {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`]. A plain file that is shorter than its header says
    /// is refused here already.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        open_checked(
            path.as_ref(),
            Self::from_reader,
            |reader| (!reader.header.gzip).then(|| reader.header.end()),
            |reader, _| format!("the values of {} grayordinates", reader.grayordinates),
        )
    }

    /// Reads from `source`; `name` is its path or URL, for messages and to compare its ending with the content.
    ///
    /// # Errors
    /// [`Error::NotNifti`] for another kind of file; [`Error::Header`], [`Error::Datatype`] and [`Error::Xml`]
    /// for a header that cannot be, or is of another kind of CIFTI than dense series and dense scalars;
    /// [`Error::Truncated`], [`Error::NotGzip`], [`Error::Gzip`], [`Error::Read`].
    pub fn from_reader(source: impl Read + Send + 'static, name: &str) -> Result<Self> {
        let mut stream = ByteStream::try_new(Box::new(source), name)?;
        let header = CiftiHeader::read(&mut stream)?;
        let values = StoredValues::new(stream, header.data_type, header.endian, header.scaling);
        let grayordinates = header.grayordinates();
        Ok(Self { header, values, next: 0, grayordinates })
    }

    /// What the file says of its values.
    pub fn header(&self) -> &CiftiHeader {
        &self.header
    }

    /// Replaces the content of `into` by the next grayordinate's values, `[time points]` or `[maps]`; false, and
    /// `into` empty, after the last.
    ///
    /// The last is given only when the rest of the file was read and every gzip checksum was right.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Gzip`], [`Error::Read`].
    pub fn next_series<T: Value>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        into.clear();
        if self.next >= self.grayordinates {
            return Ok(false);
        }
        let outcome = self.read_series(into);
        self.next = if outcome.is_ok() { self.next + 1 } else { self.grayordinates };
        outcome.inspect_err(|_| into.clear())?;
        Ok(true)
    }

    /// The values of some time points (or maps) for all grayordinates, `[points, grayordinates]`: one pass over
    /// the file, in memory of what is asked for.
    ///
    /// # Errors
    /// [`Error::Content`] when `points` is not within the series; those of [`Self::next_series`].
    pub fn time_points(mut self, points: Range<usize>) -> Result<Vec<f32>> {
        let length = self.header.along.len();
        if points.start > points.end || points.end > length {
            let reason = format!("it has the points 0..{length}, and {points:?} were asked for");
            return Err(Error::Content { path: self.header.path, reason });
        }
        // By grayordinate first, for there may be fewer of them in the file than its header says.
        let (mut wanted, mut series) = (Vec::new(), Vec::new());
        while self.next_series(&mut series)? {
            wanted.extend_from_slice(&series[points.clone()]);
        }
        let mut turned = Vec::with_capacity(wanted.len());
        for point in 0..points.len() {
            turned.extend(wanted.iter().skip(point).step_by(points.len()));
        }
        Ok(turned)
    }

    fn read_series<T: Value>(&mut self, into: &mut Vec<T>) -> Result<()> {
        let (number, of) = (self.next + 1, self.grayordinates);
        self.values.read(self.header.along.len(), &|| format!("grayordinate {number} of {of}"), into)?;
        if number == of { self.values.finish() } else { Ok(()) }
    }
}

impl std::fmt::Debug for CiftiReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CiftiReader").field("header", &self.header).field("next", &self.next).finish()
    }
}
