//! Files by path or URL, and the stores that URLs lie in: the only module that asks where a file is.

use crate::{Result, SeriesFormat, image_reader::ImageReader};
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use voxelflow_formats::{NiftiReader, ReadOptions, XformPolicy, mgh::MghReader, not_opened};
use voxelflow_storage::{Listing, Location, ObjectReader, Place, Stamp, StoreRegistry, read_object, stamp};

/// How stores are reached: as a session says, or, without one, as the environment does.
#[derive(Clone, Debug, Default)]
pub struct Stores(Option<Arc<dyn ObjectStoreRegistry>>);

impl Stores {
    /// Those of a session or of a task.
    pub fn of(runtime: &RuntimeEnv) -> Self {
        Self::in_registry(Arc::clone(&runtime.object_store_registry))
    }

    /// Those that a session knows.
    pub fn in_registry(registry: Arc<dyn ObjectStoreRegistry>) -> Self {
        Self(Some(registry))
    }

    /// The files under a folder.
    pub(crate) fn list(&self, location: &str) -> Result<Listing> {
        Ok(match &self.0 {
            None => Listing::of(location)?,
            Some(stores) => Listing::of_store(location, &|url| {
                stores.get_store(url).map_err(|e| unusable(url.as_str(), e))
            })?,
        })
    }

    /// Opens an image: MGH by its name, else NIfTI, of which `xform` says what to believe.
    pub(crate) fn open_image(&self, location: &str, xform: XformPolicy) -> Result<ImageReader> {
        let options = ReadOptions { xform };
        if SeriesFormat::Mgh.endings().iter().any(|ending| location.ends_with(ending)) {
            let reader = MghReader::from_reader(self.open(location)?, location)?;
            return Ok(ImageReader::Mgh(Box::new(reader)));
        }
        Ok(ImageReader::Nifti(Box::new(match Place::parse(location)? {
            // Of a plain file it is seen at once whether it is too short.
            Place::Local(path) => NiftiReader::open_with(path, &options)?,
            Place::Remote(_) => NiftiReader::from_reader(self.open(location)?, location, &options)?,
        })))
    }

    /// Opens a file of bytes; one in a store is read in ranges, ahead of the reader.
    pub(crate) fn open(&self, location: &str) -> Result<Box<dyn Read + Send>> {
        Ok(match Place::parse(location)? {
            Place::Local(path) => {
                let opened = std::fs::File::open(&path);
                Box::new(opened.map_err(|source| not_opened(&path, source))?)
            }
            Place::Remote(_) => Box::new(ObjectReader::open(self.object(location)?)?),
        })
    }

    /// Reads a small file, if it is there.
    pub(crate) fn read_if_there(&self, location: &str) -> Result<Option<Vec<u8>>> {
        match Place::parse(location)? {
            Place::Local(path) => match std::fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(source) => {
                    Err(voxelflow_formats::Error::Open { path: path.display().to_string(), source }.into())
                }
            },
            Place::Remote(_) => Ok(read_object(&self.object(location)?)?.map(Into::into)),
        }
    }

    /// Length and time of change of a file, if it can be looked at.
    pub(crate) fn stamp(&self, location: &str) -> Option<Stamp> {
        match Place::parse(location).ok()? {
            Place::Local(path) => {
                let metadata = std::fs::metadata(path).ok()?;
                Some(Stamp { length: metadata.len(), modified: metadata.modified().ok(), version: None })
            }
            Place::Remote(_) => stamp(&self.object(location).ok()?).ok(),
        }
    }

    fn object(&self, url: &str) -> Result<Location> {
        Ok(match &self.0 {
            None => StoreRegistry::global().resolve(url)?,
            Some(stores) => {
                Location::in_store(url, &|url| stores.get_store(url).map_err(|e| unusable(url.as_str(), e)))?
            }
        })
    }
}

/// Why DataFusion has no store for a URL.
fn unusable(url: &str, e: DataFusionError) -> voxelflow_storage::Error {
    let other = |reason: String| voxelflow_storage::Error::Location { text: url.into(), reason };
    match e {
        DataFusionError::External(inner) => match inner.downcast::<voxelflow_storage::Error>() {
            Ok(ours) => *ours,
            Err(inner) => other(inner.to_string()),
        },
        e => other(e.strip_backtrace()),
    }
}

/// A location without `.nii` or `.nii.gz`.
pub(crate) fn without_extension(location: &str) -> &str {
    let location = location.strip_suffix(".gz").unwrap_or(location);
    location.strip_suffix(".nii").unwrap_or(location)
}
