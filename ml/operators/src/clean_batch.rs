//! What cleaning does to one batch of rows: the series of each run by that run's cleaner, put back in their places.

use crate::clean::is_cleanable;
use crate::clean_confounds::{RunCleaner, RunCleaners, Stretch};
use crate::clean_lists::Lists;
use crate::{Error, NotFinite, Result, SessionStores};
use arrow::{
    array::{ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, ListArray, RecordBatch},
    buffer::OffsetBuffer,
    compute::filter_record_batch,
    datatypes::{DataType, FieldRef, Float32Type, Float64Type, SchemaRef},
    util::display::{ArrayFormatter, FormatOptions},
};
use datafusion::common::{DataFusionError, internal_err};
use std::{ops::Range, sync::Arc};
use voxelflow_dataset::{Finding, Ledger, LedgerNotes};
use voxelflow_signal::{CleanSettings, Cleaner};
use voxelflow_stage::{KEY_COLUMNS, PARCEL_COLUMNS, PLACE_COLUMNS, RunLengths, SERIES_COLUMN};

/// How series are cleaned.
#[derive(Clone, Debug)]
pub(crate) enum Cleaning {
    /// All in one way, whichever run they are of: a cleaner for each length that runs have, ascending.
    Alike(Vec<Arc<RunCleaner>>),
    /// Each run by its own confounds.
    ByRun(Arc<RunCleaners>),
}

impl Cleaning {
    /// Cleaning of all runs in one way, of which the ledger says nothing; `lengths`, ascending, are those that runs have.
    pub fn alike(settings: &CleanSettings, lengths: &[usize], t_r: Option<f64>) -> Result<Self> {
        let of_length = |points: &usize| {
            let cleaner = Cleaner::try_new(settings, *points, t_r)?;
            Ok(Arc::new(RunCleaner { cleaner, ledger: Ledger::default() }))
        };
        lengths.iter().map(of_length).collect::<Result<_>>().map(Self::Alike)
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Alike(cleaners) => cleaners.last().map(|run| run.cleaner.describe()).unwrap_or_default(),
            Self::ByRun(cleaners) => cleaners.plan.description.clone(),
        }
    }

    /// Whether series of this type are those that it is for.
    pub fn is_for(&self, series: &DataType) -> bool {
        let (several, longest) = match self {
            Self::Alike(cleaners) => {
                (cleaners.len() > 1, cleaners.last().map_or(0, |run| run.cleaner.time_points()))
            }
            Self::ByRun(cleaners) => (cleaners.plan.lengths.is_some(), cleaners.plan.time_points),
        };
        match series {
            DataType::FixedSizeList(item, points) => {
                !several && is_cleanable(item.data_type()) && usize::try_from(*points) == Ok(longest)
            }
            DataType::List(item) => several && is_cleanable(item.data_type()),
            _ => false,
        }
    }

    /// The type of the series afterwards: Float32, of one length if all runs keep as many volumes.
    pub fn series_type(&self, before: &DataType) -> DataType {
        let kept = match self {
            Self::Alike(cleaners) => {
                let mut kept = cleaners.iter().map(|run| run.cleaner.kept());
                kept.next().filter(|first| kept.all(|other| other == *first))
            }
            Self::ByRun(cleaners) => cleaners.plan.kept(),
        };
        match (before, kept.and_then(|kept| i32::try_from(kept).ok())) {
            (DataType::FixedSizeList(item, _) | DataType::List(item), Some(kept)) => {
                DataType::FixedSizeList(cleaned_item(item), kept)
            }
            (DataType::FixedSizeList(item, _) | DataType::List(item), None) => {
                DataType::List(cleaned_item(item))
            }
            (other, _) => other.clone(),
        }
    }

    /// How long each run is afterwards, if they are of several lengths; `before`: the same of what is cleaned.
    pub fn lengths(&self, before: Option<&RunLengths>) -> Option<RunLengths> {
        let after = match self {
            Self::Alike(_) => {
                before?.map(|_, points| self.of_length(points).map_or(0, |run| run.cleaner.kept()))
            }
            Self::ByRun(cleaners) => {
                let runs = cleaners.plan.kept_of_runs().map(|(run, kept)| (run, kept.count()));
                RunLengths::of_runs(runs).ok().flatten()?
            }
        };
        (after.distinct().len() > 1).then_some(after)
    }

    fn of_length(&self, points: usize) -> Option<&Arc<RunCleaner>> {
        let Self::Alike(cleaners) = self else { return None };
        cleaners.iter().find(|run| run.cleaner.time_points() == points)
    }

    /// Stretches of rows that one cleaner is for.
    fn of_rows(
        &self,
        batch: &RecordBatch,
        lists: &Lists<'_>,
        stores: &SessionStores,
    ) -> Result<Vec<Stretch>> {
        let of_length = |(rows, points): (Range<usize>, usize)| {
            let run = self.of_length(points).ok_or_else(|| odd(batch, rows.start, points))?;
            Ok((rows, Arc::clone(run)))
        };
        let cleaners = match self {
            Self::Alike(_) => return lists.stretches().into_iter().map(of_length).collect(),
            Self::ByRun(cleaners) => cleaners,
        };
        let stretches = cleaners.of_rows(batch, stores)?;
        let other = |(rows, run): &Stretch| lists.other_length(rows.clone(), run.cleaner.time_points());
        match stretches.iter().find_map(other) {
            Some((row, points)) => Err(odd(batch, row, points)),
            None => Ok(stretches),
        }
    }
}

/// A series whose length no run has.
fn odd(batch: &RecordBatch, row: usize, points: usize) -> Error {
    let reason =
        format!("its series has {points} points, which its run has not: clean a table as it was read");
    voxelflow_stage::Error::Data { what: describe(batch, row), reason }.into()
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
        let lists = Lists::of(batch.column(self.series))?;
        let cleaned = self.clean_series(batch, &lists, stores, notes)?;
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
            let cleaned = self.with_series(batch, &lists, cleaned)?;
            return Ok(filter_record_batch(&cleaned, &BooleanArray::from(kept))?);
        }
        note(broken, Finding::Zeroed, "NaN or infinity in the series")?;
        self.with_series(batch, &lists, cleaned)
    }

    /// Cleans every series, of 32 or 64 bits; those with NaN or infinity are zero, or as they were.
    fn clean_series(
        &self,
        batch: &RecordBatch,
        lists: &Lists<'_>,
        stores: &SessionStores,
        notes: &LedgerNotes,
    ) -> Result<Cleaned, DataFusionError> {
        match lists.value_type() {
            DataType::Float64 => {
                let series = lists.values::<Float64Type>(f64::NAN)?;
                self.clean_values(batch, lists, &series, stores, notes)
            }
            _ => {
                let series = lists.values::<Float32Type>(f32::NAN)?;
                self.clean_values(batch, lists, &series, stores, notes)
            }
        }
    }

    fn clean_values<T: Copy + Into<f64> + Sync>(
        &self,
        batch: &RecordBatch,
        lists: &Lists<'_>,
        series: &[T],
        stores: &SessionStores,
        notes: &LedgerNotes,
    ) -> Result<Cleaned, DataFusionError> {
        let stretches = self.cleaning.of_rows(batch, lists, stores)?;
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
            let from = &series[lists.place(rows.clone())];
            let report = cleaner.clean_into(from, to).map_err(Error::from)?;
            if self.not_finite == NotFinite::Zero {
                report.not_finite.iter().for_each(|row| to[row * kept..(row + 1) * kept].fill(0.0));
            }
            // Rows without a series were cleaned as zeros and are of no account.
            let constant = report.constant.iter().map(|row| rows.start + row);
            cleaned.constant.extend(constant.filter(|row| lists.is_valid(*row)));
            cleaned.broken.extend(report.not_finite.iter().map(|row| rows.start + row));
            cleaned.lengths.extend(std::iter::repeat_n(kept, rows.len()));
        }
        Ok(cleaned)
    }

    fn with_series(
        &self,
        batch: &RecordBatch,
        lists: &Lists<'_>,
        cleaned: Cleaned,
    ) -> Result<RecordBatch, DataFusionError> {
        let values: ArrayRef = Arc::new(Float32Array::from(cleaned.values));
        let nulls = lists.nulls().cloned();
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
            let value = formatter.value(row).try_to_string().ok()?;
            (!value.is_empty()).then(|| format!("{name} {value}"))
        })
        .collect();
    if keys.is_empty() { format!("row {row} of the batch") } else { keys.join(", ") }
}
