//! Where data lie: a URL or a plain path becomes an object store and a path in it, through one cached
//! registry. What is written appears whole: local files by [`AtomicFile`], objects of any store by
//! [`publish_object`], folders in a store by [`publish_folder`].
//!
//! ```text
//!   data/run.nii.gz      ─┐
//!   file:///data/run.nii  ├─► StoreRegistry ─► Location { store, path }
//!   memory://name/rows    │        └─ one store for each scheme://authority and options, made once
//!   s3://bucket/key       │
//!   hdfs://host:port/path │
//!   https://host/path    ─┘  to read from
//! ```
//!
//! # What says how a store is reached
//! Keys come from the environment (`AWS_ACCESS_KEY_ID`, …), from a profile of `~/.aws/credentials` and
//! `~/.aws/config`, or from the role of a machine or container: every process finds its own, so they are never in a
//! plan. The rest can be set by name ([`StoreOptions::NAMES`]). A server other than AWS is `s3.endpoint` or
//! `AWS_ENDPOINT_URL`; that nothing is encrypted has to be said in it: `http://host:port`. Hadoop's configuration is
//! `HADOOP_CONF_DIR`, its user `HADOOP_USER_NAME`; what of it works is told in the module `hdfs`:
//! simple authentication and name services do, Kerberos does as far as `hdfs-native` goes, KMS does not.
//!
//! Faults that pass are tried again, four times within a minute; a read that brings nothing for half a minute is taken up
//! where it stopped. What is described wrongly is found by [`check`] within five seconds.

mod atomic_file;
mod blocking;
mod check;
pub mod conformance;
mod error;
mod fault;
mod folder;
mod hdfs;
mod http;
mod listing;
mod location;
mod object_reader;
mod options;
mod patience;
mod registry;
mod s3;
mod secret;
mod steady;
mod unique;
mod upload;

pub use atomic_file::{AtomicFile, publish};
pub use check::{Purpose, check};
pub use error::{Error, Result};
pub use fault::Field;
pub use folder::{fetch_folder, is_published, publish_folder};
pub use listing::Listing;
pub use location::{Location, Place};
pub use object_reader::{ObjectReader, Stamp, read_object, stamp};
pub use options::{S3Keys, S3Options, StoreOptions};
pub use registry::StoreRegistry;
pub use secret::Secret;
pub use upload::publish_object;
