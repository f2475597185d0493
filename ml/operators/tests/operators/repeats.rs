//! Noise ceilings through the whole statement: series whose signal and noise are planted, and stimuli that are repeated.

use crate::{
    encoding::{bench, late, lists},
    tables::Bench,
};
use arrow::{
    array::{ArrayRef, AsArray, Int64Array, StringArray, UInt32Array},
    datatypes::Float64Type,
    record_batch::RecordBatch,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;
use std::{fs::File, sync::Arc};
use voxelflow_dataset::{MODEL_TABLE, TrainRequest};

/// Runs 0 and 1 are trained on; 2 to 5 are four repeats of one stimulus.
const RUNS: usize = 6;
const SAMPLES: usize = 600;
const FEATURES: usize = 3;
/// Of each voxel the variances of its noise and of what is repeated and no feature shows; signal of features has 1.
const VOXELS: [(f64, f64); 5] = [(0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 1.0), (16.0, 3.0)];

/// Numbers of variance 1 and mean 0 that look like noise.
fn noise(n: usize) -> f64 {
    let mut z = (n as u64).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((((z ^ (z >> 31)) >> 40) as f64 / (1 << 23) as f64) - 1.0) * 3f64.sqrt()
}

fn stimulus(run: usize) -> usize {
    run.min(2)
}

fn feature(run: usize, t: usize, j: usize) -> f64 {
    noise(stimulus(run) * 1_000_003 + t * 1_009 + j)
}

fn value(voxel: usize, run: usize, t: usize) -> f64 {
    let Some((own, hidden)) = VOXELS.get(voxel) else { return 3.5 };
    let seen = (0..FEATURES).map(|j| feature(run, t, j)).sum::<f64>() / (FEATURES as f64).sqrt();
    let repeated = hidden.sqrt() * noise(7_000_000 + (stimulus(run) * SAMPLES + t) * 11 + voxel);
    seen + repeated + own.sqrt() * noise(90_000_000 + (run * SAMPLES + t) * 13 + voxel)
}

fn with_tables(bench: &Bench) {
    let run = |run: usize| {
        let voxels = VOXELS.len() + 1;
        let values = (0..voxels).flat_map(|voxel| (0..SAMPLES).map(move |t| value(voxel, run, t) as f32));
        let columns: [(&str, ArrayRef); 3] = [
            ("run", Arc::new(StringArray::from(vec![run.to_string(); voxels]))),
            ("voxel", Arc::new(UInt32Array::from_iter_values(0..voxels as u32))),
            ("series", lists(values.collect(), SAMPLES)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    bench.table("bold", vec![(0..RUNS).map(run).collect()]);
    let rows: Vec<(usize, usize)> = (0..RUNS).flat_map(|run| (0..SAMPLES).map(move |t| (run, t))).collect();
    let x = rows.iter().flat_map(|(run, t)| (0..FEATURES).map(|j| feature(*run, *t, j) as f32)).collect();
    let names = rows.iter().map(|(run, _)| ["walk", "talk", "film"][stimulus(*run)]);
    let columns: [(&str, ArrayRef); 4] = [
        ("run", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0 as i64)))),
        ("tr", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1 as i64)))),
        ("stimulus", Arc::new(StringArray::from_iter_values(names))),
        ("x", lists(x, FEATURES)),
    ];
    bench.table("stimuli", vec![vec![RecordBatch::try_from_iter(columns).unwrap()]]);
}

async fn request(bench: &Bench, held_out: &str, features: &str, ranks: usize) -> TrainRequest {
    let train = "SELECT * FROM bold WHERE run IN ('0', '1')";
    trained(bench, train, held_out, features, ranks).await
}

async fn trained(bench: &Bench, train: &str, held_out: &str, features: &str, ranks: usize) -> TrainRequest {
    let held_out = format!("SELECT * FROM bold WHERE run IN ({held_out})");
    let mut request = bench.request(train, Some(&held_out), json!({"ranks": ranks})).await;
    request.stage = "ridge_cv".into();
    request.options = json!({"alphas": [0.1, 1, 10], "block": 2}).as_object().unwrap().clone();
    request.features = Some(bench.plan_of(features).await);
    request
}

fn column(bench: &Bench, name: &str) -> Vec<Option<f64>> {
    let file = File::open(bench.model().join(MODEL_TABLE)).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let table = reader.build().unwrap().next().unwrap().unwrap();
    table.column_by_name(name).unwrap().as_primitive::<Float64Type>().iter().collect()
}

#[tokio::test]
async fn planted_ceilings_are_found_where_a_stimulus_was_repeated() {
    let mut seen = Vec::new();
    for ranks in [1, 3] {
        let bench = bench();
        with_tables(&bench);
        let request = request(&bench, "'2', '3', '4', '5'", "SELECT * FROM stimuli", ranks).await;
        bench.run(request).await.unwrap();
        assert_eq!(bench.json("ridge.json")["ceiling_of"], "held_out_runs");
        let columns = ["ceiling", "r_normalized", "r"].map(|name| column(&bench, name));
        for (voxel, (own, hidden)) in VOXELS.iter().enumerate() {
            let [ceiling, normalized, r] = [0, 1, 2].map(|at| columns[at][voxel].unwrap());
            let signal = 1.0 + hidden;
            // Four repeats of 600 samples.
            let planted = (signal / (signal + own / 4.0)).sqrt();
            assert!((ceiling - planted).abs() < 0.03, "voxel {voxel}: ceiling {ceiling}, planted {planted}");
            let share = (1.0 / signal).sqrt();
            assert!((normalized - share).abs() < 0.06, "voxel {voxel}: {normalized} of it, planted {share}");
            // Of single runs: less than with their mean, and no share of anything.
            let single = (1.0 / (signal + own)).sqrt();
            assert!((r - single).abs() < 0.06, "voxel {voxel}: r {r}, planted {single}");
        }
        assert!(columns.iter().all(|column| column[VOXELS.len()].is_none()), "a constant voxel has none");
        seen.push(columns);
    }
    for (one, three) in seen[0].iter().flatten().zip(seen[1].iter().flatten()) {
        let far = one.zip(*three).is_some_and(|(one, three)| (one - three).abs() > 1e-5);
        assert!(one.is_some() == three.is_some() && !far, "{one:?} of one rank, {three:?} of three");
    }
}

/// Repeats among training runs say what could be predicted, but not how much of it was in other runs.
#[tokio::test]
async fn planted_ceilings_are_found_where_training_runs_repeat_a_stimulus() {
    let mut seen = Vec::new();
    for ranks in [1, 2, 4] {
        let bench = bench();
        with_tables(&bench);
        let train = "SELECT * FROM bold WHERE run <> '0'";
        let request = trained(&bench, train, "'0'", "SELECT * FROM stimuli", ranks).await;
        bench.run(request).await.unwrap();
        assert_eq!(bench.json("ridge.json")["ceiling_of"], "training_runs");
        let ceilings = column(&bench, "ceiling");
        for (voxel, (own, hidden)) in VOXELS.iter().enumerate() {
            let (ceiling, signal) = (ceilings[voxel].unwrap(), 1.0 + hidden);
            let planted = (signal / (signal + own / 4.0)).sqrt();
            assert!((ceiling - planted).abs() < 0.03, "voxel {voxel}: ceiling {ceiling}, planted {planted}");
        }
        assert!(ceilings[VOXELS.len()].is_none(), "a constant voxel has none");
        assert!(column(&bench, "r_normalized").iter().all(Option::is_none));
        assert!(column(&bench, "r")[0].unwrap() > 0.8);
        seen.push(ceilings);
    }
    assert!(seen[0] == seen[1] && seen[0] == seen[2], "ranks share targets, not samples: {seen:?}");
}

#[tokio::test]
async fn without_repeats_there_is_no_ceiling() {
    let once = "SELECT * FROM stimuli";
    let unnamed = "SELECT run, tr, x FROM stimuli";
    for (held_out, features) in [("'2'", once), ("'2', '3'", unnamed)] {
        let bench = bench();
        with_tables(&bench);
        bench.run(request(&bench, held_out, features, 2).await).await.unwrap();
        assert!(bench.json("ridge.json")["ceiling_of"].is_null());
        assert!(column(&bench, "ceiling").iter().chain(&column(&bench, "r_normalized")).all(Option::is_none));
        assert!(column(&bench, "r")[0].unwrap() > 0.8);
    }
}

#[tokio::test]
async fn stimuli_that_tell_no_repeats_are_refused_with_names() {
    let bench = bench();
    with_tables(&bench);
    let late = async |held_out: &str, features: &str| {
        let features = format!("SELECT run, tr, x, {features} AS stimulus FROM stimuli");
        late(&bench, request(&bench, held_out, &features, 2).await).await
    };
    let text = late("'2', '3'", "'film'").await;
    assert!(
        text.contains("the stimulus film is in the rows to train on and in those to validate on"),
        "{text}"
    );
    let text = late("'2', '3'", "CASE WHEN tr < 5 THEN 'a' ELSE 'b' END").await;
    assert!(text.contains("`stimulus` is a and b in run 0"), "{text}");
    let often = "CASE WHEN run IN (2, 3) THEN 'a' WHEN run > 3 THEN 'b' END";
    let features = format!("SELECT run, tr, x, {often} AS stimulus FROM stimuli");
    let less = request(&bench, "'2', '3', '4'", &features, 1).await;
    bench.run(less).await.unwrap();
    assert!(column(&bench, "ceiling")[0].is_some(), "what was shown once is no repeat");
}
