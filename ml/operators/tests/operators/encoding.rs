//! `TRAIN MODEL … USING ridge_cv`: scikit-learn's numbers through the whole statement, any number of ranks, the forms of
//! features, what is refused. Reference values by `integration-tests/reference/ridge_stage.py`.

use crate::tables::{Bench, ours, refused};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int64Array, StringArray, UInt32Array,
    },
    datatypes::{DataType, Field, Float64Type, Schema, UInt16Type, UInt32Type},
    record_batch::RecordBatch,
};
use datafusion::{error::DataFusionError, physical_plan::collect};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use std::{collections::HashMap, fs::File, sync::Arc};
use voxelflow_dataset::{EngineConfig, MODEL_TABLE, StagePlanner, TrainRequest, session_context};
use voxelflow_operators::extension_planners;
use voxelflow_stage::{Grid, Segments};

/// Voxels of the reference; two more cannot be fitted.
pub(crate) const VOXELS: usize = 7;
pub(crate) const CONSTANT: u32 = 7;
pub(crate) const NOT_A_NUMBER: u32 = 8;

pub(crate) fn reference() -> Value {
    serde_json::from_str(include_str!("../fixtures/ridge_stage.json")).unwrap()
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

pub(crate) fn lists(values: Vec<f32>, length: usize) -> ArrayRef {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    Arc::new(FixedSizeListArray::new(item, length as i32, Arc::new(Float32Array::from(values)), None))
}

pub(crate) fn grid() -> Grid {
    Grid {
        shape: [3, 3, 1],
        affine: [[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
        xform_code: 1,
        t_r: Some(2.0),
        mask_hash: String::new(),
        mask_voxels: 9,
        source: "bold.nii.gz".into(),
        history: Vec::new(),
    }
}

/// The series of one run, whose name is its number; samples that are not those of the reference for the last two.
pub(crate) fn run(subject: &str, number: usize, length: usize) -> RecordBatch {
    let all = reference();
    let series = all["series"][number].as_array().unwrap();
    let mut values: Vec<f32> =
        series.iter().flat_map(|voxel| numbers(voxel).into_iter().take(length).map(|v| v as f32)).collect();
    values.extend(vec![42.0; length]);
    values.extend((0..length).map(|t| if t == 3 { f32::NAN } else { t as f32 }));
    let n = VOXELS + 2;
    let series = lists(values, length);
    let schema = Schema::new(vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("run", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("series", series.data_type().clone(), true),
    ]);
    let schema = schema.with_metadata(grid().to_metadata().unwrap());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![subject; n])),
        Arc::new(StringArray::from(vec![number.to_string(); n])),
        Arc::new(UInt32Array::from_iter_values(0..n as u32)),
        series,
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// Features of the runs `runs`, a row a sample, backwards: their order is in `tr`.
pub(crate) fn samples(runs: std::ops::Range<usize>) -> RecordBatch {
    let all = reference();
    let mut rows: Vec<(i64, i64, Vec<f64>)> = Vec::new();
    for number in runs {
        let of_run = all["features"][number].as_array().unwrap();
        rows.extend(of_run.iter().enumerate().map(|(t, row)| (number as i64, t as i64, numbers(row))));
    }
    rows.reverse();
    let pair = rows.iter().flat_map(|(_, _, x)| [x[1] as f32, x[2] as f32]).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("run", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
        ("tr", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("a", Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.2[0] as f32)))),
        ("b", lists(pair, 2)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

pub(crate) fn bench() -> Bench {
    let config = EngineConfig { target_partitions: Some(3), ..EngineConfig::default() };
    let context = session_context(extension_planners(), &config).unwrap();
    Bench::of(context, voxelflow_encoding::stages())
}

/// Rows to train on in uneven partitions, in no order; features; rows of a run that no fit sees.
pub(crate) fn with_tables(bench: &Bench) {
    let [first, second, third] = [0, 1, 2].map(|number| run("01", number, 24));
    bench.table("bold", vec![vec![third, first.slice(4, 5)], vec![], vec![second], vec![first.slice(0, 4)]]);
    bench.table("held_out", vec![vec![run("01", 3, 24)]]);
    bench.table("stimuli", vec![vec![samples(0..2)], vec![samples(2..4)]]);
}

pub(crate) const BOLD: &str = "SELECT * FROM bold";

pub(crate) async fn request(
    bench: &Bench,
    [train, features]: [&str; 2],
    options: Value,
    ranks: usize,
) -> TrainRequest {
    let mut request = bench.request(train, Some("SELECT * FROM held_out"), json!({"ranks": ranks})).await;
    request.stage = "ridge_cv".into();
    let all = reference();
    let mut own = json!({"alphas": all["alphas"], "delays": all["delays"], "precision": "f64", "block": 4});
    own.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    request.options = own.as_object().unwrap().clone();
    request.features = Some(bench.plan_of(features).await);
    request
}

/// What a fit has left.
#[derive(Debug, PartialEq)]
struct Fitted {
    coefficients: Vec<f64>,
    /// By name, null as none.
    columns: HashMap<String, Vec<Option<f64>>>,
}

fn fitted(bench: &Bench) -> Fitted {
    let bytes = bench.file("model.safetensors");
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let of = &header["coefficients"];
    assert_eq!((&of["dtype"], &of["shape"]), (&json!("F64"), &json!([VOXELS + 2, 6])));
    let end = of["data_offsets"][1].as_u64().unwrap() as usize;
    let values = bytes[8 + length..8 + length + end].as_chunks().0;
    let coefficients = values.iter().map(|b| f64::from_le_bytes(*b)).collect();
    let table = table(bench);
    let columns = ["intercept", "alpha", "score", "r", "r2"].map(|name| {
        let column = table.column_by_name(name).unwrap().as_primitive::<Float64Type>();
        (name.to_owned(), column.iter().collect())
    });
    Fitted { coefficients, columns: columns.into() }
}

pub(crate) fn table(bench: &Bench) -> RecordBatch {
    let file = File::open(bench.model().join(MODEL_TABLE)).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    // Batches come without the file's metadata.
    assert_eq!(Grid::of(reader.schema()).unwrap(), grid());
    reader.build().unwrap().next().unwrap().unwrap()
}

#[track_caller]
pub(crate) fn close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(1e-300_f64, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * scale, "{name}: {found} is not {expected}");
    }
}

#[track_caller]
fn is_scikit_learn_s(name: &str, found: &Fitted, tolerance: f64) {
    let expected = &reference()[name];
    close(name, &found.coefficients[..6 * VOXELS], &numbers(&expected["coefficients"]), tolerance);
    assert!(found.coefficients[6 * VOXELS..].iter().all(|value| value.is_nan()));
    for (column, theirs) in [("intercept", "intercepts"), ("alpha", "alphas"), ("r", "r"), ("r2", "r2")] {
        let own = &found.columns[column];
        let known: Vec<f64> = own[..VOXELS].iter().map(|value| value.unwrap()).collect();
        close(&format!("{column} of {name}"), &known, &numbers(&expected[theirs]), tolerance);
        assert_eq!(own[VOXELS..], [None, None], "{column} of {name}");
    }
}

#[tokio::test]
async fn the_statement_gives_the_numbers_of_scikit_learn_with_any_number_of_ranks() {
    let cases = [
        ("run", json!({"cv": "run"})),
        ("loo", json!({"cv": "loo"})),
        ("loo_per_target", json!({"cv": "loo", "alpha_per_target": true, "scoring": "r2"})),
    ];
    for (name, options) in cases {
        let mut seen = Vec::new();
        for ranks in [1, 2, 4, 12] {
            let bench = bench();
            with_tables(&bench);
            let tables = [BOLD, "SELECT * FROM stimuli"];
            let rows = bench.run(request(&bench, tables, options.clone(), ranks).await).await.unwrap();
            assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
            let loss =
                rows[0].column_by_name("validation_loss").unwrap().as_primitive::<Float64Type>().value(0);
            let found = fitted(&bench);
            is_scikit_learn_s(name, &found, 1e-6);
            let r2: f64 = numbers(&reference()[name]["r2"]).iter().sum::<f64>() / VOXELS as f64;
            assert!((loss - (1.0 - r2)).abs() < 1e-6, "{loss}");
            assert_eq!(bench.left_behind(), ["m"]);
            assert_eq!(bench.spooled(), 0, "rows are left behind");
            let report = bench.json("ridge.json");
            assert_eq!(report["ranks"].as_array().unwrap().len(), ranks);
            assert_eq!((report["unfit"].as_u64(), report["n_targets"].as_u64()), (Some(2), Some(9)));
            let features = report["features"].as_array().unwrap();
            assert_eq!((features.len(), &features[0]), (6, &json!("a_delay1")), "{features:?}");
            seen.push(found);
        }
        for other in &seen[1..] {
            close(name, &other.coefficients[..6 * VOXELS], &seen[0].coefficients[..6 * VOXELS], 1e-12);
            assert_eq!(other.columns["alpha"], seen[0].columns["alpha"]);
        }
    }
}

/// What others do: a model for every target, or for every rank's batch, is what they would find, at their cost.
#[tokio::test]
async fn baselines_find_the_same_and_decompose_the_features_again_and_again() {
    let per_target = json!({"cv": "loo", "alpha_per_target": true});
    let cases = [
        ("mor", json!({"cv": "loo"}), "loo_per_target", [(1, 9), (4, 9), (12, 9)]),
        ("b_mor", per_target, "loo_per_target", [(1, 1), (4, 4), (12, 9)]),
        // One batch is all targets.
        ("b_mor", json!({"cv": "loo"}), "loo", [(1, 1); 3]),
    ];
    for (baseline, mut options, name, runs) in cases {
        options["baseline"] = json!(baseline);
        for (ranks, decompositions) in runs {
            let bench = bench();
            with_tables(&bench);
            bench
                .run(request(&bench, [BOLD, "SELECT * FROM stimuli"], options.clone(), ranks).await)
                .await
                .unwrap();
            is_scikit_learn_s(name, &fitted(&bench), 1e-6);
            let report = bench.json("ridge.json");
            let done =
                report["ranks"].as_array().unwrap().iter().map(|r| r["decompositions"].as_u64().unwrap());
            assert_eq!(done.sum::<u64>(), decompositions, "{baseline} on {ranks} ranks");
            assert_eq!(report["unfit"], json!(2));
            let means = numbers(&report["mean_scores"]);
            assert!(means.iter().all(|score| score.is_finite()), "{means:?}");
        }
    }
}

#[tokio::test]
async fn thirty_two_bits_are_enough_for_series_of_images() {
    let bench = bench();
    with_tables(&bench);
    let tables = [BOLD, "SELECT * FROM stimuli"];
    let mut request = request(&bench, tables, json!({}), 3).await;
    request.options.remove("precision");
    bench.run(request).await.unwrap();
    let r: Vec<f64> = fitted_table(&bench, "r");
    close("r", &r, &numbers(&reference()["run"]["r"]), 1e-4);
}

pub(crate) fn fitted_table(bench: &Bench, column: &str) -> Vec<f64> {
    let table = table(bench);
    table.column_by_name(column).unwrap().as_primitive::<Float64Type>().iter().flatten().collect()
}

#[tokio::test]
async fn equal_rows_give_equal_bytes_however_they_are_partitioned() {
    let mut seen = Vec::new();
    for partitions in [1, 3] {
        let bench = bench();
        with_tables(&bench);
        let query = if partitions == 1 { "SELECT * FROM bold ORDER BY voxel DESC, run" } else { BOLD };
        let request = request(&bench, [query, "SELECT * FROM stimuli ORDER BY tr DESC"], json!({}), 2).await;
        bench.run(request).await.unwrap();
        seen.push([bench.file("model.safetensors"), bench.file(MODEL_TABLE)]);
    }
    assert!(seen[0] == seen[1]);
}

#[tokio::test]
async fn permutations_test_r_of_all_targets_together_on_any_number_of_ranks() {
    let options = json!({"permutations": 99, "permutation_length": 3});
    let mut seen = Vec::new();
    for ranks in [1, 3] {
        let bench = bench();
        with_tables(&bench);
        let tables = [BOLD, "SELECT * FROM stimuli"];
        bench.run(request(&bench, tables, options.clone(), ranks).await).await.unwrap();
        let columns = ["p", "p_family", "q"].map(|name| fitted_table(&bench, name));
        assert!(columns.iter().all(|column| column.len() == VOXELS), "{columns:?}");
        let [p, p_family, q] = &columns;
        // The first voxels follow the features, the last one hardly.
        assert_eq!((p[0], p_family[0]), (0.01, 0.01));
        assert!((0..VOXELS).all(|v| p_family[v] >= p[v] && q[v] >= p[v]), "{columns:?}");
        assert!(p_family[VOXELS - 1] > 0.01, "{columns:?}");
        seen.push(columns);
    }
    assert_eq!(seen[0], seen[1]);
    let bench = bench();
    with_tables(&bench);
    let mut without = request(&bench, [BOLD, "SELECT * FROM stimuli"], options, 2).await;
    without.validation = None;
    let error = refused(bench.catalog.plan_train(without));
    assert!(error.to_string().contains("name them in VALIDATE ON"), "{error}");
    assert_eq!(error.option.as_deref(), Some("permutations"));
}

#[tokio::test]
async fn targets_that_cannot_be_fitted_are_null_and_in_the_ledger() {
    let bench = bench();
    with_tables(&bench);
    let request = request(&bench, [BOLD, "SELECT * FROM stimuli"], json!({}), 2).await;
    let plan = bench.catalog.plan_train(request).unwrap();
    let plan = bench.context.execute_logical_plan(plan).await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), bench.context.task_ctx()).await.unwrap();
    let told = super::clean::ledger(&plan);
    let unfit = format!("01: constant voxel 2 at {CONSTANT}-{NOT_A_NUMBER}");
    assert_eq!(told, [": held_out voxel 9 at 01", unfit.as_str()]);
    let table = table(&bench);
    let column = |name: &str| table.column_by_name(name).unwrap().clone();
    assert_eq!(column("voxel").as_primitive::<UInt32Type>().values()[..3], [0, 1, 2]);
    let place = ["i", "j", "k"].map(|name| column(name).as_primitive::<UInt16Type>().value(5));
    assert_eq!(place, [2, 1, 0]);
    assert_eq!(column("subject").as_string::<i32>().value(8), "01");
}

#[tokio::test]
async fn a_design_and_joined_runs_give_the_same_model() {
    let plain = bench();
    with_tables(&plain);
    plain.run(request(&plain, [BOLD, "SELECT * FROM stimuli"], json!({}), 2).await).await.unwrap();

    // A row a run and regressor, as FROM design(…) gives it.
    let other = bench();
    with_tables(&other);
    let all = reference();
    let mut rows = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..4 {
        for (feature, name) in ["x", "y", "z"].iter().enumerate() {
            rows.0.push(number.to_string());
            rows.1.push(*name);
            let of_run = all["features"][number].as_array().unwrap();
            rows.2.extend(of_run.iter().map(|row| row[feature].as_f64().unwrap() as f32));
        }
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("run", Arc::new(StringArray::from(rows.0))),
        ("regressor", Arc::new(StringArray::from(rows.1))),
        ("series", lists(rows.2, 24)),
    ];
    other.table("categories", vec![vec![RecordBatch::try_from_iter(columns).unwrap()]]);
    other.run(request(&other, [BOLD, "SELECT * FROM categories"], json!({}), 2).await).await.unwrap();
    assert_eq!(plain.file("model.safetensors"), other.file("model.safetensors"));

    // A row a voxel, with all runs in it, as FROM concatenate(…) gives it.
    let joined = bench();
    with_tables(&joined);
    let runs = [0, 1, 2].map(|number| run("01", number, 24));
    let mut values = Vec::new();
    for voxel in 0..VOXELS + 2 {
        for run in &runs {
            let series = run.column(3).as_fixed_size_list().value(voxel);
            values.extend_from_slice(series.as_primitive::<arrow::datatypes::Float32Type>().values());
        }
    }
    let series = lists(values, 72);
    let schema = Schema::new(vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("run", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("series", series.data_type().clone(), true),
    ]);
    let segments = Segments { runs: ["0", "1", "2"].map(str::to_owned).into(), time_points: 24 };
    let mut metadata = grid().to_metadata().unwrap();
    metadata.extend(segments.to_metadata().unwrap());
    let n = VOXELS + 2;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["01"; n])),
        Arc::new(StringArray::from(vec![None::<&str>; n])),
        Arc::new(UInt32Array::from_iter_values(0..n as u32)),
        series,
    ];
    joined.table(
        "joined",
        vec![vec![RecordBatch::try_new(Arc::new(schema.with_metadata(metadata)), columns).unwrap()]],
    );
    let mut request = request(&joined, ["SELECT * FROM joined", "SELECT * FROM stimuli"], json!({}), 2).await;
    request.validation = None;
    joined.run(request).await.unwrap();
    let (ours, theirs) = (fitted(&joined), fitted(&plain));
    assert_eq!(ours.columns["intercept"], theirs.columns["intercept"]);
    assert_eq!(ours.coefficients[..6 * VOXELS], theirs.coefficients[..6 * VOXELS]);
    assert!(ours.columns["r"].iter().all(Option::is_none), "nothing was held out");
}

/// What a training says that is refused when its rows are known.
pub(crate) async fn late(bench: &Bench, request: TrainRequest) -> String {
    let error: DataFusionError = bench.run(request).await.unwrap_err();
    assert!(ours(&error).is_input(), "{error}");
    assert!(bench.left_behind().is_empty(), "{:?}", bench.left_behind());
    ours(&error).to_string()
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_names() {
    let bench = bench();
    with_tables(&bench);
    bench.table("short", vec![vec![run("01", 0, 20), run("01", 1, 20)]]);
    let mut broken = samples(0..4);
    let columns: Vec<ArrayRef> = (0..4)
        .map(|at| match at {
            2 => Arc::new(Float32Array::from_iter_values(
                (0..96).map(|row| if row == 0 { f32::NAN } else { 1.0 }),
            )),
            _ => Arc::clone(broken.column(at)),
        })
        .collect();
    broken = RecordBatch::try_new(broken.schema(), columns).unwrap();
    bench.table("broken", vec![vec![broken]]);
    bench.table("some", vec![vec![samples(0..2)]]);

    let with = async |tables: [&str; 2], options: Value| {
        let mut request = request(&bench, tables, options, 2).await;
        request.validation = None;
        request
    };
    let stimuli = "SELECT * FROM stimuli";
    let one = with(["SELECT * FROM bold WHERE run = '1'", stimuli], json!({})).await;
    let text = late(&bench, one).await;
    assert!(text.contains("'run' needs two runs or more") && text.contains("subject 01, run 1"), "{text}");
    let text = late(&bench, with(["SELECT * FROM short", stimuli], json!({})).await).await;
    assert!(text.contains("subject 01, run 0 has 24 samples of features, and series of 20 points"), "{text}");
    let text = late(&bench, with([BOLD, "SELECT * FROM broken"], json!({})).await).await;
    assert!(text.contains("`a` is NaN in run 3, tr 23"), "{text}");
    let text = late(&bench, with([BOLD, "SELECT * FROM some"], json!({})).await).await;
    assert!(text.contains("there are none for subject 01, run 2; they are of run 1; run 0"), "{text}");
    let twice = "SELECT run, tr, a, a AS again FROM stimuli";
    let text = late(&bench, with([BOLD, twice], json!({"alphas": [1e-14], "delays": []})).await).await;
    assert!(text.contains("features are duplicated"), "{text}");
    let text = late(&bench, with([BOLD, stimuli], json!({"delays": [24]})).await).await;
    assert!(text.contains("a delay as long as a run"), "{text}");
    let lacking = "SELECT * FROM bold WHERE run <> '2' OR voxel <> 3";
    let text = late(&bench, with([lacking, stimuli], json!({})).await).await;
    assert!(text.contains("run 2 lacks voxel 3") && text.contains("voxels => 'intersection'"), "{text}");
    let mut seen = with([BOLD, stimuli], json!({})).await;
    seen.validation = Some(bench.plan_of("SELECT * FROM bold WHERE run = '1'").await);
    let text = late(&bench, seen).await;
    assert!(
        text.contains("in both the rows to train on and those to validate on: subject 01, run 1"),
        "{text}"
    );
}

#[tokio::test]
async fn names_and_clauses_are_refused_before_anything_runs() {
    let bench = bench();
    with_tables(&bench);
    let tables = [BOLD, "SELECT * FROM stimuli"];
    let plan = |request: TrainRequest| refused(bench.catalog.plan_train(request));
    let error = plan(request(&bench, tables, json!({"alpha_per_traget": true}), 1).await);
    assert!(error.to_string().contains("did you mean `alpha_per_target`?"), "{error}");
    assert_eq!(error.option.as_deref(), Some("alpha_per_traget"));
    let mut without = request(&bench, tables, json!({}), 1).await;
    without.features = None;
    assert!(plan(without).to_string().contains("write FEATURES"));
    for (setting, value, says) in [
        ("epochs", json!(3), "takes no steps"),
        ("topology", json!("parameter_service"), "takes no steps"),
        ("rankes", json!(3), "did you mean `ranks`?"),
    ] {
        let mut request = request(&bench, tables, json!({}), 1).await;
        request.settings.insert(setting.into(), value);
        let error = plan(request);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.option.as_deref(), Some(setting));
    }
    let error = plan(request(&bench, [BOLD, "SELECT run, a FROM stimuli"], json!({}), 1).await);
    assert!(error.to_string().contains("the column `tr`"), "{error}");
    let short = "SELECT '0' AS run, 'x' AS regressor,
                        arrow_cast(make_array(1.0, 2.0), 'FixedSizeList(2, Float32)') AS series";
    let error = plan(request(&bench, [BOLD, short], json!({}), 1).await);
    assert!(error.to_string().contains("2 samples of a run, and the series have 24 points"), "{error}");
    let table = bench.catalog.model_table(&request(&bench, tables, json!({}), 1).await).unwrap();
    let names: Vec<&str> = table.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(
        names,
        [
            "subject",
            "space",
            "voxel",
            "i",
            "j",
            "k",
            "intercept",
            "alpha",
            "score",
            "r",
            "r2",
            "ceiling",
            "r_normalized"
        ]
    );
}
