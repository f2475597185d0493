//! Publishing one object whole, on any store: a small one in one request, a large one in parts of which a bounded
//! number is on its way. The object is seen when its last byte is there; a failure leaves nothing to be seen.

use crate::{Error, Result};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart, path::Path};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a part. S3 takes at most 10,000 parts of one object, so that one may have 160 GB.
const PART: usize = 16 << 20;

/// Parts that are on their way at a time; so a writer holds at most `(PARTS_IN_FLIGHT + 1) * PART` bytes.
const PARTS_IN_FLIGHT: usize = 4;

/// Writes what `reader` gives to the object at `path`, instead of one that is there; answers its size in bytes.
///
/// # Errors
/// [`Error::Read`] for the reader, [`Error::Store`] for the store. An S3 server keeps the parts of a writer that
/// was killed, unseen, until its rule for incomplete uploads removes them.
pub async fn publish_object(
    store: &dyn ObjectStore,
    path: &Path,
    mut reader: impl AsyncRead + Unpin,
) -> Result<u64> {
    let failed = |e| Error::store(path, e);
    let first = next_part(&mut reader, path).await?;
    let mut size = first.len() as u64;
    if first.len() < PART {
        store.put(path, PutPayload::from(first)).await.map_err(failed)?;
        return Ok(size);
    }
    let upload = store.put_multipart(path).await.map_err(failed)?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
    let mut part = first;
    loop {
        let last = part.len() < PART;
        upload.put(part.into());
        let next = async {
            upload.wait_for_capacity(PARTS_IN_FLIGHT).await.map_err(failed)?;
            if last { Ok(Vec::new()) } else { next_part(&mut reader, path).await }
        };
        match next.await {
            Ok(next) if next.is_empty() => break,
            Ok(next) => {
                size += next.len() as u64;
                part = next;
            }
            Err(e) => {
                if let Err(e) = upload.abort().await {
                    log::debug!("parts of {path} are left behind: {e}");
                }
                return Err(e);
            }
        }
    }
    upload.finish().await.map_err(failed)?;
    Ok(size)
}

/// The next [`PART`] bytes, fewer at the end.
async fn next_part(reader: &mut (impl AsyncRead + Unpin), path: &Path) -> Result<Vec<u8>> {
    let mut part = Vec::new();
    reader
        .take(PART as u64)
        .read_to_end(&mut part)
        .await
        .map_err(|source| Error::Read { what: format!("what was to be {path}"), source })?;
    Ok(part)
}
