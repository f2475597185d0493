//! What can go wrong between a location as written and the bytes there.

use crate::Field;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a location as written and the bytes there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is neither a path nor a URL.
    #[error("location `{text}`: {reason}")]
    Location {
        /// As written, without what may be secret in it.
        text: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A store cannot be used as it is described, and this is the part of the description that is wrong.
    #[error("location `{location}`: {field}: {reason}")]
    Setting {
        /// As written.
        location: String,
        /// What is wrong.
        field: Field,
        /// How it is wrong, and what to do.
        reason: String,
    },
    /// An option of stores cannot be set.
    #[error("option `{name}`: {reason}")]
    Option {
        /// Its name as written.
        name: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A remote or in-memory location where a file of this machine is needed.
    #[error("location `{text}` is not a file of this machine, and {purpose} needs one: give a local path")]
    NotLocal {
        /// As written.
        text: String,
        /// What needs the file.
        purpose: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}{}", path.display(), hint(source))]
    Write {
        /// The file that was to appear.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// What is read for a store, or for writing to one, cannot be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The file or stream.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A store answers with an error.
    #[error("{path}: {source}")]
    Store {
        /// The object, within its store.
        path: String,
        /// The store's answer.
        source: object_store::Error,
    },
    /// A folder in a store is not what its manifest says.
    #[error("folder {folder}: {reason}")]
    Folder {
        /// The folder, within its store.
        folder: String,
        /// What is wrong and what to do.
        reason: String,
    },
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Location { .. }
            | Self::Setting { .. }
            | Self::Option { .. }
            | Self::NotLocal { .. }
            | Self::Folder { .. } => true,
            Self::Store { source, .. } => matches!(
                source,
                object_store::Error::NotFound { .. }
                    | object_store::Error::NotSupported { .. }
                    | object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. }
            ),
            Self::Write { source, .. } | Self::Read { source, .. } => matches!(
                source.kind(),
                std::io::ErrorKind::PermissionDenied
                    | std::io::ErrorKind::ReadOnlyFilesystem
                    | std::io::ErrorKind::NotADirectory
                    | std::io::ErrorKind::IsADirectory
                    | std::io::ErrorKind::AlreadyExists
                    | std::io::ErrorKind::NotFound
            ),
        }
    }

    /// What is wrong, where one part of a store's description is.
    pub fn field(&self) -> Option<Field> {
        match self {
            Self::Setting { field, .. } => Some(*field),
            _ => None,
        }
    }

    /// A store's answer about the object at `path`.
    pub(crate) fn store(path: &object_store::path::Path, source: object_store::Error) -> Self {
        Self::Store { path: path.to_string(), source }
    }
}

fn hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            " (choose a folder that you may write to)"
        }
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
            " (a file lies where a folder is needed)"
        }
        std::io::ErrorKind::StorageFull => " (free some space, or choose another folder)",
        _ => "",
    }
}
