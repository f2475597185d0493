//! Runs with different brain masks, and voxels that say nothing in some runs.

use crate::{
    clean::ledger,
    encoding::{VOXELS, bench, lists, request, run, samples, table, with_tables},
    tables::{Bench, refused},
};
use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    datatypes::{Float32Type, Float64Type, UInt32Type},
};
use datafusion::physical_plan::collect;
use serde_json::json;
use std::sync::Arc;
use voxelflow_dataset::{MODEL_TABLE, StagePlanner, TrainRequest};

const STIMULI: &str = "SELECT * FROM stimuli";

/// Trains; gives what the ledger is told.
async fn told(bench: &Bench, request: TrainRequest) -> Vec<String> {
    let plan = bench.catalog.plan_train(request).unwrap();
    let plan = bench.context.execute_logical_plan(plan).await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), bench.context.task_ctx()).await.unwrap();
    ledger(&plan)
}

async fn with(bench: &Bench, train: &str, held_out: &str, voxels: &str) -> TrainRequest {
    let mut request = request(bench, [train, STIMULI], json!({}), 2).await;
    request.validation = Some(bench.plan_of(held_out).await);
    request.settings.insert("voxels".into(), voxels.into());
    request
}

#[tokio::test]
async fn voxels_that_all_runs_have_are_fitted_if_asked() {
    let some = bench();
    with_tables(&some);
    let train = "SELECT * FROM bold WHERE run <> '2' OR voxel <> 3";
    let request = with(&some, train, "SELECT * FROM held_out WHERE voxel <> 0", "intersection").await;
    let told = told(&some, request).await;
    assert!(told.contains(&"01: dropped voxel 2 at 0,3".to_owned()), "{told:?}");
    assert!(told.contains(&": held_out voxel 7 at 01".to_owned()), "{told:?}");
    let common = bench();
    with_tables(&common);
    let equal = "WHERE voxel NOT IN (0, 3)";
    let [train, held_out] = ["bold", "held_out"].map(|table| format!("SELECT * FROM {table} {equal}"));
    common.run(with(&common, &train, &held_out, "equal").await).await.unwrap();
    for file in ["model.safetensors", MODEL_TABLE] {
        assert!(some.file(file) == common.file(file), "{file}");
    }
    let voxels = table(&some).column_by_name("voxel").unwrap().as_primitive::<UInt32Type>().values().to_vec();
    assert_eq!(voxels, [1, 2, 4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn masks_that_have_nothing_in_common_and_stages_without_features_are_refused() {
    let bench = bench();
    with_tables(&bench);
    let apart = "SELECT * FROM bold WHERE (run = '2') = (voxel < 4)";
    let held_out = "SELECT * FROM held_out";
    let error = bench.run(with(&bench, apart, held_out, "intersection").await).await.unwrap_err();
    assert!(error.to_string().contains("runs of subject 01 have no voxel in common"), "{error}");
    let request = with(&bench, "SELECT * FROM bold", held_out, "union").await;
    assert!(refused(bench.catalog.plan_train(request)).to_string().contains("intersection"));
    let line = Bench::new();
    line.table("bold", vec![vec![crate::tables::series(Some("a"), 0..3)]]);
    let request = line.request("SELECT * FROM bold", None, json!({"voxels": "intersection"})).await;
    let error = refused(line.catalog.plan_train(request));
    assert_eq!(error.option.as_deref(), Some("voxels"));
}

/// Run `number` with other series of some voxels.
fn changed(number: usize, series: impl Fn(usize, usize) -> Option<f32>) -> RecordBatch {
    let whole = run("01", number, 24);
    let mut values =
        whole.column(3).as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec();
    for (at, value) in values.iter_mut().enumerate() {
        if let Some(other) = series(at / 24, at % 24) {
            *value = other;
        }
    }
    let mut columns: Vec<ArrayRef> = whole.columns().to_vec();
    columns[3] = lists(values, 24);
    RecordBatch::try_new(whole.schema(), columns).unwrap()
}

#[tokio::test]
async fn a_voxel_that_is_dead_in_one_run_decides_for_none_and_held_out_ones_are_told() {
    let bench = bench();
    with_tables(&bench);
    // A constant but for the last digit.
    let dead = |voxel: usize, t: usize| (voxel == 5).then(|| [743.0, 743.00006][t % 2]);
    bench.table("some_dead", vec![vec![run("01", 0, 24), changed(1, dead), run("01", 2, 24)]]);
    let odd = |voxel: usize, t: usize| match voxel {
        1 => Some(7.25),
        2 => Some(if t == 4 { f32::INFINITY } else { 0.0 }),
        3 => Some(1e-6 * (t % 5) as f32),
        _ => None,
    };
    bench.table("odd", vec![vec![changed(3, odd)]]);
    bench.table("all_stimuli", vec![vec![samples(0..4)]]);
    let mut request =
        request(&bench, ["SELECT * FROM some_dead", "SELECT * FROM all_stimuli"], json!({}), 2).await;
    request.validation = Some(bench.plan_of("SELECT * FROM odd").await);
    request.options.insert("permutations".into(), json!(9));
    request.options.insert("permutation_length".into(), json!(3));
    let told = told(&bench, request).await;
    assert!(told.contains(&"01: constant voxel 2 at 7-8".to_owned()), "{told:?}");
    assert!(told.contains(&"01: constant voxel 3 at 1-3".to_owned()), "{told:?}");
    let table = table(&bench);
    let column = |name: &str| table.column_by_name(name).unwrap().as_primitive::<Float64Type>().clone();
    let scores = column("score");
    assert!((0..VOXELS).all(|voxel| scores.value(voxel).abs() < 2.0), "{scores:?}");
    for name in ["r", "r2", "p", "p_family", "q"] {
        let null: Vec<usize> =
            column(name).iter().enumerate().filter(|(_, v)| v.is_none()).map(|(at, _)| at).collect();
        assert_eq!(null, [1, 2, 3, 7, 8], "{name}");
    }
    let loss = bench.json("ridge.json")["mean_scores"].clone();
    assert!(loss.as_array().unwrap().iter().all(|score| score.as_f64().unwrap().abs() < 2.0), "{loss}");
}
