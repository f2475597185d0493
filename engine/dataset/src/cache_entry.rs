//! Rows that were kept in a folder of their own, and their manifest. The manifest is written last: what has none
//! is not there.
//!
//! ```text
//!   <cache>/<key>/<write>/part-00000.parquet …    first
//!   <cache>/<key>/<write>.json                    then: names, sizes and versions of the parts
//! ```
//!
//! Writers do not meet: each has a folder and a manifest of its own, and readers take any that is whole.

use crate::{
    Dataset, Engine, WriteOptions, build_id,
    error::{Error, Result},
    functions::{Accumulators, Totals},
    ledger::Ledger,
    plan_identity::version,
    target::absolute,
};
use datafusion::datasource::listing::ListingTableUrl;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use url::Url;

const MANIFEST: &str = ".json";
const FORMAT: u32 = 2;

/// A place for the rows of one plan.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    /// Ends with a slash.
    url: Url,
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
}

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// The program that wrote the rows.
    build: String,
    rows: usize,
    counted: Counted,
    parts: Vec<Part>,
}

/// What was counted while rows were computed, for sessions that find them computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// What named functions added to accumulators.
    pub totals: Totals,
    /// What nodes had for the ledger.
    pub ledger: Ledger,
}

/// A file of rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Part {
    name: String,
    /// Its size and time of change, or entity tag.
    version: String,
}

/// What is found at an entry.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// Nothing that was finished.
    Nothing,
    /// Parts are lost or are not what was written; the rows belong to this place.
    Damaged(String),
    /// All rows, at this place, and what was counted in them.
    Whole(String, Counted),
}

impl CacheEntry {
    /// The entry of `key` below `cache`, a path or URL. Nothing is made.
    ///
    /// # Errors
    /// A location that is none, or whose store is not known.
    pub(crate) fn open(engine: &Engine, cache: &str, key: &str) -> Result<Self> {
        let unfit = |e: &dyn ToString| Error::target(cache, e.to_string());
        let mut url = match Url::parse(cache) {
            Ok(url) if cache.contains("://") => url,
            _ => {
                let folder = absolute(Path::new(cache)).map_err(|e| unfit(&e))?;
                Url::from_directory_path(folder).map_err(|()| unfit(&"not a path of a folder"))?
            }
        };
        url.path_segments_mut()
            .map_err(|()| unfit(&"not the URL of a folder"))?
            .pop_if_empty()
            .extend([key, ""]);
        let table = ListingTableUrl::parse(&url).map_err(|e| unfit(&e))?;
        let store = engine.context().runtime_env().object_store(&table).map_err(|e| unfit(&e))?;
        let path = ObjectPath::from_url_path(url.path()).map_err(|e| unfit(&e))?;
        Ok(Self { url, store, path })
    }

    /// Looks for rows that are there and are what was written.
    ///
    /// # Errors
    /// A store that does not answer.
    pub(crate) async fn find(&self) -> Result<Found> {
        let mut damaged = Found::Nothing;
        for write in self.writes().await? {
            if let Some(counted) = self.whole(&write).await? {
                return Ok(Found::Whole(self.place(&write), counted));
            }
            damaged = Found::Damaged(self.place(&write));
        }
        Ok(damaged)
    }

    /// Whether the rows at `place` are there and are what was written.
    ///
    /// # Errors
    /// A store that does not answer.
    pub(crate) async fn holds(&self, place: &str) -> Result<bool> {
        match self.write_at(place) {
            Some(write) => Ok(self.whole(write).await?.is_some()),
            None => Ok(false),
        }
    }

    /// Writes the rows of `dataset`: where they were before, or at a new place. Gives the place, and what was counted,
    /// of which the session knows nothing yet.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub(crate) async fn write(&self, dataset: &Dataset, place: Option<&str>) -> Result<(String, Counted)> {
        let engine = dataset.engine();
        let write = match place.and_then(|place| self.write_at(place)) {
            Some(write) => write.to_owned(),
            None => format!("{}-{}", engine.context().session_id(), engine.next_number()),
        };
        let place = self.place(&write);
        let (sums, options) = (Arc::new(Accumulators::default()), WriteOptions::default().overwrite());
        let written = dataset.write_counted(&place, &options, Some(&sums)).await?;
        let counted = Counted { totals: sums.totals(), ledger: written.ledger };
        let build = build_id()?.to_owned();
        let parts = self.parts(&write).await?;
        let manifest = Manifest { format: FORMAT, build, rows: written.rows, counted, parts };
        let text = serde_json::to_vec_pretty(&manifest).map_err(|e| self.failure(&e))?;
        let publish = self.store.put(&self.manifest_of(&write), text.into()).await;
        publish.map_err(|e| self.failure(&e))?;
        Ok((place, manifest.counted))
    }

    /// Removes the rows, the manifests first.
    ///
    /// # Errors
    /// Files that cannot be removed.
    pub(crate) async fn remove(&self) -> Result<()> {
        for write in self.writes().await? {
            match self.store.delete(&self.manifest_of(&write)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(self.failure(&e)),
            }
        }
        if let Some(folder) = self.local() {
            return match tokio::fs::remove_dir_all(folder).await {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failure(&e)),
                _ => Ok(()),
            };
        }
        let all = self.store.list(Some(&self.path)).map_ok(|file| file.location).boxed();
        let removed: Result<Vec<_>, _> = self.store.delete_stream(all).try_collect().await;
        removed.map(drop).map_err(|e| self.failure(&e))
    }

    /// The folder, where it is one of this machine.
    pub(crate) fn local(&self) -> Option<PathBuf> {
        self.is_local().then(|| self.url.to_file_path().ok()).flatten()
    }

    fn is_local(&self) -> bool {
        self.url.scheme() == "file"
    }

    fn place(&self, write: &str) -> String {
        format!("{}{write}/", self.url)
    }

    fn write_at<'p>(&self, place: &'p str) -> Option<&'p str> {
        place.strip_prefix(self.url.as_str())?.strip_suffix('/')
    }

    fn manifest_of(&self, write: &str) -> ObjectPath {
        self.path.clone().join(format!("{write}{MANIFEST}"))
    }

    /// The writes that were finished, sorted: those with a manifest.
    async fn writes(&self) -> Result<Vec<String>> {
        let files = self.files(&self.path).await?;
        let manifests = files.iter().filter_map(|file| {
            let mut below = file.location.prefix_match(&self.path)?;
            let name = below.next().filter(|_| below.next().is_none())?;
            name.as_ref().strip_suffix(MANIFEST).map(str::to_owned)
        });
        let mut writes: Vec<String> = manifests.collect();
        writes.sort();
        Ok(writes)
    }

    /// What was counted in the rows of `write`, if they are there and are what was written. A manifest that is lost or
    /// cannot be understood means rows that are as good as lost.
    async fn whole(&self, write: &str) -> Result<Option<Counted>> {
        let text = match self.store.get(&self.manifest_of(write)).await {
            Ok(found) => found.bytes().await,
            Err(e) => Err(e),
        };
        match text {
            Ok(text) => match Manifest::read(&text) {
                Some(manifest) if self.parts(write).await? == manifest.parts => Ok(Some(manifest.counted)),
                _ => Ok(None),
            },
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failure(&e)),
        }
    }

    /// The files of a write as they are now.
    async fn parts(&self, write: &str) -> Result<Vec<Part>> {
        let files = self.files(&self.path.clone().join(write)).await?;
        let part = |file: &ObjectMeta| Part {
            name: file.location.filename().unwrap_or_default().to_owned(),
            version: version(file, self.is_local()),
        };
        let mut parts: Vec<Part> = files.iter().map(part).collect();
        parts.sort();
        Ok(parts)
    }

    async fn files(&self, folder: &ObjectPath) -> Result<Vec<ObjectMeta>> {
        match self.store.list(Some(folder)).try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            found => found.map_err(|e| self.failure(&e)),
        }
    }

    fn failure(&self, error: &dyn ToString) -> Error {
        Error::target(&self.url, error.to_string())
    }
}

impl Manifest {
    fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|manifest: &Self| manifest.format == FORMAT)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::functions::Total;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_manifest_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Manifest::read(&bytes), None);
        }

        #[test]
        fn a_manifest_is_read_as_it_was_written_unless_its_format_is_another(
            parts in prop::collection::vec(("[a-z0-9.-]{1,20}", ".{0,20}"), 0..5),
            rows in any::<usize>(),
            // Sums may be no numbers at all, which JSON does not have.
            sums in prop::collection::btree_map("[0-9] .{0,9}", any::<u64>(), 0..5),
            format in FORMAT..FORMAT + 2,
        ) {
            let parts = parts.into_iter().map(|(name, version)| Part { name, version }).collect();
            let total = |bits: u64| if bits.is_multiple_of(2) { Total::Integer(bits as i64) } else { Total::Float(f64::from_bits(bits)) };
            let totals: Totals = sums.into_iter().map(|(key, bits)| (key, total(bits))).collect();
            let counted = Counted { totals, ledger: Ledger::default() };
            let written = Manifest { format, build: "b".into(), rows, counted, parts };
            let read = Manifest::read(&serde_json::to_vec(&written).unwrap());
            // NaN is not equal to itself, its text is.
            prop_assert_eq!(format!("{read:?}"), format!("{:?}", (format == FORMAT).then_some(written)));
        }
    }
}
