//! Reads the lists of one column chunk in their order, a window of the chunk in memory at a time.

use super::{
    pages::{Shape, VALUE, Values},
    window::Window,
};
use arrow::buffer::MutableBuffer;
use parquet::{
    arrow::async_reader::AsyncFileReader,
    column::page::{Page, PageReader},
    errors::ParquetError,
    file::{metadata::ColumnChunkMetaData, serialized_reader::SerializedPageReader},
};
use std::sync::Arc;

/// Bytes that are read at once, more or less: whole pages. So few stay in the processor's cache until they are copied.
const WINDOW: u64 = if cfg!(test) { 700 } else { 4 << 20 };
/// The header of a page is shorter.
const HEADER: u64 = if cfg!(test) { 512 } else { 1 << 20 };

/// Why the lists of a column chunk are not read by pages.
#[derive(Debug)]
pub(super) enum Irregular {
    /// They must be read value by value: they are not all of one length, null is among them, or they are encoded in
    /// another way.
    Lists(&'static str),
    /// The chunk is damaged, or storage fails.
    Chunk(ParquetError),
}

impl From<ParquetError> for Irregular {
    fn from(e: ParquetError) -> Self {
        Self::Chunk(e)
    }
}

/// The lists of a column chunk that have not been read yet.
pub(super) struct ListChunk {
    chunk: ColumnChunkMetaData,
    shape: Shape,
    /// Where the next page begins and where the last one ends in the file.
    next: u64,
    end: u64,
    /// Bytes of the last page with its header: others are about as long.
    page: u64,
    open: Option<(Arc<Window>, SerializedPageReader<Window>)>,
    values: Values,
    /// Values of the pages that were opened.
    seen: usize,
}

impl ListChunk {
    /// All lists of `chunk`: `rows` lists of `length` values.
    ///
    /// # Errors
    /// A chunk that cannot be so many of such lists.
    pub fn new(chunk: &ColumnChunkMetaData, rows: usize, length: usize) -> Result<Self, Irregular> {
        let shape = Shape::of(chunk.column_descr(), length);
        let shape = shape.ok_or(Irregular::Lists("something else than lists of 32-bit numbers"))?;
        if usize::try_from(chunk.num_values()).ok() != rows.checked_mul(length) {
            return Err(Irregular::Lists("lists of several lengths"));
        }
        // Where a chunk begins is asked for here, not below, for it panics where the number is negative.
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let (start, bytes) = (u64::try_from(start).ok(), u64::try_from(chunk.compressed_size()).ok());
        let start = start.zip(bytes).and_then(|(start, bytes)| Some((start, start.checked_add(bytes)?)));
        let (next, end) = start.ok_or(Irregular::Lists("a chunk that lies nowhere"))?;
        Ok(Self {
            chunk: chunk.clone(),
            shape,
            next,
            end,
            page: 0,
            open: None,
            values: Values::default(),
            seen: 0,
        })
    }

    /// Appends the next `lists` lists to `into`, or leaves them out if there is nothing to append to.
    ///
    /// # Errors
    /// Lists that are not read by pages; `into` may have got some before them.
    pub async fn read<R>(
        &mut self,
        lists: usize,
        file: &mut R,
        mut into: Option<&mut MutableBuffer>,
    ) -> Result<(), Irregular>
    where
        R: AsyncFileReader + ?Sized,
    {
        let mut wanted = lists * self.shape.length();
        while wanted > 0 {
            if self.values.left() == 0 {
                let page = self.page(file).await?;
                if let Some(values) = self.shape.values(&page, self.seen).map_err(Irregular::Lists)? {
                    self.seen += values.left();
                    self.values = values;
                }
                continue;
            }
            let taken = wanted.min(self.values.left());
            self.values.take(taken, into.as_deref_mut());
            wanted -= taken;
        }
        Ok(())
    }

    async fn page<R: AsyncFileReader + ?Sized>(&mut self, file: &mut R) -> Result<Page, Irregular> {
        let mut least = 0;
        loop {
            let Some((window, pages)) = &mut self.open else {
                let end = self.end.min(self.next.saturating_add(self.window().max(least)));
                let bytes = file.get_bytes(self.next..end).await?;
                let window = Arc::new(Window::new(self.next, bytes));
                self.open = Some((Arc::clone(&window), self.pages(window)?));
                continue;
            };
            let failure = match pages.get_next_page() {
                Ok(Some(page)) => {
                    (self.page, self.next) = (window.wanted() - self.next, window.wanted());
                    return Ok(page);
                }
                Ok(None) => return Err(Irregular::Lists("a chunk that ends early")),
                Err(e) => e,
            };
            let (end, wanted) = (window.end(), window.wanted());
            // A page that goes on beyond the window is no failure, nor is one of which the header does.
            let cut = wanted > end || end.saturating_sub(self.next) < HEADER;
            if end >= self.end || !cut {
                return Err(failure.into());
            }
            least = wanted.saturating_sub(self.next).max(HEADER);
            self.open = None;
        }
    }

    /// Bytes to read: whole pages, if they all are as long as the last one.
    fn window(&self) -> u64 {
        match self.page {
            0 => WINDOW,
            page => (WINDOW / page).max(1) * page + page / 8,
        }
    }

    /// The pages of the chunk from the start of `window` on.
    fn pages(&self, window: Arc<Window>) -> Result<SerializedPageReader<Window>, ParquetError> {
        let chunk = self.chunk.clone().into_builder();
        let chunk = chunk
            .set_dictionary_page_offset(None)
            .set_data_page_offset(self.next as i64)
            .set_total_compressed_size((self.end - self.next) as i64)
            .build()?;
        SerializedPageReader::new(window, &chunk, 0, None)
    }
}

/// Bytes of `lists` lists of `length` values.
pub(super) fn bytes_of(lists: usize, length: usize) -> usize {
    lists * length * VALUE
}
