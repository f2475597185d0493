//! What can go wrong between a location as written and the bytes there.

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
        /// As written.
        text: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The scheme is known, but its store is not part of this build.
    #[error("location `{text}`: {scheme}:// is not supported yet; use a local path, file:// or memory://")]
    Unsupported {
        /// As written.
        text: String,
        /// The scheme.
        scheme: String,
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
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Location { .. } | Self::Unsupported { .. } | Self::NotLocal { .. } => true,
            Self::Write { source, .. } => matches!(
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
