//! What cleaning does to one batch of rows: the series of each run by that run's cleaner, put back in their places.

use crate::clean_confounds::{RunCleaner, RunCleaners, Stretch};
use crate::{Error, NotFinite, Result, SessionStores};
use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeListArray, Float32Array,
        ListArray, RecordBatch,
    },
    buffer::OffsetBuffer,
    compute::filter_record_batch,
    datatypes::{DataType, FieldRef, Float32Type, Float64Type, SchemaRef},
    util::display::{ArrayFormatter, FormatOptions},
};
use datafusion::common::{DataFusionError, internal_datafusion_err, internal_err};
use std::sync::Arc;
use voxelflow_dataset::{Finding, Ledger, LedgerNotes};
use voxelflow_signal::Cleaner;
use voxelflow_stage::{KEY_COLUMNS, PARCEL_COLUMNS, PLACE_COLUMNS, SERIES_COLUMN};

/// How series are cleaned.
#[derive(Clone, Debug)]
pub(crate) enum Cleaning {
    /// All in one way.
    Alike(Arc<RunCleaner>),
    /// Each run by its own confounds.
    ByRun(Arc<RunCleaners>),
}

impl Cleaning {
    /// Cleaning of all runs by one cleaner, of which the ledger says nothing.
    pub fn alike(cleaner: Cleaner) -> Self {
        Self::Alike(Arc::new(RunCleaner { cleaner, ledger: Ledger::default() }))
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Alike(run) => run.cleaner.describe(),
            Self::ByRun(cleaners) => cleaners.plan.description.clone(),
        }
    }

    pub fn time_points(&self) -> usize {
        match self {
            Self::Alike(run) => run.cleaner.time_points(),
            Self::ByRun(cleaners) => cleaners.plan.time_points,
        }
    }

    /// The type of the series afterwards: Float32, of one length if all runs keep as many volumes.
    pub fn series_type(&self, before: &DataType) -> DataType {
        let kept = match self {
            Self::Alike(run) => Some(run.cleaner.kept()),
            Self::ByRun(cleaners) => cleaners.plan.kept(),
        };
        match (before, kept.and_then(|kept| i32::try_from(kept).ok())) {
            (DataType::FixedSizeList(item, _), Some(kept)) => {
                DataType::FixedSizeList(cleaned_item(item), kept)
            }
            (DataType::FixedSizeList(item, _), None) => DataType::List(cleaned_item(item)),
            (other, _) => other.clone(),
        }
    }

    /// Stretches of rows that one cleaner is for.
    fn of_rows(&self, batch: &RecordBatch, stores: &SessionStores) -> Result<Vec<Stretch>> {
        match self {
            Self::Alike(run) => Ok(vec![(0..batch.num_rows(), Arc::clone(run))]),
            Self::ByRun(cleaners) => cleaners.of_rows(batch, stores),
        }
    }
}

fn cleaned_item(item: &FieldRef) -> FieldRef {
    Arc::new(item.as_ref().clone().with_data_type(DataType::Float32))
}

/// What is done to a batch.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub cleaning: Cleaning,
    pub not_finite: NotFinite,
    pub series: usize,
    pub schema: SchemaRef,
}

/// Series of a batch as cleaning leaves them.
#[derive(Default)]
struct Cleaned {
    /// One after the other.
    values: Vec<f32>,
    /// Points of each.
    lengths: Vec<usize>,
    /// Rows without variance.
    constant: Vec<usize>,
    /// Rows with NaN or infinity.
    broken: Vec<usize>,
}

impl Work {
    pub fn clean(
        &self,
        batch: &RecordBatch,
        stores: &SessionStores,
        notes: &LedgerNotes,
    ) -> Result<RecordBatch, DataFusionError> {
        let list = batch.column(self.series).as_any().downcast_ref::<FixedSizeListArray>();
        let list = list.ok_or_else(|| internal_datafusion_err!("{SERIES_COLUMN} is not a FixedSizeList"))?;
        let cleaned = self.clean_series(batch, list, stores, notes)?;
        let broken = &cleaned.broken;
        let note = |rows: &[usize], what, reason| notes.note_rows(batch, rows, what, reason);
        note(&cleaned.constant, Finding::Constant, "no variance over the volumes that are kept")?;
        if let (NotFinite::Error, Some(first)) = (self.not_finite, broken.first()) {
            let first = describe(batch, *first);
            return Err(Error::NotFinite { first, count: broken.len(), rows: batch.num_rows() }.into());
        }
        if self.not_finite == NotFinite::Drop && !broken.is_empty() {
            let mut kept = vec![true; batch.num_rows()];
            broken.iter().for_each(|row| kept[*row] = false);
            note(broken, Finding::Dropped, "NaN or infinity in the series")?;
            let cleaned = self.with_series(batch, list, cleaned)?;
            return Ok(filter_record_batch(&cleaned, &BooleanArray::from(kept))?);
        }
        note(broken, Finding::Zeroed, "NaN or infinity in the series")?;
        self.with_series(batch, list, cleaned)
    }

    /// Cleans every series, of 32 or 64 bits; those with NaN or infinity are zero, or as they were.
    fn clean_series(
        &self,
        batch: &RecordBatch,
        list: &FixedSizeListArray,
        stores: &SessionStores,
        notes: &LedgerNotes,
    ) -> Result<Cleaned, DataFusionError> {
        let points = self.cleaning.time_points();
        match list.value_type() {
            DataType::Float64 => {
                let series = values::<Float64Type>(list, points, f64::NAN)?;
                self.clean_values(batch, list, &series, stores, notes)
            }
            _ => {
                let series = values::<Float32Type>(list, points, f32::NAN)?;
                self.clean_values(batch, list, &series, stores, notes)
            }
        }
    }

    fn clean_values<T: Copy + Into<f64> + Sync>(
        &self,
        batch: &RecordBatch,
        list: &FixedSizeListArray,
        series: &[T],
        stores: &SessionStores,
        notes: &LedgerNotes,
    ) -> Result<Cleaned, DataFusionError> {
        let points = self.cleaning.time_points();
        let stretches = self.cleaning.of_rows(batch, stores)?;
        let mut told: Vec<&Arc<RunCleaner>> = Vec::new();
        for (_, run) in &stretches {
            if !told.iter().any(|known| Arc::ptr_eq(known, run)) {
                notes.note_all(run.ledger.clone());
                told.push(run);
            }
        }
        let mut cleaned = Cleaned::default();
        for (rows, run) in &stretches {
            let cleaner = &run.cleaner;
            let (start, kept) = (cleaned.values.len(), cleaner.kept());
            cleaned.values.resize(start + rows.len() * kept, 0.0);
            let to = &mut cleaned.values[start..];
            let from = &series[rows.start * points..rows.end * points];
            let report = cleaner.clean_into(from, to).map_err(Error::from)?;
            if self.not_finite == NotFinite::Zero {
                report.not_finite.iter().for_each(|row| to[row * kept..(row + 1) * kept].fill(0.0));
            }
            // Rows without a series were cleaned as zeros and are of no account.
            let constant = report.constant.iter().map(|row| rows.start + row);
            cleaned.constant.extend(constant.filter(|row| list.is_valid(*row)));
            cleaned.broken.extend(report.not_finite.iter().map(|row| rows.start + row));
            cleaned.lengths.extend(std::iter::repeat_n(kept, rows.len()));
        }
        Ok(cleaned)
    }

    fn with_series(
        &self,
        batch: &RecordBatch,
        list: &FixedSizeListArray,
        cleaned: Cleaned,
    ) -> Result<RecordBatch, DataFusionError> {
        let values: ArrayRef = Arc::new(Float32Array::from(cleaned.values));
        let nulls = list.nulls().cloned();
        let series: ArrayRef = match self.schema.field(self.series).data_type() {
            DataType::FixedSizeList(item, points) => {
                Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *points, values, nulls)?)
            }
            DataType::List(item) => {
                let offsets = OffsetBuffer::from_lengths(cleaned.lengths);
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
            other => return internal_err!("{SERIES_COLUMN} is {other} after cleaning"),
        };
        let mut columns = batch.columns().to_vec();
        columns[self.series] = series;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// A copy of the series, `[rows, points]`: zeros where a row has none, `missing` where a point is null.
fn values<N: ArrowPrimitiveType>(
    list: &FixedSizeListArray,
    points: usize,
    missing: N::Native,
) -> Result<Vec<N::Native>, DataFusionError> {
    // `values` of a sliced list begins at its first row.
    let items = list.values().as_primitive_opt::<N>();
    let items =
        items.ok_or_else(|| internal_datafusion_err!("{SERIES_COLUMN} does not hold {}", N::DATA_TYPE))?;
    let mut values =
        items.values().get(..list.len() * points).map(<[N::Native]>::to_vec).ok_or_else(|| {
            internal_datafusion_err!(
                "{} values are fewer than {} series of {points}",
                items.len(),
                list.len()
            )
        })?;
    if items.null_count() > 0 {
        values.iter_mut().enumerate().filter(|(n, _)| items.is_null(*n)).for_each(|(_, x)| *x = missing);
    }
    if list.null_count() > 0 {
        values
            .chunks_exact_mut(points)
            .enumerate()
            .filter(|(row, _)| list.is_null(*row))
            .for_each(|(_, series)| series.fill(N::default_value()));
    }
    Ok(values)
}

/// A row by its key columns, for example `subject 01, run 1, voxel 4711` or `subject 01, structure CORTEX_LEFT, vertex 7`.
fn describe(batch: &RecordBatch, row: usize) -> String {
    let options = FormatOptions::default();
    let keys: Vec<String> = KEY_COLUMNS
        .iter()
        .chain(&PLACE_COLUMNS)
        .chain(&PARCEL_COLUMNS)
        .filter_map(|name| Some((name, batch.column_by_name(name)?)))
        .filter(|(_, column)| column.is_valid(row))
        .filter_map(|(name, column)| {
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options).ok()?;
            Some(format!("{name} {}", formatter.value(row).try_to_string().ok()?))
        })
        .collect();
    if keys.is_empty() { format!("row {row} of the batch") } else { keys.join(", ") }
}
