//! Which part of a store's description is wrong.

use crate::Error;
use std::fmt;

/// The part of a store's description that is wrong, as [`Error::Setting`] and [`crate::check`] name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The server of an S3 or HTTP location (`s3.endpoint`).
    Endpoint,
    /// The region of the bucket (`s3.region`).
    Region,
    /// The bucket.
    Bucket,
    /// There are no keys.
    Keys,
    /// The access key's name.
    AccessKey,
    /// The secret that belongs to the access key.
    SecretKey,
    /// The session token that belongs to the access key.
    SessionToken,
    /// Reading without keys (`s3.anonymous`).
    Anonymous,
    /// The AWS profile (`s3.profile`).
    Profile,
    /// What the known user may do.
    Permission,
    /// How one says who one is.
    Authentication,
    /// The HDFS name node.
    NameNode,
    /// The name of a highly available HDFS.
    NameService,
    /// The object or folder.
    Path,
    /// The clock of this machine.
    Clock,
    /// Writing to what can be read only.
    Scheme,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Endpoint => "endpoint",
            Self::Region => "region",
            Self::Bucket => "bucket",
            Self::Keys => "keys",
            Self::AccessKey => "access key",
            Self::SecretKey => "secret key",
            Self::SessionToken => "session token",
            Self::Anonymous => "anonymous access",
            Self::Profile => "profile",
            Self::Permission => "permission",
            Self::Authentication => "authentication",
            Self::NameNode => "name node",
            Self::NameService => "name service",
            Self::Path => "path",
            Self::Clock => "clock",
            Self::Scheme => "scheme",
        })
    }
}

/// What is wrong with a store, before it is known which location asked for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub field: Field,
    pub reason: String,
}

impl Fault {
    pub fn new(field: Field, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }

    pub fn at(self, location: &str) -> Error {
        Error::Setting { location: location.into(), field: self.field, reason: self.reason }
    }
}
