//! Pages of a column of lists: checked as a whole, then looked at as plain values.

use super::levels;
use arrow::buffer::MutableBuffer;
use bytes::Bytes;
use parquet::{
    basic::{Encoding, Type},
    column::page::Page,
    schema::types::ColumnDescriptor,
};

/// Values of a page of indices, at most: few bytes can stand for many.
const MOST_INDICES: usize = 1 << 24;
/// Bytes of a value.
pub(super) const VALUE: usize = size_of::<f32>();

/// What the levels and the encoding of a column leave to be read: lists of `length` 32-bit numbers.
#[derive(Debug)]
pub(super) struct Shape {
    length: usize,
    /// The definition level of a value that is there.
    present: u32,
    dictionary: Vec<[u8; VALUE]>,
}

/// Values of a page that have not been read yet.
#[derive(Debug, Default)]
pub(super) struct Values {
    bytes: Bytes,
    /// First bytes of all values come first, then the second ones (byte-stream split), for so many values.
    split: Option<usize>,
    at: usize,
    end: usize,
}

impl Shape {
    /// Lists of `length` in `column`; none for columns that hold something else.
    pub fn of(column: &ColumnDescriptor, length: usize) -> Option<Self> {
        let present = u32::try_from(column.max_def_level()).ok()?;
        let fits = column.physical_type() == Type::FLOAT && column.max_rep_level() == 1 && length > 0;
        fits.then_some(Self { length, present, dictionary: Vec::new() })
    }

    /// Values of a list.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Lists that begin among `count` values that come after `before` other ones.
    fn begin(&self, before: usize, count: u32) -> usize {
        (before + count as usize).div_ceil(self.length) - before.div_ceil(self.length)
    }

    /// The values of `page`, which come after `before` other ones of the same column chunk. None for a dictionary.
    ///
    /// # Errors
    /// What does not look like lists of one length without nulls.
    pub fn values(&mut self, page: &Page, before: usize) -> Result<Option<Values>, &'static str> {
        let parts = match page {
            Page::DictionaryPage { buf, num_values, encoding, .. } => {
                self.dictionary = dictionary(buf, *num_values as usize, *encoding)?;
                return Ok(None);
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                if (*def_level_encoding, *rep_level_encoding) != (Encoding::RLE, Encoding::RLE) {
                    return Err("levels of an old kind");
                }
                Parts::of_v1(buf, *num_values, *encoding)
            }
            Page::DataPageV2 { num_nulls: 1.., .. } => return Err("null or empty lists, or null in lists"),
            Page::DataPageV2 { num_rows, num_values, .. }
                if self.begin(before, *num_values) != *num_rows as usize =>
            {
                return Err("a page with another number of rows than it says");
            }
            Page::DataPageV2 {
                buf, num_values, encoding, rep_levels_byte_len, def_levels_byte_len, ..
            } => {
                let lengths = [*rep_levels_byte_len as usize, *def_levels_byte_len as usize];
                Parts::of_v2(buf, *num_values, *encoding, lengths)
            }
        };
        let parts = parts.ok_or("a page that is cut off")?;
        if !levels::nothing_is_null(&parts.definition, self.present, parts.count) {
            return Err("null or empty lists, or null in lists");
        }
        if !levels::lists_are_of(&parts.repetition, self.length, before % self.length, parts.count) {
            return Err("lists of another length");
        }
        parts.values(&self.dictionary).map(Some)
    }
}

/// A data page taken apart.
struct Parts {
    repetition: Bytes,
    definition: Bytes,
    values: Bytes,
    encoding: Encoding,
    count: usize,
}

impl Parts {
    /// Both kinds of levels begin with their length.
    fn of_v1(page: &Bytes, count: u32, encoding: Encoding) -> Option<Self> {
        let (repetition, rest) = with_length(page)?;
        let (definition, values) = with_length(&rest)?;
        Some(Self { repetition, definition, values, encoding, count: count as usize })
    }

    fn of_v2(page: &Bytes, count: u32, encoding: Encoding, [first, second]: [usize; 2]) -> Option<Self> {
        let levels = first.checked_add(second).filter(|levels| *levels <= page.len())?;
        let (repetition, definition) = (page.slice(..first), page.slice(first..levels));
        Some(Self { repetition, definition, values: page.slice(levels..), encoding, count: count as usize })
    }

    fn values(self, dictionary: &[[u8; VALUE]]) -> Result<Values, &'static str> {
        let Self { values: bytes, encoding, count, .. } = self;
        let (bytes, split) = match encoding {
            Encoding::PLAIN => (bytes, None),
            // The streams are as long as there are values.
            Encoding::BYTE_STREAM_SPLIT if Some(bytes.len()) == count.checked_mul(VALUE) => {
                (bytes, Some(count))
            }
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let looked_up = match bytes.split_first() {
                    Some((width, indices)) if *width <= 32 && count <= MOST_INDICES => {
                        let mut found = Vec::new();
                        let width = usize::from(*width);
                        levels::look_up(indices, width, dictionary, count, &mut found).map(|()| found)
                    }
                    _ => None,
                };
                (Bytes::from(looked_up.ok_or("an index without an entry")?.into_flattened()), None)
            }
            _ => return Err("an encoding that is read value by value"),
        };
        if bytes.len() < count.saturating_mul(VALUE) {
            return Err("fewer values than levels");
        }
        Ok(Values { bytes, split, at: 0, end: count })
    }
}

/// What a length, 4 bytes, is said to be of, and what follows.
fn with_length(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let end = length.checked_add(VALUE).filter(|end| *end <= bytes.len())?;
    Some((bytes.slice(VALUE..end), bytes.slice(end..)))
}

fn dictionary(page: &Bytes, count: usize, encoding: Encoding) -> Result<Vec<[u8; VALUE]>, &'static str> {
    if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) {
        return Err("a dictionary of an unknown kind");
    }
    page.as_chunks().0.get(..count).map(<[_]>::to_vec).ok_or("a dictionary that is cut off")
}

impl Values {
    /// Values that are left.
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    /// Takes `count` values, at most those that are left, and appends them to `into`, if there is one.
    pub fn take(&mut self, count: usize, into: Option<&mut MutableBuffer>) {
        let (from, to) = (self.at, (self.at + count).min(self.end));
        self.at = to;
        let Some(into) = into else { return };
        match self.split {
            None => into.extend_from_slice(&self.bytes[from * VALUE..to * VALUE]),
            Some(of_a_stream) => {
                let streams = [0, 1, 2, 3].map(|i| &self.bytes[i * of_a_stream..][from..to]);
                join(streams, into);
            }
        }
    }
}

/// Values of which `streams` hold the bytes, first ones first.
fn join([a, b, c, d]: [&[u8]; VALUE], into: &mut MutableBuffer) {
    let start = into.len();
    into.resize(start + VALUE * a.len(), 0);
    let (values, _) = into.as_slice_mut()[start..].as_chunks_mut::<VALUE>();
    for ((((value, a), b), c), d) in values.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *value = [*a, *b, *c, *d];
    }
}
