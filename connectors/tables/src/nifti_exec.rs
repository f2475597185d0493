//! The plan node that reads images: one partition a file, rows sorted by voxel.
//!
//! A blocking thread inflates the file, keeps the voxels of the mask (in memory within `memory_limit`,
//! else in a temporary file) and sends batches through a bounded channel.

use crate::files_exec::{FileRows, FilesExec, batch_rows};
use crate::mean_image::add;
use crate::series_room::SeriesRoom;
use crate::series_rows::{RowBuilder, VOXEL};
use crate::volume_store::VolumeStore;
use crate::{Error, Image, Result, mask::Mask, mask::MaskChoice, nifti_table::Source};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::plan_err;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use voxelflow_signal::MeanVolume;

/// Reads the images of a NIFTI table.
pub type NiftiExec = FilesExec<ImageRows>;

/// What is read of which images.
#[derive(Clone, Debug)]
pub struct ImageRows {
    pub(crate) source: Arc<Source>,
    /// Positions in the table's schema.
    pub(crate) columns: Vec<usize>,
    pub(crate) schema: SchemaRef,
    pub(crate) limit: Option<usize>,
}

impl ImageRows {
    pub(crate) fn try_new(
        source: Arc<Source>,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> PlanResult<Self> {
        let columns = projection.cloned().unwrap_or_else(|| (0..source.schema.fields().len()).collect());
        let schema = Arc::new(source.schema.project(&columns)?);
        Ok(Self { source, columns, schema, limit })
    }
}

impl FileRows for ImageRows {
    const NODE: &'static str = "NiftiExec";

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn files(&self) -> usize {
        self.source.images.len()
    }

    fn sorted_by(&self) -> Option<usize> {
        self.columns.iter().position(|c| *c == VOXEL)
    }

    fn rows(&self, image: usize) -> Option<usize> {
        let rows = match self.source.known_mask(image)? {
            Some(mask) => mask.voxels.len(),
            None => self.source.images.get(image)?.voxels(),
        };
        Some(rows.min(self.limit.unwrap_or(usize::MAX)))
    }

    fn describe(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mask={}, ", self.source.options.mask)
    }

    fn limit(&self) -> Option<usize> {
        self.limit
    }

    fn read(&self, number: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let Some(image) = self.source.images.get(number) else {
            return plan_err!("the table has {} images, none with number {number}", self.source.images.len());
        };
        let rows = RowBuilder::new(image, Arc::clone(&self.schema), self.columns.clone());
        let batch_rows = batch_rows(image.volumes, &context);
        let mut stream = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let limit = self.source.options.memory_limit;
        let task = ReadTask {
            source: Arc::clone(&self.source),
            partition: number,
            rows,
            limit: self.limit.unwrap_or(usize::MAX),
            batch_rows,
            room: SeriesRoom::new(&format!("NiftiExec[{number}]"), limit, context),
            to: stream.tx(),
        };
        stream.spawn_blocking(move || Ok(task.run()?));
        Ok(stream.build())
    }
}

/// Reads one file, on a thread of its own.
struct ReadTask {
    source: Arc<Source>,
    partition: usize,
    rows: RowBuilder,
    limit: usize,
    batch_rows: usize,
    room: SeriesRoom,
    to: Sender<PlanResult<RecordBatch>>,
}

impl ReadTask {
    fn run(mut self) -> Result<()> {
        let source = Arc::clone(&self.source);
        source.load_file_mask()?;
        let image = &source.images[self.partition];
        match (source.known_mask(self.partition), &image.mask) {
            (Some(Some(mask)), _) => self.read_masked(image, &mask),
            (Some(None), _) => self.read_masked(image, &Mask::everything(image)),
            (None, Some(own)) if source.mask == MaskChoice::Brain => {
                self.read_masked(image, &Mask::from_file(own, image, &source.stores)?)
            }
            (None, _) => self.read_and_mask(image),
        }
    }

    /// The mask is known: keep its voxels.
    fn read_masked(&mut self, image: &Image, mask: &Mask) -> Result<()> {
        let voxels = &mask.voxels[..mask.voxels.len().min(self.limit)];
        if !self.rows.needs_series() || voxels.is_empty() {
            return self.send_keys(voxels);
        }
        let mut store = self.room.store(&image.location, voxels.len(), image.volumes)?;
        let everything = voxels.len() == image.voxels();
        image.for_each_volume(&self.source.stores, |volume| {
            self.check_listener()?;
            store.push(volume, (!everything).then_some(voxels))
        })?;
        self.send_series(image, voxels, store)
    }

    /// The mask comes from the mean: keep all voxels while it is summed if they fit, else read twice.
    fn read_and_mask(&mut self, image: &Image) -> Result<()> {
        let bytes = 4 * image.voxels() * image.volumes;
        let keep = self.rows.needs_series() && self.room.fits(bytes);
        let mut store = keep.then(|| VolumeStore::in_memory(image.voxels(), image.volumes));
        let mut mean = MeanVolume::new(image.voxels());
        let stamp = image.stamp(&self.source.stores);
        image.for_each_volume(&self.source.stores, |volume| {
            self.check_listener()?;
            add(&mut mean, volume, image)?;
            store.as_mut().map_or(Ok(()), |s| s.push(volume, None))
        })?;
        let mask = Arc::new(Mask::auto(&mean.finish(), image)?);
        self.source.remember(self.partition, stamp, Arc::clone(&mask));
        let Some(mut store) = store else { return self.read_masked(image, &mask) };
        let voxels = &mask.voxels[..mask.voxels.len().min(self.limit)];
        store.retain(voxels);
        self.room.resize(4 * voxels.len() * image.volumes);
        self.send_series(image, voxels, store)
    }

    fn send_keys(&self, voxels: &[u32]) -> Result<()> {
        // Without series the session's batch size is the only bound.
        let rows = self.room.batch_size();
        voxels.chunks(rows).try_for_each(|chunk| self.send(self.rows.batch(chunk, Vec::new())?))
    }

    fn send_series(&self, image: &Image, voxels: &[u32], mut store: VolumeStore) -> Result<()> {
        let (rows, volumes) = (voxels.len(), image.volumes);
        self.room.for_each_batch(&mut store, rows, volumes, self.batch_rows, |rows, series| {
            self.send(self.rows.batch(&voxels[rows], series)?)
        })
    }

    fn send(&self, batch: RecordBatch) -> Result<()> {
        self.to.blocking_send(Ok(batch)).map_err(|_| Error::Cancelled)
    }

    /// Stops between volumes when nobody waits for the rows any more.
    fn check_listener(&self) -> Result<()> {
        if self.to.is_closed() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

impl Source {
    /// The mask of an image if it is known without reading its volumes: `Some(None)` is every voxel.
    pub(crate) fn known_mask(&self, partition: usize) -> Option<Option<Arc<Mask>>> {
        match self.mask {
            MaskChoice::Everything => Some(None),
            MaskChoice::File(_) => self.file_mask.get().map(|mask| Some(Arc::clone(mask))),
            MaskChoice::Auto => self.remembered(partition).map(Some),
            // Of many runs there are many: each is read with its image.
            MaskChoice::Brain => None,
        }
    }
}
