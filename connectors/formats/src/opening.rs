//! Opening a file by its path, and seeing at once that it is too short, or that a data manager holds its content
//! elsewhere.

use crate::{Error, Result};
use std::fs::File;
use std::io;
use std::path::Path;

/// The file at `path`, and its name as errors give it.
pub(crate) fn open(path: &Path) -> Result<(File, String)> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| not_opened(path, source))?;
    Ok((file, name))
}

/// The error for a file that cannot be opened; a link whose target is not there is told as such.
pub fn not_opened(path: &Path, source: io::Error) -> Error {
    let name = path.display().to_string();
    match std::fs::read_link(path) {
        Ok(target) if source.kind() == io::ErrorKind::NotFound => {
            let target = target.display().to_string();
            let way_out =
                if target.contains(".git/annex/objects") { GET_FROM_ANNEX } else { "mend the link" };
            Error::Elsewhere {
                path: name,
                reason: format!("it is a link to {target}, which is not there: {way_out}"),
            }
        }
        _ => Error::Open { path: name, source },
    }
}

const GET_FROM_ANNEX: &str = "get it with `datalad get` or `git annex get`";

/// How pointers begin that data managers leave in the place of a file, and what brings the file.
const POINTERS: [(&[u8], &str); 3] = [
    (b"/annex/objects/", GET_FROM_ANNEX),
    (b"../.git/annex/objects/", GET_FROM_ANNEX),
    (b"version https://git-lfs", "get it with `git lfs pull`"),
];

/// Bytes of the longest beginning.
pub(crate) const POINTER_BYTES: usize = 24;

/// What is wrong with a file that begins so, if it is the pointer of a data manager.
pub(crate) fn pointer(first: &[u8]) -> Option<String> {
    let (_, way_out) = POINTERS.into_iter().find(|(beginning, _)| first.starts_with(beginning))?;
    Some(format!("it is not the file, but the pointer that a data manager left in its place: {way_out}"))
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
