//! The stores keep the contract of `voxelflow_storage::conformance`.

use crate::{hdfs_location, s3_location, servers};
use voxelflow_storage::{StoreRegistry, conformance};

#[tokio::test]
async fn memory() {
    let location = StoreRegistry::default().resolve("memory://suite/root").unwrap();
    conformance::run(location.store.as_ref(), &location.path).await;
    conformance::many_objects(location.store.as_ref(), &location.path).await;
}

#[tokio::test]
async fn local_files() {
    let folder = tempfile::tempdir().unwrap();
    let location = StoreRegistry::default().resolve(folder.path().to_str().unwrap()).unwrap();
    conformance::run(location.store.as_ref(), &location.path).await;
    conformance::many_objects(location.store.as_ref(), &location.path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3() {
    let Some(server) = servers::s3() else { return };
    let location = s3_location(server, "s3://tests/suite");
    conformance::run(location.store.as_ref(), &location.path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs() {
    let Some(server) = servers::hdfs() else { return };
    let location = hdfs_location(server, "suite");
    conformance::run(location.store.as_ref(), &location.path).await;
}

/// What is written by S3 is read by plain HTTP, which the same server speaks.
#[tokio::test(flavor = "multi_thread")]
async fn http() {
    let Some(server) = servers::s3() else { return };
    let written = s3_location(server, "s3://tests/read");
    let read = StoreRegistry::default().resolve(&format!("{}/buckets/tests/read", server.files)).unwrap();
    conformance::read_only((written.store.as_ref(), &written.path), (read.store.as_ref(), &read.path)).await;
}
