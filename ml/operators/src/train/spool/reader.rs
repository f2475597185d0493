//! Reads spooled rows, any of them in any order: from memory maps of local files, or by ranges from a store.

use super::{
    SpoolPlace,
    storage::{Storage, unusable},
};
use crate::{Error, Result};
use datafusion::execution::TaskContext;
use futures::{TryStreamExt, stream};
use memmap2::Mmap;
use object_store::{ObjectStore, ObjectStoreExt, path::Path as ObjectPath};
use rayon::prelude::*;
use std::{fs::File, ops::Range, path::Path, sync::Arc};
use tokio::runtime::Handle;

/// Bytes of a number in the order file; a row has two.
const WORD: usize = size_of::<u32>();
/// Mapped rows that a thread copies at a time: each waits for a page and for memory, so many wait together.
const TOGETHER: usize = 128;
/// Parts that are asked for ranges at the same time.
const REQUESTS: usize = 8;

/// Spooled rows by their number, for any number of threads.
#[derive(Debug)]
pub(in crate::train) struct SpoolReader {
    rows: usize,
    time_points: usize,
    order: Held,
    parts: Parts,
    folder: String,
}

/// Bytes that can be looked at.
#[derive(Debug)]
enum Held {
    Mapped(Mmap),
    Fetched(Vec<u8>),
}

#[derive(Debug)]
enum Parts {
    Mapped(Vec<Mmap>),
    Ranged { store: Arc<dyn ObjectStore>, paths: Vec<ObjectPath>, runtime: Handle },
}

/// A row: its part and its number in the part.
type Place = (usize, usize);

impl SpoolReader {
    /// Opens the rows of `place`; within the runtime that is to fetch them, if they are not local.
    ///
    /// # Errors
    /// Files that are missing or of another size than they must have.
    pub async fn open(place: &SpoolPlace, context: &TaskContext) -> Result<Self> {
        let storage = Storage::open(&place.folder, context)?;
        let (order, parts) = match &storage {
            Storage::Local(folder) => {
                let parts: Result<_> = place.parts.iter().map(|part| map(&folder.join(part))).collect();
                (Held::Mapped(map(&folder.join(&place.order))?), Parts::Mapped(parts?))
            }
            Storage::Remote { store, folder, .. } => {
                let path = folder.clone().join(place.order.as_str());
                let failed = |e: object_store::Error| unusable(&storage.describe(&place.order), &e);
                let order = store.get(&path).await.map_err(failed)?.bytes().await.map_err(failed)?;
                let paths = place.parts.iter().map(|part| folder.clone().join(part.as_str())).collect();
                let parts = Parts::Ranged { store: Arc::clone(store), paths, runtime: Handle::current() };
                (Held::Fetched(order.into()), parts)
            }
        };
        let reader = Self {
            rows: place.rows,
            time_points: place.time_points,
            order,
            parts,
            folder: place.folder.clone(),
        };
        if reader.order.bytes().len() != 2 * WORD * place.rows || place.time_points == 0 {
            return Err(reader.damaged("the order of the rows has another length than it must have"));
        }
        Ok(reader)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Points of every series.
    pub fn time_points(&self) -> usize {
        self.time_points
    }

    /// Whether rows must be fetched: then it pays to ask for them early.
    pub fn fetches(&self) -> bool {
        matches!(self.parts, Parts::Ranged { .. })
    }

    /// Copies the series of `rows` into `into`, `[rows.len(), time_points]` row-major. Blocks.
    ///
    /// # Errors
    /// A row that does not exist, storage that fails.
    pub fn read<N: Spooled>(&self, rows: &[usize], into: &mut [N]) -> Result<()> {
        if into.len() != rows.len() * self.time_points {
            let (values, rows, points) = (into.len(), rows.len(), self.time_points);
            return Err(self.damaged(&format!("{values} values are wanted for {rows} series of {points}")));
        }
        match &self.parts {
            Parts::Mapped(parts) => {
                let copy_some = |(rows, into): (&[usize], &mut [N])| {
                    for (row, into) in rows.iter().zip(into.chunks_exact_mut(self.time_points)) {
                        let (part, number) = self.place(*row)?;
                        let bytes = parts.get(part).and_then(|bytes| bytes.get(self.range::<N>(number)));
                        let bytes = bytes.ok_or_else(|| self.damaged("a part is shorter than its rows"))?;
                        N::copy(bytes, into);
                    }
                    Ok(())
                };
                let together = into.par_chunks_mut(TOGETHER * self.time_points);
                rows.par_chunks(TOGETHER).zip(together).try_for_each(copy_some)
            }
            Parts::Ranged { store, paths, runtime } => {
                let places: Vec<Place> = rows.iter().map(|row| self.place(*row)).collect::<Result<_>>()?;
                runtime.block_on(self.fetch(store, paths, &places, into))
            }
        }
    }

    /// Makes the system read the pages of `rows`, so that reading the rows does not wait for a disk.
    pub fn touch(&self, rows: &[usize]) {
        let Parts::Mapped(parts) = &self.parts else { return };
        let mut sum = 0;
        for row in rows {
            let place = self.place(*row).ok();
            let bytes = place.and_then(|(part, number)| parts.get(part)?.get(self.range::<f32>(number)));
            sum += bytes.into_iter().flat_map(|b| b.iter().step_by(PAGE)).fold(0, |s, b| s + u64::from(*b));
        }
        std::hint::black_box(sum);
    }

    /// Fetches the rows in `places`, part by part, neighbours at once.
    async fn fetch<N: Spooled>(
        &self,
        store: &Arc<dyn ObjectStore>,
        paths: &[ObjectPath],
        places: &[Place],
        into: &mut [N],
    ) -> Result<()> {
        let mut wanted: Vec<(Place, &mut [N])> =
            places.iter().copied().zip(into.chunks_exact_mut(self.time_points)).collect();
        wanted.sort_unstable_by_key(|(place, _)| *place);
        let of_parts = wanted.chunk_by_mut(|(a, _), (b, _)| a.0 == b.0).map(Ok);
        stream::iter(of_parts)
            .try_for_each_concurrent(REQUESTS, |of_part| async move {
                let part = of_part.first().map_or(0, |((part, _), _)| *part);
                let path =
                    paths.get(part).ok_or_else(|| self.damaged("a row is in a part that is not there"))?;
                let range = |number: usize| {
                    let Range { start, end } = self.range::<N>(number);
                    start as u64..end as u64
                };
                let ranges: Vec<Range<u64>> = of_part.iter().map(|((_, number), _)| range(*number)).collect();
                let fetched = store.get_ranges(path, &ranges).await.map_err(|e| unusable(path, &e))?;
                for (bytes, (_, into)) in fetched.iter().zip(of_part) {
                    N::copy(bytes, into);
                }
                Ok(())
            })
            .await
    }

    fn place(&self, row: usize) -> Result<Place> {
        let at = 2 * WORD * row;
        let words = self
            .order
            .bytes()
            .get(at..at + 2 * WORD)
            .and_then(|b| b.as_chunks::<WORD>().0.first_chunk::<2>());
        let Some([part, number]) = words else {
            return Err(self.damaged(&format!("row {row} is wanted of {}", self.rows)));
        };
        Ok((u32::from_le_bytes(*part) as usize, u32::from_le_bytes(*number) as usize))
    }

    /// The bytes of the row `number` of a part.
    fn range<N>(&self, number: usize) -> Range<usize> {
        let bytes = self.time_points * size_of::<N>();
        number * bytes..(number + 1) * bytes
    }

    fn damaged(&self, reason: &str) -> Error {
        unusable(&self.folder, &reason)
    }
}

/// Bytes of a page of memory, or less.
const PAGE: usize = 4096;

impl Held {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Fetched(bytes) => bytes,
        }
    }
}

/// Numbers that rows are of: series are of 32 bits, features of 64.
pub(in crate::train) trait Spooled: Send {
    /// Fills `into` from bytes.
    fn copy(bytes: &[u8], into: &mut [Self])
    where
        Self: Sized;
}

impl Spooled for f32 {
    fn copy(bytes: &[u8], into: &mut [Self]) {
        for (value, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
            *value = Self::from_le_bytes(*bytes);
        }
    }
}

impl Spooled for f64 {
    fn copy(bytes: &[u8], into: &mut [Self]) {
        for (value, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
            *value = Self::from_le_bytes(*bytes);
        }
    }
}

fn map(path: &Path) -> Result<Mmap> {
    let failed = |e: std::io::Error| unusable(&path.display(), &e);
    let file = File::open(path).map_err(failed)?;
    // SAFETY: files of a spool are shown whole, never written again, and removed as a whole folder.
    #[allow(unsafe_code)] // a map is unsafe because another process could cut the file off
    unsafe { Mmap::map(&file) }.map_err(failed)
}
