//! The plan node that reads images: one partition a file, rows sorted by voxel.
//!
//! A blocking thread inflates the file, keeps the voxels of the mask (in memory within `memory_limit`,
//! else in a temporary file) and sends batches through a bounded channel.

use crate::mean_image::add;
use crate::series_rows::{RowBuilder, VOXEL};
use crate::volume_store::VolumeStore;
use crate::{Error, Image, Result, mask::Mask, mask::MaskChoice, nifti_table::Source, travel::image_number};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Statistics, plan_err, stats::Precision, tree_node::TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext, spill_file::SpillFile};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, expressions::Column};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
};
use futures::{TryStreamExt, stream};
use std::fs::OpenOptions;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use voxelflow_signal::MeanVolume;

/// Bytes of series in a batch, unless one series alone is longer.
const BATCH_BYTES: usize = 4 << 20;

/// Reads the images of a NIFTI table: one partition an image, or, where a plan is run in parts, one partition a
/// row of `numbers`, which says which image it is.
#[derive(Debug)]
pub struct NiftiExec {
    reader: Reader,
    numbers: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
}

/// What is read of which images.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub source: Arc<Source>,
    /// Positions in the table's schema.
    pub columns: Vec<usize>,
    pub schema: SchemaRef,
    pub limit: Option<usize>,
}

impl NiftiExec {
    pub(crate) fn try_new(
        source: Arc<Source>,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> PlanResult<Self> {
        let columns = projection.cloned().unwrap_or_else(|| (0..source.schema.fields().len()).collect());
        let schema = Arc::new(source.schema.project(&columns)?);
        Ok(Self::of(Reader { source, columns, schema, limit }, None))
    }

    pub(crate) fn of(reader: Reader, numbers: Option<Arc<dyn ExecutionPlan>>) -> Self {
        let mut equivalence = EquivalenceProperties::new(Arc::clone(&reader.schema));
        if let Some(at) = reader.columns.iter().position(|c| *c == VOXEL) {
            equivalence.add_ordering([PhysicalSortExpr::new_default(Arc::new(Column::new("voxel", at)))]);
        }
        let partitions = match &numbers {
            Some(numbers) => numbers.output_partitioning().partition_count(),
            None => reader.source.images.len(),
        };
        let properties = Arc::new(PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { reader, numbers, properties }
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(crate) fn numbers(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        self.numbers.as_ref()
    }
}

impl Reader {
    /// Rows of an image, where that is known without reading volumes.
    fn rows(&self, image: usize) -> Option<usize> {
        let rows = match self.source.known_mask(image)? {
            Some(mask) => mask.voxels.len(),
            None => self.source.images.get(image)?.voxels(),
        };
        Some(rows.min(self.limit.unwrap_or(usize::MAX)))
    }

    fn read(&self, number: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let Some(image) = self.source.images.get(number) else {
            return plan_err!("the table has {} images, none with number {number}", self.source.images.len());
        };
        let rows = RowBuilder::new(image, Arc::clone(&self.schema), self.columns.clone());
        let reservation = MemoryConsumer::new(format!("NiftiExec[{number}]")).with_can_spill(true);
        let task = ReadTask {
            source: Arc::clone(&self.source),
            partition: number,
            rows,
            limit: self.limit.unwrap_or(usize::MAX),
            batch_rows: (BATCH_BYTES / (4 * image.volumes.max(1)))
                .clamp(1, context.session_config().batch_size().max(1)),
            reservation: reservation.register(context.memory_pool()),
            context,
            spill: None,
            to: stream.tx(),
        };
        stream.spawn_blocking(move || Ok(task.run()?));
        Ok(stream.build())
    }
}

impl DisplayAs for NiftiExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Reader { source, schema, limit, .. } = &self.reader;
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        write!(
            f,
            "NiftiExec: files={}, mask={}, columns=[{}]",
            source.images.len(),
            source.options.mask,
            names.join(", ")
        )?;
        limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for NiftiExec {
    fn name(&self) -> &'static str {
        "NiftiExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.numbers.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::of(self.reader.clone(), children.pop())))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::of(self.reader.clone(), children.pop())))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.reader.schema);
        let images = self.reader.source.images.len();
        let rows: Option<usize> = match args.partition() {
            // Which images they are is in the rows of `numbers`.
            _ if self.numbers.is_some() => None,
            Some(partition) => self.reader.rows(partition),
            None => (0..images).map(|image| self.reader.rows(image)).sum(),
        };
        statistics.num_rows = rows.map_or(Precision::Absent, Precision::Exact);
        Ok(Arc::new(statistics))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let Some(numbers) = &self.numbers else { return self.reader.read(partition, context) };
        let (reader, numbers) = (self.reader.clone(), numbers.execute(partition, Arc::clone(&context))?);
        let rows = stream::once(async move { reader.read(image_number(numbers).await?, context) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.try_flatten())))
    }
}

/// Reads one file, on a thread of its own.
struct ReadTask {
    source: Arc<Source>,
    partition: usize,
    rows: RowBuilder,
    limit: usize,
    batch_rows: usize,
    reservation: MemoryReservation,
    context: Arc<TaskContext>,
    /// Keeps the temporary file until the rows are sent.
    spill: Option<Arc<dyn SpillFile>>,
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
        let mut store = self.store(image, voxels.len())?;
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
        let keep = self.rows.needs_series() && self.fits(bytes);
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
        self.reservation.resize(4 * voxels.len() * image.volumes);
        self.send_series(image, voxels, store)
    }

    /// Reserves `bytes` if the table's limit and the session's memory pool allow it.
    fn fits(&self, bytes: usize) -> bool {
        bytes <= self.source.options.memory_limit.0 && self.reservation.try_resize(bytes).is_ok()
    }

    fn store(&mut self, image: &Image, voxels: usize) -> Result<VolumeStore> {
        if self.fits(4 * voxels * image.volumes) {
            return Ok(VolumeStore::in_memory(voxels, image.volumes));
        }
        // The session's temporary folder, where it has one; else the system's.
        let failed = |e: std::io::Error| Error::Spill { path: image.name(), reason: e.to_string() };
        let manager = &self.context.runtime_env().disk_manager;
        let temporary = manager.create_tmp_file(&format!("series of {}", image.name()))?;
        let file = match temporary.path() {
            Some(path) => OpenOptions::new().read(true).write(true).open(path).map_err(failed)?,
            None => tempfile::tempfile().map_err(failed)?,
        };
        self.spill = Some(temporary);
        Ok(VolumeStore::on_disk(voxels, file))
    }

    fn send_keys(&self, voxels: &[u32]) -> Result<()> {
        // Without series the session's batch size is the only bound.
        let rows = self.context.session_config().batch_size().max(1);
        voxels.chunks(rows).try_for_each(|chunk| self.send(self.rows.batch(chunk, Vec::new())?))
    }

    fn send_series(&self, image: &Image, voxels: &[u32], mut store: VolumeStore) -> Result<()> {
        store.finish()?;
        // Half of the limit for a window read back from disk; the other half is for what lies around it.
        let window = match self.spill {
            None => voxels.len(),
            Some(_) => (self.source.options.memory_limit.0 / (8 * image.volumes.max(1))).max(self.batch_rows),
        };
        let mut buffer = Vec::new();
        for first in (0..voxels.len()).step_by(window.max(1)) {
            let range = first..voxels.len().min(first + window);
            let view = store.window(range.clone(), &mut buffer)?;
            for r in (0..range.len()).step_by(self.batch_rows) {
                let rows = r..range.len().min(r + self.batch_rows);
                let series = view.series(rows.clone(), image.volumes);
                let keys = &voxels[first + rows.start..first + rows.end];
                self.send(self.rows.batch(keys, series)?)?;
            }
        }
        Ok(())
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
