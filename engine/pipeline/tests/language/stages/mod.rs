//! Small but real stages for the tests of the language: an operator that scales a column, one that says which model it
//! was given, a stage that counts and averages, and a function of its model.

use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, StringArray,
        UInt32Array,
    },
    datatypes::{DataType, Field, Float32Type, Schema},
};
use datafusion::{
    common::{Result as DataFusionResult, exec_datafusion_err, plan_err},
    datasource::MemTable,
    functions_aggregate::expr_fn::{avg, count, max},
    logical_expr::{
        ColumnarValue, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
        ScalarUDFImpl, Signature, Volatility,
    },
    prelude::{SessionConfig, SessionContext, col, lit},
    scalar::ScalarValue,
};
use serde_json::Value;
use std::{path::Path, sync::Arc};
use voxelflow_dataset::{MODEL_OPTION, OptionMap, StageError, StagePlanner, TrainRequest};

/// The stages of the tests.
#[derive(Debug)]
pub struct SmallStages;

const OPTIONS: [&str; 3] = ["lambda", "layers", "kernel"];
const SETTINGS: [&str; 6] = ["ranks", "epochs", "consistency", "learning_rate", "per", "seed"];
const CLEAN: [&str; 4] = ["gain", "detrend", "confounds", "standardize"];

impl StagePlanner for SmallStages {
    fn stages(&self) -> Vec<String> {
        vec!["dist_dca".into(), "dictionary_learning".into()]
    }

    fn plan_train(&self, request: TrainRequest) -> Result<LogicalPlan, StageError> {
        check(&request.options, &OPTIONS, &request.stage)?;
        check(&request.settings, &SETTINGS, "TRAIN")?;
        if let Some(epochs) = request.settings.get("epochs").filter(|e| !e.is_u64()) {
            let text = format!("option `epochs` of TRAIN: {epochs} is not a whole number; write epochs => 3");
            return Err(StageError { option: Some("epochs".into()), source: text.into() });
        }
        if request.train.schema().field_with_unqualified_name("series").is_err() {
            let text = "the training rows have no column `series`; select it, or rename one with AS series";
            return Err(StageError { option: None, source: text.into() });
        }
        let rows = match request.validation {
            Some(validation) => LogicalPlanBuilder::from(request.train).union(validation),
            None => Ok(LogicalPlanBuilder::from(request.train)),
        };
        let per: Vec<_> = request.settings.get("per").and_then(Value::as_str).map(col).into_iter().collect();
        rows.and_then(|rows| {
            rows.aggregate(per, vec![count(lit(1)).alias("rows"), max(col("voxel")).alias("last")])
        })
        .and_then(LogicalPlanBuilder::build)
        .map_err(|e| StageError { option: None, source: e.into() })
    }

    fn table_operators(&self) -> Vec<String> {
        vec!["clean".into(), "mean_by".into(), "predict".into()]
    }

    fn plan_table_operator(
        &self,
        operator: &str,
        input: LogicalPlan,
        options: &OptionMap,
    ) -> Result<LogicalPlan, StageError> {
        let plan = if operator == "predict" {
            check(options, &[MODEL_OPTION, "gain"], operator)?;
            let folder = options.get(MODEL_OPTION).and_then(Value::as_str).unwrap_or_default();
            LogicalPlanBuilder::from(input).project([col("value"), lit(folder).alias("model")])
        } else if operator == "mean_by" {
            check(options, &["column"], operator)?;
            let column = options.get("column").and_then(Value::as_str).unwrap_or("subject");
            LogicalPlanBuilder::from(input)
                .aggregate(vec![col(column)], vec![avg(col("value")).alias("mean")])
        } else {
            check(options, &CLEAN, operator)?;
            let gain = options.get("gain").and_then(Value::as_f64).unwrap_or(1.0);
            let mut columns: Vec<_> = input
                .schema()
                .columns()
                .into_iter()
                .filter(|c| c.name != "value")
                .map(datafusion::prelude::Expr::Column)
                .collect();
            columns.push((col("value") * lit(gain)).alias("value"));
            LogicalPlanBuilder::from(input).project(columns)
        };
        plan.and_then(LogicalPlanBuilder::build).map_err(|e| StageError { option: None, source: e.into() })
    }

    fn model_operators(&self) -> Vec<String> {
        vec!["predict".into()]
    }

    fn plan_declared_operator(
        &self,
        operator: &str,
        request: &TrainRequest,
        input: LogicalPlan,
        options: &OptionMap,
    ) -> Result<LogicalPlan, StageError> {
        if request.stage != "dist_dca" {
            let text = format!("a model of {} predicts nothing", request.stage);
            return Err(StageError { option: None, source: text.into() });
        }
        let declared = format!("{}, yet to be trained", request.model);
        let options = options.clone().into_iter().chain([(MODEL_OPTION.to_owned(), declared.into())]);
        self.plan_table_operator(operator, input, &options.collect())
    }

    fn model_functions(&self) -> Vec<Arc<ScalarUDF>> {
        vec![Arc::new(ScalarUDF::from(Encode { signature: Signature::any(2, Volatility::Immutable) }))]
    }

    fn declared_output(
        &self,
        request: &TrainRequest,
        function: &str,
        arguments: &[Arc<Field>],
    ) -> Result<Option<DataType>, StageError> {
        // The other stage leaves it open, as a stage may.
        if request.stage != "dist_dca" || function != "encode" {
            return Ok(None);
        }
        let series = arguments.first().and_then(|series| encoded(series.data_type()));
        let text = "encode: its second argument is not a series; give it the column `series`";
        series.map(Some).ok_or_else(|| StageError { option: None, source: text.into() })
    }

    fn series_functions(&self) -> Vec<Arc<ScalarUDF>> {
        Vec::new()
    }
}

fn check(options: &OptionMap, valid: &[&str], what: &str) -> Result<(), StageError> {
    let Some(unknown) = options.keys().find(|name| !valid.contains(&name.as_str())) else { return Ok(()) };
    let near = valid.iter().find(|v| v.starts_with(&unknown[..unknown.len().min(2)]));
    let near = near.map(|v| format!(", did you mean `{v}`?")).unwrap_or_default();
    let text = format!("unknown option `{unknown}` of {what}{near}; the options are: {}", valid.join(", "));
    Err(StageError { option: Some(unknown.clone()), source: text.into() })
}

/// `encode(folder, series)`: sums of neighbouring points, times the gain in `folder/gain.txt`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Encode {
    signature: Signature,
}

fn encoded(series: &DataType) -> Option<DataType> {
    match series {
        DataType::FixedSizeList(item, length) => Some(DataType::FixedSizeList(Arc::clone(item), length / 2)),
        _ => None,
    }
}

impl ScalarUDFImpl for Encode {
    fn name(&self) -> &str {
        "encode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        plan_err!("encode needs its arguments to know its type")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<Arc<Field>> {
        let Some(Some(ScalarValue::Utf8(Some(_)))) = args.scalar_arguments.first() else {
            return plan_err!("the first argument of encode is not a model");
        };
        match args.arg_fields.get(1).and_then(|f| encoded(f.data_type())) {
            Some(output) => Ok(Arc::new(Field::new("encode", output, true))),
            None => plan_err!("the second argument of encode is not a series"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let ColumnarValue::Scalar(ScalarValue::Utf8(Some(folder))) = &args.args[0] else {
            return plan_err!("the first argument of encode is not a model");
        };
        let text = std::fs::read_to_string(Path::new(folder).join("gain.txt"))?;
        let gain: f32 =
            text.trim().parse().map_err(|_| exec_datafusion_err!("{folder}/gain.txt is not a number"))?;
        let series = args.args[1].to_array(args.number_rows)?;
        let list = series.as_fixed_size_list();
        let values = list.values().as_primitive::<Float32Type>().values();
        let sums: Float32Array = values.chunks_exact(2).map(|pair| (pair[0] + pair[1]) * gain).collect();
        let item = Arc::new(Field::new_list_field(DataType::Float32, true));
        let length = list.value_length() / 2;
        let output = FixedSizeListArray::try_new(item, length, Arc::new(sums), list.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(output)))
    }
}

/// A session with the table `bold`: two subjects, three voxels each, series of four points.
pub fn session() -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2).with_information_schema(true);
    let session = SessionContext::new_with_config(config);
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let schema = Schema::new(vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("split", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("value", DataType::Float64, false),
        Field::new("series", DataType::FixedSizeList(Arc::clone(&item), 4), false),
    ]);
    let grid = [("voxelflow.grid".to_string(), "{\"shape\":[3,1,1]}".to_string())];
    let schema = Arc::new(schema.with_metadata(grid.into()));
    let points = Float32Array::from_iter_values((0..24u8).map(f32::from));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["01", "01", "01", "02", "02", "02"])),
        Arc::new(StringArray::from(vec!["train", "train", "train", "test", "test", "test"])),
        Arc::new(UInt32Array::from(vec![0, 1, 2, 0, 1, 2])),
        Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        Arc::new(FixedSizeListArray::try_new(item, 4, Arc::new(points), None).unwrap()),
    ];
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    session.register_table("bold", Arc::new(MemTable::try_new(schema, vec![vec![rows]]).unwrap())).unwrap();
    session
}
