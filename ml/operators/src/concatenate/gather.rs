//! One voxel at a time: its runs are gathered, checked and laid behind each other.

use super::{
    MissingRun,
    exec::{Concatenate, is_position},
    runs::{BETWEEN, NONE, label},
};
use crate::{
    Error,
    series_column::{series_of, series_type, values_of},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, StringArray},
    compute::{cast, interleave},
    datatypes::{DataType, Field, Float32Type, Schema, SchemaRef},
    record_batch::RecordBatch,
    row::{OwnedRow, RowConverter, Rows, SortField},
    util::display::{ArrayFormatter, FormatOptions},
};
use datafusion::{common::internal_datafusion_err, error::Result};
use std::{collections::VecDeque, sync::Arc};
use voxelflow_dataset::{Finding, LedgerEntry, LedgerNotes, Level, RUN_KEYS, RunKey};
use voxelflow_stage::{key_in, known_key};

/// Bytes of series that are given at once, about.
const GIVEN_BYTES: usize = 8 << 20;
/// Batches of rows that are held, at most, but for those of one voxel.
const HELD: usize = 2;

/// A row that has come in: its batch and its number there.
type Place = (usize, usize);

/// A batch that has come in.
struct Held {
    batch: RecordBatch,
    series: FixedSizeListArray,
    /// Values that all runs of a voxel must have in common.
    common: Rows,
}

/// The voxel whose runs are coming in, and those that are whole.
pub(super) struct Gather {
    settings: Concatenate,
    schema: SchemaRef,
    keys: RowConverter,
    common: RowConverter,
    held: Vec<Held>,
    current: Option<OwnedRow>,
    /// Of each run of the current voxel its row.
    runs: Vec<Option<Place>>,
    /// Rows of voxels that are whole, run by run.
    whole: Vec<Place>,
    notes: Arc<LedgerNotes>,
}

fn converter(schema: &Schema, columns: &[(String, usize)]) -> Result<RowConverter> {
    let field = |(_, at): &(String, usize)| SortField::new(schema.field(*at).data_type().clone());
    Ok(RowConverter::new(columns.iter().map(field).collect())?)
}

fn columns_of(batch: &RecordBatch, columns: &[(String, usize)]) -> Vec<ArrayRef> {
    columns.iter().map(|(_, at)| Arc::clone(batch.column(*at))).collect()
}

impl Gather {
    pub fn try_new(
        settings: &Concatenate,
        schema: SchemaRef,
        input: &Schema,
        notes: Arc<LedgerNotes>,
    ) -> Result<Self> {
        Ok(Self {
            keys: converter(input, &settings.group)?,
            common: converter(input, &settings.common)?,
            runs: vec![None; settings.order.labels().len()],
            settings: settings.clone(),
            schema,
            held: Vec::new(),
            current: None,
            whole: Vec::new(),
            notes,
        })
    }

    /// Takes the rows of `batch`; voxels that are whole go into `ready` when there are many.
    pub fn push(&mut self, batch: &RecordBatch, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        let keys = self.keys.convert_columns(&columns_of(batch, &self.settings.group))?;
        let common = match self.settings.common.is_empty() {
            true => self.common.empty_rows(0, 0),
            false => self.common.convert_columns(&columns_of(batch, &self.settings.common))?,
        };
        let series = with_nan(series_of(batch.column(self.settings.series.1), self.settings.time_points)?)?;
        let names = self.run_names(batch)?;
        self.held.push(Held { batch: batch.clone(), series, common });
        for row in 0..rows {
            if self.current.as_ref().is_none_or(|key| key.row() != keys.row(row)) {
                self.finish()?;
                self.give_if_many(ready)?;
                self.current = Some(keys.row(row).owned());
            }
            self.place(&names, row)?;
        }
        Ok(())
    }

    /// After the last row.
    pub fn close(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        self.finish()?;
        self.give(ready)
    }

    fn run_names(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let columns = columns_of(batch, &self.settings.apart);
        columns.iter().map(|column| Ok(cast(column, &DataType::Utf8)?)).collect()
    }

    /// Puts a row of the newest batch in its place among the runs of its voxel.
    fn place(&mut self, names: &[ArrayRef], row: usize) -> Result<()> {
        let texts: Vec<&StringArray> = names.iter().map(|column| column.as_string::<i32>()).collect();
        let run = label(texts.iter().map(|text| key_in(text, row)));
        let place = (self.held.len() - 1, row);
        let labels = self.settings.order.labels();
        let Some(number) = labels.iter().position(|known| *known == run) else {
            let what = self.settings.order.columns().join("/");
            return Err(self.wrong(
                place,
                &format!(
                    "is of {what} {run}, which is none of those to join ({}); name it in runs => […], or leave its \
                     rows out before",
                    labels.join(", ")
                ),
            ));
        };
        if self.runs[number].is_some() {
            return Err(self.wrong(place, &format!("has run {run} twice; select one of them before")));
        }
        if let Some(first) = self.runs.iter().flatten().next().copied() {
            self.check_common(first, place)?;
        }
        self.runs[number] = Some(place);
        Ok(())
    }

    /// All that is not the series must be the same in all runs of a voxel.
    fn check_common(&self, first: Place, place: Place) -> Result<()> {
        if self.settings.common.is_empty() || self.common_of(first) == self.common_of(place) {
            return Ok(());
        }
        let differs = |(_, at): &&(String, usize)| self.shown(first, *at) != self.shown(place, *at);
        let Some((name, at)) = self.settings.common.iter().find(differs) else { return Ok(()) };
        let (a, b) = (self.run_of(first), self.run_of(place));
        let (one, other) = (self.shown(first, *at), self.shown(place, *at));
        let way = match is_position(name) {
            true => "the runs are on different grids: resample them to one before".to_owned(),
            false => format!("leave the column out, as in SELECT * EXCEPT ({name})"),
        };
        Err(self.wrong(place, &format!("has {name} {one} in run {a} and {other} in run {b}; {way}")))
    }

    fn common_of(&self, (batch, row): Place) -> arrow::row::Row<'_> {
        self.held[batch].common.row(row)
    }

    /// The current voxel has come to its end.
    fn finish(&mut self) -> Result<()> {
        if self.current.take().is_none() {
            return Ok(());
        }
        let runs = std::mem::replace(&mut self.runs, vec![None; self.settings.order.labels().len()]);
        let known = |place: &Place| self.held[place.0].series.is_valid(place.1);
        let lacks = runs.iter().position(|run| run.as_ref().is_none_or(|place| !known(place)));
        match (lacks, self.settings.missing) {
            (None, _) => self.whole.extend(runs.into_iter().flatten()),
            (Some(lacks), MissingRun::Drop) => self.note(&runs, lacks),
            (Some(lacks), MissingRun::Error) => {
                let run = &self.settings.order.labels()[lacks];
                let of = runs.iter().flatten().next().copied().unwrap_or_default();
                let told = match runs[lacks] {
                    Some(_) => format!("has no series in run {run}"),
                    None => format!("is not in run {run}"),
                };
                return Err(self.wrong(
                    of,
                    &format!("{told}; use one mask for all runs, or write missing => 'drop' to leave such voxels out"),
                ));
            }
        }
        Ok(())
    }

    /// Takes down that a voxel is left out, for the run that lacks it.
    fn note(&self, runs: &[Option<Place>], lacks: usize) {
        let Some(place) = runs.iter().flatten().next() else { return };
        let values = self.settings.order.labels()[lacks].split(BETWEEN);
        let apart = self.settings.order.columns().iter().map(String::as_str).zip(values);
        let mut run = RunKey::default();
        for (name, value) in apart.filter(|(_, value)| *value != NONE) {
            if let Some(key) = RUN_KEYS.iter().position(|key| *key == name) {
                run[key] = Some(value.to_owned());
            }
        }
        for (name, at) in &self.settings.group {
            let is_known = known_key(Some(&self.shown(*place, *at))).is_some()
                && self.held[place.0].batch.column(*at).is_valid(place.1);
            if let Some(key) = RUN_KEYS.iter().position(|key| key == name).filter(|_| is_known) {
                run[key] = Some(self.shown(*place, *at));
            }
        }
        let reason = "not in this run: left out of the runs that are joined";
        let entry = LedgerEntry::of_rows(run, Level::Voxel, Finding::Dropped, reason, 1);
        let point = self.settings.group.last().and_then(|(_, at)| self.shown(*place, *at).parse().ok());
        self.notes.note(entry.at(point));
    }

    fn give_if_many(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        let bytes = self.whole.len() * self.settings.time_points * size_of::<f32>();
        if bytes >= GIVEN_BYTES || self.held.len() > HELD {
            self.give(ready)?;
            // The voxel that comes next is in the newest batch: the older ones are of no use.
            self.held.drain(..self.held.len() - 1);
        }
        Ok(())
    }

    /// The voxels that are whole, as one batch.
    fn give(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<()> {
        let whole = std::mem::take(&mut self.whole);
        if whole.is_empty() {
            return Ok(());
        }
        let of_run = self.settings.order.labels().len();
        let first: Vec<Place> = whole.iter().step_by(of_run).copied().collect();
        let column = |at: usize| -> Result<ArrayRef> {
            if at == self.settings.series.1 {
                return self.series(&whole);
            }
            if self.settings.apart.iter().any(|(_, apart)| *apart == at) {
                // They are of no single run.
                let absent = StringArray::from_iter_values(std::iter::repeat_n("", first.len()));
                return Ok(cast(&absent, self.schema.field(at).data_type())?);
            }
            let arrays: Vec<&dyn Array> = self.held.iter().map(|h| h.batch.column(at).as_ref()).collect();
            Ok(interleave(&arrays, &first)?)
        };
        let columns = (0..self.schema.fields().len()).map(column).collect::<Result<Vec<_>>>()?;
        ready.push_back(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        Ok(())
    }

    fn series(&self, whole: &[Place]) -> Result<ArrayRef> {
        let points = self.settings.time_points;
        let mut values = Vec::with_capacity(whole.len() * points);
        for (batch, row) in whole {
            let all = values_of(&self.held[*batch].series);
            let series = all.get(row * points..(row + 1) * points);
            values.extend_from_slice(series.ok_or_else(|| {
                internal_datafusion_err!("a batch has {} values, too few for row {row}", all.len())
            })?);
        }
        let length = points * self.settings.order.labels().len();
        let DataType::FixedSizeList(item, size) = series_type(length) else {
            return Err(internal_datafusion_err!("series are lists of one length"));
        };
        Ok(Arc::new(FixedSizeListArray::try_new(item, size, Arc::new(Float32Array::from(values)), None)?))
    }

    fn run_of(&self, (batch, row): Place) -> String {
        let values: Vec<String> =
            self.settings.apart.iter().map(|(_, at)| self.shown((batch, row), *at)).collect();
        values.join("/")
    }

    /// A value, for a message.
    fn shown(&self, (batch, row): Place, column: usize) -> String {
        let options = FormatOptions::default().with_null("null");
        let column = self.held[batch].batch.column(column);
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options);
        formatter.map(|f| f.value(row).to_string()).unwrap_or_default()
    }

    /// What is wrong with the voxel of a row.
    fn wrong(&self, place: Place, reason: &str) -> datafusion::error::DataFusionError {
        let Some(held) = self.held.get(place.0) else {
            return Error::Concatenate { reason: reason.to_owned() }.into();
        };
        let group = self.settings.group.iter().filter(|(_, at)| held.batch.column(*at).is_valid(place.1));
        let values = group.map(|(name, at)| (name, self.shown(place, *at)));
        let names: Vec<String> = values
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        Error::Concatenate { reason: format!("{} {reason}", names.join(", ")) }.into()
    }
}

/// The same series, NaN where a value is null.
fn with_nan(lists: FixedSizeListArray) -> Result<FixedSizeListArray> {
    if lists.values().null_count() == 0 {
        return Ok(lists);
    }
    let values = lists.values().as_primitive::<Float32Type>();
    let values: Float32Array = values.iter().map(|v| Some(v.unwrap_or(f32::NAN))).collect();
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    Ok(FixedSizeListArray::try_new(item, lists.value_length(), Arc::new(values), lists.nulls().cloned())?)
}
