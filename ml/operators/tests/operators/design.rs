//! `design` as a plan: rows of each run, what filters choose, what is noted, what is refused.

use super::clean::{ledger, options};
use super::clean_confounds::{T, schema};
use arrow::{
    array::{ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Float32Type},
};
use datafusion::{
    dataframe::DataFrame,
    datasource::MemTable,
    execution::SessionStateBuilder,
    execution::context::QueryPlanner,
    physical_plan::{ExecutionPlan, collect, displayable},
    prelude::*,
};
use serde_json::{Value, json};
use std::sync::Arc;
use voxelflow_dataset::{StageError, node_codec};
use voxelflow_operators::{
    DESIGN_METADATA_KEY, Error, EventsReader, SessionStores, extension_planners, plan_design,
};
use voxelflow_signal::design::{Design, DesignSettings, Event, FrameTimes, HrfModel};
use voxelflow_stage::{EventFiles, Grid, RunEvent, RunFiles};

const T_R: f64 = 2.0;

inventory::submit! { EventsReader { read } }

/// Events by what stands where a file's path would: `onset duration condition` with semicolons between them.
fn read(run: &RunFiles, _: &SessionStores) -> Result<Vec<RunEvent>, String> {
    let Some(EventFiles::Table(text)) = &run.events else { return Err("no events were found for it".into()) };
    let event = |(row, text): (usize, &str)| {
        let cells: Vec<&str> = text.split(' ').collect();
        RunEvent {
            onset: cells[0].parse().unwrap(),
            duration: cells[1].parse().ok(),
            condition: Some(cells[2].to_owned()).filter(|name| name != "n/a"),
            modulation: 1.0,
            file: 0,
            line: row as u64 + 2,
        }
    };
    Ok(text.split(';').enumerate().map(event).collect())
}

fn run(number: &str, events: Option<&str>) -> RunFiles {
    RunFiles {
        keys: [Some("01".into()), None, Some("motor".into()), Some(number.into())],
        events: events.map(|text| EventFiles::Table(text.into())),
        ..RunFiles::default()
    }
}

fn series(voxel: u32) -> Vec<f32> {
    (0..T).map(|t| (t as f32 * 0.31 + voxel as f32).sin()).collect()
}

/// Three voxels of each run.
fn session(runs: &[RunFiles]) -> SessionContext {
    let schema = schema(runs);
    let rows = 3 * runs.len();
    let DataType::FixedSizeList(item, _) = schema.field(5).data_type() else { unreachable!() };
    let key = |at: usize| -> ArrayRef {
        Arc::new((0..rows).map(|row| runs[row / 3].keys[at].as_deref()).collect::<StringArray>())
    };
    let values: Vec<f32> = (0..rows as u32).flat_map(series).collect();
    let mut columns: Vec<ArrayRef> = (0..4).map(key).collect();
    columns.push(Arc::new(UInt32Array::from_iter_values(0..rows as u32)));
    let values = Arc::new(Float32Array::from(values));
    columns.push(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), T as i32, values, None).unwrap()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let table = MemTable::try_new(
        schema,
        vec![vec![batch.slice(0, rows / 2), batch.slice(rows / 2, rows - rows / 2)]],
    )
    .unwrap();
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(2))
        .with_query_planner(Arc::new(Planner))
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_table("bold", Arc::new(table)).unwrap();
    context
}

#[derive(Debug)]
struct Planner;

#[async_trait::async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &datafusion::logical_expr::LogicalPlan,
        session: &dyn datafusion::catalog::Session,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
        DefaultPhysicalPlanner::with_extension_planners(extension_planners())
            .create_physical_plan(plan, session)
            .await
    }
}

async fn design(context: &SessionContext, value: Value) -> Result<DataFrame, StageError> {
    let input = context.table("bold").await.unwrap().into_unoptimized_plan();
    Ok(DataFrame::new(context.state(), plan_design(input, &options(value))?))
}

/// Run, name and values of every row.
fn rows(batches: &[RecordBatch]) -> Vec<(String, String, Vec<f32>)> {
    let mut rows = Vec::new();
    for batch in batches {
        let text = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().clone();
        let (runs, names) = (text("run"), text("regressor"));
        let series = batch.column_by_name("series").unwrap().as_fixed_size_list().clone();
        for row in 0..batch.num_rows() {
            let values = series.value(row).as_primitive::<Float32Type>().values().to_vec();
            rows.push((runs.value(row).to_owned(), names.value(row).to_owned(), values));
        }
    }
    rows.sort_by_key(|row| row.0.clone());
    rows
}

/// What `signal` itself makes of a run's events.
fn expected(run: &RunFiles, start_time: f64, settings: &DesignSettings) -> Vec<(String, String, Vec<f32>)> {
    let events: Vec<Event> = read(run, &None)
        .unwrap()
        .into_iter()
        .map(|e| Event {
            onset: e.onset,
            duration: e.duration.unwrap_or(0.0),
            condition: e.condition,
            modulation: e.modulation,
        })
        .collect();
    let times = FrameTimes::try_new(T, T_R, start_time).unwrap();
    let design = Design::try_new(&times, &events, &[], settings).unwrap();
    let number = run.keys[3].clone().unwrap();
    let narrow = |column: &Vec<f64>| column.iter().map(|x| *x as f32).collect();
    design
        .names
        .iter()
        .zip(&design.columns)
        .map(|(name, c)| (number.clone(), name.clone(), narrow(c)))
        .collect()
}

const FIRST: &str = "4 2 left;20 2 right;40 2 left";
const SECOND: &str = "6 0 right;30 5 tongue";

#[tokio::test]
async fn every_run_has_its_regressors_in_their_order() {
    let runs = [run("1", Some(FIRST)), RunFiles { start_time: Some(1.0), ..run("2", Some(SECOND)) }];
    let context = session(&runs);
    let frame = design(&context, json!({"hrf_model": "spm + derivative"})).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let found = rows(&collect(Arc::clone(&plan), context.task_ctx()).await.unwrap());
    let settings = DesignSettings { hrf_model: HrfModel::SpmDerivative, ..DesignSettings::default() };
    let of = |run, start| expected(run, start, &settings);
    assert_eq!(found, [of(&runs[0], 0.0), of(&runs[1], 1.0)].concat());
    assert_eq!(found[1].1, "left_derivative");
    let schema = plan.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["subject", "session", "task", "run", "regressor", "series"]);
    assert!(schema.metadata()[DESIGN_METADATA_KEY].contains("spm + derivative"), "{:?}", schema.metadata());
    assert!(Grid::of(&schema).is_err(), "regressors lie on no grid");

    // Where no sidecar says it, the setting does.
    let found = rows(
        &design(&session(&runs[..1]), json!({"slice_time_ref": 0.5})).await.unwrap().collect().await.unwrap(),
    );
    assert_eq!(found, expected(&runs[0], 1.0, &DesignSettings::default()));
}

#[tokio::test]
async fn a_filter_chooses_the_runs_and_only_those_are_read() {
    // The second run has no events.
    let context = session(&[run("1", Some(FIRST)), run("2", None)]);
    let all = design(&context, json!({})).await.unwrap();
    let e = all.clone().collect().await.unwrap_err().to_string();
    assert!(e.contains("design of sub-01 task-motor run-2: no events were found"), "{e}");
    let one = all.filter(col("run").eq(lit("1")).and(col("regressor").eq(lit("right")))).unwrap();
    let plan = one.create_physical_plan().await.unwrap();
    let text = displayable(plan.as_ref()).indent(false).to_string();
    let (above, below) = text.split_once("DesignExec").unwrap();
    assert!(above.contains("regressor@") && below.contains("run@"), "{text}");
    assert!(!below.contains("series"), "only keys are read:\n{text}");
    assert_eq!(rows(&collect(plan, context.task_ctx()).await.unwrap()).len(), 1);
}

#[tokio::test]
async fn a_join_correlates_series_with_regressors() {
    let runs = [run("1", Some(FIRST)), run("2", Some(SECOND))];
    let context = session(&runs);
    for function in voxelflow_operators::series_functions() {
        context.register_udf(function.as_ref().clone());
    }
    context.register_table("d", design(&context, json!({})).await.unwrap().into_view()).unwrap();
    let sql = "SELECT b.run, b.voxel, d.regressor, pearson_r(b.series, d.series) AS r FROM bold b \
               JOIN d ON b.subject = d.subject AND b.run = d.run ORDER BY b.voxel, d.regressor";
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let mut pairs = 0;
    for batch in &batches {
        let (voxels, names) =
            (batch.column(1).as_primitive::<arrow::datatypes::UInt32Type>(), batch.column(2));
        let r = batch.column(3).as_primitive::<Float32Type>();
        for row in 0..batch.num_rows() {
            let voxel = voxels.value(row);
            let design = expected(&runs[voxel as usize / 3], 0.0, &DesignSettings::default());
            let regressor = &design.iter().find(|d| d.1 == names.as_string::<i32>().value(row)).unwrap().2;
            let expected = voxelflow_signal::pearson_r(&series(voxel), regressor, T).unwrap()[0];
            let found = r.iter().nth(row).unwrap();
            assert_eq!(found, Some(expected).filter(|r| r.is_finite()));
            pairs += 1;
        }
    }
    // Two conditions, a drift and the constant in each run.
    assert_eq!(pairs, 2 * 3 * 4);
}

#[tokio::test]
async fn what_was_merged_or_left_out_is_in_the_ledger_with_its_place() {
    let events = "4 1 left;4 1 left;-5 1 left;9999 1 left;10 n/a left;12 1 n/a";
    let context = session(&[run("1", Some(events))]);
    let frame = design(&context, json!({"missing_duration": "zero"})).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let told = ledger(&plan);
    for says in [
        format!("01 motor 1: event value 1 at {events}:3"),
        format!("01 motor 1: event value 1 at {events}:5"),
        format!("01 motor 1: event value 1 at {events}:7"),
        format!("01 motor 1: filled value 1 at {events}:6"),
    ] {
        assert!(told.contains(&says), "{says} is not in {told:?}");
    }
    assert_eq!(told.len(), 4, "{told:?}");
}

#[tokio::test]
async fn designs_travel() {
    let context = session(&[run("1", Some(FIRST)), run("2", Some(SECOND))]);
    let frame = design(&context, json!({"t_r": 0.7199999690055847})).await.unwrap();
    // A plan runs once: what is read again gets the inputs of another.
    let (plan, other) =
        (frame.clone().create_physical_plan().await.unwrap(), frame.create_physical_plan().await.unwrap());
    let (name, bytes) = node_codec::encode(plan.as_ref()).unwrap().unwrap();
    let inputs: Vec<Arc<dyn ExecutionPlan>> = other.children().into_iter().cloned().collect();
    let again = node_codec::decode(name, &bytes, &inputs, &context.task_ctx()).unwrap();
    assert_eq!(again.schema(), plan.schema());
    let run = async |plan| rows(&collect(plan, context.task_ctx()).await.unwrap());
    assert_eq!(run(again).await, run(plan).await);
    assert!(node_codec::decode(name, &bytes[1..], &inputs, &context.task_ctx()).is_err());
}

#[tokio::test]
async fn what_cannot_be_planned_says_why() {
    let context = session(&[run("1", Some(FIRST))]);
    for (value, option, says) in [
        (json!({"hrf_modle": "spm"}), "hrf_modle", "did you mean `hrf_model`?"),
        (json!({"hrf_model": "gamma"}), "hrf_model", "glover + derivative"),
        (json!({"drift_model": "linear"}), "drift_model", "polynomial"),
        (json!({"drift_model": "polynomial", "drift_order": 40}), "drift_order", "40 volumes"),
        (json!({"high_pass": 0.3}), "high_pass", "0.25 Hz"),
        (json!({"oversampling": 0}), "oversampling", "from 1"),
        (json!({"hrf_model": "fir", "fir_delays": [1, 1]}), "fir_delays", "twice"),
        (json!({"fir_delays": [-1]}), "fir_delays", "fir_delays"),
        (json!({"min_onset": 5}), "min_onset", "negative"),
        (json!({"slice_time_ref": 2}), "slice_time_ref", "from 0 to 1"),
        (json!({"t_r": -2}), "t_r", "must be over 0"),
    ] {
        let e = design(&context, value.clone()).await.map(drop).unwrap_err();
        assert_eq!(e.option.as_deref(), Some(option), "{value}: {e}");
        assert!(e.to_string().contains(says), "{value}: {e}");
    }
    let e = design(&session(&[]), json!({})).await.map(drop);
    assert!(e.unwrap_err().to_string().contains("STORED AS BIDS"));
    let input = context.table("bold").await.unwrap().select_columns(&["subject", "series"]).unwrap();
    let e = plan_design(input.into_unoptimized_plan(), &options(json!({}))).unwrap_err().to_string();
    assert!(e.contains("`session`") && e.contains("subject Utf8"), "{e}");
}

#[tokio::test]
async fn what_is_wrong_with_a_run_names_it() {
    let conflicting = RunFiles { start_time: Some(0.98), ..run("1", Some(FIRST)) };
    let impossible = RunFiles { start_time: Some(3.0), ..run("1", Some(FIRST)) };
    for (files, value, says) in [
        (run("1", Some("4 n/a left")), json!({}), "4 n/a left, line 2: its duration is n/a"),
        (run("1", Some("4 1 left;nan 1 left")), json!({}), ", line 3: its onset is NaN"),
        (run("1", Some("4 1 constant")), json!({}), "run-1: regressor `constant`: two columns"),
        (
            conflicting,
            json!({"slice_time_ref": 0.5}),
            "StartTime 0.98 s, but slice_time_ref => 0.5 means 1 s",
        ),
        (impossible, json!({}), "not within a volume of 2 s"),
    ] {
        let e = design(&session(&[files]), value.clone()).await.unwrap().collect().await.unwrap_err();
        let mut root = &e;
        while let datafusion::common::DataFusionError::Context(_, inner) = root {
            root = inner;
        }
        let datafusion::common::DataFusionError::External(inner) = root else { panic!("{e:?}") };
        let inner = inner.downcast_ref::<Error>().unwrap();
        let text = inner.to_string();
        assert!(
            inner.is_input() && text.contains("sub-01 task-motor run-1") && text.contains(says),
            "{value}: {text}"
        );
    }
}
