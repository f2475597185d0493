//! Identity of files that a statement names: path, size and time of change. Content is not read: a run of
//! gigabytes must be recognised at once.

use std::{path::Path, time::UNIX_EPOCH};

/// A text that changes when any of the files does. `location` is a file, a folder or a glob; what cannot be
/// looked at (a URL) counts by its name alone.
pub fn file_identity(location: &str) -> String {
    let mut files = Vec::new();
    if location.contains(['*', '?', '[']) {
        let found = glob::glob(location).into_iter().flatten().flatten();
        found.for_each(|path| collect(&path, &mut files));
    } else {
        collect(Path::new(location), &mut files);
    }
    files.sort();
    files.into_iter().fold(location.to_owned(), |text, file| text + "\n" + &file)
}

fn collect(path: &Path, files: &mut Vec<String>) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    if metadata.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| collect(&entry.path(), files));
        return;
    }
    let changed = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    let changed = changed.map_or(0, |t| t.as_nanos());
    files.push(format!("{} {} {changed}", path.display(), metadata.len()));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn files_folders_and_globs_change_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run-1.nii");
        std::fs::write(&file, b"1").unwrap();
        let places = [file.clone(), folder.path().to_owned(), folder.path().join("run-*.nii")];
        let identities = || places.clone().map(|p| file_identity(p.to_str().unwrap()));
        let before = identities();
        assert_eq!(before, identities());
        std::fs::write(&file, b"12").unwrap();
        for (before, after) in before.iter().zip(identities()) {
            assert_ne!(*before, after);
        }
    }
}
