//! `FROM predict(model, features)`: scikit-learn's numbers, however features are ordered and partitioned, and what is
//! refused. Reference values by `integration-tests/reference/predict_stage.py`.

use crate::{
    banded,
    encoding::{
        BOLD, CONSTANT, NOT_A_NUMBER, VOXELS, bench, close, fitted_table, grid, lists, numbers, reference,
        request, run, samples, with_tables,
    },
    tables::{Bench, ours, refused},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringArray},
    compute::concat_batches,
    datatypes::{Float32Type, UInt16Type, UInt32Type},
};
use datafusion::{
    logical_expr::LogicalPlan,
    physical_plan::{ExecutionPlan, collect},
};
use serde_json::{Value, json};
use std::sync::Arc;
use voxelflow_dataset::{OptionMap, StageError, StagePlanner, node_codec};
use voxelflow_operators::PREDICT;
use voxelflow_stage::Grid;

const STIMULI: &str = "SELECT * FROM stimuli";
/// Runs of the reference, and their samples.
const RUNS: usize = 4;
const SAMPLES: usize = 24;

fn scikit_learn(case: &str) -> Vec<f64> {
    let all: Value = serde_json::from_str(include_str!("../fixtures/predict_stage.json")).unwrap();
    numbers(&all[case])
}

fn options(bench: &Bench, more: Value) -> OptionMap {
    let mut options = json!({"model": bench.model().display().to_string()});
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    options.as_object().unwrap().clone()
}

async fn planned(bench: &Bench, features: &str, more: Value) -> Result<LogicalPlan, StageError> {
    bench.catalog.plan_table_operator(PREDICT, bench.plan_of(features).await, &options(bench, more))
}

async fn physical(bench: &Bench, features: &str) -> Arc<dyn ExecutionPlan> {
    let plan = planned(bench, features, json!({})).await.unwrap();
    bench.context.execute_logical_plan(plan).await.unwrap().create_physical_plan().await.unwrap()
}

/// All rows, by run and voxel.
async fn rows(bench: &Bench, features: &str) -> RecordBatch {
    let plan = planned(bench, features, json!({})).await.unwrap();
    let frame = bench.context.execute_logical_plan(plan).await.unwrap();
    let keys = ["subject", "run", "voxel"].map(|name| datafusion::prelude::col(name).sort(true, true));
    let batches = frame.sort(keys.into()).unwrap().collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// The series of the targets that could be fitted; the two others are null.
#[track_caller]
fn series(rows: &RecordBatch) -> Vec<f64> {
    let series = rows.column_by_name("series").unwrap().as_fixed_size_list();
    let voxels = rows.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>();
    let mut known = Vec::new();
    for (row, voxel) in voxels.values().iter().enumerate() {
        assert_eq!(series.is_null(row), *voxel >= VOXELS as u32, "voxel {voxel}");
        if series.is_valid(row) {
            let values = series.value(row);
            known.extend(values.as_primitive::<Float32Type>().values().iter().map(|v| f64::from(*v)));
        }
    }
    known
}

/// Trains, with options over those of the reference.
async fn trained(stage: &str, more: Value) -> Bench {
    let bench = bench();
    with_tables(&bench);
    let request = match stage {
        "ridge_cv" => request(&bench, [BOLD, STIMULI], more, 2).await,
        _ => banded::request(&bench, STIMULI, more, 2).await,
    };
    bench.run(request).await.unwrap();
    bench
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt())
}

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let ((mean_a, deviation_a), (mean_b, deviation_b)) = (moments(a), moments(b));
    let products = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b));
    products.sum::<f64>() / a.len() as f64 / (deviation_a * deviation_b)
}

#[tokio::test]
async fn predictions_are_those_of_scikit_learn_and_give_the_r_of_the_model() {
    let cases = [
        ("ridge_cv", json!({"delays": []}), "own_sample", 1e-6),
        ("ridge_cv", json!({}), "delays", 1e-6),
        ("ridge_cv", json!({"precision": "f32"}), "delays", 1e-4),
        ("banded_ridge_cv", json!({}), "banded", 1e-6),
    ];
    for (stage, more, case, tolerance) in cases {
        let bench = trained(stage, more).await;
        let rows = rows(&bench, STIMULI).await;
        assert_eq!(rows.num_rows(), RUNS * (VOXELS + 2));
        let found = series(&rows);
        close(case, &found, &scikit_learn(case), tolerance);

        // In the run that was held out.
        let measured: Vec<f64> = numbers(&reference()["series"][3]);
        let predicted = &found[3 * VOXELS * SAMPLES..];
        let pairs = predicted.chunks_exact(SAMPLES).zip(measured.chunks_exact(SAMPLES));
        for ((predicted, measured), r) in pairs.zip(fitted_table(&bench, "r")) {
            let found = pearson(predicted, measured);
            // What rounding to 32 bits does to series far from zero that hardly vary.
            let (mean, deviation) = moments(predicted);
            let rounding = f64::from(f32::EPSILON) * mean.abs() / deviation;
            assert!((found - r).abs() < 1e-6 + rounding, "{case}: r is {r}, of predictions {found}");
        }
    }
}

#[tokio::test]
async fn rows_have_the_keys_of_runs_and_targets_and_the_grid() {
    let bench = trained("ridge_cv", json!({})).await;
    let rows = rows(&bench, STIMULI).await;
    let schema = rows.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["subject", "run", "space", "voxel", "i", "j", "k", "series"]);
    let text =
        |name: &str, row: usize| rows.column_by_name(name).unwrap().as_string::<i32>().value(row).to_owned();
    assert_eq!((text("subject", 14), text("run", 14)), ("01".into(), "1".into()));
    let place =
        ["i", "j", "k"].map(|name| rows.column_by_name(name).unwrap().as_primitive::<UInt16Type>().value(14));
    assert_eq!(place, [2, 1, 0]);
    let found = Grid::of(&schema).unwrap();
    assert_eq!((found.shape, found.history), (grid().shape, vec!["predict: model m".to_owned()]));

    let plan = physical(&bench, STIMULI).await;
    collect(Arc::clone(&plan), bench.context.task_ctx()).await.unwrap();
    let told: Vec<String> =
        (0..RUNS).map(|run| format!("{run}: noted voxel 2 at {CONSTANT}-{NOT_A_NUMBER}")).collect();
    assert_eq!(super::clean::ledger(&plan), told);
}

#[tokio::test]
async fn features_count_by_name_in_any_partitions_and_as_a_design() {
    let bench = trained("ridge_cv", json!({})).await;
    let all = rows(&bench, STIMULI).await;
    bench.table("whole", vec![vec![samples(0..4)]]);
    bench.table("pieces", (0..12).map(|piece| vec![samples(0..4).slice(piece * 8, 8)]).collect());
    for features in [
        "SELECT * FROM whole",
        "SELECT * FROM pieces",
        "SELECT b, tr, a, run FROM stimuli ORDER BY a",
        "SELECT run, tr, a, b FROM (SELECT * FROM stimuli ORDER BY tr, run) AS s WHERE tr >= 0",
        "SELECT b, CAST(run AS VARCHAR) AS run, CAST(tr AS SMALLINT) AS tr, CAST(a AS DOUBLE) AS a FROM pieces",
        "SELECT *, 'film' AS stimulus FROM stimuli",
    ] {
        let again = rows(&bench, features).await;
        assert_eq!(again.columns(), all.columns(), "{features}");
    }
    // One run without keys.
    let one = rows_of(&bench, "SELECT tr, a, b FROM stimuli WHERE run = 2").await;
    assert_eq!((one.num_rows(), one.column_by_name("run")), (VOXELS + 2, None));
    let expected = &scikit_learn("delays")[2 * VOXELS * SAMPLES..3 * VOXELS * SAMPLES];
    close("one run", &series(&one), expected, 1e-6);
    assert_eq!(rows_of(&bench, "SELECT * FROM stimuli WHERE run = 9").await.num_rows(), 0);

    // A model of a design, of which the regressors come in another order.
    let other = crate::encoding::bench();
    with_tables(&other);
    let reference = reference();
    let design = |runs: std::ops::Range<usize>, names: [usize; 3]| {
        let each = || runs.clone().flat_map(move |run| names.map(|name| (run, name)));
        let values = each().flat_map(|(run, feature)| {
            let of_run = reference["features"][run].as_array().unwrap().clone();
            of_run.into_iter().map(move |row| row[feature].as_f64().unwrap() as f32)
        });
        let columns: [(&str, ArrayRef); 3] = [
            ("run", Arc::new(StringArray::from_iter_values(each().map(|(run, _)| run.to_string())))),
            (
                "regressor",
                Arc::new(StringArray::from_iter_values(each().map(|(_, name)| ["x", "y", "z"][name]))),
            ),
            ("series", lists(values.collect(), SAMPLES)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    other.table("first", vec![vec![design(0..4, [0, 1, 2])]]);
    other.table("turned", vec![vec![design(3..4, [2, 0, 1]), design(0..1, [1, 2, 0])]]);
    other.run(request(&other, [BOLD, "SELECT * FROM first"], json!({}), 2).await).await.unwrap();
    let found = series(&rows(&other, "SELECT * FROM turned").await);
    let expected = scikit_learn("delays");
    let (run, all) = (VOXELS * SAMPLES, expected.len());
    close("a design", &found, &[&expected[..run], &expected[all - run..]].concat(), 1e-6);
}

/// Rows in no order; none is no error.
async fn rows_of(bench: &Bench, features: &str) -> RecordBatch {
    let plan = planned(bench, features, json!({})).await.unwrap();
    let schema = Arc::new(plan.schema().as_arrow().clone());
    let batches = bench.context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
    concat_batches(&schema, &batches).unwrap()
}

#[tokio::test]
async fn filters_of_runs_reach_the_features_and_others_do_not() {
    let bench = trained("ridge_cv", json!({})).await;
    bench.table("named", vec![vec![samples(0..4)]]);
    let features = "SELECT CAST(run AS VARCHAR) AS run, tr, a, b FROM named";
    let plan = planned(&bench, features, json!({})).await.unwrap();
    let frame = bench.context.execute_logical_plan(plan).await.unwrap();
    use datafusion::prelude::{col, lit};
    let frame = frame.filter(col("run").eq(lit("2")).and(col("voxel").lt(lit(3)))).unwrap();
    let text = frame.clone().into_optimized_plan().unwrap().display_indent().to_string();
    let (above, below) = text.split_once("Predict:").unwrap();
    assert!(above.contains("voxel") && !above.contains("run ="), "{text}");
    assert!(below.contains('2') && !below.contains("voxel"), "{text}");
    assert_eq!(frame.count().await.unwrap(), 3);
}

#[tokio::test]
async fn subjects_have_their_own_targets_and_features() {
    let bench = bench();
    with_tables(&bench);
    bench
        .table("both", ["01", "02"].map(|subject| (0..3).map(|n| run(subject, n, SAMPLES)).collect()).into());
    let mut request = request(&bench, ["SELECT * FROM both", STIMULI], json!({}), 2).await;
    request.validation = None;
    bench.run(request).await.unwrap();
    let all = rows(&bench, STIMULI).await;
    assert_eq!(all.num_rows(), 2 * RUNS * (VOXELS + 2));
    let second = rows(&bench, "SELECT *, '02' AS subject FROM stimuli").await;
    assert_eq!(second.num_rows(), RUNS * (VOXELS + 2));
    assert_eq!(second.columns(), all.slice(RUNS * (VOXELS + 2), RUNS * (VOXELS + 2)).columns());
    let plan = planned(&bench, "SELECT *, '03' AS subject FROM stimuli", json!({})).await.unwrap();
    let error = bench.context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap_err();
    let text = ours(&error).to_string();
    assert!(text.contains("no targets of subject 03, run ") && text.contains("`01`, `02`"), "{text}");
}

#[tokio::test]
async fn a_plan_travels_with_its_settings() {
    let bench = trained("ridge_cv", json!({})).await;
    let plan = physical(&bench, STIMULI).await;
    let mut node = Arc::clone(&plan);
    while node.name() != "PredictExec" {
        node = Arc::clone(node.children()[0]);
    }
    let (name, bytes) = node_codec::encode(node.as_ref()).unwrap().unwrap();
    let inputs: Vec<_> = node.children().into_iter().cloned().collect();
    let again = node_codec::decode(name, &bytes, &inputs, &bench.context.task_ctx()).unwrap();
    assert_eq!(again.schema(), node.schema());
    let rows = collect(again, bench.context.task_ctx()).await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), RUNS * (VOXELS + 2));
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_names() {
    let bench = trained("ridge_cv", json!({})).await;
    let planning = async |features: &str, more: Value| {
        let error = refused(planned(&bench, features, more).await);
        (error.to_string(), error.option)
    };
    for (features, says) in [
        ("SELECT run, tr, a FROM stimuli", "needs `b[0]`, `b[1]`, which the features lack; they are `a`"),
        ("SELECT *, a AS c FROM stimuli", "`c` is not among the features of the model, `a`, `b[0]`, `b[1]`"),
        ("SELECT run, a, b FROM stimuli", "predict needs the column `tr`"),
        ("SELECT run, tr, 'word' AS a, b FROM stimuli", "predict: column `a` is"),
    ] {
        let (text, option) = planning(features, json!({})).await;
        assert!(text.contains(says) && option.is_none(), "{text}");
    }
    for (more, says, option) in [
        (json!({"time_pionts": 24}), "did you mean `time_points`?", "time_pionts"),
        (json!({"time_points": 0}), "is the samples of every run, not 0", "time_points"),
    ] {
        let (text, at) = planning(STIMULI, more).await;
        assert!(text.contains(says) && at.as_deref() == Some(option), "{text}");
    }
    let other = bench.folder.path().display().to_string();
    let (text, _) = planning(STIMULI, json!({"model": other})).await;
    assert!(text.contains("model folder"), "{text}");

    for (features, more, says) in [
        (
            "SELECT * FROM stimuli WHERE tr < 20",
            json!({}),
            "has 20 samples of features, and the series are to have 24",
        ),
        (STIMULI, json!({"time_points": 23}), "write time_points => 24 and choose runs"),
        (
            "SELECT * FROM stimuli WHERE run > 0 OR tr < 2",
            json!({}),
            "run 0 has 2 samples of features, and the model's longest delay is 2",
        ),
        ("SELECT * FROM stimuli WHERE run > 0 OR tr <> 5", json!({}), "run 0: has no tr 5"),
        (
            "SELECT run, tr, CASE WHEN run = 1 AND tr = 3 THEN NULL ELSE a END AS a, b FROM stimuli",
            json!({}),
            "predict: `a` is NaN in run 1, tr 3",
        ),
        (
            "SELECT run, tr, a, make_array(a) AS b FROM stimuli",
            json!({}),
            "needs `b[1]`, which the features lack",
        ),
    ] {
        let plan = planned(&bench, features, more).await.unwrap();
        let error = bench.context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap_err();
        assert!(ours(&error).is_input() && ours(&error).to_string().contains(says), "{error}");
    }
    let fewer =
        planned(&bench, "SELECT * FROM stimuli WHERE tr < 20", json!({"time_points": 20})).await.unwrap();
    let rows = bench.context.execute_logical_plan(fewer).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), RUNS * (VOXELS + 2));
}
