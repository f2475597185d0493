//! The plan node that reads images: one partition a file, rows sorted by voxel.
//!
//! A blocking thread inflates the file, keeps the voxels of the mask (in memory within `memory_limit`,
//! else in a temporary file) and sends batches through a bounded channel.

use crate::files_exec::{FileRows, FilesExec, batch_rows};
use crate::mean_image::add;
use crate::number::Number;
use crate::series_room::SeriesRoom;
use crate::series_rows::{RowBuilder, Rows};
use crate::steps::describe;
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
use voxelflow_dataset::LedgerNotes;
use voxelflow_signal::MeanVolume;
use voxelflow_storage::Stamp;

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
        self.schema.index_of(self.source.kind.sorted_by()).ok()
    }

    fn rows(&self, image: usize) -> Option<usize> {
        let rows = self.source.rows(image)?;
        Some(rows.min(self.limit.unwrap_or(usize::MAX)))
    }

    fn describe(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Source { options, space, .. } = self.source.as_ref();
        write!(f, "mask={}, ", options.mask())?;
        describe(&options.volumes, &space.grid).iter().try_for_each(|step| write!(f, "{step}, "))?;
        options.volumes.atlas.as_ref().map_or(Ok(()), |atlas| write!(f, "atlas={atlas}, "))
    }

    fn limit(&self) -> Option<usize> {
        self.limit
    }

    fn read(
        &self,
        number: usize,
        context: Arc<TaskContext>,
        notes: &Arc<LedgerNotes>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let Some(image) = self.source.images.get(number) else {
            return plan_err!("the table has {} images, none with number {number}", self.source.images.len());
        };
        let rows = RowBuilder::new(image, self.source.space.grid.shape, Arc::clone(&self.schema));
        let batch_rows = batch_rows(image.volumes * self.source.kind.point_bytes() / 4, &context);
        let mut stream = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let limit = self.source.options.memory_limit;
        let task = ReadTask {
            source: Arc::clone(&self.source),
            partition: number,
            rows,
            limit: self.limit.unwrap_or(usize::MAX),
            batch_rows,
            room: SeriesRoom::new(&format!("NiftiExec[{number}]"), limit, context),
            notes: Arc::clone(notes),
            to: stream.tx(),
        };
        stream.spawn_blocking(move || Ok(task.run()?));
        Ok(stream.build())
    }
}

/// Reads one file, on a thread of its own.
pub(crate) struct ReadTask {
    pub source: Arc<Source>,
    partition: usize,
    pub rows: RowBuilder,
    pub limit: usize,
    pub batch_rows: usize,
    pub room: SeriesRoom,
    pub notes: Arc<LedgerNotes>,
    to: Sender<PlanResult<RecordBatch>>,
}

impl ReadTask {
    fn run(mut self) -> Result<()> {
        let source = Arc::clone(&self.source);
        source.load_file_mask()?;
        let image = &source.images[self.partition];
        let mask = match (source.known_mask(self.partition), &image.mask) {
            (None, Some(own)) if source.mask == MaskChoice::Brain => {
                Some(Some(Arc::new(Mask::from_file(own, image, &source.space, &source.stores)?)))
            }
            (known, _) => known,
        };
        match (source.kind.computed, image.double, source.kind.double) {
            (true, false, _) => self.compute::<f32>(image, mask),
            (true, true, _) => self.compute::<f64>(image, mask),
            (false, _, false) => self.read::<f32>(image, mask),
            (false, _, true) => self.read::<f64>(image, mask),
        }
    }

    /// The values of an image as they are, in the precision of the table.
    fn read<T: Number>(&mut self, image: &Image, mask: Option<Option<Arc<Mask>>>) -> Result<()> {
        match mask {
            Some(mask) => self.read_masked::<T>(image, mask.as_deref()),
            None => self.read_and_mask::<T>(image),
        }
    }

    /// The mask is known: keep its voxels.
    fn read_masked<T: Number>(&mut self, image: &Image, mask: Option<&Mask>) -> Result<()> {
        let voxels = self.voxels(mask);
        if !self.rows.needs_series() || voxels.is_empty() {
            let count = voxels.len();
            return self.send_keys(&Rows::Voxels(voxels), count);
        }
        let mut store = self.room.store::<T>(&image.location, voxels.len(), image.volumes)?;
        let everything = voxels.len() == image.voxels();
        image.for_each_volume(&self.source.stores, |volume| {
            self.check_listener()?;
            store.push(volume, (!everything).then_some(&voxels))
        })?;
        self.send_series(image, voxels, store)
    }

    /// The mask comes from the mean: keep all voxels while it is summed if they fit, else read twice.
    fn read_and_mask<T: Number>(&mut self, image: &Image) -> Result<()> {
        let bytes = T::BYTES * image.voxels() * image.volumes;
        let keep = self.rows.needs_series() && self.room.fits(bytes);
        let mut store = keep.then(|| VolumeStore::<T>::in_memory(image.voxels(), image.volumes));
        let mut mean = MeanVolume::new(image.voxels());
        let stamp = image.stamp(&self.source.stores);
        image.for_each_volume(&self.source.stores, |volume| {
            self.check_listener()?;
            add(&mut mean, volume, image)?;
            store.as_mut().map_or(Ok(()), |s| s.push(volume, None))
        })?;
        let mask = self.found_mask(mean, image, stamp)?;
        let Some(mut store) = store else { return self.read_masked::<T>(image, Some(&mask)) };
        let voxels = self.voxels(Some(&mask));
        store.retain(&voxels);
        self.room.resize(T::BYTES * voxels.len() * image.volumes);
        self.send_series(image, voxels, store)
    }

    /// The automatic mask of an image whose file was `stamp` when its mean was begun.
    pub fn found_mask(&self, mean: MeanVolume, image: &Image, stamp: Option<Stamp>) -> Result<Arc<Mask>> {
        let mask = Arc::new(Mask::auto(&mean.finish(), image, &self.source.space)?);
        self.source.remember(self.partition, stamp, Arc::clone(&mask));
        Ok(mask)
    }

    /// Voxels that become rows.
    pub fn voxels(&self, mask: Option<&Mask>) -> Vec<u32> {
        match mask {
            Some(mask) => mask.voxels.iter().copied().take(self.limit).collect(),
            None => (0..self.source.space.volume_grid().voxels() as u32).take(self.limit).collect(),
        }
    }

    pub fn send_keys(&self, rows: &Rows, count: usize) -> Result<()> {
        // Without series the session's batch size is the only bound.
        let step = self.room.batch_size();
        let batches = (0..count).step_by(step).map(|first| first..count.min(first + step));
        batches.into_iter().try_for_each(|range| self.send(self.rows.batch(rows, range, None)?))
    }

    fn send_series<T: Number>(
        &self,
        image: &Image,
        voxels: Vec<u32>,
        mut store: VolumeStore<T>,
    ) -> Result<()> {
        let (count, rows) = (voxels.len(), Rows::Voxels(voxels));
        self.room.for_each_batch(&mut store, count, image.volumes, self.batch_rows, |range, series| {
            self.send(self.rows.batch(&rows, range, Some(T::column(series)))?)
        })
    }

    pub fn send(&self, batch: RecordBatch) -> Result<()> {
        self.to.blocking_send(Ok(batch)).map_err(|_| Error::Cancelled)
    }

    /// Stops between volumes when nobody waits for the rows any more.
    pub fn check_listener(&self) -> Result<()> {
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
