//! Identity of files that a statement names: path, size and time of change, and the entity tag of objects. Content is
//! not read: a run of gigabytes must be recognised at once.

use crate::{model_store::is_remote, stores::before_glob};
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use futures::TryStreamExt;
use std::{path::Path, time::UNIX_EPOCH};
use voxelflow_storage::{Location, StoreOptions, StoreRegistry};

/// A text that changes when any of the files does. `location` is a file, a folder or a glob, on this machine or in a
/// store; what cannot be looked at counts by its name alone.
pub async fn file_identity(location: &str, options: &StoreOptions) -> String {
    if is_remote(location) {
        return object_identity(location, options).await;
    }
    local_identity(location)
}

async fn object_identity(location: &str, options: &StoreOptions) -> String {
    // A glob counts by all that lies in its folder.
    let named = before_glob(location);
    let Ok(Location { store, path, .. }) = StoreRegistry::global().resolve_with(named, options) else {
        return location.to_owned();
    };
    let listed = store.list(Some(&path)).try_collect::<Vec<ObjectMeta>>().await;
    let mut objects = listed.unwrap_or_default();
    if objects.is_empty() {
        objects.extend(store.head(&path).await.ok());
    }
    let mut objects: Vec<String> = objects.iter().map(described).collect();
    objects.sort();
    objects.into_iter().fold(location.to_owned(), |text, object| text + "\n" + &object)
}

fn described(object: &ObjectMeta) -> String {
    let ObjectMeta { location, size, last_modified, e_tag, .. } = object;
    format!("{location} {size} {} {}", last_modified.timestamp_millis(), e_tag.as_deref().unwrap_or_default())
}

fn local_identity(location: &str) -> String {
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
        let identities = || places.clone().map(|p| local_identity(p.to_str().unwrap()));
        let before = identities();
        assert_eq!(before, identities());
        std::fs::write(&file, b"12").unwrap();
        for (before, after) in before.iter().zip(identities()) {
            assert_ne!(*before, after);
        }
    }

    #[tokio::test]
    async fn objects_and_folders_of_them_change_with_their_content() {
        let options = StoreOptions::default();
        let object = StoreRegistry::global().resolve("memory://identity/a/1.parquet").unwrap();
        object.store.put(&object.path, "1".into()).await.unwrap();
        let places =
            ["memory://identity/a/1.parquet", "memory://identity/a/", "memory://identity/a/*.parquet"];
        for place in places {
            let before = file_identity(place, &options).await;
            assert_eq!(before, file_identity(place, &options).await);
            object.store.put(&object.path, "22".into()).await.unwrap();
            assert_ne!(before, file_identity(place, &options).await, "{place}");
            object.store.put(&object.path, "1".into()).await.unwrap();
        }
    }
}
