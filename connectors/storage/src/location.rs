//! A location as a user writes it, and what it means.

use crate::{Error, Result, registry::authority};
use object_store::{ObjectStore, path::Path as ObjectPath};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// What a location means, before any store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file or folder of this machine, absolute.
    Local(PathBuf),
    /// An object in a store that is reached by URL.
    Remote(Url),
}

impl Place {
    /// Reads a URL (`file:///…`, `memory://name/…`, `s3://bucket/…`) or a plain path, which is relative
    /// to the working directory.
    ///
    /// # Errors
    /// [`Error::Location`] for an empty text, a broken URL, or a `file://` URL with a host.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |reason: String| Error::Location { text: text.into(), reason };
        if text.is_empty() {
            return Err(invalid("it is empty: give a path or a URL".into()));
        }
        if !has_scheme(text) {
            let path = std::path::absolute(text).map_err(|e| invalid(e.to_string()))?;
            return Ok(Self::Local(path));
        }
        let url = Url::parse(text)
            .map_err(|e| Error::Location { text: without_secrets(text), reason: e.to_string() })?;
        if url.scheme() != "file" {
            return remote(text, url);
        }
        url.to_file_path().map(Self::Local).map_err(|()| {
            invalid(
                "a file URL has three slashes, as in file:///data/run.nii.gz; or write the plain path".into(),
            )
        })
    }

    /// The path on this machine.
    ///
    /// # Errors
    /// [`Error::NotLocal`] for anything else; `purpose` says what needs a local file, and `text` is the
    /// location as written.
    pub fn local(text: &str, purpose: &str) -> Result<PathBuf> {
        match Self::parse(text)? {
            Self::Local(path) => Ok(path),
            Self::Remote(_) => Err(Error::NotLocal { text: text.into(), purpose: purpose.into() }),
        }
    }
}

/// A URL of a store, which has a path and nothing that would be dropped silently.
fn remote(text: &str, url: Url) -> Result<Place> {
    let invalid = |reason: &str| Error::Location { text: without_secrets(text), reason: reason.into() };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("names and passwords do not belong into it: they are read from the environment"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("a `?` or `#` in a name is written %3F or %23"));
    }
    Ok(Place::Remote(url))
}

/// The text of a URL without what stands before an `@`, or after a `?`, which may be a key.
fn without_secrets(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.rsplit_once('@').map_or_else(|| rest.to_owned(), |(_, rest)| format!("…@{rest}"));
    let rest = rest.split_once('?').map_or(rest.as_str(), |(rest, _)| rest).to_owned();
    format!("{scheme}://{rest}")
}

/// `scheme://` at the start, where the scheme has two letters or more.
fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// A place in an object store.
#[derive(Clone, Debug)]
pub struct Location {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// The path in the store.
    pub path: ObjectPath,
    /// `scheme://authority`, under which DataFusion can register the store.
    pub store_url: Url,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.store_url, self.path)
    }
}

impl Location {
    /// What a location as written names, in the store that `store_of` gives for its scheme and authority.
    ///
    /// # Errors
    /// [`Error::Location`] for a text that is no location, and what `store_of` says.
    pub fn in_store(text: &str, store_of: &dyn Fn(&Url) -> Result<Arc<dyn ObjectStore>>) -> Result<Self> {
        let invalid = |reason: String| Error::Location { text: text.into(), reason };
        let (url, path) = match Place::parse(text)? {
            Place::Local(local) => {
                let url = Url::parse("file:///").map_err(|e| invalid(e.to_string()))?;
                (url, Self::object_path(&local)?)
            }
            Place::Remote(url) => {
                let path = ObjectPath::from_url_path(url.path()).map_err(|e| invalid(e.to_string()))?;
                (url, path)
            }
        };
        let store = store_of(&url)?;
        let store_url = Url::parse(&authority(&url)).map_err(|e| invalid(e.to_string()))?;
        Ok(Self { store, path, store_url })
    }

    /// The object path of an absolute local path, whose missing tail need not exist.
    pub(crate) fn object_path(path: &Path) -> Result<ObjectPath> {
        ObjectPath::from_absolute_path(path)
            .map_err(|e| Error::Location { text: path.display().to_string(), reason: e.to_string() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_plain_path_is_relative_to_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(Place::parse("data/a b.nii").unwrap(), Place::Local(here.join("data/a b.nii")));
        assert_eq!(Place::parse("/x/y").unwrap(), Place::Local("/x/y".into()));
    }

    #[test]
    fn a_file_url_is_decoded() {
        assert_eq!(Place::parse("file:///x/a%20b.nii").unwrap(), Place::Local("/x/a b.nii".into()));
    }

    #[test]
    fn a_file_url_with_two_slashes_says_what_is_right() {
        let e = Place::parse("file://data/run.nii").unwrap_err();
        assert!(e.to_string().contains("three slashes"), "{e}");
        assert!(e.is_input());
    }

    #[test]
    fn what_needs_a_local_file_says_so() {
        let e = Place::local("memory://m/x", "a NIFTI table").unwrap_err();
        assert!(e.to_string().contains("a NIFTI table"), "{e}");
    }

    #[test]
    fn keys_in_a_location_are_refused_and_not_repeated() {
        for text in [
            "s3://AK:hush@lab/x",
            "s3://AK:hu/sh@lab/x",
            "https://me:hush@host/x",
            "https://host/x?token=hush",
        ] {
            let e = Place::parse(text).unwrap_err().to_string();
            assert!(!e.contains("hush") && !e.contains("hu/sh") && !e.contains("AK"), "{e}");
        }
        assert!(Place::parse("s3://lab/mail@home").is_ok());
    }

    #[test]
    fn a_name_with_a_question_mark_is_not_cut_silently() {
        let e = Place::parse("s3://lab/what?.nii").unwrap_err();
        assert!(e.to_string().contains("%3F"), "{e}");
    }

    #[test]
    fn an_empty_location_is_refused() {
        assert!(Place::parse("").is_err());
    }
}
