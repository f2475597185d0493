//! The JSON file beside confounds: where fMRIPrep's components came from.

use super::keys::Keys;
use crate::Result;
use crate::opening::open;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// What is said about one column of confounds; `None` for what is not said.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ConfoundNote {
    /// `Method`, such as `aCompCor`, `tCompCor`.
    pub method: Option<String>,
    /// `Mask`: `CSF`, `WM` or `combined`.
    pub mask: Option<String>,
    /// `Retained`: false for a component that fMRIPrep computed and left out of the file.
    pub retained: Option<bool>,
}

/// The JSON file beside `*_desc-confounds_timeseries.tsv`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfoundsSidecar {
    /// Notes by the column's name, such as `a_comp_cor_00`, in the order of names.
    pub notes: BTreeMap<String, ConfoundNote>,
}

impl ConfoundsSidecar {
    /// Reads the sidecar at `path`.
    ///
    /// # Errors
    /// [`crate::Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads a sidecar from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// [`crate::Error::Line`] for what is not a JSON object, [`crate::Error::Key`] for a value of the wrong
    /// kind, [`crate::Error::Read`] from the system.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let note = |(column, keys): (String, Keys)| {
            let note = ConfoundNote {
                method: keys.text("Method")?,
                mask: keys.text("Mask")?,
                retained: keys.truth("Retained")?,
            };
            Ok((column, note))
        };
        Ok(Self { notes: Keys::from_reader(source, name)?.into_objects().map(note).collect::<Result<_>>()? })
    }
}
