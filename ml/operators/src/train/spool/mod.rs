//! Rows of a plan in files of their own, so that ranks can read them in any order and as often as they like with
//! memory for a minibatch only.
//!
//! ```text
//!   input ─► SpoolPartsExec, a file each partition ─┐            ┌─► rank 0: SpoolReader ─► SpoolFeed
//!                             └► keys ─► driver: order file ──► ─┼─► rank 1        …
//!                                                                └─► …
//! ```
//! Executors write the parts into one folder that all ranks see; the driver, which sees no series, puts the rows in
//! the one order that does not depend on partitions. Numbers are little-endian.

mod exact_sum;
mod feed;
mod longest;
mod parts_exec;
mod reader;
mod row_facts;
mod storage;

pub(super) use feed::SpoolFeed;
pub(super) use reader::SpoolReader;
pub(super) use storage::{SpoolFolder, unique};

use super::row_order::{Keys, Known, Origin, Rows, Spooled};
use crate::{
    Error,
    series_column::{SeriesColumn, UNKNOWN},
};
use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Float64Type, UInt32Type, UInt64Type},
};
use datafusion::{
    common::{DataFusionError, internal_datafusion_err, runtime::JoinSet},
    error::Result,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::ExecutionPlan,
};
use exact_sum::ExactSum;
use futures::TryStreamExt;
use longest::longest;
use parts_exec::{SpoolPartsExec, Spooling, part_file};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};
use storage::Storage;
use tokio::sync::Semaphore;
use voxelflow_dataset::{Ledger, Runner};
use voxelflow_stage::Error as StageError;

/// Rows whose order is written at once.
const ORDER_PIECE: usize = 64 << 10;

/// Where spooled rows lie: all that a rank needs to read them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SpoolPlace {
    /// The folder, a path or URL.
    folder: String,
    /// Files of the parts.
    parts: Vec<String>,
    /// The file of the order: of each row the number of its part and its number in the part, 32 bits each.
    order: String,
    /// Number of rows.
    pub rows: usize,
    /// Points of every series, or of the longest.
    pub time_points: usize,
}

/// Rows that have been spooled, and what is known of them.
#[derive(Debug)]
pub(super) struct Spool {
    /// Where they lie.
    pub place: SpoolPlace,
    /// Where rows are from, sorted.
    pub origins: Vec<Origin>,
    /// Points of the series of each.
    pub points: Vec<usize>,
    /// The rows in their order, where they have voxels.
    pub known: Vec<Known>,
    /// Digests of series that do not vary.
    flat: HashSet<u64>,
    /// blake3 of the rows' digests, in their order.
    pub hash: blake3::Hash,
    sum: f64,
    squares: f64,
    /// Values that are summed: those of series that are finite.
    summed: u64,
    /// What the input had for the data-quality ledger.
    pub ledger: Ledger,
    /// Where the rows are, in their order: of each its part, and its number in it.
    places: Vec<[u32; 2]>,
}

/// How rows are spooled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    /// Whose rows these are, for messages.
    pub operator: &'static str,
    /// Whether series may be null or not finite.
    pub not_finite: bool,
    /// Whether rows may be left out afterwards.
    pub may_shrink: bool,
}

impl Spool {
    /// Runs `input`, as many partitions at a time as the session has target partitions, and spools into `folder`.
    ///
    /// # Errors
    /// An input that fails, storage that fails; unless they are asked for, series with null or values that are not
    /// finite.
    pub async fn fill(
        input: &Arc<dyn ExecutionPlan>,
        Filling { operator, not_finite, may_shrink }: Filling,
        folder: &SpoolFolder,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let SeriesColumn { name, time_points, .. } = SeriesColumn::find_of_runs(operator, &input.schema())?;
        let time_points = match time_points {
            UNKNOWN => longest(input, &name, context).await?,
            known => known,
        };
        let spooling =
            Spooling { folder: folder.location().to_owned(), column: name, time_points, not_finite };
        let plan = Arc::new(SpoolPartsExec::try_new(spooling, Arc::clone(input))?);
        let run = Runner::of(context).run(plan, Arc::clone(context)).await?;
        let gathered = gather(run.streams, context.session_config().target_partitions()).await;
        let gathered = gathered.map_err(own_cause)?;
        let ledger = run.counts.gather().await?;
        let (sum, squares, summed) = (gathered.sum.value(), gathered.squares.value(), gathered.summed);
        let ordered = Rows::in_order(gathered.partitions);
        if let Some((origin, [a, b])) = ordered.uneven {
            let named = Some(origin.to_string()).filter(|name| !name.is_empty());
            let of = named.unwrap_or_else(|| "rows without keys".into());
            let reason = format!("series of {of} are of {a} and of {b} points: a run has one length");
            return Err(Error::from(StageError::Data { what: operator.into(), reason }).into());
        }
        let place = SpoolPlace {
            folder: folder.location().to_owned(),
            parts: ordered.parts.into_iter().map(part_file).collect(),
            order: order_file(),
            rows: ordered.places.len(),
            time_points,
        };
        write_order(&place, &ordered.places, context).await?;
        let (origins, known, flat, hash) = (ordered.origins, ordered.known, ordered.flat, ordered.hash);
        let points = ordered.points.into_iter().map(|points| points as usize).collect();
        let places = if may_shrink { ordered.places } else { Vec::new() };
        Ok(Self { place, origins, points, known, flat, hash, sum, squares, summed, ledger, places })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.place.rows
    }

    /// Leaves out the rows that are not `kept`, of a spool that may shrink.
    ///
    /// # Errors
    /// Storage that fails.
    pub async fn retain(&mut self, kept: &[bool], context: &TaskContext) -> Result<()> {
        let mut each = kept.iter();
        self.places.retain(|_| each.next().is_none_or(|kept| *kept));
        let mut each = kept.iter();
        self.known.retain(|_| each.next().is_none_or(|kept| *kept));
        self.place.rows = self.places.len();
        self.place.order = order_file();
        write_order(&self.place, &self.places, context).await
    }

    /// Distinct subjects, sorted.
    pub fn subjects(&self) -> BTreeSet<&str> {
        self.origins.iter().filter_map(Origin::subject).collect()
    }

    /// Distinct runs, sorted: as a message names them.
    pub fn runs(&self) -> BTreeSet<String> {
        self.origins.iter().filter_map(Origin::run).map(|run| run.to_string()).collect()
    }

    /// Series that are in both, values and all: how many, and the first by its keys.
    pub fn in_both(&self, other: &Self) -> Option<(usize, String)> {
        let there: Vec<Option<u32>> = self.origins.iter().map(|origin| other.number_of(origin)).collect();
        let mut both = self.known.iter().filter(|series| {
            let origin = there.get(series.origin as usize).copied().flatten();
            origin.is_some_and(|origin| other.known.binary_search(&Known { origin, ..**series }).is_ok())
        });
        let first = both.next()?;
        Some((1 + both.count(), self.named(first)))
    }

    /// A series by its keys.
    fn named(&self, series: &Known) -> String {
        let origin = self.origins.get(series.origin as usize).map(Origin::to_string);
        let origin = origin.filter(|origin| !origin.is_empty()).map(|origin| origin + ", ");
        format!("{}voxel {}", origin.unwrap_or_default(), series.voxel)
    }

    /// Series of `other` that are here under the name of another run, value for value: how many, the first by its keys, and
    /// what it is called here. What does not vary is the same everywhere, and does not count.
    pub fn renamed_in(&self, other: &Self) -> Option<(usize, String, String)> {
        let mut own: Vec<&Known> = self.known.iter().filter(|k| !self.flat.contains(&k.digest)).collect();
        own.sort_unstable_by_key(|known| known.digest);
        let run = |spool: &Self, known: &Known| spool.origins.get(known.origin as usize).map(Origin::key);
        let mut renamed = other.known.iter().filter_map(|series| {
            let first = own.partition_point(|known| known.digest < series.digest);
            let mut same = own[first..].iter().take_while(|known| known.digest == series.digest);
            let name = run(other, series);
            same.find(|known| run(self, known) != name).map(|known| (series, *known))
        });
        let (series, known) = renamed.next()?;
        let (first, same) = (other.named(series), self.named(known));
        Some((1 + renamed.count(), first, same))
    }

    fn number_of(&self, origin: &Origin) -> Option<u32> {
        self.origins.binary_search(origin).ok().map(|number| number as u32)
    }

    /// Mean and standard deviation of all values of series that are finite.
    pub fn moments(&self) -> (f64, f64) {
        let n = self.summed.max(1) as f64;
        let mean = self.sum / n;
        (mean, (self.squares / n - mean * mean).max(0.0).sqrt())
    }
}

/// What this crate has to say of a row is said without the partition that it came from.
fn own_cause(error: DataFusionError) -> DataFusionError {
    if let DataFusionError::External(outer) = &error
        && let Some(voxelflow_dataset::Error::Partition { source_error, .. }) = outer.downcast_ref()
        && let DataFusionError::External(cause) = source_error.find_root()
        && cause.is::<crate::Error>()
    {
        return DataFusionError::Shared(Arc::clone(source_error));
    }
    error
}

/// What came of all partitions.
#[derive(Default)]
struct Gathered {
    partitions: Vec<Rows>,
    sum: ExactSum,
    squares: ExactSum,
    summed: u64,
}

async fn gather(streams: Vec<SendableRecordBatchStream>, at_once: usize) -> Result<Gathered> {
    let permits = Arc::new(Semaphore::new(at_once.max(1)));
    let mut tasks = JoinSet::new();
    for (partition, batches) in streams.into_iter().enumerate() {
        let permits = Arc::clone(&permits);
        tasks.spawn(async move {
            let _permit = permits.acquire().await.map_err(|e| DataFusionError::External(e.into()))?;
            Ok::<_, DataFusionError>((partition, gather_partition(batches).await?))
        });
    }
    let mut done = Vec::new();
    let mut gathered = Gathered::default();
    while let Some(partition) = tasks.join_next().await {
        let (partition, (rows, [sum, squares], summed)) =
            partition.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
        gathered.sum.merge(&sum);
        gathered.squares.merge(&squares);
        gathered.summed += summed;
        done.push((partition, rows));
    }
    done.sort_unstable_by_key(|(partition, _)| *partition);
    gathered.partitions = done.into_iter().map(|(_, rows)| rows).collect();
    Ok(gathered)
}

async fn gather_partition(mut batches: SendableRecordBatchStream) -> Result<(Rows, [ExactSum; 2], u64)> {
    let (mut rows, mut sums, mut summed) = (Rows::default(), <[ExactSum; 2]>::default(), 0);
    while let Some(batch) = batches.try_next().await? {
        let columns = Columns::of(&batch).ok_or_else(|| {
            internal_datafusion_err!("spooled rows came with the columns {}", batch.schema())
        })?;
        // Rows that are not finite, where they may be, are in no mean.
        let points = columns.spooled.points.iter().zip(columns.sums[1]);
        summed += points.filter(|(_, s)| s.is_finite()).map(|(points, _)| u64::from(*points)).sum::<u64>();
        for (sum, values) in sums.iter_mut().zip(columns.sums) {
            values.iter().filter(|value| value.is_finite()).for_each(|value| sum.add(*value));
        }
        rows.extend(&Keys::of(&batch)?, columns.spooled);
    }
    Ok((rows, sums, summed))
}

/// The columns that [`SpoolPartsExec`] adds.
struct Columns<'a> {
    spooled: Spooled<'a>,
    sums: [&'a [f64]; 2],
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        let column = |name: &str| batch.column_by_name(name);
        let count = |name: &str| Some(&column(name)?.as_primitive_opt::<UInt64Type>()?.values()[..]);
        let number = |name: &str| Some(&column(name)?.as_primitive_opt::<Float64Type>()?.values()[..]);
        let rows = &column(parts_exec::ROW)?.as_primitive_opt::<UInt32Type>()?.values()[..];
        let points = &column(parts_exec::POINTS)?.as_primitive_opt::<UInt32Type>()?.values()[..];
        let (parts, digests) = (count(parts_exec::PART)?, count(parts_exec::DIGEST)?);
        let sums = [number(parts_exec::SUM)?, number(parts_exec::SQUARES)?];
        Some(Self { spooled: Spooled { parts, rows, points, digests, sums }, sums })
    }
}

impl SpoolPlace {
    /// Spools features as they lie, run behind run, each of rows of `width` numbers.
    ///
    /// # Errors
    /// Storage that fails.
    pub async fn of_features(
        runs: &[&[f64]],
        width: usize,
        folder: &SpoolFolder,
        context: &TaskContext,
    ) -> Result<Self> {
        let rows = runs.iter().map(|run| run.len()).sum::<usize>().checked_div(width).unwrap_or(0);
        let place = Self {
            folder: folder.location().to_owned(),
            parts: vec![part_file(unique())],
            order: order_file(),
            rows,
            time_points: width,
        };
        let mut part = Storage::open(&place.folder, context)?.create(&place.parts[0])?;
        for piece in runs.iter().flat_map(|run| run.chunks(ORDER_PIECE)) {
            let bytes: Vec<u8> = piece.iter().flat_map(|value| value.to_le_bytes()).collect();
            part.write(&bytes).await?;
        }
        part.finish().await?;
        let order: Vec<[u32; 2]> = (0..u32::try_from(rows).unwrap_or(u32::MAX)).map(|row| [0, row]).collect();
        write_order(&place, &order, context).await?;
        Ok(place)
    }
}

/// The name of a new file of the order.
fn order_file() -> String {
    format!("order-{:016x}.u32", unique())
}

async fn write_order(place: &SpoolPlace, order: &[[u32; 2]], context: &TaskContext) -> Result<()> {
    let mut file = Storage::open(&place.folder, context)?.create(&place.order)?;
    for piece in order.chunks(ORDER_PIECE) {
        let bytes: Vec<u8> = piece.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        file.write(&bytes).await?;
    }
    Ok(file.finish().await?)
}
