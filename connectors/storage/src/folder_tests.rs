#![allow(clippy::unwrap_used)]
use super::*;
use object_store::memory::InMemory;

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
    assert!(std::fs::read_dir(away.path()).unwrap().count() == 0);
}

#[tokio::test]
async fn a_manifest_does_not_lead_out_of_its_folder() {
    let (store, target) = (InMemory::new(), Path::from("m"));
    for name in ["../x", "/etc/passwd", "a//b", ""] {
        let text =
            format!("{{\"version\":1,\"generation\":\"g\",\"files\":[{{\"name\":\"{name}\",\"bytes\":1}}]}}");
        store.put(&target.clone().join(MANIFEST), text.into()).await.unwrap();
        let away = tempfile::tempdir().unwrap();
        let e = fetch_folder(&store, &target, away.path()).await.unwrap_err();
        assert!(matches!(e, Error::Folder { .. }), "{name}: {e}");
    }
}
