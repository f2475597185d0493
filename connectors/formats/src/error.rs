//! What can go wrong while a file is read or written: each message names the file, the place in it,
//! what is wrong, and what to do.

use std::io;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while a file is read or written.
///
/// `path` is the path or URL as the caller gave it; `offset` is a byte offset in the stored file
/// (for a gzip file: in the compressed bytes).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened.
    #[error("{path}: cannot be opened: {source}")]
    Open {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system failed while the file was read.
    #[error("{path}: reading failed at byte {offset}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Bytes read before.
        offset: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file ends before its header says.
    #[error(
        "{path}: the file is cut short: it ends at byte {offset}, inside {place}; copy or download it again"
    )]
    Truncated {
        /// The file.
        path: String,
        /// Length of what is there.
        offset: u64,
        /// The part that is incomplete, such as `volume 3 of 156`.
        place: String,
    },
    /// The name says gzip, the content does not.
    #[error(
        "{path}: not a gzip file although its name ends in .gz or .mgz: byte 0 begins with {found}; {advice}"
    )]
    NotGzip {
        /// The file.
        path: String,
        /// The first bytes in hexadecimal.
        found: String,
        /// What to do.
        advice: String,
    },
    /// The gzip stream is damaged: bad checksum, bad code, rubbish after its end.
    #[error("{path}: damaged gzip data at byte {offset}: {reason}; copy or download it again")]
    Gzip {
        /// The file.
        path: String,
        /// Where decompression stopped.
        offset: u64,
        /// What the decompressor said.
        reason: String,
    },
    /// The file is of another kind.
    #[error("{path}: not a single-file NIfTI image: {reason}")]
    NotNifti {
        /// The file.
        path: String,
        /// What it is or seems to be, and what to do.
        reason: String,
    },
    /// A header field has a value that cannot be used.
    #[error("{path}: header field {field} at byte {offset} of the header: {reason}")]
    Header {
        /// The file.
        path: String,
        /// Name of the field in the NIfTI standard.
        field: &'static str,
        /// Where the field lies in the (decompressed) header.
        offset: u64,
        /// Its value, why it is wrong, and what to do.
        reason: String,
    },
    /// Numbers of a kind that is not a real number per voxel.
    #[error(
        "{path}: its voxels are {name} (datatype {code}), which is not supported; convert them to an integer or float type"
    )]
    Datatype {
        /// The file.
        path: String,
        /// Name of the type in the NIfTI standard.
        name: &'static str,
        /// Its code.
        code: i16,
    },
    /// The sform and the qform mirror each other.
    #[error(
        "{path}: its sform (code {sform_code}) and qform (code {qform_code}) disagree about left and right: {detail}; \
         find out which is right, and read the image with OPTIONS (xform 'sform') or (xform 'qform')"
    )]
    XformConflict {
        /// The file.
        path: String,
        /// The sform's code.
        sform_code: i16,
        /// The qform's code.
        qform_code: i16,
        /// How they disagree.
        detail: String,
    },
    /// The header's repetition time cannot be right.
    #[error(
        "{path}: the header's repetition time {reason}; give it as RepetitionTime in the JSON sidecar, or as OPTIONS (t_r …)"
    )]
    RepetitionTime {
        /// The file.
        path: String,
        /// Its value with unit, and why it is refused.
        reason: String,
    },
    /// A line of a text file cannot be used.
    #[error("{path}: line {line}: {reason}")]
    Line {
        /// The file.
        path: String,
        /// The line, the first is 1.
        line: u64,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A cell of a table cannot be used.
    #[error("{path}: line {line}, column {column}: {reason}")]
    Cell {
        /// The file.
        path: String,
        /// The line, the first (the header's) is 1.
        line: u64,
        /// Name of the column.
        column: String,
        /// What it holds, why it is wrong, and what to do.
        reason: String,
    },
    /// A table lacks a column.
    #[error("{path}: there is no column '{column}'; its columns are {present}")]
    Column {
        /// The file.
        path: String,
        /// The column that is missing.
        column: String,
        /// Those that are there.
        present: String,
    },
    /// A key of a JSON sidecar has a value that cannot be used.
    #[error("{path}: {key}: {reason}")]
    Key {
        /// The file.
        path: String,
        /// The key, such as `RepetitionTime` or `SliceTiming[3]`.
        key: String,
        /// Its value, why it is wrong, and what to do.
        reason: String,
    },
    /// A file name does not follow the rules of BIDS.
    #[error("{name}: no BIDS name: {reason}")]
    BidsName {
        /// The name.
        name: String,
        /// The part of it that is wrong.
        reason: String,
    },
    /// An XML document, or the document within a file, cannot be used.
    #[error("{path}: byte {offset}, {element}: {reason}")]
    Xml {
        /// The file.
        path: String,
        /// Where in the decompressed document.
        offset: u64,
        /// The element, such as `DataArray 3`.
        element: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Two files that belong together do not fit.
    #[error("{path}: does not fit {other}: {reason}")]
    Pair {
        /// One file.
        path: String,
        /// The other.
        other: String,
        /// What differs.
        reason: String,
    },
    /// Two images that must lie on one grid do not.
    #[error("{path}: its grid differs from that of {other}: {reason}; resample one of them first")]
    Grid {
        /// One image.
        path: String,
        /// The other.
        other: String,
        /// What differs.
        reason: String,
    },
    /// The file cannot be written.
    #[error("{path}: cannot be written: {source}")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not where its name stands, but a link or a pointer to it.
    #[error("{path}: {reason}")]
    Elsewhere {
        /// The link or the pointer.
        path: String,
        /// What it is, and how to get the file.
        reason: String,
    },
    /// What should be written does not fit the file.
    #[error("{path}: cannot be written: {reason}")]
    Content {
        /// The file.
        path: String,
        /// What does not fit, and what to do.
        reason: String,
    },
}

impl Error {
    /// True when the user's input, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Write { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::IsADirectory
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::InvalidInput
            ),
            Self::Read { source, .. } => source.kind() == io::ErrorKind::IsADirectory,
            _ => true,
        }
    }
}
