//! A look at a location before any work: within five seconds it is usable, or it is said which part of its
//! description is wrong. Nothing is written, and no store of the registry is touched. A store that is busy, or fails by
//! itself, is asked again for a few seconds; then its description is not at fault, and the work, which is more patient,
//! may begin.

mod answer;

use crate::{
    Error, Field, Location, Place, Result, StoreOptions, fault::Fault, patience::Patience, registry,
    s3::S3Settings,
};
use answer::Asked;
use futures::StreamExt;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use std::{path::Path, time::Duration};
use tokio::time::timeout;
use url::Url;

/// What a location is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Something lies there: a file, or a folder that is not empty.
    Read,
    /// Something can be made there.
    Write,
}

/// A check lasts no longer than this.
const PATIENCE: Duration = Duration::from_millis(4800);

/// Checks that `text` can be used for `purpose`, with what `options` and the environment say of its store.
///
/// # Errors
/// [`Error::Setting`], which names the field that is wrong; [`Error::Location`] for a text that is no location.
pub async fn check(text: &str, options: &StoreOptions, purpose: Purpose) -> Result<()> {
    let url = match Place::parse(text)? {
        Place::Local(path) => return local(text, &path, purpose),
        Place::Remote(url) => url,
    };
    if purpose == Purpose::Write && matches!(url.scheme(), "http" | "https") {
        let reason = "http:// and https:// can be read only: write to a local path, s3:// or hdfs://";
        return Err(Fault::new(Field::Scheme, reason).at(text));
    }
    let path = ObjectPath::from_url_path(url.path())
        .map_err(|e| Error::Location { text: text.into(), reason: e.to_string() })?;
    let asked = Asked::of(&url, options).map_err(|fault| fault.at(text))?;
    let looked = match url.scheme() {
        // What is in memory is in the registry's store alone.
        "memory" => {
            let Location { store, path, .. } = crate::StoreRegistry::global().resolve(text)?;
            look(store.as_ref(), &path, purpose).await
        }
        _ => {
            let store = registry::open(&url, options, Patience::Check).map_err(|e| relocated(e, text))?;
            match timeout(PATIENCE, look(store.as_ref(), &path, purpose)).await {
                Ok(looked) => looked,
                Err(_) => return Err(asked.silent().at(text)),
            }
        }
    };
    match looked {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::new(Field::Path, "nothing lies there: look for its name").at(text)),
        Err(e) if answer::is_passing(&e) => {
            log::warn!("{text}: the store is busy, or fails: {e}");
            Ok(())
        }
        Err(e) => Err(asked.fault(&e).at(text)),
    }
}

/// An error about a store, told of the location that asked for it.
fn relocated(e: Error, text: &str) -> Error {
    match e {
        Error::Setting { field, reason, .. } => Fault { field, reason }.at(text),
        other => other,
    }
}

/// False when there is nothing to read at `path`.
async fn look(store: &dyn ObjectStore, path: &ObjectPath, purpose: Purpose) -> object_store::Result<bool> {
    let listed = match store.list(Some(path)).next().await {
        None => Ok(false),
        Some(found) => found.map(|_| true),
    };
    if purpose == Purpose::Write || matches!(listed, Ok(true)) {
        return listed.map(|_| true);
    }
    if let Err(e) = &listed
        && answer::is_passing(e)
    {
        return listed;
    }
    if path.as_ref().is_empty() {
        return listed;
    }
    // An object of exactly this name is not in the listing; and who may not list may still read it.
    match store.head(path).await {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. }) if listed.is_ok() => Ok(false),
        // HTTP servers are not listed as a rule, and answer for the file itself.
        Err(e) if matches!(listed, Err(StoreError::NotSupported { .. })) => Err(e),
        Err(e) => Err(listed.err().unwrap_or(e)),
    }
}

fn local(text: &str, path: &Path, purpose: Purpose) -> Result<()> {
    let fault = |field, reason: &str| Err(Fault::new(field, reason).at(text));
    match purpose {
        Purpose::Read => match path.try_exists() {
            Ok(true) => Ok(()),
            Ok(false) => fault(Field::Path, "nothing lies there: look for its name"),
            Err(e) => fault(Field::Permission, &format!("it cannot be looked at: {e}")),
        },
        Purpose::Write => match path.ancestors().skip(1).find_map(|folder| folder.metadata().ok()) {
            Some(folder) if !folder.is_dir() => fault(Field::Path, "a file lies where a folder is needed"),
            Some(folder) if folder.permissions().readonly() => {
                fault(Field::Permission, "its folder cannot be written to: choose another one")
            }
            _ => Ok(()),
        },
    }
}

impl Asked {
    /// What is asked for `url`, as far as the answers depend on it.
    fn of(url: &Url, options: &StoreOptions) -> Result<Self, Fault> {
        Ok(match url.scheme() {
            "s3" | "s3a" => {
                let bucket = crate::s3::bucket(url)?.to_owned();
                Self::S3 { bucket, settings: Box::new(S3Settings::resolve(&options.s3)?) }
            }
            "hdfs" => Self::Hdfs { authority: url.authority().into() },
            _ => Self::Http { authority: url.authority().into() },
        })
    }
}
