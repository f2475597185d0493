//! Functions of models and of series, called from SQL.

use crate::tables::{Bench, T, ours, series, with_values};
use arrow::{
    array::{Array, AsArray, RecordBatch},
    buffer::NullBuffer,
    datatypes::{DataType, Field, FieldRef, Float32Type},
};
use datafusion::error::DataFusionError;
use serde_json::json;
use std::sync::Arc;
use voxelflow_dataset::StagePlanner;

async fn query(bench: &Bench, sql: &str) -> Result<RecordBatch, DataFusionError> {
    let batches = bench.context.sql(sql).await?.collect().await?;
    let schema = batches[0].schema();
    Ok(arrow::compute::concat_batches(&schema, &batches)?)
}

async fn trained() -> Bench {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..10)], vec![series(Some("a"), 10..30)]]);
    let settings = json!({"epochs": 200, "minibatch": 10, "learning_rate": 0.05, "ranks": 2});
    bench.train("SELECT * FROM bold", settings).await.unwrap();
    bench
}

#[tokio::test]
async fn a_model_encodes_and_reconstructs() {
    let bench = trained().await;
    let model = bench.model().display().to_string();
    let sql = format!(
        "SELECT voxel, encode('{model}', series) AS hidden, reconstruct('{model}', series) AS again,
                pearson_r(series, reconstruct('{model}', series)) AS r FROM bold ORDER BY voxel"
    );
    let rows = query(&bench, &sql).await.unwrap();
    assert_eq!(rows.num_rows(), 30);
    let length = |name: &str| match rows.column_by_name(name).unwrap().data_type() {
        DataType::FixedSizeList(item, n) => (item.data_type().clone(), *n as usize),
        other => panic!("{other}"),
    };
    assert_eq!(length("hidden"), (DataType::Float32, 1));
    assert_eq!(length("again"), (DataType::Float32, T));
    let r = rows.column_by_name("r").unwrap().as_primitive::<Float32Type>();
    assert!(r.values().iter().all(|r| *r > 0.9), "{r:?}");

    let request = bench.request("SELECT * FROM bold", None, json!({})).await;
    let declared = |function: &str, types: &[DataType]| {
        let fields = types.iter().map(|kind| Arc::new(Field::new("a", kind.clone(), true)));
        let fields: Vec<FieldRef> = fields.collect();
        bench.catalog.declared_output(&request, function, &fields)
    };
    let output = declared("encode", &[length_type(T)]).unwrap();
    assert_eq!(output.as_ref(), Some(rows.column_by_name("hidden").unwrap().data_type()));
    let any_length = declared("encode", &[DataType::new_list(DataType::Float32, true)]).unwrap();
    assert_eq!(any_length, output, "only the rows tell how long they are");
    for (function, types, said) in [
        ("encode", vec![length_type(T + 1)], "`a` has 7 values, the model was trained on 6"),
        ("encode", vec![DataType::UInt32], "`a` is UInt32"),
        ("encode", vec![DataType::new_list(DataType::Utf8, true)], "is a column of series"),
        ("encode", vec![length_type(T); 2], "as in encode(model, series), not 2"),
        ("bin_count", vec![length_type(T)], "the model `m` is of stage `line`, which has only"),
    ] {
        let error = declared(function, &types).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{function}: ")) && error.contains(said), "{error}");
    }
}

fn length_type(length: usize) -> DataType {
    let batch = series(None, 0..1);
    let DataType::FixedSizeList(item, _) = batch.column(2).data_type() else { panic!() };
    DataType::FixedSizeList(item.clone(), length as i32)
}

/// numpy's `std` and `corrcoef` of values that float32 cannot tell apart.
#[tokio::test]
async fn series_of_64_bits_keep_their_digits() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..1)]]);
    let lists =
        "arrow_cast([1000000.01, 999999.99, 1000000.01, 999999.99], 'FixedSizeList(4, Float64)') AS a,
                 arrow_cast([1.0, 2.0, 1.0, 3.0], 'FixedSizeList(4, Float32)') AS b";
    let sql = format!("SELECT list_std(a) AS s, pearson_r(a, b) AS r FROM (SELECT {lists} FROM bold)");
    let rows = query(&bench, &sql).await.unwrap();
    let number = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Float32Type>().value(0);
    assert!((number("s") - 0.01).abs() < 1e-6, "{}", number("s"));
    assert!((number("r") + 0.904_534).abs() < 1e-5, "{}", number("r"));
}

#[tokio::test]
async fn no_series_no_output() {
    let bench = trained().await;
    let nulls = NullBuffer::from(vec![true, false, true]);
    bench.table("gaps", vec![vec![with_values(None, 0..3, vec![1.0; 3 * T], Some(nulls))]]);
    let model = bench.model().display().to_string();
    let rows =
        query(&bench, &format!("SELECT encode('{model}', series), pearson_r(series, series) FROM gaps"))
            .await;
    let rows = rows.unwrap();
    assert_eq!((rows.column(0).null_count(), rows.column(0).is_null(1)), (1, true));
    assert_eq!(rows.column(1).null_count(), 3, "a constant series correlates with nothing");
}

#[tokio::test]
async fn a_model_that_was_replaced_is_read_again() {
    let bench = trained().await;
    let sql = format!("SELECT encode('{}', series) AS hidden FROM bold", bench.model().display());
    let first = query(&bench, &sql).await.unwrap();
    assert_eq!(first, query(&bench, &sql).await.unwrap());
    bench.train("SELECT * FROM bold", json!({"epochs": 1})).await.unwrap();
    assert_ne!(first, query(&bench, &sql).await.unwrap());
}

#[tokio::test]
async fn calls_that_cannot_work_are_explained() {
    let bench = trained().await;
    let model = bench.model().display().to_string();
    let short = "arrow_cast(make_array(1.0, 2.0), 'FixedSizeList(2, Float32)')";
    let cases = [
        (format!("encode('{model}', {short})"), "the model was trained on 6"),
        (format!("encode('{model}', voxel)"), "`voxel` is UInt32"),
        (format!("encode('{model}', make_array('a', 'b'))"), "its second argument is a column of series"),
        (format!("encode('{model}', make_array(series))"), "its second argument is a column of series"),
        // How long lists are that may be of any length, only the rows tell.
        (format!("encode('{model}', make_array(1.0, CAST(voxel AS DOUBLE)))"), "another length than 6"),
        ("encode('/nowhere', series)".to_owned(), "TRAIN MODEL"),
        ("encode(subject, series)".to_owned(), "its first argument is a model"),
        (format!("pearson_r(series, {short})"), "the other series 6"),
        ("list_mean(voxel)".to_owned(), "not a column of series"),
    ];
    for (call, text) in cases {
        let error = query(&bench, &format!("SELECT {call} FROM bold")).await.unwrap_err();
        assert!(error.to_string().contains(text), "{call}: {error}");
        assert!(ours(&error).is_input(), "{call}: {error:?}");
    }
}

#[tokio::test]
async fn moments_of_series() {
    let bench = Bench::new();
    let values = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0];
    bench.table("bold", vec![vec![with_values(None, 0..2, values, None)]]);
    let rows = query(&bench, "SELECT list_mean(series) AS m, list_std(series) AS s FROM bold").await.unwrap();
    assert_eq!(rows.column(0).as_primitive::<Float32Type>().values(), &[3.5, 2.0]);
    let std = rows.column(1).as_primitive::<Float32Type>();
    assert!((std.value(0) - 1.707_825).abs() < 1e-5 && std.value(1) == 0.0, "{std:?}");
}
