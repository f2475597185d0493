//! What is particular to HDFS: hidden names, name services, files of several blocks.

use crate::{child, hdfs_location, servers};
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, PutPayload};
use std::time::{Duration, Instant};
use voxelflow_storage::StoreRegistry;

async fn names(location: &voxelflow_storage::Location) -> Vec<String> {
    let found = location.store.list(Some(&location.path)).map_ok(|m| m.location.to_string());
    found.try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_many_blocks_is_hidden_until_it_is_whole() {
    let Some(server) = servers::hdfs() else { return };
    let location = hdfs_location(server, "blocks");
    let path = location.path.clone().join("a b=1.bin");
    let part: Vec<u8> = (0..9_u32 << 20).map(|i| (i % 251) as u8).collect();
    let mut upload = location.store.put_multipart(&path).await.unwrap();
    for _ in 0..5 {
        // 45 MiB: the first 32 go out as one write, the rest by itself.
        upload.put_part(part.clone().into()).await.unwrap();
        assert!(names(&location).await.is_empty(), "what is being written is listed");
    }
    upload.complete().await.unwrap();
    assert_eq!(names(&location).await, ["blocks/a b=1.bin"]);
    let whole = location.store.get(&path).await.unwrap().bytes().await.unwrap();
    assert!(whole.chunks(part.len()).all(|chunk| chunk == part) && whole.len() == 5 * part.len());
    location.store.delete(&path).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_goes_away_leaves_nothing() {
    let Some(server) = servers::hdfs() else { return };
    let location = hdfs_location(server, "gone");
    let mut upload = location.store.put_multipart(&location.path.clone().join("x")).await.unwrap();
    upload.put_part(vec![0_u8; 33 << 20].into()).await.unwrap();
    drop(upload);
    // The folder was made for the hidden file: it is empty when that is removed, and only then can be removed.
    let deadline = Instant::now() + Duration::from_secs(30);
    while location.store.delete(&location.path).await.is_err() {
        assert!(Instant::now() < deadline, "the hidden file is still there after 30 s");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_writers_that_create_one_is_refused() {
    let Some(server) = servers::hdfs() else { return };
    let location = hdfs_location(server, "race");
    let path = location.path.clone().join("once");
    let create = |text: &'static str| {
        let options = object_store::PutOptions { mode: object_store::PutMode::Create, ..Default::default() };
        location.store.put_opts(&path, PutPayload::from_static(text.as_bytes()), options)
    };
    let (a, b) = tokio::join!(create("a"), create("b"));
    let refused =
        [&a, &b].into_iter().filter(|r| matches!(r, Err(object_store::Error::AlreadyExists { .. })));
    assert_eq!((refused.count(), a.is_ok() || b.is_ok()), (1, true), "{a:?} {b:?}");
    assert_eq!(names(&location).await, ["race/once"]);
    location.store.delete(&path).await.unwrap();
}

/// The first name node of the service is not there; the second is.
#[test]
fn a_name_service_is_found_by_the_configuration() {
    if child::is_child() {
        let location = StoreRegistry::default().resolve("hdfs://lab/service/x").unwrap();
        let written = async {
            location.store.put(&location.path, "by name".into()).await?;
            location.store.get(&location.path).await?.bytes().await
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        assert_eq!(runtime.block_on(written).unwrap(), "by name");
        return;
    }
    let Some(server) = servers::hdfs() else { return };
    let conf = tempfile::tempdir().unwrap();
    let address = server.url.trim_start_matches("hdfs://");
    let property = |(name, value): (&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let properties: String = [
        ("dfs.ha.namenodes.lab", "one,two"),
        ("dfs.namenode.rpc-address.lab.one", "127.0.0.1:1"),
        ("dfs.namenode.rpc-address.lab.two", address),
    ]
    .map(property)
    .concat();
    std::fs::write(conf.path().join("hdfs-site.xml"), format!("<configuration>{properties}</configuration>"))
        .unwrap();
    let folder = conf.path().to_str().unwrap();
    child::run("hdfs::a_name_service_is_found_by_the_configuration", &[("HADOOP_CONF_DIR", folder)]);
}
