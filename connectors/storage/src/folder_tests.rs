#![allow(clippy::unwrap_used)]
use super::*;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result as StoreResult, memory::InMemory,
};

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

async fn count(store: &InMemory) -> usize {
    store.list(None).count().await
}

#[tokio::test]
async fn a_folder_comes_back_as_it_was_and_a_new_one_replaces_it() {
    let (store, target) = (InMemory::new(), Path::from("models/dca"));
    let away = tempfile::tempdir().unwrap();
    publish_folder(folder(&[("config.json", "{}"), ("deep/er/w.bin", "old")]).path(), &store, &target)
        .await
        .unwrap();
    publish_folder(folder(&[("config.json", "{1}"), ("deep/er/w.bin", "new")]).path(), &store, &target)
        .await
        .unwrap();
    assert_eq!(count(&store).await, 3, "the files of the old one are removed");
    let local = fetch_folder(&store, &target, &away.path().join("a")).await.unwrap();
    assert_eq!(fetch_folder(&store, &target, &away.path().join("a")).await.unwrap(), local);
    assert_eq!(names(&local).await.unwrap(), ["config.json", "deep/er/w.bin"]);
    assert_eq!(std::fs::read_to_string(local.join("deep/er/w.bin")).unwrap(), "new");
}

#[tokio::test]
async fn what_is_not_whole_is_not_fetched() {
    let (store, target) = (InMemory::new(), Path::from("m"));
    let away = tempfile::tempdir().unwrap();
    let absent = fetch_folder(&store, &target, away.path()).await.unwrap_err();
    assert!(matches!(absent, Error::Store { source: StoreError::NotFound { .. }, .. }), "{absent}");
    publish_folder(folder(&[("w.bin", "four")]).path(), &store, &target).await.unwrap();
    let file = store.list(None).map(|m| m.unwrap().location).collect::<Vec<_>>().await;
    let file = file.iter().find(|path| path.filename() == Some("w.bin")).unwrap();
    store.put(file, "five!".into()).await.unwrap();
    let e = fetch_folder(&store, &target, away.path()).await.unwrap_err();
    assert!(e.to_string().contains("5 bytes") && e.is_input(), "{e}");
    // As many bytes, and others.
    store.put(file, "fivE".into()).await.unwrap();
    let e = fetch_folder(&store, &target, away.path()).await.unwrap_err();
    assert!(e.to_string().contains("does not hold what was published") && e.is_input(), "{e}");
    assert!(std::fs::read_dir(away.path()).unwrap().count() == 0);
    // One that an earlier version has published.
    let text = r#"{"version": 1, "generation": "g", "files": [{"name": "w.bin", "bytes": 4}]}"#;
    store.put(&target.clone().join(MANIFEST), text.into()).await.unwrap();
    let e = fetch_folder(&store, &target, away.path()).await.unwrap_err();
    assert!(e.to_string().contains("version 1") && e.to_string().contains("publish it again"), "{e}");
}

#[tokio::test]
async fn a_folder_is_published_as_long_as_it_is_the_same() {
    let (store, target) = (InMemory::new(), Path::from("m"));
    let source = folder(&[("w.bin", "four"), ("a/b.json", "{}")]);
    assert!(!is_published(source.path(), &store, &target).await.unwrap());
    publish_folder(source.path(), &store, &target).await.unwrap();
    assert!(is_published(source.path(), &store, &target).await.unwrap());
    std::fs::write(source.path().join("w.bin"), "fivE").unwrap();
    assert!(!is_published(source.path(), &store, &target).await.unwrap());
}

/// A store that keeps something else than what it was given: the old folder stays, and nothing of the new one.
#[derive(Debug)]
struct Damaging(InMemory);

impl std::fmt::Display for Damaging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Damaging")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Damaging {
    async fn put_opts(&self, path: &Path, bytes: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        let mut bytes = bytes::Bytes::from(bytes).to_vec();
        if let Some(last) = bytes.last_mut().filter(|_| path.filename() == Some("w.bin")) {
            *last ^= 1;
        }
        self.0.put_opts(path, bytes.into(), options).await
    }
    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }
    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.0.get_opts(path, options).await
    }
    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.0.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.0.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn what_a_store_has_damaged_is_not_published() {
    let (store, target) = (Damaging(InMemory::new()), Path::from("m"));
    let away = tempfile::tempdir().unwrap();
    publish_folder(folder(&[("config.json", "old")]).path(), &store, &target).await.unwrap();
    let new = folder(&[("config.json", "new"), ("w.bin", "four")]);
    let e = publish_folder(new.path(), &store, &target).await.unwrap_err();
    assert!(e.to_string().contains("w.bin") && e.to_string().contains("does not hold"), "{e}");
    assert_eq!(count(&store.0).await, 2, "nothing of the new one is left");
    let local = fetch_folder(&store, &target, away.path()).await.unwrap();
    assert_eq!(std::fs::read_to_string(local.join("config.json")).unwrap(), "old");
}

#[tokio::test]
async fn a_manifest_does_not_lead_out_of_its_folder() {
    let (store, target) = (InMemory::new(), Path::from("m"));
    for name in ["../x", "/etc/passwd", "a//b", ""] {
        let text = format!(
            "{{\"version\":2,\"generation\":\"g\",\"files\":[{{\"name\":\"{name}\",\"bytes\":1,\"blake3\":\"0\"}}]}}"
        );
        store.put(&target.clone().join(MANIFEST), text.into()).await.unwrap();
        let away = tempfile::tempdir().unwrap();
        let e = fetch_folder(&store, &target, away.path()).await.unwrap_err();
        assert!(matches!(e, Error::Folder { .. }), "{name}: {e}");
    }
}
