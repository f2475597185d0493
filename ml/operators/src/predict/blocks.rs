//! Blocks of targets: their keys from the model's table, their series from its coefficients, for each run.

use super::{
    exec::Predict,
    models::{listed, model_table, same_features},
    no_predictions, refused,
};
use crate::{
    Error, Result, StageCatalog,
    design::RUN_COLUMNS,
    features::{FeatureRun, Features, run_name},
    series_column::series_type,
};
use arrow::{
    array::{ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray},
    buffer::NullBuffer,
    compute::cast,
    datatypes::{DataType, SchemaRef, UInt32Type},
};
use datafusion::{common::internal_err, error::Result as PlanResult};
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReader};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};
use voxelflow_dataset::{Finding, LedgerEntry, LedgerNotes, Level, MODEL_TABLE};
use voxelflow_stage::{KEY_COLUMNS, Predictor, SERIES_COLUMN, key_in};

/// Bytes of coefficients and series that a block is made of.
const BLOCK_BYTES: usize = 32 << 20;
/// Targets of a block at most.
const BLOCK: usize = 8192;

/// What is predicted, and how far it is.
pub(super) struct Blocks {
    predictor: Box<dyn Predictor>,
    runs: Vec<FeatureRun>,
    /// Of each run whether the model has targets of its subject, as far as is known.
    used: Vec<bool>,
    /// Subjects of targets, the first of many.
    subjects: BTreeSet<String>,
    table: ParquetRecordBatchReader,
    /// The next target.
    next: usize,
    schema: SchemaRef,
    notes: Arc<LedgerNotes>,
}

impl Blocks {
    /// None: there are no runs.
    ///
    /// # Errors
    /// A model that cannot be read, features that are not its own, runs that are too short or of another length.
    pub fn open(
        settings: &Predict,
        features: Features,
        catalog: &StageCatalog,
        notes: Arc<LedgerNotes>,
    ) -> Result<Option<Self>> {
        if features.runs.is_empty() {
            return Ok(None);
        }
        let found = catalog.model(&settings.model)?;
        let predictor = found.model.predictor()?.ok_or_else(|| no_predictions(found.model.stage()))?;
        check_lengths(&features.runs, settings.time_points, predictor.longest_delay())?;
        let runs = arranged(features, predictor.features())?;
        let samples: usize = runs.iter().map(|run| run.samples).sum();
        let block = BLOCK_BYTES / (predictor.bytes_per_target() + samples * size_of::<f32>()).max(1);
        let builder = model_table(&found.folder)?;
        let rows = usize::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        if rows != predictor.targets() {
            let reason = format!(
                "its table has {rows} targets and its coefficients are of {}: train it again",
                predictor.targets()
            );
            return Err(Error::ModelFolder { path: settings.model.clone(), reason });
        }
        let keys = builder.schema().fields().iter().enumerate();
        let keys: Vec<usize> =
            keys.filter(|(_, f)| KEY_COLUMNS.contains(&f.name().as_str())).map(|(at, _)| at).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), keys);
        let table = builder.with_projection(mask).with_batch_size(block.clamp(1, BLOCK)).build();
        let table = table.map_err(|e| unreadable(&e))?;
        Ok(Some(Self {
            predictor,
            used: vec![false; runs.len()],
            runs,
            subjects: BTreeSet::new(),
            table,
            next: 0,
            schema: Arc::clone(&settings.schema.0),
            notes,
        }))
    }

    /// The rows of the next targets, a batch or more a run; none after the last.
    ///
    /// # Errors
    /// Files that cannot be read any more; at the end, runs of subjects that the model has no targets of.
    pub fn next(&mut self) -> PlanResult<Option<Vec<RecordBatch>>> {
        let Some(targets) = self.table.next() else {
            self.finish()?;
            return Ok(None);
        };
        let targets = targets.map_err(|e| unreadable(&e))?;
        let subjects = targets.column_by_name(KEY_COLUMNS[0]).map(|column| cast(column, &DataType::Utf8));
        let subjects = subjects.transpose()?;
        let subject = |row: usize| key_in(subjects.as_ref()?.as_string::<i32>(), row);
        let mut batches = Vec::new();
        let mut begin = 0;
        while begin < targets.num_rows() {
            let of = subject(begin);
            let end = (begin..targets.num_rows()).find(|row| subject(*row) != of);
            let range = begin..end.unwrap_or(targets.num_rows());
            begin = range.end;
            self.add(&targets.slice(range.start, range.len()), of, self.next + range.start, &mut batches)?;
        }
        self.next += targets.num_rows();
        Ok(Some(batches))
    }

    /// Adds the rows of targets of one subject, the first of which is number `first`.
    fn add(
        &mut self,
        targets: &RecordBatch,
        subject: Option<&str>,
        first: usize,
        batches: &mut Vec<RecordBatch>,
    ) -> PlanResult<()> {
        if let Some(subject) = subject.filter(|_| self.subjects.len() < 100) {
            self.subjects.insert(subject.to_owned());
        }
        let is_of = |run: &FeatureRun| match (&run.key[0], subject) {
            (Some(own), Some(subject)) => own == subject,
            _ => true,
        };
        let own: Vec<usize> = (0..self.runs.len()).filter(|run| is_of(&self.runs[*run])).collect();
        let values: Vec<&[f64]> = own.iter().map(|run| self.runs[*run].values.as_slice()).collect();
        let range = first..first + targets.num_rows();
        let predicted = self.predictor.predict(&values, range).map_err(Error::from)?;
        for (run, series) in own.into_iter().zip(predicted) {
            self.used[run] = true;
            batches.push(self.rows(&self.runs[run], targets, subject, series)?);
        }
        Ok(())
    }

    /// The rows of one run.
    fn rows(
        &self,
        run: &FeatureRun,
        targets: &RecordBatch,
        subject: Option<&str>,
        series: Vec<f32>,
    ) -> PlanResult<RecordBatch> {
        let n = targets.num_rows();
        let fitted: Vec<bool> = series.chunks_exact(run.samples).map(|own| !own[0].is_nan()).collect();
        self.note(run, targets, &fitted);
        let DataType::FixedSizeList(item, length) = series_type(run.samples) else {
            return internal_err!("series are lists");
        };
        let nulls = fitted.contains(&false).then(|| NullBuffer::from(fitted));
        let values = Arc::new(Float32Array::from(series));
        // Where runs are of several lengths, they are cast to what the schema says.
        let lists: ArrayRef = Arc::new(FixedSizeListArray::try_new(item, length, values, nulls)?);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let name = field.name().as_str();
            let key = KEY_COLUMNS[..RUN_COLUMNS].iter().position(|key| *key == name);
            let column = match (key, targets.column_by_name(name)) {
                _ if name == SERIES_COLUMN => Arc::clone(&lists),
                (Some(0), _) => texts(subject.or(run.key[0].as_deref()), n),
                (_, Some(column)) => Arc::clone(column),
                (Some(key), None) => texts(run.key[key].as_deref(), n),
                (None, None) => return internal_err!("the model's table has lost `{name}`"),
            };
            columns.push(match column.data_type() == field.data_type() {
                true => column,
                false => cast(&column, field.data_type())?,
            });
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// Targets that could not be fitted are null, and told.
    fn note(&self, run: &FeatureRun, targets: &RecordBatch, fitted: &[bool]) {
        let unfit: Vec<usize> = (0..fitted.len()).filter(|row| !fitted[*row]).collect();
        if unfit.is_empty() {
            return;
        }
        let reason = "targets that the model could not be fitted to: their predictions are null";
        let entry =
            LedgerEntry::of_rows(run.key.clone(), Level::Voxel, Finding::Noted, reason, unfit.len() as u64);
        let voxels = targets.column_by_name(KEY_COLUMNS[RUN_COLUMNS + 1]);
        let voxels = voxels.and_then(|column| column.as_primitive_opt::<UInt32Type>());
        self.notes.note(match voxels {
            Some(voxels) => entry.at(unfit.into_iter().map(|row| u64::from(voxels.value(row)))),
            None => entry,
        });
    }

    /// Every run has met targets.
    fn finish(&self) -> Result<()> {
        let Some(run) = self.used.iter().position(|used| !used) else { return Ok(()) };
        Err(refused(format!(
            "the model has no targets of {}; it has those of subject {}",
            run_name(&self.runs[run].key),
            listed(&self.subjects)
        )))
    }
}

/// Series are as long as the table says, and a run is longer than what it explains lies behind.
fn check_lengths(runs: &[FeatureRun], time_points: Option<usize>, longest_delay: usize) -> Result<()> {
    if let Some(run) = runs.iter().find(|run| run.samples <= longest_delay) {
        return Err(refused(format!(
            "{} has {} samples of features, and the model's longest delay is {longest_delay}: leave such runs out",
            run_name(&run.key),
            run.samples
        )));
    }
    let cut = runs.iter().find(|run| run.kept.is_some());
    if let Some(run) = cut.filter(|_| longest_delay > 0) {
        return Err(refused(format!(
            "{} has features of the kept volumes alone, and the model has delays: take the design of the table before its \
             volumes were dropped",
            run_name(&run.key)
        )));
    }
    let Some(time_points) = time_points else { return Ok(()) };
    let Some(run) = runs.iter().find(|run| run.samples != time_points) else { return Ok(()) };
    Err(refused(format!(
        "{} has {} samples of features, and the series are to have {time_points}; write time_points => {} and choose \
         runs of one length with WHERE",
        run_name(&run.key),
        run.samples,
        run.samples
    )))
}

/// The runs with their features in the order of `wanted`.
fn arranged(features: Features, wanted: &[String]) -> Result<Vec<FeatureRun>> {
    let Features { names, mut runs, .. } = features;
    same_features(wanted, &names)?;
    if names == wanted {
        return Ok(runs);
    }
    let places: HashMap<&String, usize> = names.iter().zip(0..).collect();
    let order: Vec<usize> = wanted.iter().filter_map(|name| places.get(name).copied()).collect();
    for run in &mut runs {
        let samples = run.values.chunks_exact(names.len());
        run.values = samples.flat_map(|sample| order.iter().map(|feature| sample[*feature])).collect();
    }
    Ok(runs)
}

fn texts(text: Option<&str>, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text.unwrap_or_default(), rows)))
}

fn unreadable(e: &dyn fmt::Display) -> Error {
    voxelflow_stage::Error::Rows { path: MODEL_TABLE.into(), reason: e.to_string() }.into()
}
