//! What every store must do for the rest of voxelflow: one suite over the trait, run by the tests of
//! each implementation. It panics at the first thing that is wrong, as a test does.

#![allow(clippy::unwrap_used, reason = "a suite for tests: a panic is how it reports")]

use crate::{fetch_folder, publish_folder, publish_object};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{
    Error as StoreError, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    path::Path,
};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, ReadBuf};

/// Runs the whole suite under `root`, a prefix that is empty before and after.
///
/// # Panics
/// When the store breaks the contract.
pub async fn run(store: &dyn ObjectStore, root: &Path) {
    assert!(list(store, root).await.is_empty(), "{root} is not empty");
    put_get_head_delete(store, root).await;
    empty_and_odd_names(store, root).await;
    ranges(store, root).await;
    missing_is_named(store, root).await;
    create_refuses_what_exists(store, root).await;
    listing(store, root).await;
    rename_replaces(store, root).await;
    multipart_appears_whole(store, root).await;
    aborted_multipart_leaves_nothing(store, root).await;
    objects_are_published_whole(store, root).await;
    folders_are_published_whole(store, root).await;
    assert!(list(store, root).await.is_empty(), "the suite left objects under {root}");
}

/// Lists ten thousand objects: more than one answer of any server holds. Left out where that takes long.
///
/// # Panics
/// When some are missing.
pub async fn many_objects(store: &dyn ObjectStore, root: &Path) {
    const MANY: usize = 10_000;
    let root = &root.clone().join("many");
    let path = |i: usize| root.clone().join(format!("{:02}", i % 50)).join(format!("{i:05}"));
    for i in 0..MANY {
        store.put(&path(i), PutPayload::default()).await.unwrap();
    }
    let mut paths: Vec<Path> = (0..MANY).map(path).collect();
    paths.sort();
    assert_eq!(list(store, root).await, paths);
    let level = store.list_with_delimiter(Some(root)).await.unwrap();
    assert_eq!((level.common_prefixes.len(), level.objects.len()), (50, 0));
    for path in &paths {
        store.delete(path).await.unwrap();
    }
}

/// Reads through `reader` what `writer` writes to the same place: for stores that are read only.
///
/// # Panics
/// When the reader breaks the contract, or writes.
pub async fn read_only(writer: (&dyn ObjectStore, &Path), reader: (&dyn ObjectStore, &Path)) {
    let ((writer, written), (reader, read_from)) = (writer, reader);
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for name in ["plain.bin", "with space", "ünïcode", "a=b&c", "100%"] {
        let (here, there) = (read_from.clone().join(name), written.clone().join(name));
        writer.put(&there, bytes.clone().into()).await.unwrap();
        assert_eq!(reader.head(&here).await.unwrap().size, 100_000, "{name}");
        assert_eq!(read(reader, &here).await, bytes, "{name}");
        assert_eq!(reader.get_range(&here, 10..300).await.unwrap(), bytes[10..300], "{name}");
        let parts = reader.get_ranges(&here, &[0..1, 99_990..100_000]).await.unwrap();
        assert_eq!((&parts[0][..], &parts[1][..]), (&bytes[..1], &bytes[99_990..]), "{name}");
        let refused = reader.put(&here, PutPayload::from_static(b"new")).await.unwrap_err();
        assert!(refused.to_string().contains("read only"), "{refused}");
        assert!(reader.put_multipart(&here).await.is_err() && reader.delete(&here).await.is_err(), "{name}");
        assert!(reader.copy(&here, &here.clone().join("copy")).await.is_err(), "{name}");
        assert_eq!(read(writer, &there).await, bytes, "{name}");
        writer.delete(&there).await.unwrap();
    }
    missing_is_named(reader, read_from).await;
}

async fn list(store: &dyn ObjectStore, root: &Path) -> Vec<Path> {
    let mut found: Vec<Path> = store.list(Some(root)).map_ok(|m| m.location).try_collect().await.unwrap();
    found.sort();
    found
}

async fn read(store: &dyn ObjectStore, path: &Path) -> Bytes {
    store.get(path).await.unwrap().bytes().await.unwrap()
}

async fn put_get_head_delete(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("a").join("b.bin");
    store.put(&path, PutPayload::from_static(b"first")).await.unwrap();
    store.put(&path, PutPayload::from_static(b"second!")).await.unwrap();
    assert_eq!(read(store, &path).await, "second!");
    let head = store.head(&path).await.unwrap();
    assert_eq!((head.location.clone(), head.size), (path.clone(), 7));
    store.delete(&path).await.unwrap();
    assert!(matches!(store.get(&path).await, Err(StoreError::NotFound { .. })));
}

async fn empty_and_odd_names(store: &dyn ObjectStore, root: &Path) {
    for name in ["empty", "with space", "ünïcode", "a=b&c", "100%", "1+1", "sub-01_bold.nii.gz"] {
        let path = root.clone().join(name);
        store.put(&path, PutPayload::default()).await.unwrap();
        assert_eq!(store.head(&path).await.unwrap().size, 0, "{name}");
        assert_eq!(list(store, root).await, std::slice::from_ref(&path), "{name}");
        store.delete(&path).await.unwrap();
    }
}

async fn ranges(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("range");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    store.put(&path, bytes.clone().into()).await.unwrap();
    assert_eq!(store.get_range(&path, 10..300).await.unwrap(), bytes[10..300]);
    let parts = store.get_ranges(&path, &[0..1, 99_990..100_000, 500..600]).await.unwrap();
    assert_eq!(parts[0], bytes[0..1]);
    assert_eq!(parts[1], bytes[99_990..]);
    assert_eq!(parts[2], bytes[500..600]);
    assert!(store.get_range(&path, 100_001..100_002).await.is_err(), "a range past the end");
    store.delete(&path).await.unwrap();
}

async fn missing_is_named(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("no_such_object");
    for error in [store.get(&path).await.unwrap_err(), store.head(&path).await.unwrap_err()] {
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
        assert!(error.to_string().contains("no_such_object"), "{error}");
    }
}

async fn create_refuses_what_exists(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("once");
    let create = || PutOptions { mode: PutMode::Create, ..Default::default() };
    store.put_opts(&path, PutPayload::from_static(b"1"), create()).await.unwrap();
    let again = store.put_opts(&path, PutPayload::from_static(b"2"), create()).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists { .. })));
    assert_eq!(read(store, &path).await, "1");
    store.delete(&path).await.unwrap();
}

async fn listing(store: &dyn ObjectStore, root: &Path) {
    // A prefix of its own: a file system keeps the folders that other checks emptied.
    let root = &root.clone().join("listing");
    let paths: Vec<Path> =
        ["x/1", "x/2", "x/y/3", "z"].iter().map(|p| Path::parse(format!("{root}/{p}")).unwrap()).collect();
    for path in &paths {
        store.put(path, PutPayload::from_static(b"-")).await.unwrap();
    }
    assert_eq!(list(store, root).await, paths);
    assert_eq!(list(store, &root.clone().join("x")).await, paths[..3]);
    let level = store.list_with_delimiter(Some(root)).await.unwrap();
    assert_eq!(level.common_prefixes, [root.clone().join("x")]);
    assert_eq!(level.objects.iter().map(|o| &o.location).collect::<Vec<_>>(), [&paths[3]]);
    for path in &paths {
        store.delete(path).await.unwrap();
    }
}

async fn rename_replaces(store: &dyn ObjectStore, root: &Path) {
    let (from, to) = (root.clone().join("part"), root.clone().join("whole"));
    store.put(&to, PutPayload::from_static(b"old")).await.unwrap();
    store.put(&from, PutPayload::from_static(b"new")).await.unwrap();
    store.rename(&from, &to).await.unwrap();
    assert_eq!(list(store, root).await, std::slice::from_ref(&to));
    assert_eq!(read(store, &to).await, "new");
    store.delete(&to).await.unwrap();
}

async fn multipart_appears_whole(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("parts");
    // 5 MiB is the smallest part that S3 takes, the last one excepted.
    let part = Bytes::from(vec![7_u8; 5 << 20]);
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part(part.clone().into()).await.unwrap();
    assert!(
        matches!(store.head(&path).await, Err(StoreError::NotFound { .. })),
        "a half-written object is visible"
    );
    upload.put_part(PutPayload::from_static(b"end")).await.unwrap();
    upload.complete().await.unwrap();
    let whole = read(store, &path).await;
    assert_eq!(whole.len(), part.len() + 3);
    assert!(whole.ends_with(b"end") && whole.starts_with(&part));
    store.delete(&path).await.unwrap();
}

async fn aborted_multipart_leaves_nothing(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("aborted");
    let mut upload: Box<dyn MultipartUpload> = store.put_multipart(&path).await.unwrap();
    upload.put_part(PutPayload::from_static(b"half")).await.unwrap();
    upload.abort().await.unwrap();
    assert!(matches!(store.head(&path).await, Err(StoreError::NotFound { .. })));
    assert!(list(store, root).await.is_empty(), "an aborted upload is listed");
}

/// A reader that gives some bytes and then fails.
struct Failing {
    good: usize,
}

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let size = buffer.remaining().min(self.good);
        if size == 0 {
            return Poll::Ready(Err(std::io::Error::other("the disk is gone")));
        }
        buffer.put_slice(&vec![1; size]);
        self.good -= size;
        Poll::Ready(Ok(()))
    }
}

async fn objects_are_published_whole(store: &dyn ObjectStore, root: &Path) {
    let path = root.clone().join("published");
    // Nothing, less than a part, exactly two parts, and some parts and a bit.
    for size in [0, 1000, 32 << 20, (48 << 20) + 7] {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        assert_eq!(publish_object(store, &path, &bytes[..]).await.unwrap(), size as u64);
        assert!(read(store, &path).await == bytes, "{size} bytes");
    }
    for good in [10, 40 << 20] {
        assert!(publish_object(store, &path, Failing { good }).await.is_err());
        assert_eq!(list(store, root).await, std::slice::from_ref(&path), "after {good} bytes");
        assert_eq!(store.head(&path).await.unwrap().size, (48 << 20) + 7, "after {good} bytes");
    }
    store.delete(&path).await.unwrap();
}

async fn folders_are_published_whole(store: &dyn ObjectStore, root: &Path) {
    let target = root.clone().join("a folder");
    let (local, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for text in ["old", "new"] {
        std::fs::write(local.path().join("config=1 .json"), text).unwrap();
        std::fs::write(local.path().join("weights"), vec![7_u8; 20 << 20]).unwrap();
        publish_folder(local.path(), store, &target).await.unwrap();
    }
    let fetched = fetch_folder(store, &target, away.path()).await.unwrap();
    assert_eq!(std::fs::read_to_string(fetched.join("config=1 .json")).unwrap(), "new");
    assert_eq!(std::fs::metadata(fetched.join("weights")).unwrap().len(), 20 << 20);
    let left = list(store, &target).await;
    assert_eq!(left.len(), 3, "the folder that was replaced is still there: {left:?}");
    for path in &left {
        store.delete(path).await.unwrap();
    }
}
