//! Reads an array, whole or a row at a time.

use super::header::NpyHeader;
use crate::Result;
use crate::byte_stream::ByteStream;
use crate::datatype::Value;
use crate::dimension_order::row_order;
use crate::opening::open_checked;
use crate::stored_values::StoredValues;
use std::io::Read;
use std::path::Path;

/// Reads one array as `f32` or `f64`: single precision holds integers up to 2²⁴ exactly, double up to 2⁵³.
///
/// After an error the reader gives the end of the array.
pub struct NpyReader {
    header: NpyHeader,
    values: StoredValues,
    next: usize,
}

impl NpyReader {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`crate::Error::Open`], and those of [`Self::from_reader`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let end =
            |header: &NpyHeader| header.values_offset + (header.values() * header.data_type.size()) as u64;
        open_checked(
            path.as_ref(),
            Self::from_reader,
            |reader| (!reader.values.is_gzip()).then(|| end(&reader.header)),
            |_, _| "the array".into(),
        )
    }

    /// Reads from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// [`crate::Error::Header`] for another kind of file or an array that is not of integers, floats or truth values;
    /// [`crate::Error::Truncated`], [`crate::Error::Gzip`], [`crate::Error::Read`].
    pub fn from_reader(source: impl Read + Send + 'static, name: &str) -> Result<Self> {
        let mut stream = ByteStream::try_new(Box::new(source), name)?;
        let header = NpyHeader::read(&mut stream)?;
        let values = StoredValues::new(stream, header.data_type, header.endian, None);
        Ok(Self { header, values, next: 0 })
    }

    /// The header.
    pub fn header(&self) -> &NpyHeader {
        &self.header
    }

    /// Replaces the content of `into` by the next stretch along the slowest dimension: of an array
    /// `[rows, …]` in C order the next row; of one in Fortran order the next of the last dimension, in its
    /// order. False, and `into` empty, after the last.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`], [`crate::Error::Gzip`], [`crate::Error::Read`].
    pub fn next_row<T: Value>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        into.clear();
        let rows = self.rows();
        if self.next >= rows {
            return Ok(false);
        }
        let row = self.header.values() / rows;
        let number = self.next + 1;
        let mut outcome = self.values.read(row, &|| format!("row {number} of {rows}"), into);
        if outcome.is_ok() && number == rows {
            outcome = self.values.finish();
        }
        self.next = if outcome.is_ok() { number } else { rows };
        outcome.inspect_err(|_| into.clear())?;
        Ok(true)
    }

    /// All numbers in C order (last dimension fastest), whatever the file's order.
    ///
    /// # Errors
    /// As [`Self::next_row`].
    pub fn read_all<T: Value>(mut self) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.values.read(self.header.values(), &|| "the array".into(), &mut all)?;
        self.values.finish()?;
        if !self.header.fortran_order {
            return Ok(all);
        }
        Ok(row_order(&self.header.shape).map(|at| all[at]).collect())
    }

    /// Length of the slowest dimension; a single number is one row, an array without numbers has none.
    fn rows(&self) -> usize {
        let shape = &self.header.shape;
        let slowest = if self.header.fortran_order { shape.last() } else { shape.first() };
        if self.header.values() == 0 { 0 } else { slowest.copied().unwrap_or(1) }
    }
}

impl std::fmt::Debug for NpyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NpyReader").field("header", &self.header).field("next", &self.next).finish()
    }
}
