//! The stores that are built in keep the contract of `voxelflow_storage::conformance`.
#![allow(clippy::unwrap_used)]

use voxelflow_storage::{StoreRegistry, conformance};

#[tokio::test]
async fn memory() {
    let location = StoreRegistry::default().resolve("memory://suite/root").unwrap();
    conformance::run(location.store.as_ref(), &location.path).await;
}

#[tokio::test]
async fn local_files() {
    let folder = tempfile::tempdir().unwrap();
    let location = StoreRegistry::default().resolve(folder.path().to_str().unwrap()).unwrap();
    conformance::run(location.store.as_ref(), &location.path).await;
}
