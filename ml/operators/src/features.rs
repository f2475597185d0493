//! Features of runs, from either kind of table that a lab has.
//!
//! ```text
//!   a design     subject … run, regressor, series [T]     a row a run and regressor, as FROM design(…) gives it; T may be
//!                                                         another one in another run
//!   samples      (subject … run), tr, a, b, c [20], …     a row a run and repetition time, from 0; every other column of
//!                                                         numbers, or of lists of numbers, is a feature, but levels of
//!                                                         a pandas index that has no name
//! ```
//! They are in 64 bits: of time stamps (1.7e9) no seconds are left in 32. They are small beside the series: who fits or
//! predicts holds them. In both, a column `stimulus` of text is no feature: it says what was seen or heard in a run, so that
//! runs of one stimulus are known as repeats.

mod columns;

use crate::{
    Error, Result,
    design::{REGRESSOR_COLUMN, RUN_COLUMNS},
    series_column::{list_column, series_length},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Field, Int64Type, Schema},
    error::ArrowError,
};
use columns::{Lists, Part, is_unnamed_index, names_of};
use std::collections::HashMap;
use voxelflow_dataset::{Finding, LedgerEntry, LedgerNotes, Level, RunKey};
use voxelflow_stage::{KEY_COLUMNS, KeptVolumes, RunLengths, RunVolumes, key_in};

/// Clause of the statement, for messages.
pub(crate) const FEATURES: &str = "FEATURES";
/// The column of sample numbers.
const TR: &str = "tr";
/// The column that says what a run's stimulus is.
const STIMULUS: &str = "stimulus";

/// Which columns of a table are features.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FeatureTable {
    /// Of the key columns that tell runs apart, those that the table has.
    keys: [bool; RUN_COLUMNS],
    /// Whether it says what a run's stimulus is.
    stimulus: bool,
    form: Form,
    /// Columns that nobody meant: levels of an index without a name, as pandas writes them.
    left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Form {
    Design(Design),
    /// Columns of features.
    Samples(Vec<String>),
}

/// A table of regressors, a row a regressor of a run.
#[derive(Clone, Debug, PartialEq)]
struct Design {
    /// The column of lists.
    column: String,
    /// Their length where it is one.
    length: Option<usize>,
    /// The length of each run, where they are several and the table says so.
    lengths: Option<RunLengths>,
    /// The volumes that each run has, where it has not all.
    kept: Option<RunVolumes>,
}

/// The features of one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FeatureRun {
    /// Values of the key columns.
    pub key: RunKey,
    /// What was seen or heard, where it is said.
    pub stimulus: Option<String>,
    /// Samples.
    pub samples: usize,
    /// `[samples, features]` row-major.
    pub values: Vec<f64>,
    /// Which volumes of the run they are, where they are not all.
    pub kept: Option<KeptVolumes>,
}

/// All features.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Features {
    /// Key columns that the table has.
    pub keys: [bool; RUN_COLUMNS],
    /// Names.
    pub names: Vec<String>,
    /// Runs, in the order in which they came.
    pub runs: Vec<FeatureRun>,
}

/// A run as messages name it.
pub(crate) fn run_name(key: &RunKey) -> String {
    let known = KEY_COLUMNS.iter().zip(key).filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let texts: Vec<String> = known.map(|(name, value)| format!("{name} {value}")).collect();
    if texts.is_empty() { "the run".into() } else { texts.join(", ") }
}

pub(crate) fn refused(reason: impl Into<String>) -> Error {
    voxelflow_stage::Error::Data { what: FEATURES.into(), reason: reason.into() }.into()
}

impl FeatureTable {
    /// # Errors
    /// A table that is of neither kind.
    pub fn find(schema: &Schema) -> Result<Self> {
        let has = |name: &str| schema.column_with_name(name).is_some();
        let keys = std::array::from_fn(|column| has(KEY_COLUMNS[column]));
        let stimulus =
            schema.column_with_name(STIMULUS).is_some_and(|(_, field)| field.data_type().is_string());
        if has(REGRESSOR_COLUMN) {
            let series = list_column(FEATURES, schema)?;
            let form = Form::Design(Design {
                column: series.name().clone(),
                length: series_length(series.data_type()),
                lengths: RunLengths::of(schema)?,
                kept: RunVolumes::of(schema)?,
            });
            return Ok(Self { keys, stimulus, form, left_out: Vec::new() });
        }
        let columns = || schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
        let column = |name, needed, found: &str| Error::Column {
            operator: FEATURES,
            column: name,
            needed,
            found: found.into(),
            columns: columns(),
        };
        let tr = schema.column_with_name(TR).map(|(_, field)| field.data_type().is_integer());
        if tr != Some(true) {
            let found = "the number of a sample within its run, from 0 (or be a design, with the columns `regressor` \
                         and `series`)";
            return Err(column(TR, "Int64", found));
        }
        let others = schema.fields().iter().filter(|f| {
            let name = f.name().as_str();
            name != TR && !KEY_COLUMNS[..RUN_COLUMNS].contains(&name) && !(stimulus && name == STIMULUS)
        });
        let (mut features, mut left_out) = (Vec::new(), Vec::new());
        for field in others {
            if is_unnamed_index(field.name()) {
                left_out.push(field.name().clone());
                continue;
            }
            if !is_feature(field) {
                return Err(refused(format!(
                    "column `{}` is {}: features are numbers or lists of numbers; leave it out of the SELECT",
                    field.name(),
                    field.data_type()
                )));
            }
            features.push(field.name().clone());
        }
        if features.is_empty() {
            return Err(refused("there is no column of features beside the keys and `tr`"));
        }
        Ok(Self { keys, stimulus, form: Form::Samples(features), left_out })
    }

    /// Names of the features of a sample, where the columns of `schema` tell: lists of one length, a row a sample.
    pub fn names(&self, schema: &Schema) -> Option<Vec<String>> {
        let Form::Samples(columns) = &self.form else { return None };
        let mut all = Vec::new();
        for name in columns {
            let width = match schema.field_with_name(name).ok()?.data_type() {
                DataType::FixedSizeList(_, n) => Some(usize::try_from(*n).ok()?),
                DataType::List(_) | DataType::LargeList(_) => return None,
                _ => None,
            };
            all.extend(names_of(name, width));
        }
        Some(all)
    }

    /// Samples of every run of a design, where they are of one length.
    pub fn time_points(&self) -> Option<usize> {
        match &self.form {
            Form::Design(design) => design.length,
            Form::Samples(_) => None,
        }
    }

    /// Metadata of series that are as long as a design's runs: how long each is, where they are of several lengths, and
    /// which volumes it has.
    ///
    /// # Errors
    /// Never: names and numbers can be written.
    pub fn metadata(&self) -> Result<HashMap<String, String>> {
        let mut metadata = HashMap::new();
        if let Form::Design(design) = &self.form {
            if let Some(lengths) = design.lengths.as_ref().filter(|_| design.length.is_none()) {
                metadata.extend(lengths.to_metadata()?);
            }
            if let Some(kept) = &design.kept {
                metadata.extend(kept.to_metadata()?);
            }
        }
        Ok(metadata)
    }

    /// Whether the runs of a design are of several lengths.
    pub fn is_ragged(&self) -> bool {
        matches!(&self.form, Form::Design(design) if design.length.is_none())
    }

    /// Tells the ledger what of the table is no feature that looks like one.
    pub fn note(&self, notes: &LedgerNotes) {
        if self.left_out.is_empty() {
            return;
        }
        let reason = "columns of an index without a name, as pandas writes them: no features; name the index, or select the \
                      column under a name of its own, to have it as one";
        let (level, count) = (Level::Value, self.left_out.len() as u64);
        let entry = LedgerEntry::of_run(RunKey::default(), level, Finding::Dropped, reason, count);
        notes.note(entry.named(self.left_out.iter().map(String::as_str)));
    }

    /// The features in `batches`, which come in the order of the table's partitions.
    ///
    /// # Errors
    /// Runs of different features, samples that are missing or there twice, values that are not finite.
    pub fn read(&self, batches: &[RecordBatch]) -> Result<Features> {
        let features = match &self.form {
            Form::Design(design) => self.read_design(design, batches),
            Form::Samples(columns) => self.read_samples(columns, batches),
        }?;
        for run in &features.runs {
            let p = features.names.len();
            if let Some(at) = run.values.iter().position(|value| !value.is_finite()) {
                return Err(refused(format!(
                    "`{}` is {} in {}, tr {}; leave such samples out, or repair them",
                    features.names[at % p],
                    run.values[at],
                    run_name(&run.key),
                    at / p
                )));
            }
        }
        Ok(features)
    }

    fn read_design(&self, design: &Design, batches: &[RecordBatch]) -> Result<Features> {
        let (series, kept) = (design.column.as_str(), design.kept.as_ref());
        let mut runs = Runs::default();
        let mut columns: Vec<Vec<(String, Vec<f64>)>> = Vec::new();
        for batch in batches {
            let (keys, stimuli) = (self.keys_of(batch)?, self.stimuli_of(batch)?);
            let names = column(batch, REGRESSOR_COLUMN, &DataType::Utf8)?;
            let lists = Lists::of(batch, series)?;
            for row in 0..batch.num_rows() {
                let number = runs.number(key_of(&keys, row));
                runs.sees(number, text_of(stimuli.as_ref(), row))?;
                columns.resize_with(runs.keys.len(), Vec::new);
                let name = names.as_string::<i32>().value(row).to_owned();
                let Some(values) = lists.row(row) else {
                    let run = run_name(&runs.keys[number]);
                    return Err(refused(format!(
                        "`{series}` of regressor {name} is null in {run}; leave it out"
                    )));
                };
                columns[number].push((name, values.collect()));
            }
        }
        let names: Vec<String> =
            columns.first().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let mut found = Vec::with_capacity(columns.len());
        for ((key, stimulus), own) in runs.keys.into_iter().zip(runs.stimuli).zip(columns) {
            let mut by_name: HashMap<&str, &[f64]> =
                own.iter().map(|(name, values)| (name.as_str(), values.as_slice())).collect();
            let ordered: Option<Vec<&[f64]>> =
                names.iter().map(|name| by_name.remove(name.as_str())).collect();
            let Some(ordered) = ordered.filter(|_| by_name.is_empty() && own.len() == names.len()) else {
                let own: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
                return Err(refused(format!(
                    "{} has the regressors {}, the first run {}: choose those that all runs have with WHERE regressor \
                     IN (…)",
                    run_name(&key),
                    own.join(", "),
                    names.join(", ")
                )));
            };
            let samples = ordered.first().map_or(0, |values| values.len());
            if ordered.iter().any(|values| values.len() != samples) {
                return Err(refused(format!("regressors of {} are of several lengths", run_name(&key))));
            }
            let sample = |t: usize| ordered.iter().map(move |values| values[t]);
            let values = (0..samples).flat_map(sample).collect();
            // Of the keys those that the table has tell which run it is.
            let is_own = |run: &RunKey| (0..RUN_COLUMNS).all(|at| !self.keys[at] || run[at] == key[at]);
            let kept = kept.and_then(|kept| kept.find(is_own)).filter(|kept| kept.count() == samples);
            let kept = kept.cloned();
            found.push(FeatureRun { key, stimulus: stimulus.flatten(), samples, values, kept });
        }
        Ok(Features { keys: self.keys, names, runs: found })
    }

    fn read_samples(&self, columns: &[String], batches: &[RecordBatch]) -> Result<Features> {
        let mut runs = Runs::default();
        let mut samples: Vec<(Vec<i64>, Vec<f64>)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            let (keys, stimuli) = (self.keys_of(batch)?, self.stimuli_of(batch)?);
            let trs = column(batch, TR, &DataType::Int64)?;
            let mut parts = Vec::with_capacity(columns.len());
            for name in columns {
                parts.push(Part::of(batch, name)?);
            }
            let own: Vec<String> =
                parts.iter().zip(columns).flat_map(|(part, name)| part.names(name)).collect();
            if names.is_empty() {
                names = own;
            } else if names != own {
                return Err(refused("lists of features are of different lengths in different rows"));
            }
            for row in 0..batch.num_rows() {
                let number = runs.number(key_of(&keys, row));
                runs.sees(number, text_of(stimuli.as_ref(), row))?;
                samples.resize_with(runs.keys.len(), Default::default);
                if trs.is_null(row) {
                    return Err(refused(format!("`tr` is null in {}", run_name(&runs.keys[number]))));
                }
                let (numbers, values) = &mut samples[number];
                let tr = trs.as_primitive::<Int64Type>().value(row);
                numbers.push(tr);
                for (part, name) in parts.iter().zip(columns) {
                    part.push(row, values).map_err(|(found, expected)| {
                        let run = run_name(&runs.keys[number]);
                        refused(format!(
                            "column `{name}` has a list of {found} numbers in {run}, tr {tr}, and others of {expected}: lists of \
                             features are of one length"
                        ))
                    })?;
                }
            }
        }
        let runs = runs.keys.into_iter().zip(runs.stimuli).zip(samples);
        let runs: Result<Vec<FeatureRun>> = runs
            .map(|((key, stimulus), (numbers, values))| {
                let run = in_order(key, &numbers, values, names.len())?;
                Ok(FeatureRun { stimulus: stimulus.flatten(), ..run })
            })
            .collect();
        Ok(Features { keys: self.keys, names, runs: runs? })
    }

    fn keys_of(&self, batch: &RecordBatch) -> Result<[Option<ArrayRef>; RUN_COLUMNS]> {
        let mut keys = [const { None }; RUN_COLUMNS];
        for ((key, name), there) in keys.iter_mut().zip(KEY_COLUMNS).zip(self.keys) {
            if there {
                *key = Some(column(batch, name, &DataType::Utf8)?);
            }
        }
        Ok(keys)
    }

    fn stimuli_of(&self, batch: &RecordBatch) -> Result<Option<ArrayRef>> {
        self.stimulus.then(|| column(batch, STIMULUS, &DataType::Utf8)).transpose()
    }
}

fn is_feature(field: &Field) -> bool {
    let number = |data_type: &DataType| data_type.is_numeric() || *data_type == DataType::Boolean;
    match field.data_type() {
        DataType::FixedSizeList(item, n) => *n > 0 && number(item.data_type()),
        DataType::List(item) | DataType::LargeList(item) => number(item.data_type()),
        other => number(other),
    }
}

fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef> {
    let found = batch.column_by_name(name).ok_or_else(|| refused(format!("column `{name}` is gone")))?;
    cast(found, data_type).map_err(|e: ArrowError| refused(format!("column `{name}`: {e}")))
}

fn key_of(keys: &[Option<ArrayRef>; RUN_COLUMNS], row: usize) -> RunKey {
    let mut key = RunKey::default();
    for (key, column) in key.iter_mut().zip(keys) {
        *key = column.as_ref().and_then(|column| key_in(column.as_string::<i32>(), row)).map(str::to_owned);
    }
    key
}

fn text_of(column: Option<&ArrayRef>, row: usize) -> Option<String> {
    let texts = column?.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row).to_owned())
}

/// Runs in the order in which they came.
#[derive(Default)]
struct Runs {
    keys: Vec<RunKey>,
    numbers: HashMap<RunKey, usize>,
    /// Of each run, once a row of it has been met.
    stimuli: Vec<Option<Option<String>>>,
}

impl Runs {
    fn number(&mut self, key: RunKey) -> usize {
        // Neighbours mostly are of one run.
        if let Some(last) = self.keys.len().checked_sub(1).filter(|last| self.keys[*last] == key) {
            return last;
        }
        let next = self.keys.len();
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.keys.push(key);
            self.stimuli.push(None);
        }
        number
    }

    /// A row of run `number` says what its stimulus is.
    fn sees(&mut self, number: usize, stimulus: Option<String>) -> Result<()> {
        let known = self.stimuli[number].get_or_insert_with(|| stimulus.clone());
        if *known == stimulus {
            return Ok(());
        }
        let name = |stimulus: &Option<String>| stimulus.clone().unwrap_or_else(|| "null".into());
        Err(refused(format!(
            "`{STIMULUS}` is {} and {} in {}: it is the same in all rows of a run",
            name(known),
            name(&stimulus),
            run_name(&self.keys[number])
        )))
    }
}

/// The samples of a run in the order of their numbers.
fn in_order(key: RunKey, numbers: &[i64], values: Vec<f64>, p: usize) -> Result<FeatureRun> {
    let samples = numbers.len();
    let mut order: Vec<usize> = (0..samples).collect();
    order.sort_by_key(|row| numbers[*row]);
    for (expected, row) in order.iter().enumerate() {
        let found = numbers[*row];
        if found == expected as i64 {
            continue;
        }
        let reason = match order.get(expected.wrapping_sub(1)).map(|before| numbers[*before]) {
            Some(before) if before == found => format!("tr {found} is there twice"),
            None => format!("begins with tr {found}: samples are numbered from 0"),
            Some(before) => format!("has no tr {}", before + 1),
        };
        return Err(refused(format!("{}: {reason}", run_name(&key))));
    }
    let sorted = order.iter().enumerate().all(|(at, row)| at == *row);
    let values = if sorted {
        values
    } else {
        order.iter().flat_map(|row| values[row * p..(row + 1) * p].iter().copied()).collect()
    };
    Ok(FeatureRun { key, stimulus: None, samples, values, kept: None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::series_column::series_type;
    use arrow::array::{FixedSizeListArray, Float32Array, Float64Array, Int32Array, StringArray};
    use std::sync::Arc;

    fn long(runs: &[&str], trs: &[i32], a: &[f64]) -> RecordBatch {
        let lists: Vec<f32> = a.iter().flat_map(|a| [*a as f32 * 10.0, *a as f32 * 100.0]).collect();
        let DataType::FixedSizeList(item, n) = series_type(2) else { unreachable!() };
        let columns: [(&str, ArrayRef); 4] = [
            ("run", Arc::new(StringArray::from(runs.to_vec()))),
            ("tr", Arc::new(Int32Array::from(trs.to_vec()))),
            ("a", Arc::new(Float64Array::from(a.to_vec()))),
            ("b", Arc::new(FixedSizeListArray::new(item, n, Arc::new(Float32Array::from(lists)), None))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn read(batches: &[RecordBatch]) -> Result<Features> {
        FeatureTable::find(&batches[0].schema())?.read(batches)
    }

    fn message(batches: &[RecordBatch]) -> String {
        let error = read(batches).unwrap_err();
        assert!(error.is_input());
        error.to_string()
    }

    #[test]
    fn samples_are_ordered_by_their_numbers_within_runs() {
        let batches = [long(&["2", "1", "1"], &[0, 1, 0], &[1., 2., 3.]), long(&["2"], &[1], &[4.])];
        let found = read(&batches).unwrap();
        assert_eq!(found.names, ["a", "b[0]", "b[1]"]);
        assert_eq!(found.keys, [false, false, false, true]);
        let run = |at: usize| (found.runs[at].key[3].clone().unwrap(), found.runs[at].values.clone());
        assert_eq!(run(0), ("2".into(), vec![1., 10., 100., 4., 40., 400.]));
        assert_eq!(run(1), ("1".into(), vec![3., 30., 300., 2., 20., 200.]));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_place() {
        assert!(message(&[long(&["1", "1"], &[0, 2], &[1., 2.])]).contains("run 1: has no tr 1"));
        assert!(message(&[long(&["1", "1"], &[0, 0], &[1., 2.])]).contains("tr 0 is there twice"));
        assert!(message(&[long(&["1"], &[1], &[1.])]).contains("numbered from 0"));
        let text = message(&[long(&["1", "7"], &[0, 0], &[1., f64::NAN])]);
        assert!(text.contains("`a` is NaN in run 7, tr 0"), "{text}");
        let find = |fields: Vec<Field>| FeatureTable::find(&Schema::new(fields)).unwrap_err().to_string();
        let tr = Field::new("tr", DataType::Int32, false);
        assert!(find(vec![Field::new("a", DataType::Float32, false)]).contains("`tr`"));
        assert!(find(vec![tr.clone()]).contains("no column of features"));
        assert!(find(vec![tr, Field::new("word", DataType::Utf8, false)]).contains("column `word` is Utf8"));
    }

    #[test]
    fn a_design_gives_a_feature_for_each_regressor() {
        let design = |runs: &[&str], names: &[&str], values: &[f32]| {
            let DataType::FixedSizeList(item, n) = series_type(2) else { unreachable!() };
            let values = Arc::new(Float32Array::from(values.to_vec()));
            let columns: [(&str, ArrayRef); 3] = [
                ("run", Arc::new(StringArray::from(runs.to_vec()))),
                ("regressor", Arc::new(StringArray::from(names.to_vec()))),
                ("series", Arc::new(FixedSizeListArray::new(item, n, values, None))),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let rows = design(&["1", "1", "2", "2"], &["a", "b", "b", "a"], &[1., 2., 3., 4., 5., 6., 7., 8.]);
        let found = read(&[rows]).unwrap();
        assert_eq!(found.names, ["a", "b"]);
        assert_eq!(found.runs[0].values, [1., 3., 2., 4.]);
        assert_eq!(found.runs[1].values, [7., 5., 8., 6.]);
        let text = message(&[design(&["1", "2"], &["a", "b"], &[1., 2., 3., 4.])]);
        assert!(text.contains("run 2 has the regressors b, the first run a"), "{text}");
    }
}
