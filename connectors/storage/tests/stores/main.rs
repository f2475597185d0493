//! Every store against real servers: one program, so that each server is started once.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../servers/mod.rs"]
mod servers;

mod check;
mod child;
mod conformance;
mod environment;
mod hdfs;
mod http;
mod secrets;

use voxelflow_storage::{Location, S3Keys, S3Options, StoreOptions, StoreRegistry};

/// Options by which the S3 server of the tests takes requests.
fn s3_options(endpoint: &str) -> StoreOptions {
    let keys = S3Keys {
        access_key_id: servers::ACCESS_KEY.into(),
        secret_access_key: servers::SECRET_KEY.to_owned().into(),
        session_token: None,
    };
    StoreOptions { s3: S3Options { endpoint: Some(endpoint.into()), keys: Some(keys), ..Default::default() } }
}

/// A location of the S3 server, in a store of its own.
fn s3_location(server: &servers::S3Server, url: &str) -> Location {
    StoreRegistry::default().resolve_with(url, &s3_options(&server.endpoint)).unwrap()
}

/// A location of the file system, in a store of its own.
fn hdfs_location(server: &servers::HdfsServer, path: &str) -> Location {
    StoreRegistry::default().resolve(&format!("{}/{path}", server.url)).unwrap()
}
