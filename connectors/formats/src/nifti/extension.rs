//! What may stand between a header and the voxels: extensions, each with its size and the code of its kind.

use super::layout::Layout;
use crate::byte_stream::ByteStream;
use crate::datatype::Endian;
use crate::{Error, Result};

/// Bytes of an extension's size and code.
const HEAD: u64 = 8;

/// Bytes that are taken at once, so that memory grows as there are data.
const CHUNK: usize = 64 * 1024;

/// The content of an extension and where it begins in the decompressed file.
pub(crate) struct Extension {
    pub content: Vec<u8>,
    pub offset: u64,
}

/// Reads from the header's end to the first voxel at `vox_offset`, and gives the first extension of `code`.
pub(crate) fn find(
    stream: &mut ByteStream,
    layout: &Layout,
    vox_offset: u64,
    code: i32,
) -> Result<Option<Extension>> {
    let place = || "the header's extensions".to_owned();
    let mut at = layout.version.header_size() as u64;
    let mut flag = [0; 4];
    stream.fill_exactly(&mut flag, &place)?;
    at += 4;
    let mut scratch = vec![0; CHUNK];
    let mut found = None;
    while flag[0] != 0 && vox_offset - at >= HEAD {
        let mut head = [[0; 4]; 2];
        stream.fill_exactly(head.as_flattened_mut(), &place)?;
        let [size, kind] = head.map(|number| match layout.endian {
            Endian::Little => i32::from_le_bytes(number),
            Endian::Big => i32::from_be_bytes(number),
        });
        let length = u64::try_from(size).ok().filter(|&size| (HEAD..=vox_offset - at).contains(&size));
        let Some(length) = length else {
            let reason = format!(
                "the extension's size is {size}, but from 8 to the {} bytes before the voxels fit",
                vox_offset - at
            );
            return Err(Error::Header { path: stream.path().into(), field: "esize", offset: at, reason });
        };
        let offset = at + HEAD;
        if kind == code && found.is_none() {
            found = Some(Extension { content: content(stream, length - HEAD, &mut scratch)?, offset });
        } else {
            stream.pass_over(length - HEAD, &mut scratch, &place)?;
        }
        at += length;
    }
    stream.pass_over(vox_offset - at, &mut scratch, &place)?;
    Ok(found)
}

fn content(stream: &mut ByteStream, length: u64, scratch: &mut [u8]) -> Result<Vec<u8>> {
    let (mut content, mut left) = (Vec::new(), length);
    while left > 0 {
        let chunk = &mut scratch[..left.min(CHUNK as u64) as usize];
        stream.fill_exactly(chunk, &|| "the header's extensions".into())?;
        content.extend_from_slice(chunk);
        left -= chunk.len() as u64;
    }
    Ok(content)
}
