//! Which files a location names: a file, a folder, or a glob, on this machine or in a store.

use crate::{Error, Result, Stores, stores::without_extension};
use std::path::Path;
use voxelflow_storage::Place;

/// What is looked for.
pub(crate) struct Wanted {
    /// In messages: `.nii or .nii.gz image`.
    pub what: &'static str,
    /// Endings of names.
    pub endings: &'static [&'static str],
    /// Of those in a folder, the ones that are meant.
    pub choose: fn(Vec<&str>) -> Vec<&str>,
}

impl Wanted {
    fn fits(&self, path: &str) -> bool {
        self.endings.iter().any(|ending| path.ends_with(ending))
    }
}

/// The images of `location`, sorted: paths or URLs.
///
/// A folder is searched with its subfolders, hidden ones excepted. Where any image is named `…_bold`, as
/// in a BIDS folder, only those are taken; else all but those named `…_mask`. In a glob `*` and `?` stay
/// inside a folder and `**` crosses folders.
///
/// # Errors
/// [`Error::Location`] when nothing is there.
pub(crate) fn find_images(location: &str, stores: &Stores) -> Result<Vec<String>> {
    let wanted = Wanted { what: ".nii or .nii.gz image", endings: &[".nii", ".nii.gz"], choose };
    find_files(location, &wanted, stores)
}

/// The files of `location` that are wanted, sorted: paths or URLs. A file of this machine that is named is taken
/// whatever its ending.
///
/// # Errors
/// [`Error::Location`] when nothing is there.
pub(crate) fn find_files(location: &str, wanted: &Wanted, stores: &Stores) -> Result<Vec<String>> {
    let path = match Place::parse(location)? {
        Place::Remote(_) if is_pattern(location) => return matching(location, wanted, stores),
        Place::Remote(_) if wanted.fits(location) => return Ok(vec![location.to_owned()]),
        Place::Remote(_) => return in_folder(location, wanted, stores),
        Place::Local(path) => path,
    };
    if path.is_file() {
        return Ok(vec![text(&path)?]);
    }
    if path.is_dir() {
        return in_folder(location, wanted, stores);
    }
    if !is_pattern(location) {
        return fail(
            location,
            match path.parent() {
                Some(folder) if !folder.is_dir() => {
                    format!("no such file: the folder {} does not exist", folder.display())
                }
                _ => "no such file or folder".into(),
            },
        );
    }
    let pattern = path.to_string_lossy().into_owned();
    let found = match glob::glob(&pattern) {
        Ok(found) => found,
        Err(e) => return fail(location, bad_pattern(&e)),
    };
    let mut files = Vec::new();
    for path in found.flatten().filter(|path| path.is_file()) {
        files.push(text(&path)?);
    }
    files.retain(|file| wanted.fits(file));
    files.sort();
    some(files, location, wanted)
}

fn is_pattern(location: &str) -> bool {
    location.contains(['*', '?', '['])
}

fn bad_pattern(e: &glob::PatternError) -> String {
    format!("the pattern is wrong at character {}: {}", e.pos, e.msg)
}

fn some(files: Vec<String>, location: &str, wanted: &Wanted) -> Result<Vec<String>> {
    match files.is_empty() {
        true => fail(location, format!("no {} matches the pattern", wanted.what)),
        false => Ok(files),
    }
}

/// Objects of a store that a pattern names: of those under its folder without special characters.
fn matching(location: &str, wanted: &Wanted, stores: &Stores) -> Result<Vec<String>> {
    let plain = location.split(['*', '?', '[']).next().unwrap_or(location);
    let folder = plain.rsplit_once('/').map_or(plain, |(folder, _)| folder);
    let pattern = match glob::Pattern::new(location[folder.len()..].trim_start_matches('/')) {
        Ok(pattern) => pattern,
        Err(e) => return fail(location, bad_pattern(&e)),
    };
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let listing = stores.list(folder)?;
    let paths =
        listing.paths().iter().filter(|path| wanted.fits(path) && pattern.matches_with(path, options));
    some(paths.map(|path| listing.location_of(path)).collect(), location, wanted)
}

fn in_folder(location: &str, wanted: &Wanted, stores: &Stores) -> Result<Vec<String>> {
    let listing = stores.list(location)?;
    let files = listing.paths().iter().map(String::as_str).filter(|path| wanted.fits(path)).collect();
    let files = (wanted.choose)(files);
    match files.is_empty() {
        true => fail(location, format!("the folder holds no {}", wanted.what)),
        false => Ok(files.into_iter().map(|path| listing.location_of(path)).collect()),
    }
}

fn text(path: &Path) -> Result<String> {
    let wrong =
        || Error::Image { path: path.display().to_string(), reason: "its name is no Unicode text".into() };
    path.to_str().map(str::to_owned).ok_or_else(wrong)
}

fn fail<T>(location: &str, reason: String) -> Result<T> {
    Err(Error::Location { location: location.into(), reason })
}

fn choose(mut images: Vec<&str>) -> Vec<&str> {
    let ends = |path: &str, suffix: &str| without_extension(path).ends_with(suffix);
    if images.iter().any(|path| ends(path, "_bold")) {
        images.retain(|path| ends(path, "_bold"));
    } else {
        images.retain(|path| !ends(path, "_mask"));
    }
    images
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        folder
    }

    fn found(folder: &tempfile::TempDir, pattern: &str) -> Vec<String> {
        let location = folder.path().join(pattern);
        let images = find_images(location.to_str().unwrap(), &Stores::default()).unwrap();
        let root = format!("{}/", folder.path().display());
        images.iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_bids_folder_gives_its_bold_images() {
        let folder = folder(&[
            "sub-2/f/sub-2_bold.nii.gz",
            "sub-1/f/sub-1_bold.nii",
            "sub-1/f/sub-1_T1w.nii",
            ".x/a_bold.nii",
        ]);
        assert_eq!(found(&folder, ""), ["sub-1/f/sub-1_bold.nii", "sub-2/f/sub-2_bold.nii.gz"]);
        assert_eq!(found(&folder, "sub-*/f/*.nii"), ["sub-1/f/sub-1_T1w.nii", "sub-1/f/sub-1_bold.nii"]);
        assert_eq!(found(&folder, "**/*T1w.nii"), ["sub-1/f/sub-1_T1w.nii"]);
    }

    #[test]
    fn another_folder_gives_all_but_masks() {
        let folder = folder(&["b.nii", "a.nii.gz", "brain_mask.nii", "notes.txt"]);
        assert_eq!(found(&folder, ""), ["a.nii.gz", "b.nii"]);
    }

    #[test]
    fn nothing_there_is_an_error_that_names_the_location() {
        let folder = folder(&["notes.txt"]);
        for (pattern, reason) in [
            ("", "holds no"),
            ("*.nii", "no .nii or .nii.gz image matches"),
            ("x.nii", "no such file"),
            ("y/x.nii", "does not exist"),
        ] {
            let location = folder.path().join(pattern);
            let e = find_images(location.to_str().unwrap(), &Stores::default()).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(reason), "{e}");
            assert!(e.to_string().contains(folder.path().to_str().unwrap()), "{e}");
        }
    }
}
