//! The stages that a session has, seen from the language: names to plans and functions.

use crate::{
    CLEAN, CONCATENATE, DESIGN, Error, PREDICT, SPLIT, SeriesColumn, SessionStores, TrainJob, TrainNode,
    functions::{
        FoundModel, ModelCache, ModelFunctionUdf, ModelSource, check_series, has_only, series_functions,
    },
    lineage, plan_clean, plan_concatenate, plan_design, plan_split,
    predict::{no_predictions, plan_declared_predict, plan_predict},
    series_column::series_type,
    train::target_schema,
};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::{
    execution::object_store::ObjectStoreRegistry,
    logical_expr::{Extension, LogicalPlan, ScalarUDF},
    prelude::SessionConfig,
};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};
use voxelflow_dataset::{OptionMap, StageError, StagePlanner, TrainRequest};
use voxelflow_stage::{Estimator, Lineage, Model, StageKind, nearest};

/// Plans what the stages do, by their names.
#[derive(Clone, Debug)]
pub struct StageCatalog {
    kinds: Arc<Vec<Arc<dyn StageKind>>>,
    models: Arc<ModelCache>,
    stores: SessionStores,
}

impl StageCatalog {
    /// A catalogue of `kinds`; of two with the same name the first counts.
    pub fn new(kinds: Vec<Arc<dyn StageKind>>) -> Self {
        let kinds = Arc::new(kinds);
        Self { models: Arc::new(ModelCache::new(Arc::clone(&kinds), None)), kinds, stores: None }
    }

    /// The same catalogue, whose functions find models also where `source` does.
    #[must_use]
    pub fn with_models(self, source: Arc<dyn ModelSource>) -> Self {
        Self { models: Arc::new(ModelCache::new(Arc::clone(&self.kinds), Some(source))), ..self }
    }

    /// The same catalogue, whose operators find files in the session's stores.
    #[must_use]
    pub fn with_stores(self, stores: Arc<dyn ObjectStoreRegistry>) -> Self {
        Self { stores: Some(stores), ..self }
    }

    /// The stage `stage` with `options`, as a rank trains it.
    pub(crate) fn estimator(&self, stage: &str, options: &OptionMap) -> Result<Box<dyn Estimator>, Error> {
        Ok(self.kind(stage)?.estimator(options)?)
    }

    /// The model of `stage` in `folder`, which is being written.
    pub(crate) fn load(&self, stage: &str, folder: &Path) -> Result<Box<dyn Model>, Error> {
        Ok(self.kind(stage)?.load(folder)?)
    }

    /// The model in `folder`, a folder of this machine or a URL.
    pub(crate) fn model(&self, folder: &str) -> Result<FoundModel, Error> {
        self.models.find(folder)
    }

    fn kind(&self, stage: &str) -> Result<&dyn StageKind, Error> {
        let kind = self.kinds.iter().find(|kind| kind.name() == stage);
        kind.map(AsRef::as_ref).ok_or_else(|| {
            let valid = self.stages();
            Error::UnknownStage { stage: stage.to_owned(), nearest: nearest(stage, &valid), valid }
        })
    }
}

impl StagePlanner for StageCatalog {
    fn stages(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| kind.name().to_owned()).collect()
    }

    fn plan_train(&self, request: TrainRequest) -> Result<LogicalPlan, StageError> {
        let inputs = [Some(&request.train), request.validation.as_ref(), request.features.as_ref()];
        let mut upstream = Lineage::default();
        for input in inputs.into_iter().flatten() {
            upstream.extend(lineage::of_plan(input, self)?);
        }
        let job = TrainJob::try_new(self.kind(&request.stage)?, &request, upstream)?;
        let node = TrainNode::try_new(Arc::new(job), request.train, request.validation, request.features)
            .map_err(|e| StageError { option: None, source: Box::new(e) })?;
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }

    fn table_operators(&self) -> Vec<String> {
        [CLEAN, CONCATENATE, DESIGN, PREDICT, SPLIT].map(str::to_owned).into()
    }

    fn plan_table_operator(
        &self,
        operator: &str,
        input: LogicalPlan,
        options: &OptionMap,
    ) -> Result<LogicalPlan, StageError> {
        match operator {
            CLEAN => plan_clean(input, options, &self.stores),
            DESIGN => plan_design(input, options),
            CONCATENATE => plan_concatenate(input, options),
            PREDICT => plan_predict(input, options, self),
            SPLIT => plan_split(input, options),
            _ => {
                let valid = self.table_operators();
                let nearest = nearest(operator, &valid);
                Err(Error::UnknownOperator { operator: operator.to_owned(), nearest, valid }.into())
            }
        }
    }

    fn model_operators(&self) -> Vec<String> {
        vec![PREDICT.to_owned()]
    }

    fn plan_declared_operator(
        &self,
        operator: &str,
        request: &TrainRequest,
        input: LogicalPlan,
        options: &OptionMap,
    ) -> Result<LogicalPlan, StageError> {
        match (operator, self.model_table(request)) {
            (PREDICT, Some(targets)) => plan_declared_predict(input, options, request, &targets),
            _ => Err(no_predictions(&request.stage).into()),
        }
    }

    fn model_functions(&self) -> Vec<Arc<ScalarUDF>> {
        let names: BTreeSet<&'static str> = self.kinds.iter().flat_map(|k| k.functions()).copied().collect();
        let udf = |name| Arc::new(ScalarUDF::from(ModelFunctionUdf::new(name, Arc::clone(&self.models))));
        names.into_iter().map(udf).collect()
    }

    fn declared_output(
        &self,
        request: &TrainRequest,
        function: &str,
        arguments: &[FieldRef],
    ) -> Result<Option<DataType>, StageError> {
        let wrong = |reason: String| Error::Call { function: function.to_owned(), reason };
        let [series] = arguments else {
            let count = arguments.len();
            let reason = format!(
                "it has a model and one column of series, as in {function}(model, series), not {count}"
            );
            return Err(wrong(reason).into());
        };
        let kind = self.kind(&request.stage)?;
        if !kind.functions().contains(&function) {
            let (model, stage) = (&request.model, &request.stage);
            let names = has_only(kind.functions().iter().copied());
            return Err(wrong(format!("the model `{model}` is of stage `{stage}`, which has {names}")).into());
        }
        let estimator = kind.estimator(&request.options).map_err(Error::from)?;
        let trained = SeriesColumn::find_of_runs(kind.name(), request.train.schema().as_arrow())?;
        let functions = estimator.functions(trained.time_points);
        let Some(found) = functions.iter().find(|f| f.name == function) else { return Ok(None) };
        check_series(found, series)?;
        Ok(Some(series_type(found.output_length)))
    }

    fn model_table(&self, request: &TrainRequest) -> Option<SchemaRef> {
        let estimator = self.kind(&request.stage).ok()?.estimator(&request.options).ok()?;
        let columns = estimator.target_columns();
        (!columns.is_empty()).then(|| target_schema(request.train.schema().as_arrow(), &columns))
    }

    fn metadata_of(&self, plan: &LogicalPlan) -> HashMap<String, String> {
        let lineage = lineage::of_plan(plan, self).and_then(|lineage| Ok(lineage.to_metadata()?));
        lineage.unwrap_or_else(|e| {
            log::warn!("{e}: what models before have seen is not known of these rows");
            HashMap::new()
        })
    }

    /// Ranks find their stage in the catalogue of the session that they run in.
    fn prepare(&self, config: &mut SessionConfig) {
        config.set_extension(Arc::new(self.clone()));
    }

    fn series_functions(&self) -> Vec<Arc<ScalarUDF>> {
        series_functions()
    }
}
