//! Files under a folder, on this machine or in a store.

use crate::{Error, Location, Place, Result, StoreOptions, StoreRegistry, blocking, read_object};
use futures::TryStreamExt;
use object_store::{ObjectStore, path::Path as ObjectPath};
use std::path::{Path, PathBuf};
use std::{fs, io, sync::Arc};
use url::Url;

/// The files under a folder and its subfolders, hidden ones excepted.
#[derive(Debug)]
pub struct Listing {
    root: Root,
    paths: Vec<String>,
}

#[derive(Debug)]
enum Root {
    Local(PathBuf),
    Remote(Location, Url),
}

impl Listing {
    /// Lists a local folder, or what lies under a URL in a store that the environment describes.
    ///
    /// # Errors
    /// A folder that is not there, that cannot be read, or that holds nothing.
    pub fn of(text: &str) -> Result<Self> {
        Self::of_store(text, &|url| StoreRegistry::global().store(url, &StoreOptions::default()))
    }

    /// Lists a local folder, or what lies under a URL in the store that `store_of` gives for it.
    ///
    /// # Errors
    /// As [`Self::of`], and what `store_of` says.
    pub fn of_store(text: &str, store_of: &dyn Fn(&Url) -> Result<Arc<dyn ObjectStore>>) -> Result<Self> {
        let fault = |reason: String| Error::Location { text: text.into(), reason };
        let (root, mut paths) = match Place::parse(text)? {
            Place::Local(folder) => {
                let mut paths = Vec::new();
                walk(&folder, &folder, &mut paths)
                    .map_err(|e| fault(format!("the folder cannot be read: {e}")))?;
                (Root::Local(folder), paths)
            }
            Place::Remote(url) => {
                let location = Location::in_store(text, store_of)?;
                let paths = objects(&location)?;
                (Root::Remote(location, url), paths)
            }
        };
        if paths.is_empty() {
            return Err(fault("nothing is there".into()));
        }
        paths.sort();
        Ok(Self { root, paths })
    }

    /// Paths of files relative to the folder, with `/`, sorted.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// A file of the folder, as a location: a path or a URL.
    pub fn location_of(&self, path: &str) -> String {
        match &self.root {
            Root::Local(folder) => folder.join(path).to_string_lossy().into_owned(),
            Root::Remote(_, url) => {
                let mut url = url.clone();
                // URLs of stores have paths.
                if let Ok(mut segments) = url.path_segments_mut() {
                    segments.pop_if_empty().extend(path.split('/'));
                }
                url.into()
            }
        }
    }

    /// Reads a small text.
    ///
    /// # Errors
    /// A file that cannot be read or is no UTF-8.
    pub fn read_text(&self, path: &str) -> io::Result<String> {
        match &self.root {
            Root::Local(folder) => fs::read_to_string(folder.join(path)),
            Root::Remote(location, _) => {
                let path = path.split('/').fold(location.path.clone(), ObjectPath::join);
                let object = read_object(&Location { path, ..location.clone() }).map_err(io::Error::other)?;
                let bytes = object.ok_or(io::ErrorKind::NotFound)?;
                String::from_utf8(bytes.into()).map_err(io::Error::other)
            }
        }
    }
}

fn walk(root: &Path, folder: &Path, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(root, &path, paths)?;
        } else if let Some(path) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            paths.push(path.replace(std::path::MAIN_SEPARATOR, "/"));
        }
    }
    Ok(())
}

fn objects(location: &Location) -> Result<Vec<String>> {
    let Location { store, path, .. } = location.clone();
    let work = async move {
        let found = store.list(Some(&path)).try_collect::<Vec<_>>().await;
        let found = found.map_err(|e| Error::store(&path, e))?;
        let relative = |object: &ObjectPath| {
            let parts: Vec<String> =
                object.prefix_match(&path)?.map(|part| part.as_ref().to_owned()).collect();
            let hidden = parts.iter().any(|part| part.starts_with('.'));
            (!hidden && !parts.is_empty()).then(|| parts.join("/"))
        };
        Ok(found.iter().filter_map(|meta| relative(&meta.location)).collect())
    };
    blocking::wait(blocking::start(work)?)?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use object_store::ObjectStoreExt;

    const FILES: [&str; 3] = ["participants.tsv", "sub-1/func/a.json", "sub-1/func/b.json"];

    fn read_everything(root: &str) {
        let listing = Listing::of(root).unwrap();
        assert_eq!(listing.paths(), FILES);
        for file in FILES {
            assert_eq!(listing.read_text(file).unwrap(), file);
        }
        assert!(listing.read_text("nothing").is_err());
        assert_eq!(Listing::of(&format!("{root}/sub-1")).unwrap().paths(), ["func/a.json", "func/b.json"]);
        let e = Listing::of(&format!("{root}/sub-2")).unwrap_err();
        assert!(e.is_input() && e.to_string().contains("sub-2"), "{e}");
    }

    #[test]
    fn a_folder_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        for file in FILES.into_iter().chain([".git/config", "sub-1/.hidden"]) {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let root = folder.path().to_str().unwrap();
        read_everything(root);
        let listing = Listing::of(&format!("{root}/")).unwrap();
        assert_eq!(listing.location_of(FILES[1]), format!("{root}/{}", FILES[1]));
    }

    #[test]
    fn a_folder_of_a_store() {
        let location = StoreRegistry::global().resolve("memory://listing/lab/data").unwrap();
        for file in FILES.into_iter().chain([".git/config"]) {
            let path = file.split('/').fold(location.path.clone(), ObjectPath::join);
            let store = location.store.clone();
            let put = blocking::start(async move { store.put(&path, file.into()).await }).unwrap();
            blocking::wait(put).unwrap().unwrap();
        }
        read_everything("memory://listing/lab/data");
        let listing = Listing::of("memory://listing/lab/data/").unwrap();
        assert_eq!(listing.location_of(FILES[0]), format!("memory://listing/lab/data/{}", FILES[0]));
    }
}
