//! Opening a file by its path, and seeing at once that it is too short.

use crate::{Error, Result};
use std::fs::File;
use std::path::Path;

/// The file at `path`, and its name as errors give it.
pub(crate) fn open(path: &Path) -> Result<(File, String)> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| Error::Open { path: name.clone(), source })?;
    Ok((file, name))
}

/// Opens `path` and reads its header with `read`; a plain file that is shorter than its header says is refused
/// before any value is read. `end` is the byte after the last value, `None` where the file is compressed; `place`
/// says what a file of so many bytes breaks off in.
pub(crate) fn open_checked<R>(
    path: &Path,
    read: impl FnOnce(File, &str) -> Result<R>,
    end: impl FnOnce(&R) -> Option<u64>,
    place: impl FnOnce(&R, u64) -> String,
) -> Result<R> {
    let (file, name) = open(path)?;
    let length = file.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
    let reader = read(file, &name)?;
    match length.zip(end(&reader)) {
        Some((offset, end)) if offset < end => {
            Err(Error::Truncated { path: name, offset, place: place(&reader, offset) })
        }
        _ => Ok(reader),
    }
}
