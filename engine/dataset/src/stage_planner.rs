//! The seam through which ML stages plug into plans. The engine knows their names, options and plans;
//! what they compute is known on the other side only.

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::{
    logical_expr::{LogicalPlan, ScalarUDF},
    prelude::SessionConfig,
};
use serde_json::{Map, Value};
use std::{collections::HashMap, error::Error, fmt, path::PathBuf, sync::Arc};

/// The file with the table of a model, in its folder.
pub const MODEL_TABLE: &str = "targets.parquet";

/// The option of a table operator of models that holds the model's folder.
pub const MODEL_OPTION: &str = "model";

/// Options by name, as written `(name => value, …)`.
pub type OptionMap = Map<String, Value>;

/// `TRAIN MODEL model USING stage (options) ON (train) FEATURES (features) VALIDATE ON (validation) WITH (settings)`.
#[derive(Debug, Clone)]
pub struct TrainRequest {
    /// The model's name.
    pub model: String,
    /// The folder that will hold the model.
    pub folder: PathBuf,
    /// The stage, for example `dist_dca`.
    pub stage: String,
    /// Options of the stage.
    pub options: OptionMap,
    /// Settings of the gang and the loop; the column of `PER column` comes as the setting `per`.
    pub settings: OptionMap,
    /// Rows to train on.
    pub train: LogicalPlan,
    /// Rows to validate on.
    pub validation: Option<LogicalPlan>,
    /// What the series of both are to be explained by, for stages that explain series.
    pub features: Option<LogicalPlan>,
}

/// Why a stage refused, and which option is to blame, so that the language can put a caret under it.
#[derive(Debug)]
pub struct StageError {
    /// The option at fault, if it is one.
    pub option: Option<String>,
    /// What is wrong and what to do.
    pub source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for StageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// Plans what stages do. Implemented once, by the crate that sees both stages and plans.
pub trait StagePlanner: fmt::Debug + Send + Sync {
    /// Names that `USING` takes.
    fn stages(&self) -> Vec<String>;
    /// A plan whose execution trains the model, writes its folder and yields the training history.
    ///
    /// # Errors
    /// An unknown stage or option, or data that do not fit: found here, before anything runs.
    fn plan_train(&self, request: TrainRequest) -> Result<LogicalPlan, StageError>;
    /// Names of the table operators, for example `clean` in `FROM clean(series, detrend => true)`.
    fn table_operators(&self) -> Vec<String>;
    /// A plan that applies the operator to a table.
    ///
    /// # Errors
    /// An unknown operator or option, or a table that lacks what the operator needs.
    fn plan_table_operator(
        &self,
        operator: &str,
        input: LogicalPlan,
        options: &OptionMap,
    ) -> Result<LogicalPlan, StageError>;
    /// Of the [table operators](Self::table_operators) those whose first argument is a model and whose second is the
    /// table, as in `FROM predict(enc, features)`; the language writes the model's folder as their option
    /// [`MODEL_OPTION`].
    fn model_operators(&self) -> Vec<String> {
        Vec::new()
    }
    /// As [`Self::plan_table_operator`], for an operator of models over the requested model, which is not trained yet:
    /// lets a file be checked as a whole without running it. The plan has columns, and is not run.
    ///
    /// # Errors
    /// As [`Self::plan_table_operator`]; a model that the operator is not for.
    fn plan_declared_operator(
        &self,
        operator: &str,
        request: &TrainRequest,
        input: LogicalPlan,
        options: &OptionMap,
    ) -> Result<LogicalPlan, StageError> {
        let mut options = options.clone();
        options.insert(MODEL_OPTION.to_owned(), request.folder.to_string_lossy().into());
        self.plan_table_operator(operator, input, &options)
    }
    /// Functions of fitted models, for example `encode`: their first argument is the model's folder, a
    /// string literal (the language writes it for the model's name), their second the series.
    fn model_functions(&self) -> Vec<Arc<ScalarUDF>>;
    /// The type that `function` of the requested model would yield for these arguments (those after the
    /// model), before the model is trained: lets a file be checked as a whole without running it. `None`: not
    /// known; a list of 32-bit numbers is then assumed.
    ///
    /// # Errors
    /// A function that models of the stage lack, arguments that it cannot be given.
    fn declared_output(
        &self,
        request: &TrainRequest,
        function: &str,
        arguments: &[FieldRef],
    ) -> Result<Option<DataType>, StageError> {
        let _ = (request, function, arguments);
        Ok(None)
    }
    /// Columns of the table of the requested model, for a model that knows something of each of its targets: statements
    /// after it read it by the model's name, from the file [`MODEL_TABLE`] of its folder. `None`: it has none.
    fn model_table(&self, request: &TrainRequest) -> Option<SchemaRef> {
        let _ = request;
        None
    }
    /// Metadata that the schema of a table gets that is written of `plan`, beside those of its rows: what the stages need to
    /// know of what the rows went through.
    fn metadata_of(&self, plan: &LogicalPlan) -> HashMap<String, String> {
        let _ = plan;
        HashMap::new()
    }
    /// Puts into a session's configuration what plans of these stages look for there while they run; called once for
    /// every session, also those of executors.
    fn prepare(&self, config: &mut SessionConfig) {
        let _ = config;
    }
    /// Other functions over series that the stages bring, for example `pearson_r(a, b)`.
    fn series_functions(&self) -> Vec<Arc<ScalarUDF>>;
}
