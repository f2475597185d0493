//! Training and applying models, over a stage planner that only the tests know.

use crate::fixture::{Bench, batch};
use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray, Float64Array, RecordBatch},
        datatypes::{DataType, Float64Type},
    },
    functions_aggregate::expr_fn::avg,
    logical_expr::{ColumnarValue, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Volatility, create_udf},
    prelude::col,
};
use std::sync::Arc;
use voxelflow_dataset::{
    Engine, EngineConfig, Error, OptionMap, StageError, StagePlanner, StageSpec, TrainConfig, TrainRequest,
    session_context,
};

/// `mean` learns the mean of `half` and tells it as the loss; `encode` doubles.
#[derive(Debug)]
struct MeanStage;

impl StagePlanner for MeanStage {
    fn stages(&self) -> Vec<String> {
        vec!["mean".into()]
    }
    fn plan_train(&self, request: TrainRequest) -> Result<LogicalPlan, StageError> {
        if request.stage != "mean" {
            return Err(StageError { option: None, source: format!("no stage `{}`", request.stage).into() });
        }
        if request.settings.get("ranks") != Some(&2.into()) || request.options.get("depth") != Some(&3.into())
        {
            return Err(StageError { option: Some("ranks".into()), source: "2 ranks and depth 3".into() });
        }
        let plan = LogicalPlanBuilder::from(request.train)
            .aggregate(Vec::<datafusion::prelude::Expr>::new(), [avg(col("half")).alias("loss")]);
        plan.and_then(LogicalPlanBuilder::build).map_err(|e| StageError { option: None, source: e.into() })
    }
    fn table_operators(&self) -> Vec<String> {
        Vec::new()
    }
    fn plan_table_operator(&self, o: &str, _: LogicalPlan, _: &OptionMap) -> Result<LogicalPlan, StageError> {
        Err(StageError { option: None, source: format!("no operator {o}").into() })
    }
    fn model_functions(&self) -> Vec<Arc<ScalarUDF>> {
        let double = |args: &[ColumnarValue]| {
            let [_, ColumnarValue::Array(x)] = args else { panic!("a folder and a column") };
            let doubled: Float64Array = x.as_primitive::<Float64Type>().unary(|x| 2.0 * x);
            Ok(ColumnarValue::Array(Arc::new(doubled) as ArrayRef))
        };
        let types = vec![DataType::Utf8, DataType::Float64];
        vec![Arc::new(create_udf(
            "encode",
            types,
            DataType::Float64,
            Volatility::Immutable,
            Arc::new(double),
        ))]
    }
    fn series_functions(&self) -> Vec<Arc<ScalarUDF>> {
        Vec::new()
    }
}

fn engine(bench: &Bench) -> Engine {
    let context = session_context(Vec::new(), &EngineConfig::default()).unwrap();
    Engine::new(context, Arc::new(MeanStage), bench.folder.path())
}

#[tokio::test]
async fn a_trained_model_is_known_and_transforms() {
    let bench = Bench::new();
    let engine = engine(&bench);
    let rows = engine.from_batches(&[batch(0..101)], 3).unwrap();
    let spec = StageSpec::new("mean").option("depth", 3);
    let model = rows.train(spec, TrainConfig::downpour().ranks(2).model("m")).await.unwrap();
    assert_eq!(model.history.last_loss(), 25.0);
    assert_eq!(engine.model_folder("m").unwrap(), model.folder);
    assert_eq!(model.folder, bench.folder.path().join("models").join("m"));
    let hidden = rows.transform(model.encoder().from_column("half"));
    let first: Vec<RecordBatch> = hidden.sort_by([col("n").sort(false, true)]).take(1).await.unwrap();
    assert_eq!(first[0].column_by_name("hidden").unwrap().as_primitive::<Float64Type>().value(0), 100.0);
    let e = rows.transform(model.function("encod").from_column("half")).count().await.unwrap_err();
    assert_eq!(e.to_string(), "there is no model function `encod`, did you mean `encode`?");
    assert!(engine.model_folder("mm").is_err());
}

#[tokio::test]
async fn a_stage_that_refuses_says_which_option() {
    let bench = Bench::new();
    let engine = engine(&bench);
    let rows = engine.from_batches(&[batch(0..10)], 1).unwrap();
    let e = rows.train("mean", TrainConfig::synchronous().ranks(7)).await.unwrap_err();
    let Error::Stage(stage) = &e else { panic!("{e}") };
    assert_eq!(stage.option.as_deref(), Some("ranks"));
    assert!(e.is_input());
    assert!(
        bench.numbers(1).train("mean", TrainConfig::new()).await.is_err(),
        "an engine without stages refuses"
    );
}
