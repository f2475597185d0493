//! `TRAIN MODEL … USING banded_ridge_cv`: himalaya's numbers through the whole statement, any number of ranks, what is
//! refused. Reference values by `integration-tests/reference/banded_stage.py`.

use crate::{
    encoding::{
        BOLD, CONSTANT, NOT_A_NUMBER, VOXELS, bench, close, late, numbers, reference, table, with_tables,
    },
    tables::{Bench, refused},
};
use arrow::{array::AsArray, datatypes::Float64Type};
use datafusion::physical_plan::collect;
use serde_json::{Value, json};
use std::sync::Arc;
use voxelflow_dataset::{StagePlanner, TrainRequest};

const STIMULI: &str = "SELECT * FROM stimuli";

fn himalaya() -> Value {
    serde_json::from_str(include_str!("../fixtures/banded_stage.json")).unwrap()
}

pub(crate) async fn request(bench: &Bench, features: &str, options: Value, ranks: usize) -> TrainRequest {
    let mut request = bench.request(BOLD, Some("SELECT * FROM held_out"), json!({"ranks": ranks})).await;
    request.stage = "banded_ridge_cv".into();
    let all = reference();
    let mut own = json!({
        "bands": {"first": "a", "others": "b"}, "gammas": himalaya()["gammas"], "alphas": all["alphas"],
        "delays": all["delays"], "precision": "f64", "block": 2,
    });
    own.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    request.options = own.as_object().unwrap().clone();
    request.features = Some(bench.plan_of(features).await);
    request
}

/// A column of the model's table, null as none.
fn column(bench: &Bench, name: &str) -> Vec<Option<f64>> {
    table(bench).column_by_name(name).unwrap().as_primitive::<Float64Type>().iter().collect()
}

/// The coefficients of all targets, target by target.
fn coefficients(bench: &Bench) -> Vec<f64> {
    let bytes = bench.file("model.safetensors");
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert_eq!(header["coefficients"]["shape"], json!([VOXELS + 2, 6]));
    let end = header["coefficients"]["data_offsets"][1].as_u64().unwrap() as usize;
    bytes[8 + length..8 + length + end].as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}

#[tokio::test]
async fn the_statement_gives_the_numbers_of_himalaya_with_any_number_of_ranks() {
    for (name, per_target) in [("per_target", true), ("shared", false)] {
        let expected = &himalaya()[name];
        let mut seen = Vec::new();
        for ranks in [1, 2, 4] {
            let bench = bench();
            with_tables(&bench);
            let options = json!({"alpha_per_target": per_target});
            bench.run(request(&bench, STIMULI, options, ranks).await).await.unwrap();
            for column_name in ["gamma", "alpha", "intercept", "score", "r", "r2"] {
                let own = column(&bench, column_name);
                let known: Vec<f64> = own[..VOXELS].iter().map(|value| value.unwrap()).collect();
                close(&format!("{column_name} of {name}"), &known, &numbers(&expected[column_name]), 1e-6);
                assert_eq!(own[VOXELS..], [None, None], "{column_name} of {name}");
            }
            for (band, column_name) in ["first", "others"].iter().enumerate() {
                for (score, split) in [("r", "r_split"), ("r2", "r2_split")] {
                    let own = column(&bench, &format!("{score}_{column_name}"));
                    let known: Vec<f64> = own[..VOXELS].iter().map(|value| value.unwrap()).collect();
                    close(&format!("{split} of {name}"), &known, &numbers(&expected[split][band]), 1e-6);
                    assert_eq!(own[VOXELS..], [None, None], "{split} of {name}");
                }
            }
            let found = coefficients(&bench);
            close(name, &found[..6 * VOXELS], &numbers(&expected["coefficients"]), 1e-6);
            assert!(found[6 * VOXELS..].iter().all(|value| value.is_nan()));

            let report = bench.json("ridge.json");
            let ranked = report["ranks"].as_array().unwrap();
            let sum = |key: &str| ranked.iter().map(|rank| rank[key].as_u64().unwrap()).sum::<u64>();
            // Three folds of ten weights, and one of all samples for each of the weights that was chosen.
            let mut chosen = numbers(&expected["gamma"]);
            chosen.sort_unstable_by(f64::total_cmp);
            chosen.dedup();
            assert_eq!((ranked.len(), sum("targets")), (ranks, 9));
            assert_eq!(sum("decompositions"), 30 + chosen.len() as u64, "none is computed twice");
            assert_eq!((report["unfit"].as_u64(), &report["bands"]), (Some(2), &json!(["first", "others"])));
            assert_eq!(bench.left_behind(), ["m"]);
            assert_eq!(bench.spooled(), 0, "rows are left behind");
            seen.push(found);
        }
        for other in &seen[1..] {
            close(name, &other[..6 * VOXELS], &seen[0][..6 * VOXELS], 1e-12);
        }
    }
}

#[tokio::test]
async fn weights_are_drawn_by_the_seed_and_the_parts_of_r_sum_to_it() {
    let mut seen = Vec::new();
    for (ranks, seed) in [(1, 3), (3, 3), (1, 4)] {
        let bench = bench();
        with_tables(&bench);
        let options = json!({"gammas": [], "n_iter": 6, "permutations": 19, "permutation_length": 3});
        let mut request = request(&bench, STIMULI, options, ranks).await;
        request.settings.insert("seed".into(), json!(seed));
        bench.run(request).await.unwrap();
        let columns = ["r", "r_first", "r_others", "p", "p_family", "q"].map(|name| column(&bench, name));
        let parts = columns[1].iter().zip(&columns[2]).take(VOXELS);
        for (r, (first, others)) in columns[0].iter().zip(parts) {
            let [r, first, others] = [r, first, others].map(|value| value.unwrap());
            assert!((r - first - others).abs() < 1e-9, "{r} is not {first} + {others}");
        }
        // The first voxels follow the features.
        assert_eq!((columns[3][0], columns[4][0]), (Some(0.05), Some(0.05)));
        let gammas = numbers(&bench.json("ridge.json")["gammas"]);
        assert_eq!(gammas.len(), 12);
        seen.push((gammas, columns));
    }
    assert_eq!(seen[0].0, seen[1].0);
    assert_ne!(seen[0].0, seen[2].0);
    for (here, there) in seen[0].1.iter().flatten().zip(seen[1].1.iter().flatten()) {
        let equal = match (here, there) {
            (Some(here), Some(there)) => (here - there).abs() < 1e-9,
            (here, there) => here == there,
        };
        assert!(equal, "{here:?} of one rank, {there:?} of three");
    }
}

#[tokio::test]
async fn targets_that_cannot_be_fitted_are_null_and_in_the_ledger() {
    let bench = bench();
    with_tables(&bench);
    let plan = bench.catalog.plan_train(request(&bench, STIMULI, json!({}), 2).await).unwrap();
    let plan = bench.context.execute_logical_plan(plan).await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), bench.context.task_ctx()).await.unwrap();
    let unfit = format!("01: constant voxel 2 at {CONSTANT}-{NOT_A_NUMBER}");
    assert_eq!(super::clean::ledger(&plan), [": held_out voxel 9 at 01", unfit.as_str()]);
}

#[tokio::test]
async fn features_in_no_band_or_in_two_are_refused_with_names() {
    let bench = bench();
    with_tables(&bench);
    for (bands, says) in [
        (json!({"first": "a", "others": "c"}), "feature `b[0]` is in no band"),
        (json!({"first": ["a", "b*"], "others": "b"}), "feature `b[0]` is in two bands, first and others"),
        (json!({"first": "*", "others": "c"}), "band others has no feature; the features are a, b[0], b[1]"),
    ] {
        let text = late(&bench, request(&bench, STIMULI, json!({"bands": bands}), 2).await).await;
        assert!(text.contains(says) && text.contains("banded_ridge_cv"), "{text}");
    }
    let plan = |request: TrainRequest| refused(bench.catalog.plan_train(request));
    let error = plan(request(&bench, STIMULI, json!({"n_itre": 5}), 1).await);
    assert!(error.to_string().contains("did you mean `n_iter`?"), "{error}");
    let error = plan(request(&bench, STIMULI, json!({"bands": {}}), 1).await);
    assert!(error.to_string().contains("there are none; name them"), "{error}");
    let table = bench.catalog.model_table(&request(&bench, STIMULI, json!({}), 1).await).unwrap();
    let names: Vec<&str> = table.fields().iter().map(|f| f.name().as_str()).skip(6).collect();
    let own = ["intercept", "alpha", "gamma", "score", "r", "r2", "ceiling", "r_normalized"];
    assert_eq!(names, [&own[..], &["r_first", "r_others", "r2_first", "r2_others"]].concat());
}
