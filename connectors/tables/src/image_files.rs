//! Which images a location names: a file, a folder, or a glob.

use crate::{Error, Result};
use std::path::{Path, PathBuf};
use voxelflow_storage::Place;

/// The images of `location`, sorted by path.
///
/// A folder is searched with its subfolders, hidden ones excepted. Where any image is named `…_bold`, as
/// in a BIDS folder, only those are taken; else all but those named `…_mask`. In a glob `*` and `?` stay
/// inside a folder and `**` crosses folders.
///
/// # Errors
/// [`Error::Location`] when nothing is there.
pub(crate) fn find_images(location: &str) -> Result<Vec<PathBuf>> {
    let path = Place::local(location, "a NIFTI table")?;
    if path.is_file() {
        return Ok(vec![path]);
    }
    if path.is_dir() {
        let mut images = Vec::new();
        walk(&path, &mut images).or_else(|e| fail(location, format!("the folder cannot be read: {e}")))?;
        let images = choose(images);
        return if images.is_empty() {
            fail(location, "the folder holds no .nii or .nii.gz image".into())
        } else {
            Ok(images)
        };
    }
    if !location.contains(['*', '?', '[']) {
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
        Err(e) => return fail(location, format!("the pattern is wrong at character {}: {}", e.pos, e.msg)),
    };
    let mut images: Vec<PathBuf> = found.flatten().filter(|p| is_image(p) && p.is_file()).collect();
    images.sort();
    if images.is_empty() {
        fail(location, "no .nii or .nii.gz image matches the pattern".into())
    } else {
        Ok(images)
    }
}

fn fail<T>(location: &str, reason: String) -> Result<T> {
    Err(Error::Location { location: location.into(), reason })
}

fn walk(folder: &Path, images: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            walk(&path, images)?;
        } else if is_image(&path) {
            images.push(path);
        }
    }
    Ok(())
}

fn choose(mut images: Vec<PathBuf>) -> Vec<PathBuf> {
    let ends = |path: &Path, suffix: &str| {
        path.file_name().is_some_and(|n| crate::bids_name::stem(&n.to_string_lossy()).ends_with(suffix))
    };
    if images.iter().any(|p| ends(p, "_bold")) {
        images.retain(|p| ends(p, "_bold"));
    } else {
        images.retain(|p| !ends(p, "_mask"));
    }
    images.sort();
    images
}

fn is_image(path: &Path) -> bool {
    path.file_name().is_some_and(|n| {
        let name = n.to_string_lossy();
        name.ends_with(".nii") || name.ends_with(".nii.gz")
    })
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
        let images = find_images(location.to_str().unwrap()).unwrap();
        images.iter().map(|p| p.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned()).collect()
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
            let e = find_images(location.to_str().unwrap()).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(reason), "{e}");
            assert!(e.to_string().contains(folder.path().to_str().unwrap()), "{e}");
        }
    }
}
