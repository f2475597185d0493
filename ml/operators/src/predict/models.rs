//! What `predict` must know of a model before it runs: one that is trained, or one that an earlier statement will train.

use super::{PREDICT, PredictNode, PredictOptions, no_predictions, refused};
use crate::{Error, Result, SeriesColumn, StageCatalog, features::FeatureTable, series_column::UNKNOWN};
use arrow::datatypes::Schema;
use datafusion::logical_expr::{Extension, LogicalPlan};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::{collections::HashSet, fmt, fs::File, path::Path, sync::Arc};
use voxelflow_dataset::{MODEL_OPTION, MODEL_TABLE, OptionMap, StageError, TrainRequest};
use voxelflow_stage::{Segments, parse_options};

/// What `predict` must know of a model.
pub(super) struct Known<'a> {
    pub model: &'a str,
    pub version: String,
    /// Columns of its table.
    pub targets: &'a Schema,
    /// Names of its features, where they are known.
    pub features: Option<&'a [String]>,
    /// Samples of each run of the training.
    pub run_samples: Option<usize>,
}

/// Plans `predict(model, features, …)`; the option [`MODEL_OPTION`] holds the model's folder.
///
/// # Errors
/// An unknown option, a model that cannot be read or predicts nothing, features that are not the model's.
pub(crate) fn plan_predict(
    input: LogicalPlan,
    options: &OptionMap,
    catalog: &StageCatalog,
) -> Result<LogicalPlan, StageError> {
    let options = parse_options::<PredictOptions>(PREDICT, options).map_err(Error::from)?;
    let found = catalog.model(&options.model)?;
    let predictor = found.model.predictor().map_err(Error::from)?;
    let predictor = predictor.ok_or_else(|| no_predictions(found.model.stage()))?;
    let targets = model_table(&found.folder)?;
    let known = Known {
        model: &options.model,
        version: format!("{:?}", found.version),
        targets: targets.schema(),
        features: Some(predictor.features()),
        run_samples: predictor.run_samples(),
    };
    let node = Arc::new(PredictNode::try_new(input, known, options.time_points)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The same over a model that is not trained yet, whose table will have the columns `targets`.
///
/// # Errors
/// As [`plan_predict`], as far as they can be known.
pub(crate) fn plan_declared_predict(
    input: LogicalPlan,
    options: &OptionMap,
    request: &TrainRequest,
    targets: &Schema,
) -> Result<LogicalPlan, StageError> {
    let model = request.folder.to_string_lossy();
    let mut options = options.clone();
    options.insert(MODEL_OPTION.to_owned(), model.as_ref().into());
    let options = parse_options::<PredictOptions>(PREDICT, &options).map_err(Error::from)?;
    let trained = request.train.schema().as_arrow();
    let run_samples = match Segments::of(trained).map_err(Error::from)? {
        Some(segments) => Some(segments.time_points),
        None => {
            let SeriesColumn { time_points, lengths, .. } = SeriesColumn::find_of_runs(PREDICT, trained)?;
            Some(time_points).filter(|points| lengths.is_none() && *points != UNKNOWN)
        }
    };
    let features = request.features.as_ref().map(|plan| plan.schema().as_arrow());
    let features = features.and_then(|columns| FeatureTable::find(columns).ok()?.names(columns));
    let known =
        Known { model: &model, version: String::new(), targets, features: features.as_deref(), run_samples };
    let node = Arc::new(PredictNode::try_new(input, known, options.time_points)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The table of the model in `folder`.
pub(super) fn model_table(folder: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let path = folder.join(MODEL_TABLE);
    let failed = |e: &dyn fmt::Display| Error::ModelFolder {
        path: path.display().to_string(),
        reason: format!("{e}; a model folder is written whole by TRAIN MODEL, train it again"),
    };
    let file = File::open(&path).map_err(|e| failed(&e))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| failed(&e))
}

/// Whether the features `found` are those that the model needs, in any order.
pub(super) fn same_features(wanted: &[String], found: &[String]) -> Result<()> {
    let known: HashSet<&String> = wanted.iter().collect();
    let there: HashSet<&String> = found.iter().collect();
    let missing: Vec<&String> = wanted.iter().filter(|name| !there.contains(name)).collect();
    if !missing.is_empty() {
        let reason = format!("the model needs {}, which the features lack; they are", listed(missing));
        return Err(refused(format!("{reason} {}", listed(found.iter()))));
    }
    let more: Vec<&String> = found.iter().filter(|name| !known.contains(name)).collect();
    if !more.is_empty() {
        return Err(refused(format!(
            "{} is not among the features of the model, {}; leave it out, in the SELECT or with WHERE regressor IN (…)",
            listed(more),
            listed(wanted.iter())
        )));
    }
    Ok(())
}

/// The first of many names.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    const SHOWN: usize = 12;
    let mut names = names.into_iter();
    let mut shown: Vec<String> = names.by_ref().take(SHOWN).map(|name| format!("`{name}`")).collect();
    shown.extend(names.next().map(|_| "…".to_owned()));
    shown.join(", ")
}
