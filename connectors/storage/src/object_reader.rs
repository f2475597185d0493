//! An object of any store as `std::io::Read`, in ranges that are fetched ahead of the reader.

use crate::{Error, Location, Result, blocking};
use bytes::{Buf, Bytes};
use object_store::{ObjectMeta, ObjectStoreExt};
use std::{io, time::SystemTime};
use tokio::task::JoinHandle;

/// Bytes of the first range: whoever wants a header fetches little.
const FIRST: u64 = 128 << 10;
/// Bytes of a range at most. Two are held.
const MOST: u64 = 8 << 20;

/// Length, time of change and version of an object or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes.
    pub length: u64,
    /// When it was written, where that is known.
    pub modified: Option<SystemTime>,
    /// The store's word for this content, where it has one.
    pub version: Option<String>,
}

/// Reads an object from its beginning to its end, with the next range under way while one is used. A range that
/// fails is tried again by the store, so that a long reading does not start over.
#[derive(Debug)]
pub struct ObjectReader {
    location: Location,
    size: u64,
    /// Bytes before this one were fetched or are under way.
    next: u64,
    range: u64,
    here: Bytes,
    ahead: Option<JoinHandle<Result<Bytes>>>,
}

impl ObjectReader {
    /// Asks the store for the object's size.
    ///
    /// # Errors
    /// [`Error::Store`] for an object that is not there or may not be read.
    pub fn open(location: Location) -> Result<Self> {
        let size = meta(&location)?.size;
        Ok(Self { location, size, next: 0, range: FIRST, here: Bytes::new(), ahead: None })
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Starts to fetch the next range, unless there is none.
    fn fetch(&mut self) -> Result<Option<JoinHandle<Result<Bytes>>>> {
        if self.next >= self.size {
            return Ok(None);
        }
        let range = self.next..self.size.min(self.next + self.range);
        self.next = range.end;
        self.range = (2 * self.range).min(MOST);
        let Location { store, path, .. } = self.location.clone();
        let work = async move {
            let bytes = store.get_range(&path, range.clone()).await.map_err(|e| Error::store(&path, e))?;
            match bytes.len() as u64 == range.end - range.start {
                true => Ok(bytes),
                false => Err(changed(&path)),
            }
        };
        blocking::start(work).map(Some)
    }

    fn advance(&mut self) -> Result<()> {
        let first = self.next == 0;
        let Some(work) = self.ahead.take().map_or_else(|| self.fetch(), |work| Ok(Some(work)))? else {
            return Ok(());
        };
        // Behind a header there may be no interest in more.
        if !first {
            self.ahead = self.fetch()?;
        }
        self.here = blocking::wait(work)??;
        Ok(())
    }
}

impl io::Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.here.is_empty() {
            self.advance().map_err(io::Error::other)?;
        }
        let length = into.len().min(self.here.len());
        self.here.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        if let Some(work) = &self.ahead {
            work.abort();
        }
    }
}

/// The whole of a small object, if there is one.
///
/// # Errors
/// [`Error::Store`].
pub fn read_object(location: &Location) -> Result<Option<Bytes>> {
    let Location { store, path, .. } = location.clone();
    let work = async move {
        match store.get(&path).await {
            Ok(answer) => answer.bytes().await.map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
        .map_err(|e| Error::store(&path, e))
    };
    blocking::wait(blocking::start(work)?)?
}

/// What distinguishes the object's content from what it was, without reading it.
///
/// # Errors
/// [`Error::Store`].
pub fn stamp(location: &Location) -> Result<Stamp> {
    let meta = meta(location)?;
    Ok(Stamp { length: meta.size, modified: Some(meta.last_modified.into()), version: meta.e_tag })
}

fn meta(location: &Location) -> Result<ObjectMeta> {
    let Location { store, path, .. } = location.clone();
    let work = async move { store.head(&path).await.map_err(|e| Error::store(&path, e)) };
    blocking::wait(blocking::start(work)?)?
}

fn changed(path: &object_store::path::Path) -> Error {
    let source = "it has changed while it was read".into();
    Error::store(path, object_store::Error::Generic { store: "object", source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::StoreRegistry;
    use std::io::Read;

    fn object(bytes: &[u8]) -> Location {
        let location = StoreRegistry::default().resolve("memory://reader/folder/object").unwrap();
        let (store, path, bytes) = (location.store.clone(), location.path.clone(), bytes.to_vec());
        blocking::wait(blocking::start(async move { store.put(&path, bytes.into()).await }).unwrap())
            .unwrap()
            .unwrap();
        location
    }

    #[test]
    fn every_byte_comes_once_and_in_order() {
        for length in [0, 1, FIRST - 1, FIRST, FIRST + 1, 3 * FIRST, 3 * FIRST + 1, 7 * FIRST + 5] {
            let bytes: Vec<u8> = (0..length).map(|i| ((i * 2_654_435_761) >> 11) as u8).collect();
            let mut reader = ObjectReader::open(object(&bytes)).unwrap();
            assert_eq!(reader.size(), length);
            let mut found = Vec::new();
            reader.read_to_end(&mut found).unwrap();
            assert!(found == bytes, "{length} bytes");
            assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
        }
    }

    /// Readers wait on threads of async runtimes as well.
    #[tokio::test]
    async fn a_runtime_of_one_thread_may_wait() {
        let location = object(b"abc");
        let mut text = String::new();
        ObjectReader::open(location.clone()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), stamp(&location).unwrap().length), ("abc", 3));
        assert_eq!(read_object(&location).unwrap().unwrap(), "abc");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let location = StoreRegistry::default().resolve("memory://reader/nothing").unwrap();
        assert_eq!(read_object(&location).unwrap(), None);
        let e = ObjectReader::open(location).unwrap_err();
        assert!(e.is_input() && e.to_string().contains("nothing"), "{e}");
    }
}
