//! `clean` as a plan: what it computes, what it keeps, what it lets pass, what it refuses.

use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray, UInt16Array,
        UInt32Array,
    },
    buffer::NullBuffer,
    datatypes::{DataType, Field, Float32Type, Schema, SchemaRef, UInt32Type},
};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::DataFusionError,
    dataframe::DataFrame,
    datasource::MemTable,
    error::Result,
    execution::{SessionStateBuilder, context::QueryPlanner},
    logical_expr::{LogicalPlan, UserDefinedLogicalNode, physical_planning_context::PhysicalPlanningContext},
    physical_plan::{ExecutionPlan, collect, displayable},
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
    prelude::*,
};
use serde_json::json;
use std::sync::Arc;
use voxelflow_dataset::{Ledger, OptionMap, StageError};
use voxelflow_operators::{CleanNode, Error, plan_clean, plan_clean_exec};
use voxelflow_signal::{CleanSettings, Cleaner};
use voxelflow_stage::Grid;

const T: usize = 40;

#[derive(Debug)]
pub(super) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Planner)])
            .create_physical_plan(plan, session)
            .await
    }
}

#[async_trait]
impl ExtensionPlanner for Planner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        node.as_any().downcast_ref::<CleanNode>().map(|node| plan_clean_exec(node, inputs)).transpose()
    }
}

fn grid(t_r: Option<f64>) -> Grid {
    Grid {
        shape: [10, 10, 10],
        affine: [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
        xform_code: 1,
        t_r,
        mask_hash: "none".into(),
        mask_voxels: 12,
        source: "bold.nii.gz".into(),
        history: vec!["read from bold.nii.gz".into()],
    }
}

fn schema(t_r: Option<f64>) -> SchemaRef {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let fields = vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("i", DataType::UInt16, false),
        Field::new("noise", DataType::Float32, false),
        Field::new("series", DataType::FixedSizeList(item, T as i32), true),
    ];
    Arc::new(Schema::new_with_metadata(fields, grid(t_r).to_metadata().unwrap()))
}

fn series(voxel: u32) -> Vec<f32> {
    (0..T).map(|t| 1000.0 + voxel as f32 + (t as f32 * 0.7 + voxel as f32).sin() * 30.0 + t as f32).collect()
}

/// Voxels of one batch; `change` may spoil their values, `[rows, T]`.
fn batch(schema: &SchemaRef, voxels: std::ops::Range<u32>, change: impl Fn(u32, &mut [f32])) -> RecordBatch {
    let n = voxels.len();
    let mut values: Vec<f32> = Vec::new();
    for voxel in voxels.clone() {
        let mut one = series(voxel);
        change(voxel, &mut one);
        values.extend(one);
    }
    let DataType::FixedSizeList(item, _) = schema.field(4).data_type() else {
        unreachable!("series is a list")
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![Some("01"); n])),
        Arc::new(UInt32Array::from_iter_values(voxels.clone())),
        Arc::new(UInt16Array::from_iter_values(voxels.map(|v| (v % 10) as u16))),
        Arc::new(Float32Array::from(vec![0.5; n])),
        Arc::new(
            FixedSizeListArray::try_new(
                Arc::clone(item),
                T as i32,
                Arc::new(Float32Array::from(values)),
                None,
            )
            .unwrap(),
        ),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
}

/// A session with the table `bold` of three partitions, sorted by voxel.
fn session(t_r: Option<f64>, change: impl Fn(u32, &mut [f32]) + Copy) -> SessionContext {
    let schema = schema(t_r);
    let partitions = (0..3).map(|p| {
        vec![batch(&schema, 4 * p..4 * p + 2, change), batch(&schema, 4 * p + 2..4 * p + 4, change)]
    });
    let table = MemTable::try_new(Arc::clone(&schema), partitions.collect()).unwrap();
    let table = table.with_sort_order((0..3).map(|_| vec![col("voxel").sort(true, false)]).collect());
    let state =
        SessionStateBuilder::new().with_default_features().with_query_planner(Arc::new(Planner)).build();
    let context = SessionContext::new_with_state(state);
    context.register_table("bold", Arc::new(table)).unwrap();
    context
}

pub(super) fn options(value: serde_json::Value) -> OptionMap {
    value.as_object().cloned().unwrap()
}

async fn cleaned(context: &SessionContext, value: serde_json::Value) -> Result<DataFrame, StageError> {
    let input = context.table("bold").await.unwrap().into_unoptimized_plan();
    Ok(DataFrame::new(context.state(), plan_clean(input, &options(value), &None)?))
}

fn untouched(_: u32, _: &mut [f32]) {}

fn spoil_five_and_six(voxel: u32, series: &mut [f32]) {
    match voxel {
        5 => series[3] = f32::NAN,
        6 => series[0] = f32::INFINITY,
        7 => series.fill(3.0),
        _ => {}
    }
}

/// Voxels and series of all batches, sorted by voxel.
fn rows(batches: &[RecordBatch]) -> Vec<(u32, Vec<f32>)> {
    let mut rows: Vec<_> = batches
        .iter()
        .flat_map(|batch| {
            let voxels = batch.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>();
            let list = batch.column_by_name("series").unwrap().as_fixed_size_list();
            (0..batch.num_rows())
                .map(|row| {
                    (voxels.value(row), list.value(row).as_primitive::<Float32Type>().values().to_vec())
                })
                .collect::<Vec<_>>()
        })
        .collect();
    rows.sort_by_key(|row| row.0);
    rows
}

/// What a plan that ran told the ledger: run, what, level, count and places of each entry, in words.
pub(super) fn ledger(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let text = |entry: &voxelflow_dataset::LedgerEntry| {
        let run = entry.run().iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
        let (what, level, count) = (entry.what().name(), entry.level().name(), entry.count());
        format!("{run}: {what} {level} {count} at {}", entry.places().text(count).unwrap_or_default())
    };
    Ledger::of_plan(plan.as_ref()).iter().map(text).collect()
}

#[tokio::test]
async fn series_are_cleaned_and_everything_else_is_kept() {
    let context = session(Some(2.0), untouched);
    let frame = cleaned(&context, json!({"high_pass": 0.01, "standardize": "zscore_sample"})).await.unwrap();
    let plan = frame.clone().create_physical_plan().await.unwrap();
    assert_eq!(plan.schema().fields(), schema(Some(2.0)).fields());
    let history = Grid::of(&plan.schema()).unwrap().history;
    assert_eq!(history[0], "read from bold.nii.gz");
    assert_eq!(
        history[1..],
        ["clean: linear detrend, Butterworth of order 5 high_pass 0.01 Hz (t_r 2 s), zscore_sample"]
    );
    // Nothing has to be merged, shuffled or sorted: three partitions, in order, as they came.
    assert_eq!(plan.name(), "CleanExec");
    assert_eq!(plan.properties().output_partitioning().partition_count(), 3);
    assert!(plan.properties().output_ordering().is_some());

    let batches = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let settings = CleanSettings { high_pass: Some(0.01), ..CleanSettings::default() };
    let cleaner = Cleaner::try_new(&settings, T, Some(2.0)).unwrap();
    let found = rows(&batches);
    assert_eq!(found.len(), 12);
    for (voxel, found) in found {
        let mut expected = series(voxel);
        cleaner.clean(&mut expected).unwrap();
        assert_eq!(found, expected, "voxel {voxel}");
    }
    assert_eq!(Grid::of(&batches[0].schema()).unwrap().history.len(), 2);
    assert_eq!(plan.metrics().unwrap().output_rows(), Some(12));
}

#[tokio::test]
async fn filters_on_keys_and_projections_pass_below_but_filters_on_series_do_not() {
    let context = session(Some(2.0), spoil_five_and_six);
    let frame = cleaned(&context, json!({})).await.unwrap();
    let frame =
        frame.filter(col("voxel").lt(lit(3u32))).unwrap().select_columns(&["series", "voxel"]).unwrap();
    let text = frame.clone().into_optimized_plan().unwrap().display_indent().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = |what: &str| {
        lines.iter().position(|l| l.starts_with(what)).unwrap_or_else(|| panic!("no {what} in\n{text}"))
    };
    assert!(at("Clean: linear detrend") < at("Filter: "), "{text}");
    assert!(!lines[at("TableScan")].contains("noise"), "{text}");
    let batches = frame.collect().await.unwrap();
    assert_eq!(rows(&batches).iter().map(|r| r.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(batches[0].schema().field(0).name(), "series");
    assert_eq!(Grid::of(&batches[0].schema()).unwrap().history.len(), 2);

    let frame = cleaned(&context, json!({"not_finite": "drop"})).await.unwrap();
    let frame = frame.filter(col("series").is_not_null().and(col("i").eq(lit(4u16)))).unwrap();
    let text = frame.into_optimized_plan().unwrap().display_indent().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("Filter: ") && lines[0].contains("series"), "{text}");
    assert!(lines[1].starts_with("Clean: ") && lines[2].contains("i = "), "{text}");
}

#[tokio::test]
async fn a_limit_passes_below_unless_rows_may_be_dropped() {
    let context = session(Some(2.0), untouched);
    for (not_finite, below) in [("error", true), ("zero", true), ("drop", false)] {
        let frame =
            cleaned(&context, json!({"not_finite": not_finite})).await.unwrap().limit(0, Some(3)).unwrap();
        let text = frame.clone().into_optimized_plan().unwrap().display_indent().to_string();
        let clean = text.find("Clean: ").unwrap();
        assert_eq!(text[clean..].contains("fetch=3"), below, "{text}");
        assert_eq!(frame.collect().await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    }
}

#[tokio::test]
async fn series_that_are_not_finite_fail_the_job_by_name_unless_told_otherwise() {
    let context = session(Some(2.0), spoil_five_and_six);
    let e = cleaned(&context, json!({})).await.unwrap().collect().await.unwrap_err();
    let mut root = &e;
    while let DataFusionError::Context(_, inner) = root {
        root = inner;
    }
    let DataFusionError::External(inner) = root else { panic!("{e:?}") };
    let inner = inner.downcast_ref::<Error>().unwrap();
    assert!(inner.is_input());
    let text = inner.to_string();
    assert!(text.contains("subject 01, voxel 5, i 5") || text.contains("subject 01, voxel 6, i 6"), "{text}");
    assert!(text.contains("1 of 2 series") && text.contains("not_finite => 'drop'"), "{text}");
}

#[tokio::test]
async fn series_that_are_not_finite_are_dropped_or_zeroed_and_counted() {
    let context = session(Some(2.0), spoil_five_and_six);
    for (not_finite, kept, what) in [("drop", 10, "dropped"), ("zero", 12, "zeroed")] {
        let frame = cleaned(&context, json!({"not_finite": not_finite})).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let found = rows(&collect(Arc::clone(&plan), context.task_ctx()).await.unwrap());
        assert_eq!(found.len(), kept);
        let mut told = [format!("01: {what} voxel 2 at 5-6"), "01: constant voxel 1 at 7".into()];
        told.sort_by_key(|line| line.contains("zeroed"));
        assert_eq!(ledger(&plan), told);
        for (voxel, series) in found {
            let zero = series.iter().all(|x| *x == 0.0);
            assert_eq!(
                zero,
                voxel == 7 || (voxel == 5 || voxel == 6) && not_finite == "zero",
                "voxel {voxel}"
            );
        }
    }
}

#[tokio::test]
async fn rows_without_a_series_stay_and_null_points_are_not_finite() {
    let schema = schema(Some(2.0));
    let whole = batch(&schema, 0..3, untouched);
    let list = whole.column(4).as_fixed_size_list();
    let mut points: Vec<Option<f32>> = list.values().as_primitive::<Float32Type>().iter().collect();
    points[2 * T + 1] = None;
    let DataType::FixedSizeList(item, _) = schema.field(4).data_type() else {
        unreachable!("series is a list")
    };
    let nulls = NullBuffer::from(vec![true, false, true]);
    let points = Arc::new(Float32Array::from(points));
    let mut columns = whole.columns().to_vec();
    columns[4] =
        Arc::new(FixedSizeListArray::try_new(Arc::clone(item), T as i32, points, Some(nulls)).unwrap());
    let whole = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();

    let context = session(Some(2.0), untouched);
    // A slice of a larger batch: its values do not begin where those of the batch begin.
    let table = MemTable::try_new(schema, vec![vec![whole.slice(1, 2)]]).unwrap();
    context.deregister_table("bold").unwrap();
    context.register_table("bold", Arc::new(table)).unwrap();
    let frame = cleaned(&context, json!({"not_finite": "drop"})).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    assert_eq!(batches[0].num_rows(), 1);
    assert_eq!(batches[0].column(1).as_primitive::<UInt32Type>().value(0), 1);
    assert!(batches[0].column(4).is_null(0));
    assert_eq!(ledger(&plan), ["01: dropped voxel 1 at 2"]);
}

#[tokio::test]
async fn what_cannot_be_planned_says_why() {
    let context = session(None, untouched);
    let refuse = async |value| {
        let e = cleaned(&context, value).await.map(drop).unwrap_err();
        (e.option.clone(), e.to_string())
    };
    let (option, text) = refuse(json!({"standardise": "psc"})).await;
    assert_eq!(option.as_deref(), Some("standardise"));
    assert!(text.contains("did you mean `standardize`?"), "{text}");
    let (option, text) = refuse(json!({"high_pass": 0.01})).await;
    assert_eq!(option.as_deref(), Some("t_r"), "{text}");
    let (option, text) = refuse(json!({"high_pass": 0.3, "t_r": 2})).await;
    assert_eq!(option.as_deref(), Some("high_pass"), "{text}");
    let (option, text) = refuse(json!({"not_finite": "skip"})).await;
    assert_eq!(option.as_deref(), Some("not_finite"), "{text}");
    let (option, text) = refuse(json!({"standardize": "zscored"})).await;
    assert_eq!(option.as_deref(), Some("standardize"), "{text}");
    assert!(text.contains("'psc'"), "{text}");
    cleaned(&context, json!({"high_pass": 0.01, "t_r": 2})).await.unwrap();

    let input = context.table("bold").await.unwrap().select_columns(&["voxel", "noise"]).unwrap();
    let e = plan_clean(input.into_unoptimized_plan(), &OptionMap::new(), &None).unwrap_err().to_string();
    assert!(e.contains("`series`") && e.contains("voxel, noise"), "{e}");
    let input = context.table("bold").await.unwrap().select(vec![col("noise").alias("series")]).unwrap();
    let e = plan_clean(input.into_unoptimized_plan(), &OptionMap::new(), &None).unwrap_err().to_string();
    assert!(e.contains("which is Float32"), "{e}");
}

#[tokio::test]
async fn the_plan_shows_what_is_done() {
    let context = session(Some(2.0), untouched);
    let frame = cleaned(&context, json!({"detrend": false, "standardize": "psc"})).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    assert!(displayable(plan.as_ref()).indent(false).to_string().starts_with("CleanExec: psc"));
}
