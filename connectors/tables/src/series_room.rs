//! Room for the series of one file while it is read: memory within the table's limit and the session's pool, else a
//! temporary file.

use crate::nifti_options::ByteSize;
use crate::number::Number;
use crate::volume_store::VolumeStore;
use crate::{Error, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{TaskContext, spill_file::SpillFile};
use std::fs::OpenOptions;
use std::{ops::Range, sync::Arc};

/// Memory and disk that one file may take.
pub(crate) struct SeriesRoom {
    limit: usize,
    reservation: MemoryReservation,
    context: Arc<TaskContext>,
    /// Keeps the temporary file until the rows are sent.
    spill: Option<Arc<dyn SpillFile>>,
}

impl SeriesRoom {
    /// At most `limit` of the memory of `context`; `consumer` is the name that its pool knows.
    pub fn new(consumer: &str, limit: ByteSize, context: Arc<TaskContext>) -> Self {
        let reservation = MemoryConsumer::new(consumer).with_can_spill(true).register(context.memory_pool());
        Self { limit: limit.0, reservation, context, spill: None }
    }

    /// Rows of a batch without series: then the session's size is the only bound.
    pub fn batch_size(&self) -> usize {
        self.context.session_config().batch_size().max(1)
    }

    /// Reserves `bytes` if the table's limit and the session's memory pool allow it.
    pub fn fits(&self, bytes: usize) -> bool {
        bytes <= self.limit && self.reservation.try_resize(bytes).is_ok()
    }

    /// Gives back what is over `bytes`.
    pub fn resize(&self, bytes: usize) {
        self.reservation.resize(bytes);
    }

    /// Bytes that the table may take for a file.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Reserves `bytes` more, which the file cannot do without.
    pub fn grow(&self, bytes: usize) {
        self.reservation.grow(bytes);
    }

    /// Gives `bytes` back.
    pub fn shrink(&self, bytes: usize) {
        self.reservation.shrink(bytes);
    }

    /// A store of `rows` series of `points` values; `file` is what is read, for messages.
    ///
    /// # Errors
    /// [`Error::Spill`] when they fit neither into memory nor on the disk.
    pub fn store<T: Number>(&mut self, file: &str, rows: usize, points: usize) -> Result<VolumeStore<T>> {
        if self.fits(T::BYTES * rows * points) {
            return Ok(VolumeStore::in_memory(rows, points));
        }
        // The session's temporary folder, where it has one; else the system's.
        let failed = |e: std::io::Error| Error::Spill { path: file.to_owned(), reason: e.to_string() };
        let manager = &self.context.runtime_env().disk_manager;
        let temporary = manager.create_tmp_file(&format!("series of {file}"))?;
        let file = match temporary.path() {
            Some(path) => OpenOptions::new().read(true).write(true).open(path).map_err(failed)?,
            None => tempfile::tempfile().map_err(failed)?,
        };
        self.spill = Some(temporary);
        Ok(VolumeStore::on_disk(rows, file))
    }

    /// Gives the series of a store, whose writing ends, to `each`: the rows, and `[rows, points]`; at most `batch_rows`
    /// at once.
    pub fn for_each_batch<T: Number>(
        &self,
        store: &mut VolumeStore<T>,
        rows: usize,
        points: usize,
        batch_rows: usize,
        mut each: impl FnMut(Range<usize>, Vec<T>) -> Result<()>,
    ) -> Result<()> {
        store.finish()?;
        let window = match self.spill {
            None => rows,
            Some(_) => self.window(rows, T::BYTES * points, batch_rows),
        };
        let mut buffer = Vec::new();
        for first in (0..rows).step_by(window.max(1)) {
            let range = first..rows.min(first + window);
            let view = store.window(range.clone(), &mut buffer)?;
            for r in (0..range.len()).step_by(batch_rows) {
                let here = r..range.len().min(r + batch_rows);
                let series = view.series(here.clone(), points);
                each(first + here.start..first + here.end, series)?;
            }
        }
        Ok(())
    }
    /// How many series are read back from the temporary file at a time: half of the limit at most, as many as the
    /// session's pool has room for, and whole batches, so that rows are cut into batches alike whatever the limit.
    fn window(&self, rows: usize, series: usize, batch_rows: usize) -> usize {
        let series = series.max(1);
        let mut window = (self.limit / (2 * series)).min(rows);
        while window > batch_rows && self.reservation.try_resize(window * series).is_err() {
            window /= 2;
        }
        (window - window % batch_rows).max(batch_rows)
    }
}
