//! Publishing a folder of files whole, on stores that cannot rename one.
//!
//! ```text
//!   model/_manifest.json            written last, replaced in one step: names the files, their sizes and hashes
//!   model/<generation>/config.json  written first, under names that no other writer has
//! ```
//!
//! A reader takes the files that the manifest names, so it sees the old folder or the new one, never half of each.
//! Entity tags are no hash of the content on every store (parts, encryption), so each file is read back once before the
//! manifest names it, and compared by its BLAKE3 hash; a reader compares it again. That costs one reading of the folder,
//! whatever its size a part at a time. A folder of this machine is renamed instead.

use crate::{Error, Result, publish_object, unique};
use futures::StreamExt;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, path::Path};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path as FilePath, PathBuf};
use tokio::{
    fs,
    io::{AsyncReadExt, AsyncWriteExt},
};

/// The object that makes a folder whole.
const MANIFEST: &str = "_manifest.json";

/// Bytes of a local file that are looked at at once.
const PART: usize = 1 << 20;

/// Version of [`Manifest`].
const VERSION: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    /// The prefix below the folder under which the files lie.
    generation: String,
    files: Vec<File>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct File {
    /// Relative, with `/`.
    name: String,
    #[serde(flatten)]
    content: Content,
}

/// What a file holds, as far as two can be told apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    bytes: u64,
    /// 64 hexadecimal digits.
    blake3: String,
}

/// Publishes the files under the local `source`, whole, as the folder `target`, instead of one that is there.
///
/// # Errors
/// A source that cannot be read, or a store that fails; then the old folder is still there.
pub async fn publish_folder(source: &FilePath, store: &dyn ObjectStore, target: &Path) -> Result<()> {
    let old = match manifest(store, target).await {
        Ok(old) => Some(old),
        Err(Error::Store { source: StoreError::NotFound { .. }, .. }) => None,
        Err(e) => return Err(e),
    };
    let generation = unique::name();
    let mut new = Manifest { version: VERSION, generation, files: Vec::new() };
    if let Err(e) = upload(source, store, target, &mut new).await {
        // Nobody is told to read what is there so far.
        remove(store, target, &new).await;
        return Err(e);
    }
    let place = target.clone().join(MANIFEST);
    let text = serde_json::to_vec_pretty(&new).map_err(|e| broken(target, &e.to_string()))?;
    store.put(&place, text.into()).await.map_err(|e| Error::store(&place, e))?;
    if let Some(old) = old {
        remove(store, target, &old).await;
    }
    Ok(())
}

/// True when the folder at `target` was published whole from the files under the local `source` as they are now. Reads
/// the manifest alone.
///
/// # Errors
/// A source that cannot be read, or a store that cannot be asked.
pub async fn is_published(source: &FilePath, store: &dyn ObjectStore, target: &Path) -> Result<bool> {
    let there = match manifest(store, target).await {
        Ok(there) => there,
        Err(Error::Store { source: StoreError::NotFound { .. }, .. } | Error::Folder { .. }) => {
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    let mut here = Vec::new();
    for name in names(source).await? {
        let content = local_content(&source.join(&name)).await?;
        here.push(File { name, content });
    }
    Ok(here == there.files)
}

/// Writes the files of `source` as those of the generation of `new`, and notes them there; each is read back.
async fn upload(source: &FilePath, store: &dyn ObjectStore, target: &Path, new: &mut Manifest) -> Result<()> {
    for name in names(source).await? {
        let path = object(target, &new.generation, &name)?;
        let local = source.join(&name);
        let content = local_content(&local).await?;
        let reader = fs::File::open(&local).await.map_err(|e| unreadable(&local, e))?;
        new.files.push(File { name, content: content.clone() });
        publish_object(store, &path, reader).await?;
        read_whole(store, &path, &content, None).await?;
    }
    Ok(())
}

/// What a local file holds.
async fn local_content(path: &FilePath) -> Result<Content> {
    let failed = |e| unreadable(path, e);
    let mut file = fs::File::open(path).await.map_err(failed)?;
    let (mut hasher, mut bytes, mut part) = (blake3::Hasher::new(), 0, vec![0; PART]);
    loop {
        let length = file.read(&mut part).await.map_err(failed)?;
        if length == 0 {
            return Ok(Content { bytes, blake3: hasher.finalize().to_hex().to_string() });
        }
        hasher.update(&part[..length]);
        bytes += length as u64;
    }
}

/// Reads an object to its end, part by part, and compares what it holds; it is copied to a local file, if one is given.
///
/// # Errors
/// [`Error::Folder`] for an object that does not hold what it should.
async fn read_whole(
    store: &dyn ObjectStore,
    object: &Path,
    expected: &Content,
    mut copy: Option<(&mut fs::File, &FilePath)>,
) -> Result<()> {
    let failed = |e| Error::store(object, e);
    let mut parts = store.get(object).await.map_err(failed)?.into_stream();
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
    while let Some(part) = parts.next().await {
        let part = part.map_err(failed)?;
        bytes += part.len() as u64;
        hasher.update(&part);
        if let Some((file, path)) = &mut copy {
            file.write_all(&part).await.map_err(|source| Error::Write { path: (*path).into(), source })?;
        }
    }
    let found = Content { bytes, blake3: hasher.finalize().to_hex().to_string() };
    let reason = match (found.bytes == expected.bytes, found.blake3 == expected.blake3) {
        (true, true) => return Ok(()),
        (false, _) => format!("it has {bytes} bytes, and not the {} that were published", expected.bytes),
        (true, false) => "it does not hold what was published (another BLAKE3 hash)".into(),
    };
    Err(broken(object, &format!("{reason}: publish it again")))
}

/// Copies the folder `source`, as its manifest names it, to a folder in the local folder `parent`, and gives its
/// path. It appears whole, and one that was fetched already is not fetched again.
///
/// # Errors
/// A `source` that was not published whole, or files that are not as the manifest says.
pub async fn fetch_folder(store: &dyn ObjectStore, source: &Path, parent: &FilePath) -> Result<PathBuf> {
    let manifest = manifest(store, source).await?;
    if manifest.generation.contains(['/', '\\']) || manifest.generation.starts_with('.') {
        return Err(broken(source, "its manifest names no generation: publish it again"));
    }
    let target = parent.join(&manifest.generation);
    if target.is_dir() {
        return Ok(target);
    }
    let unwritable = |e| Error::Write { path: target.clone(), source: e };
    fs::create_dir_all(parent).await.map_err(unwritable)?;
    let partial = tempfile::Builder::new().prefix(".fetched-").tempdir_in(parent).map_err(unwritable)?;
    for file in &manifest.files {
        let object = object(source, &manifest.generation, &file.name)?;
        fetch(store, &object, &file.content, &partial.path().join(&file.name)).await?;
    }
    match fs::rename(partial.path(), &target).await {
        // It has its own name now, so there is nothing to remove.
        Ok(()) => drop(partial.keep()),
        // Another has fetched the same meanwhile.
        Err(_) if target.is_dir() => {}
        Err(e) => return Err(unwritable(e)),
    }
    Ok(target)
}

/// Copies one object to a local file.
async fn fetch(store: &dyn ObjectStore, object: &Path, content: &Content, target: &FilePath) -> Result<()> {
    let unwritable = |source| Error::Write { path: target.into(), source };
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).await.map_err(unwritable)?;
    }
    let mut file = fs::File::create(target).await.map_err(unwritable)?;
    read_whole(store, object, content, Some((&mut file, target))).await?;
    file.flush().await.map_err(unwritable)
}

async fn manifest(store: &dyn ObjectStore, folder: &Path) -> Result<Manifest> {
    let place = folder.clone().join(MANIFEST);
    let failed = |e| Error::store(&place, e);
    let text = store.get(&place).await.map_err(failed)?.bytes().await.map_err(failed)?;
    let unreadable = |e: serde_json::Error| {
        broken(folder, &format!("{MANIFEST} cannot be understood ({e}): publish it again"))
    };
    // Another version may have other fields.
    let Versioned { version } = serde_json::from_slice(&text).map_err(unreadable)?;
    if version == VERSION {
        return serde_json::from_slice(&text).map_err(unreadable);
    }
    let reason =
        format!("{MANIFEST} has version {version}, and this program knows {VERSION}: publish it again");
    Err(broken(folder, &reason))
}

/// Removes the files of a folder that was replaced. Nobody is told to read them, so a failure is no error.
async fn remove(store: &dyn ObjectStore, folder: &Path, old: &Manifest) {
    for file in &old.files {
        let Ok(path) = object(folder, &old.generation, &file.name) else { continue };
        if let Err(e) = store.delete(&path).await {
            log::debug!("{path} is left behind: {e}");
        }
    }
}

/// Where a file of a folder lies.
///
/// # Errors
/// A name that leads out of the folder.
fn object(folder: &Path, generation: &str, name: &str) -> Result<Path> {
    let parts: Vec<&str> = generation.split('/').chain(name.split('/')).collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(broken(folder, &format!("`{generation}/{name}` is not the name of a file in it")));
    }
    Ok(parts.into_iter().fold(folder.clone(), |path, part| path.join(part)))
}

/// The files under a local folder, relative, with `/`, sorted.
async fn names(root: &FilePath) -> Result<Vec<String>> {
    let mut folders = vec![PathBuf::new()];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        let here = root.join(&folder);
        let failed = |e| unreadable(&here, e);
        let mut entries = fs::read_dir(&here).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let path = folder.join(entry.file_name());
            if entry.file_type().await.map_err(failed)?.is_dir() {
                folders.push(path);
            } else {
                names.push(with_slashes(&path).ok_or_else(|| {
                    unreadable(&entry.path(), std::io::Error::other("its name is not Unicode"))
                })?);
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn with_slashes(path: &FilePath) -> Option<String> {
    let parts: Option<Vec<&str>> = path
        .components()
        .map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    Some(parts?.join("/"))
}

fn unreadable(path: &FilePath, source: std::io::Error) -> Error {
    Error::Read { what: path.display().to_string(), source }
}

fn broken(folder: &Path, reason: &str) -> Error {
    Error::Folder { folder: folder.to_string(), reason: reason.into() }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
