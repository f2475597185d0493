//! A run of stored numbers, read as `f32` or `f64` a stretch at a time.

use crate::Result;
use crate::byte_stream::ByteStream;
use crate::datatype::{DataType, Endian, Scaling, Value};

/// Bytes that are decompressed and converted at once: they stay in the cache, and memory grows only
/// as fast as there are data, whatever a header claims. A multiple of every number's size.
const CHUNK: usize = 128 * 1024;

/// Numbers of one type that follow each other in a file.
pub(crate) struct StoredValues {
    stream: ByteStream,
    data_type: DataType,
    endian: Endian,
    scaling: Option<Scaling>,
    chunk: Vec<u8>,
}

impl StoredValues {
    pub(crate) fn new(
        stream: ByteStream,
        data_type: DataType,
        endian: Endian,
        scaling: Option<Scaling>,
    ) -> Self {
        Self { stream, data_type, endian, scaling, chunk: vec![0; CHUNK] }
    }

    /// Whether the content is compressed.
    pub(crate) fn is_gzip(&self) -> bool {
        self.stream.is_gzip()
    }

    /// Appends the next `count` values. Their bytes must be few enough to count.
    pub(crate) fn read<T: Value>(
        &mut self,
        count: usize,
        place: &dyn Fn() -> String,
        into: &mut Vec<T>,
    ) -> Result<()> {
        let size = self.data_type.size();
        let mut left = count * size;
        while left > 0 {
            let chunk = &mut self.chunk[..left.min(CHUNK)];
            self.stream.fill_exactly(chunk, place)?;
            left -= chunk.len();
            let here = chunk.len() / size;
            if into.capacity() - into.len() < here {
                // Doubles, as a vector does by itself, but never beyond what is asked for.
                into.reserve_exact((left / size + here).min(into.len().max(here)));
            }
            self.data_type.decode(chunk, self.endian, self.scaling, into);
        }
        Ok(())
    }

    /// Passes over `bytes` bytes.
    pub(crate) fn pass_over(&mut self, bytes: u64, place: &dyn Fn() -> String) -> Result<()> {
        self.stream.pass_over(bytes, &mut self.chunk, place)
    }

    /// What follows the numbers, at most `most` bytes of it; then the file is read to its end, so that its
    /// trailer is checked.
    pub(crate) fn rest(&mut self, most: usize) -> Result<Vec<u8>> {
        let place = || "the gzip trailer".to_owned();
        let mut rest = vec![0; most];
        let length = self.stream.fill(&mut rest, &place)?;
        rest.truncate(length);
        while self.stream.fill(&mut self.chunk, &place)? > 0 {}
        Ok(rest)
    }

    /// Reads the file to its end, so that its trailer is checked.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.rest(0).map(drop)
    }
}
