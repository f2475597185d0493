//! Training a stage on a dataset, and applying the functions of what comes out.

use crate::{
    Dataset, Engine, MODEL_TABLE, OptionMap, TrainRequest,
    error::{Error, Result, similar},
};
use arrow::{
    array::AsArray,
    compute::cast,
    datatypes::{DataType, Float64Type},
    record_batch::RecordBatch,
};
use datafusion::logical_expr::{ident, lit};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A stage or a table operator by name, and its options.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSpec {
    /// The stage, for example `dist_dca`, or the operator.
    pub stage: String,
    /// Its options.
    pub options: OptionMap,
}

impl StageSpec {
    /// The stage called `name` with its defaults.
    pub fn new(name: &str) -> Self {
        Self { stage: name.to_owned(), options: OptionMap::new() }
    }

    /// The same with an option.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.options.insert(name.to_owned(), value.into());
        self
    }
}

impl From<&str> for StageSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// How to train: the model's name and folder, rows to validate on, settings of the gang and the loop.
#[derive(Clone, Debug, Default)]
pub struct TrainConfig {
    model: Option<String>,
    folder: Option<PathBuf>,
    validation: Option<Dataset>,
    features: Option<Dataset>,
    settings: OptionMap,
}

impl TrainConfig {
    /// The stages' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asynchronous steps through a parameter service with Adagrad (Dean 2012).
    pub fn downpour() -> Self {
        Self::new()
            .setting("topology", "parameter_service")
            .setting("consistency", "async")
            .setting("optimizer", "adagrad")
    }

    /// All ranks step together.
    pub fn synchronous() -> Self {
        Self::new().setting("consistency", "sync")
    }

    /// A setting by the name that `WITH (…)` takes.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(name.to_owned(), value.into());
        self
    }

    /// Replicas that train.
    #[must_use]
    pub fn ranks(self, ranks: usize) -> Self {
        self.setting("ranks", ranks)
    }

    /// Passes over the data.
    #[must_use]
    pub fn epochs(self, epochs: u64) -> Self {
        self.setting("epochs", epochs)
    }

    /// Rows per rank and step.
    #[must_use]
    pub fn minibatch(self, rows: usize) -> Self {
        self.setting("minibatch", rows)
    }

    /// Step size.
    #[must_use]
    pub fn learning_rate(self, rate: f64) -> Self {
        self.setting("learning_rate", rate)
    }

    /// Seed of weights and shuffles.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.setting("seed", seed)
    }

    /// The model's name; the stage's if not given.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.model = Some(name.to_owned());
        self
    }

    /// The model's folder; under the engine's working folder if not given.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// What the series are to be explained by: a design, or a row for each sample of each run.
    #[must_use]
    pub fn features(mut self, features: &Dataset) -> Self {
        self.features = Some(features.clone());
        self
    }

    /// Rows to validate on.
    #[must_use]
    pub fn validate_on(mut self, rows: &Dataset) -> Self {
        self.validation = Some(rows.clone());
        self
    }
}

/// A model that was trained, in its folder.
#[derive(Clone, Debug)]
pub struct TrainedModel {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The stage that made it.
    pub stage: String,
    /// What training did, as the stage tells it.
    pub history: TrainingHistory,
}

impl TrainedModel {
    /// A function of the model, for [`Dataset::transform`]: from the column `series` to one named as the function.
    pub fn function(&self, name: &str) -> ModelFunction {
        ModelFunction {
            folder: self.folder.clone(),
            function: name.to_owned(),
            from: "series".to_owned(),
            into: name.to_owned(),
        }
    }

    /// The file with a row for each target, of a model that has targets.
    pub fn targets(&self) -> PathBuf {
        self.folder.join(MODEL_TABLE)
    }

    /// `encode`, into the column `hidden`.
    pub fn encoder(&self) -> ModelFunction {
        self.function("encode").into_column("hidden")
    }
}

/// The rows that training gave: one per step or epoch, with the columns of the stage.
#[derive(Clone, Debug, Default)]
pub struct TrainingHistory {
    batches: Vec<RecordBatch>,
}

impl From<Vec<RecordBatch>> for TrainingHistory {
    fn from(batches: Vec<RecordBatch>) -> Self {
        Self { batches }
    }
}

impl TrainingHistory {
    /// The rows.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// All values of a numeric column, in order, nulls left out; none where there is no such column.
    pub fn column(&self, name: &str) -> Vec<f64> {
        let columns = self.batches.iter().filter_map(|b| b.column_by_name(name));
        let floats = columns.filter_map(|c| cast(c, &DataType::Float64).ok());
        floats.flat_map(|c| c.as_primitive::<Float64Type>().iter().flatten().collect::<Vec<_>>()).collect()
    }

    /// The last value of the column `loss`; not a number where there is none.
    pub fn last_loss(&self) -> f64 {
        self.column("loss").last().copied().unwrap_or(f64::NAN)
    }
}

/// A function of a model and the columns that it reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFunction {
    folder: PathBuf,
    function: String,
    from: String,
    into: String,
}

impl ModelFunction {
    /// Reads the column `name`.
    #[must_use]
    pub fn from_column(mut self, name: &str) -> Self {
        self.from = name.to_owned();
        self
    }

    /// Writes the column `name`.
    #[must_use]
    pub fn into_column(mut self, name: &str) -> Self {
        self.into = name.to_owned();
        self
    }
}

impl Dataset {
    /// Trains `stage` on these rows and makes the model known to the engine by its name.
    ///
    /// # Errors
    /// An unknown stage or option, rows that do not fit, training that fails.
    pub async fn train(&self, stage: impl Into<StageSpec>, config: TrainConfig) -> Result<TrainedModel> {
        let spec = stage.into();
        let engine = self.engine();
        let model = config.model.unwrap_or_else(|| spec.stage.clone());
        let folder = config.folder.unwrap_or_else(|| engine.default_model_folder(&model));
        let validation = config.validation.as_ref().map(Dataset::logical_plan).transpose()?.cloned();
        let features = config.features.as_ref().map(Dataset::logical_plan).transpose()?.cloned();
        let request = TrainRequest {
            model: model.clone(),
            folder: folder.clone(),
            stage: spec.stage.clone(),
            options: spec.options,
            settings: config.settings,
            train: self.logical_plan()?.clone(),
            validation,
            features,
        };
        let plan = engine.planner().plan_train(request)?;
        let batches = engine.dataset(plan).collect().await?;
        engine.register_model(&model, &folder);
        Ok(TrainedModel { name: model, folder, stage: spec.stage, history: TrainingHistory { batches } })
    }

    /// Applies a table operator of the stages, for example `clean` or `split`: its name and options are those of the
    /// pipeline language.
    pub fn apply(&self, operator: impl Into<StageSpec>) -> Self {
        self.try_then(|dataset| {
            let StageSpec { stage, options } = operator.into();
            let plan = dataset.logical_plan()?.clone();
            Ok(dataset.engine().planner().plan_table_operator(&stage, plan, &options)?)
        })
    }

    /// These rows and what a model's function gives for them, as one column more.
    pub fn transform(&self, function: ModelFunction) -> Self {
        self.try_then(|dataset| {
            let udf = model_function(dataset.engine(), &function.function)?;
            let value = udf.call(vec![lit(folder_text(&function.folder)?), ident(&function.from)]);
            let frame = dataset.to_frame()?.with_column(&function.into, value);
            Ok(frame.map_err(|e| Error::planning("transform", e))?.into_unoptimized_plan())
        })
    }
}

fn model_function(
    engine: &Engine,
    name: &str,
) -> Result<std::sync::Arc<datafusion::logical_expr::ScalarUDF>> {
    let all = engine.planner().model_functions();
    all.iter().find(|f| f.name() == name).cloned().ok_or_else(|| Error::UnknownName {
        kind: "model function",
        name: name.to_owned(),
        nearest: similar(name, all.iter().map(|f| f.name())),
    })
}

fn folder_text(folder: &Path) -> Result<&str> {
    folder.to_str().ok_or_else(|| Error::target(folder.display(), "its name is no Unicode text"))
}
