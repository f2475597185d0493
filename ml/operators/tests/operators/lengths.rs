//! Runs of several lengths: what is cleaned and explained as ever, and who needs series of one length.

use crate::{
    encoding::{self, BOLD, VOXELS, bench, samples},
    tables::{Bench, ours, refused},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Int64Array, ListArray, StringArray, UInt32Array},
    compute::concat_batches,
    datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, Schema},
    record_batch::RecordBatch,
};
use serde_json::{Value, json};
use std::{ops::Range, sync::Arc};
use voxelflow_dataset::StagePlanner;
use voxelflow_operators::CLEAN;
use voxelflow_stage::RunLengths;

/// Parts of runs of the reference, each of which is a run here.
type Pieces<'a> = &'a [(usize, Range<usize>)];

const WHOLE: Pieces<'static> = &[(0, 0..24), (1, 0..24), (2, 0..24)];
/// The same samples in the same order.
const UNEVEN: Pieces<'static> = &[(0, 0..10), (0, 10..24), (1, 0..24), (2, 0..3), (2, 3..24)];

/// The series of run number `name`.
fn part((number, range): &(usize, Range<usize>), name: usize, lengths: Option<&RunLengths>) -> RecordBatch {
    let whole = encoding::run("01", *number, 24);
    let series = whole.column(3).as_fixed_size_list();
    let row = |row: usize| {
        let values = series.value(row);
        let values = values.as_primitive::<Float32Type>().values().to_vec();
        Some(values[range.clone()].iter().copied().map(Some).collect::<Vec<_>>())
    };
    let rows = (0..series.len()).map(row);
    let lists: ArrayRef = match lengths {
        Some(_) => Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows)),
        None => {
            let length = range.len() as i32;
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, length))
        }
    };
    let mut fields: Vec<Field> = whole.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields[3] = Field::new("series", lists.data_type().clone(), true);
    let mut metadata = whole.schema().metadata().clone();
    metadata.extend(lengths.map(|lengths| lengths.to_metadata().unwrap()).unwrap_or_default());
    let mut columns = whole.columns().to_vec();
    columns[1] = Arc::new(StringArray::from(vec![name.to_string(); whole.num_rows()]));
    columns[3] = lists;
    RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, metadata)), columns).unwrap()
}

fn lengths(pieces: Pieces<'_>) -> Option<RunLengths> {
    let run = |name: usize| [Some("01".to_owned()), None, None, Some(name.to_string())];
    RunLengths::of_runs(pieces.iter().enumerate().map(|(name, (_, range))| (run(name), range.len()))).unwrap()
}

/// All pieces, run after run.
fn series(pieces: Pieces<'_>) -> Vec<RecordBatch> {
    let lengths = lengths(pieces);
    pieces.iter().enumerate().map(|(name, piece)| part(piece, name, lengths.as_ref())).collect()
}

/// The features of their samples.
fn features(pieces: Pieces<'_>) -> RecordBatch {
    let of = |(name, (number, range)): (usize, &(usize, Range<usize>))| {
        let all = samples(*number..*number + 1);
        let trs = all.column_by_name("tr").unwrap().as_primitive::<Int64Type>().clone();
        let kept: Vec<u32> = (0..trs.len())
            .filter(|row| range.contains(&(trs.value(*row) as usize)))
            .map(|row| row as u32)
            .collect();
        let rows = arrow::compute::take_record_batch(&all, &UInt32Array::from(kept)).unwrap();
        let trs: Int64Array = rows
            .column(1)
            .as_primitive::<Int64Type>()
            .iter()
            .map(|tr| Some(tr? - range.start as i64))
            .collect();
        let runs = Int64Array::from(vec![name as i64; rows.num_rows()]);
        let columns =
            vec![Arc::new(runs) as ArrayRef, Arc::new(trs), rows.column(2).clone(), rows.column(3).clone()];
        RecordBatch::try_new(rows.schema(), columns).unwrap()
    };
    let parts: Vec<RecordBatch> = pieces.iter().enumerate().map(of).collect();
    concat_batches(&parts[0].schema(), &parts).unwrap()
}

fn with_tables(bench: &Bench, pieces: Pieces<'_>, held_out: Pieces<'_>) {
    let all = series(pieces);
    let (last, first) = all.split_last().unwrap();
    bench.table("bold", vec![vec![last.clone()], first.to_vec()]);
    bench.table("stimuli", vec![vec![features(pieces)]]);
    // Names of held-out runs go on where those of the others end.
    let all: Vec<_> = pieces.iter().chain(held_out).cloned().collect();
    let of_all = lengths(&all);
    let own = lengths(held_out).and(of_all);
    let first = pieces.len();
    let runs = held_out.iter().enumerate().map(|(at, piece)| part(piece, first + at, own.as_ref()));
    bench.table("held_out", vec![runs.collect()]);
    bench.table("all_stimuli", vec![vec![features(&all)]]);
}

async fn fitted(pieces: Pieces<'_>, held_out: Pieces<'_>, ranks: usize) -> (Vec<Vec<f64>>, Value) {
    let bench = bench();
    with_tables(&bench, pieces, held_out);
    explained(&bench, BOLD, "SELECT * FROM held_out", ranks).await
}

async fn explained(bench: &Bench, train: &str, held_out: &str, ranks: usize) -> (Vec<Vec<f64>>, Value) {
    let tables = [train, "SELECT * FROM all_stimuli"];
    let options = json!({"cv": "loo", "delays": []});
    let mut request = encoding::request(bench, tables, options, ranks).await;
    request.validation = Some(bench.plan_of(held_out).await);
    bench.run(request).await.unwrap();
    let table = encoding::table(bench);
    let columns = ["intercept", "alpha", "score", "r", "r2"].map(|name| {
        let column = table.column_by_name(name).unwrap().as_primitive::<Float64Type>();
        column.iter().take(VOXELS).map(|value| value.unwrap_or(f64::NAN)).collect::<Vec<f64>>()
    });
    (columns.to_vec(), bench.json("statistics.json"))
}

/// Those of series that are finite; what is behind shorter runs is no value of theirs.
#[track_caller]
fn are_moments_of(told: &Value, pieces: Pieces<'_>) {
    let mut values: Vec<f64> = Vec::new();
    for batch in series(pieces) {
        let rows =
            arrow::compute::cast(batch.column(3), &DataType::new_list(DataType::Float32, true)).unwrap();
        for row in rows.as_list::<i32>().iter().flatten() {
            let row = row.as_primitive::<Float32Type>().values();
            values.extend(row.iter().filter(|_| row.iter().all(|v| v.is_finite())).map(|v| f64::from(*v)));
        }
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    for (name, expected) in [("mean", mean), ("std", std)] {
        let found = told[name].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9 * expected.abs(), "{name}: {found}, not {expected}");
    }
}

#[tokio::test]
async fn runs_of_several_lengths_are_explained_as_their_samples_say() {
    let (even, told) = fitted(WHOLE, &[(3, 0..24)], 1).await;
    for ranks in [1, 3] {
        let (uneven, of_uneven) = fitted(UNEVEN, &[(3, 0..9), (3, 9..24)], ranks).await;
        for (a, b) in even.iter().zip(&uneven) {
            assert!(
                a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 || a.is_nan() && b.is_nan()),
                "{a:?} {b:?}"
            );
        }
        are_moments_of(&of_uneven, UNEVEN);
    }
    are_moments_of(&told, WHOLE);
    let (other, _) = fitted(UNEVEN, &[(3, 0..9)], 1).await;
    assert_eq!(other[..2], even[..2], "held-out runs of another length change no fit");
    assert_ne!(other[3], even[3]);
}

/// Lists as other tools write them, in which nothing says how long they are.
#[tokio::test]
async fn a_lab_s_own_lists_of_several_lengths_are_explained_too() {
    let (even, _) = fitted(WHOLE, &[(3, 0..24)], 1).await;
    let bench = bench();
    with_tables(&bench, UNEVEN, &[(3, 0..9), (3, 9..24)]);
    for table in ["bold", "held_out"] {
        let rows = bench.context.table(table).await.unwrap().collect().await.unwrap();
        let bare = |batch: &RecordBatch| {
            let schema = batch.schema().as_ref().clone();
            let schema = schema.with_metadata(encoding::grid().to_metadata().unwrap());
            RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec()).unwrap()
        };
        bench.table(&format!("bare_{table}"), vec![rows.iter().map(bare).collect()]);
    }
    for kind in ["List(Float64)", "LargeList(Float32)"] {
        let [train, held_out] = ["bold", "held_out"].map(|table| {
            format!("SELECT subject, run, voxel, arrow_cast(series, '{kind}') AS series FROM bare_{table}")
        });
        let (own, _) = explained(&bench, &train, &held_out, 2).await;
        for (a, b) in even.iter().zip(&own) {
            let equal = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 || a.is_nan() && b.is_nan();
            assert!(a.iter().zip(b).all(equal), "{kind}: {a:?} {b:?}");
        }
    }
}

#[tokio::test]
async fn other_counts_of_samples_and_two_lengths_of_a_run_are_refused_by_name() {
    let bench = bench();
    with_tables(&bench, UNEVEN, &[(3, 0..9)]);
    let short = "SELECT * FROM all_stimuli WHERE NOT (run = 3 AND tr = 2)";
    let request = encoding::request(&bench, [BOLD, short], json!({"cv": "loo"}), 1).await;
    let e = ours(&bench.run(request).await.unwrap_err()).to_string();
    assert!(e.contains("run 3 has 2 samples of features, and series of 3 points"), "{e}");
    let one_run =
        "SELECT subject, '0' AS run, voxel + 9 * CAST(run AS INT UNSIGNED) AS voxel, series FROM bold";
    let request =
        encoding::request(&bench, [one_run, "SELECT * FROM all_stimuli"], json!({"cv": "loo"}), 1).await;
    let e = ours(&bench.run(request).await.unwrap_err()).to_string();
    assert!(e.contains("series of subject 01, run 0 are of ") && e.contains("a run has one length"), "{e}");
}

#[tokio::test]
async fn who_learns_from_series_alone_needs_them_of_one_length() {
    let bench = Bench::new();
    with_tables(&bench, UNEVEN, &[(3, 0..9)]);
    let error = refused(bench.catalog.plan_train(bench.request(BOLD, None, json!({})).await));
    assert!(error.to_string().contains("arrow_cast(series, 'FixedSizeList(T, Float32)')"), "{error}");
    let long = "SELECT subject, run, voxel, arrow_cast(series, 'FixedSizeList(24, Float32)') AS series FROM bold \
                WHERE run = '2' AND voxel < 7";
    let plan = bench.plan_of(long).await;
    let rows = bench.context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
    let found: usize = rows.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(found, VOXELS);
    assert!(matches!(rows[0].column(3).data_type(), DataType::FixedSizeList(_, 24)));
}

/// Functions over series take each as long as it is, and two that are of one length.
#[tokio::test]
async fn functions_take_series_as_long_as_they_are() {
    let bench = Bench::new();
    with_tables(&bench, UNEVEN, &[(3, 0..9)]);
    let columns = "list_mean(series) AS m, list_std(series) AS s, pearson_r(series, series) AS r";
    let context = &bench.context;
    let rows = |query: String| async move { context.sql(&query).await.unwrap().collect().await };
    let numbers = |batches: &[RecordBatch]| -> Vec<Option<f32>> {
        let columns = batches.iter().flat_map(|batch| batch.columns().iter().cloned());
        columns.flat_map(|column| column.as_primitive::<Float32Type>().iter().collect::<Vec<_>>()).collect()
    };
    for (name, piece) in UNEVEN.iter().enumerate() {
        bench.table(&format!("alone{name}"), vec![vec![part(piece, name, None)]]);
        let of_all =
            rows(format!("SELECT {columns} FROM (SELECT * FROM bold WHERE run = '{name}' ORDER BY voxel)"))
                .await;
        let alone = rows(format!("SELECT {columns} FROM (SELECT * FROM alone{name} ORDER BY voxel)")).await;
        assert_eq!(numbers(&of_all.unwrap()), numbers(&alone.unwrap()), "run {name}");
    }
    let other = "SELECT pearson_r(a.series, b.series) AS r FROM bold a JOIN bold b ON a.voxel = b.voxel AND a.run < b.run";
    let error = rows(other.into()).await.unwrap_err();
    assert!(error.to_string().contains("take the design of the cleaned table"), "{error}");
}

#[tokio::test]
async fn every_run_is_cleaned_as_if_it_were_alone() {
    let bench = bench();
    with_tables(&bench, UNEVEN, &[(3, 0..9)]);
    let options = json!({"detrend": true, "standardize": "zscore_sample", "not_finite": "zero"});
    let options = options.as_object().unwrap();
    let clean = async |table: &str| {
        let plan = bench.plan_of(&format!("SELECT * FROM {table}")).await;
        let plan = bench.catalog.plan_table_operator(CLEAN, plan, options).unwrap();
        let schema = plan.schema().as_arrow().clone();
        let mut rows = bench.context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
        rows.sort_by_key(|batch| batch.column(1).as_string::<i32>().value(0).to_owned());
        (schema, rows)
    };
    let (schema, all) = clean("bold").await;
    assert_eq!(RunLengths::of(&schema).unwrap(), lengths(UNEVEN));
    for (name, (piece, found)) in UNEVEN.iter().zip(&all).enumerate() {
        bench.table(&format!("alone{name}"), vec![vec![part(piece, name, None)]]);
        let (schema, alone) = clean(&format!("alone{name}")).await;
        assert_eq!(RunLengths::of(&schema).unwrap(), None);
        let (lists, alone) = (found.column(3).as_list::<i32>(), alone[0].column(3).as_fixed_size_list());
        assert_eq!(lists.len(), alone.len());
        for row in 0..lists.len() {
            let (a, b): (ArrayRef, ArrayRef) = (lists.value(row), alone.value(row));
            assert_eq!(
                a.as_primitive::<Float32Type>(),
                b.as_primitive::<Float32Type>(),
                "run {name}, row {row}"
            );
        }
    }
    // A table that does not say how long its runs are.
    let first = series(UNEVEN).remove(0);
    let schema = first.schema().as_ref().clone().with_metadata(Default::default());
    let bare = RecordBatch::try_new(Arc::new(schema), first.columns().to_vec()).unwrap();
    bench.table("bare", vec![vec![bare]]);
    let plan = bench.plan_of("SELECT * FROM bare").await;
    let e = refused(bench.catalog.plan_table_operator(CLEAN, plan, options)).to_string();
    assert!(e.contains("does not say how long each run is"), "{e}");
}
