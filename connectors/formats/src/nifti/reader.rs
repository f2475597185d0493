//! Reads an image one volume at a time.

use super::affine::XformPolicy;
use super::header::NiftiHeader;
use super::layout::Layout;
use crate::Result;
use crate::byte_stream::ByteStream;
use crate::datatype::Value;
use crate::opening::open_checked;
use crate::stored_values::StoredValues;
use std::io::Read;
use std::path::Path;

/// How to read where a file leaves a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Which transform to believe.
    pub xform: XformPolicy,
}

/// Reads an image one volume at a time in memory of one volume.
///
/// After an error the reader gives the end of the image.
pub struct NiftiReader {
    header: NiftiHeader,
    voxels: StoredValues,
    next: usize,
}

impl NiftiReader {
    /// Opens `path` with default options.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &ReadOptions::default())
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// [`crate::Error::Open`] when it cannot be opened, and those of [`Self::from_reader`]. A plain `.nii` that
    /// is shorter than its header says is refused here already.
    pub fn open_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self> {
        open_checked(
            path.as_ref(),
            |file, name| Self::from_reader(file, name, options),
            |reader| (!reader.header.gzip).then(|| reader.end()),
            |reader, offset| reader.place_of(offset),
        )
    }

    /// Reads from `source`, such as the body of a download; `name` is its path or URL, for messages
    /// and to compare its ending with the content.
    ///
    /// # Errors
    /// Every variant of [`crate::Error`] that is about reading: the header is read and judged here.
    pub fn from_reader(
        source: impl Read + Send + 'static,
        name: &str,
        options: &ReadOptions,
    ) -> Result<Self> {
        let mut stream = ByteStream::try_new(Box::new(source), name)?;
        let layout = Layout::read(&mut stream)?;
        let header = NiftiHeader::judge(&layout, name, stream.is_gzip(), options.xform)?;
        let mut voxels = StoredValues::new(stream, header.data_type, header.endian, header.scaling);
        let extensions = header.vox_offset - layout.version.header_size() as u64;
        voxels.pass_over(extensions, &|| "the header's extensions".into())?;
        Ok(Self { header, voxels, next: 0 })
    }

    /// The header.
    pub fn header(&self) -> &NiftiHeader {
        &self.header
    }

    /// Replaces the content of `into` by the next volume's scaled values, `[ni·nj·nk]` with i fastest;
    /// false, and `into` empty, after the last. As `f32`, values beyond single precision become infinite.
    ///
    /// The last volume is given only when the rest of the file was read and every gzip checksum was
    /// right.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`], [`crate::Error::Gzip`], [`crate::Error::Read`].
    pub fn next_volume<T: Value>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        into.clear();
        if self.next >= self.header.volumes {
            return Ok(false);
        }
        let outcome = self.read_volume(into);
        self.advance(&outcome);
        outcome.inspect_err(|_| into.clear())?;
        Ok(true)
    }

    /// Passes over the next volume; false after the last. Checks what [`Self::next_volume`] checks.
    ///
    /// # Errors
    /// As [`Self::next_volume`].
    pub fn skip_volume(&mut self) -> Result<bool> {
        if self.next >= self.header.volumes {
            return Ok(false);
        }
        let place = place_of_volume(self.next, self.header.volumes);
        let bytes = self.volume_bytes() as u64;
        let outcome = self.voxels.pass_over(bytes, &place).and_then(|()| self.finish_last());
        self.advance(&outcome);
        outcome.map(|()| true)
    }

    /// Reads all that is left: the header and `[volumes, ni·nj·nk]` values.
    ///
    /// # Errors
    /// As [`Self::next_volume`].
    pub fn read_all(mut self) -> Result<(NiftiHeader, Vec<f32>)> {
        let (mut all, mut volume) = (Vec::new(), Vec::new());
        if self.header.volumes == 1 {
            self.next_volume(&mut all)?;
        }
        while self.next_volume(&mut volume)? {
            all.extend_from_slice(&volume);
        }
        Ok((self.header, all))
    }

    fn read_volume<T: Value>(&mut self, into: &mut Vec<T>) -> Result<()> {
        let place = place_of_volume(self.next, self.header.volumes);
        self.voxels.read(self.header.voxels(), &place, into)?;
        self.finish_last()
    }

    /// After the last volume reads the file to its end, so that its trailer is checked.
    fn finish_last(&mut self) -> Result<()> {
        if self.next + 1 == self.header.volumes { self.voxels.finish() } else { Ok(()) }
    }

    fn advance(&mut self, outcome: &Result<()>) {
        self.next = if outcome.is_ok() { self.next + 1 } else { self.header.volumes };
    }

    fn volume_bytes(&self) -> usize {
        self.header.voxels() * self.header.data_type.size()
    }

    /// Length that the decompressed file has at least.
    fn end(&self) -> u64 {
        self.header.vox_offset + (self.volume_bytes() * self.header.volumes) as u64
    }

    fn place_of(&self, offset: u64) -> String {
        let volume = offset.saturating_sub(self.header.vox_offset) / self.volume_bytes() as u64;
        place_of_volume(volume as usize, self.header.volumes)()
    }
}

impl std::fmt::Debug for NiftiReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NiftiReader").field("header", &self.header).field("next", &self.next).finish()
    }
}

fn place_of_volume(index: usize, volumes: usize) -> impl Fn() -> String {
    move || format!("volume {} of {volumes}", index + 1)
}
