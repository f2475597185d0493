//! Features that 32 bits do not hold or leave too few digits, and columns that are no features. Reference values by
//! `integration-tests/reference/precise_features.py`.

use crate::{
    encoding::{bench, close, fitted_table, grid, lists, numbers},
    tables::{Bench, ours},
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, Int64Array, ListArray, RecordBatch,
        StringArray, UInt32Array,
    },
    compute::concat_batches,
    datatypes::{DataType, Field, Float32Type, Float64Type, Schema},
};
use datafusion::physical_plan::collect;
use serde_json::{Value, json};
use std::sync::Arc;
use voxelflow_dataset::{StagePlanner, TrainRequest};
use voxelflow_operators::PREDICT;

const SAMPLES: usize = 40;
const VOXELS: usize = 4;

fn cases() -> Value {
    serde_json::from_str(include_str!("../fixtures/precise_features.json")).unwrap()
}

/// The series of a run.
fn series(case: &Value, run: usize) -> RecordBatch {
    let values = numbers(&case["series"][run]).into_iter().map(|v| v as f32).collect();
    let series = lists(values, SAMPLES);
    let schema = Schema::new(vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("run", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("series", series.data_type().clone(), true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["01"; VOXELS])),
        Arc::new(StringArray::from(vec![run.to_string(); VOXELS])),
        Arc::new(UInt32Array::from_iter_values(0..VOXELS as u32)),
        series,
    ];
    RecordBatch::try_new(Arc::new(schema.with_metadata(grid().to_metadata().unwrap())), columns).unwrap()
}

/// Features of all runs, a row a sample: `f`, a list of 64-bit numbers, and what pandas writes for an index without a name.
fn samples(case: &Value) -> RecordBatch {
    let rows: Vec<Vec<f64>> = case["features"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|run| run.as_array().unwrap())
        .map(numbers)
        .collect();
    let p = rows[0].len();
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    let values = Arc::new(Float64Array::from(rows.concat()));
    let columns: [(&str, ArrayRef); 4] = [
        (
            "run",
            Arc::new(StringArray::from_iter_values((0..rows.len()).map(|row| (row / SAMPLES).to_string()))),
        ),
        ("tr", Arc::new(Int64Array::from_iter_values((0..rows.len()).map(|row| (row % SAMPLES) as i64)))),
        ("f", Arc::new(FixedSizeListArray::new(item, p as i32, values, None))),
        ("__index_level_0__", Arc::new(Int64Array::from_iter_values(0..rows.len() as i64))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The same as `FROM design(…)` gives it, of lists in 64 bits.
fn design(case: &Value) -> RecordBatch {
    let mut rows = (Vec::new(), Vec::new(), Vec::new());
    for (run, of_run) in case["features"].as_array().unwrap().iter().enumerate() {
        let of_run: Vec<Vec<f64>> = of_run.as_array().unwrap().iter().map(numbers).collect();
        for feature in 0..of_run[0].len() {
            rows.0.push(run.to_string());
            rows.1.push(format!("f[{feature}]"));
            rows.2.push(Some(of_run.iter().map(|sample| Some(sample[feature])).collect::<Vec<_>>()));
        }
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("run", Arc::new(StringArray::from(rows.0))),
        ("regressor", Arc::new(StringArray::from(rows.1))),
        ("series", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows.2))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn tables(case: &Value) -> Bench {
    let bench = bench();
    bench.table("bold", vec![(0..3).map(|run| series(case, run)).collect()]);
    bench.table("held_out", vec![vec![series(case, 3)]]);
    bench.table("stimuli", vec![vec![samples(case)]]);
    bench.table("categories", vec![vec![design(case)]]);
    bench
}

async fn request(bench: &Bench, case: &Value, features: &str, more: Value, ranks: usize) -> TrainRequest {
    let held_out = Some("SELECT * FROM held_out");
    let mut request = bench.request("SELECT * FROM bold", held_out, json!({"ranks": ranks})).await;
    request.stage = "ridge_cv".into();
    let mut own = json!({"alphas": case["alphas"], "delays": case["delays"]});
    own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request.stage = if own.get("bands").is_some() { "banded_ridge_cv" } else { "ridge_cv" }.into();
    request.options = own.as_object().unwrap().clone();
    request.features = Some(bench.plan_of(features).await);
    request
}

const STIMULI: &str = "SELECT * FROM stimuli";

/// The series that the model predicts in the run that no fit has seen, voxel by voxel.
async fn predicted(bench: &Bench) -> Vec<f64> {
    let options = json!({"model": bench.model().display().to_string(), "time_points": SAMPLES});
    let features = bench.plan_of("SELECT * FROM stimuli WHERE run = '3'").await;
    let plan = bench.catalog.plan_table_operator(PREDICT, features, options.as_object().unwrap()).unwrap();
    let rows = bench.context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
    let rows = concat_batches(&rows[0].schema(), &rows).unwrap();
    let lists = rows.column_by_name("series").unwrap().as_fixed_size_list();
    lists.values().as_primitive::<Float32Type>().values().iter().map(|v| f64::from(*v)).collect()
}

#[track_caller]
fn is_scikit_learn_s(name: &str, bench: &Bench, case: &Value, tolerance: f64) {
    for column in ["score", "r", "r2"] {
        close(
            &format!("{column} of {name}"),
            &fitted_table(bench, column),
            &numbers(&case[column]),
            tolerance,
        );
    }
    let alphas = fitted_table(bench, "alpha");
    assert!(alphas.iter().all(|alpha| Some(*alpha) == case["alpha"].as_f64()), "{name}: {alphas:?}");
}

#[tokio::test]
async fn features_far_from_zero_are_fitted_and_predict_as_in_scikit_learn() {
    let all = cases();
    for name in ["stamps", "far"] {
        let case = &all[name];
        for (precision, tolerance) in [("f64", 1e-6), ("f32", 2e-4)] {
            for (features, ranks) in [(STIMULI, 1), ("SELECT * FROM categories", 2)] {
                let bench = tables(case);
                let own = request(&bench, case, features, json!({"precision": precision}), ranks).await;
                bench.run(own).await.unwrap();
                let what = format!("{name} in {precision} {features}");
                is_scikit_learn_s(&what, &bench, case, tolerance);
                close(&what, &predicted(&bench).await, &numbers(&case["predicted"]), tolerance);
                close(&what, &fitted_table(&bench, "intercept"), &numbers(&case["intercepts"]), 2e-4);
            }
            // Weights that are equal are no weights, but for what they take from the penalties.
            let bench = tables(case);
            let doubled: Vec<f64> = numbers(&case["alphas"]).iter().map(|alpha| alpha / 2.0).collect();
            let bands = json!({
                "bands": {"first": "f[0]", "second": "f[1]"}, "gammas": [[0.5, 0.5]], "alphas": doubled,
                "alpha_per_target": false, "precision": precision,
            });
            bench.run(request(&bench, case, STIMULI, bands, 2).await).await.unwrap();
            let what = format!("{name} in bands and {precision}");
            for column in ["score", "r", "r2"] {
                close(&what, &fitted_table(&bench, column), &numbers(&case[column]), tolerance);
            }
            close(&what, &predicted(&bench).await, &numbers(&case["predicted"]), tolerance);
        }
    }
}

#[tokio::test]
async fn ordinary_embeddings_are_fitted_in_64_bits_where_32_leave_too_few_digits() {
    let case = &cases()["embeddings"];
    assert!(case["condition"].as_f64().unwrap() > 1e4);
    for (ranks, more) in [
        (1, json!({})),
        (3, json!({})),
        (2, json!({"bands": {"all": "f"}, "gammas": [[1.0]], "alpha_per_target": false})),
    ] {
        let bench = tables(case);
        bench.run(request(&bench, case, STIMULI, more, ranks).await).await.unwrap();
        is_scikit_learn_s("embeddings", &bench, case, 1e-5);
        close("predictions", &predicted(&bench).await, &numbers(&case["predicted"]), 1e-5);
        assert_eq!(bench.json("ridge.json")["precision"], "f64");
    }
    // Where 32 bits do, they are had.
    let bench = tables(case);
    bench.run(request(&bench, case, STIMULI, json!({"alphas": [100]}), 1).await).await.unwrap();
    assert_eq!(bench.json("ridge.json")["precision"], "f32");
    // A feature that is there twice has no solution, whatever the numbers.
    let twice = "SELECT run, tr, f, f AS again FROM stimuli";
    for precision in ["f32", "f64"] {
        let bench = tables(case);
        let more = json!({"alphas": [1e-12], "precision": precision});
        let error = bench.run(request(&bench, case, twice, more, 2).await).await.unwrap_err();
        let text = ours(&error).to_string();
        assert!(ours(&error).is_input() && text.contains("features are duplicated"), "{text}");
        assert!(text.contains("drop them, or use alphas of at least"), "{text}");
    }
}

#[tokio::test]
async fn an_index_without_a_name_is_no_feature_and_one_with_a_name_is() {
    let case = &cases()["stamps"];
    let bench = tables(case);
    let own = request(&bench, case, STIMULI, json!({}), 1).await;
    let plan = bench.catalog.plan_train(own).unwrap();
    let plan = bench.context.execute_logical_plan(plan).await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), bench.context.task_ctx()).await.unwrap();
    assert_eq!(bench.json("ridge.json")["features"], json!(["f[0]", "f[1]"]));
    let told = super::clean::ledger(&plan);
    assert!(told.contains(&": dropped value 1 at __index_level_0__".to_owned()), "{told:?}");
    // An index that has a name is a column like others: the number of the sample, or a feature.
    let named = "SELECT run, __index_level_0__ % 40 AS tr, f, __index_level_0__ AS scan FROM stimuli";
    bench.run(request(&bench, case, named, json!({}), 1).await).await.unwrap();
    assert_eq!(bench.json("ridge.json")["features"], json!(["f[0]", "f[1]", "scan"]));
}

#[tokio::test]
async fn lists_of_several_lengths_are_named_and_no_nan() {
    let case = &cases()["stamps"];
    let bench = tables(case);
    let own = request(&bench, case, STIMULI, json!({}), 1).await;
    let rows = (0..160).map(|row| Some(vec![Some(1.0); if row == 47 { 3 } else { 2 }]));
    let whole = samples(case);
    let columns: [(&str, ArrayRef); 3] = [
        ("run", Arc::clone(whole.column(0))),
        ("tr", Arc::clone(whole.column(1))),
        ("f", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows))),
    ];
    bench.table("ragged", vec![vec![RecordBatch::try_from_iter(columns).unwrap()]]);
    let features = Some(bench.plan_of("SELECT * FROM ragged").await);
    let error = bench.run(TrainRequest { features, ..own }).await.unwrap_err();
    let text = ours(&error).to_string();
    assert!(text.contains("column `f` has a list of 3 numbers in run 1, tr 7, and others of 2"), "{text}");
}

#[tokio::test]
async fn leave_one_out_with_one_penalty_scores_every_target_under_it() {
    let case = &cases()["stamps"];
    for (ranks, scoring, precision, tolerance) in
        [(1, "r2", "f64", 1e-6), (3, "r2", "f32", 2e-4), (2, "neg_mean_squared_error", "f64", 1e-6)]
    {
        let bench = tables(case);
        let more = json!({"cv": "loo", "scoring": scoring, "precision": precision, "alphas": [case["loo"]["alpha"]]});
        bench.run(request(&bench, case, STIMULI, more, ranks).await).await.unwrap();
        close(scoring, &fitted_table(&bench, "score"), &numbers(&case["loo"][scoring]), tolerance);
    }
    let bench = tables(case);
    bench.run(request(&bench, case, STIMULI, json!({"cv": "loo"}), 2).await).await.unwrap();
    let alphas = fitted_table(&bench, "alpha");
    assert!(alphas.iter().all(|alpha| Some(*alpha) == case["loo"]["alpha"].as_f64()), "{alphas:?}");
    close("of several penalties", &fitted_table(&bench, "score"), &numbers(&case["loo"]["r2"]), 2e-4);
}
