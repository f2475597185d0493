//! Named functions: what they give, what they share, how they are named.

use crate::fixture::{Bench, METADATA_KEY, PARTITIONS, integers};
use datafusion::arrow::{
    array::{ArrayRef, AsArray, Int64Array, RecordBatch},
    compute::kernels::numeric::mul,
    datatypes::Int64Type,
    error::ArrowError,
};
use datafusion::prelude::col;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use voxelflow_dataset::{Accumulator, Broadcast, function, functions};

#[derive(Serialize, Deserialize)]
struct Scale {
    gain: i64,
}

/// The column n, scaled, under a schema without metadata.
fn scale(batch: &RecordBatch, gain: i64) -> Result<RecordBatch, ArrowError> {
    let n = mul(batch.column(0), &Int64Array::new_scalar(gain))?;
    RecordBatch::try_from_iter([("scaled", n)])
}

#[tokio::test]
async fn map_partitions_applies_a_function_with_arguments() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let scaled = bench
            .numbers(partitions)
            .map_partitions(function!(|batch, args: Scale| scale(&batch, args.gain)), Scale { gain: 3 });
        assert_eq!(integers(&scaled, "scaled").await, (0..100).map(|n| n * 3).collect::<Vec<_>>());
        assert_eq!(scaled.num_partitions().await.unwrap(), partitions);
        // The function made a schema of its own; the input's metadata are there all the same.
        assert_eq!(scaled.schema().unwrap().metadata()[METADATA_KEY], "7T");
        let first = scaled.first().await.unwrap().unwrap();
        assert_eq!(first.schema().metadata()[METADATA_KEY], "7T");
    }
}

#[tokio::test]
async fn flat_map_gives_several_batches_for_one() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let twice = bench.numbers(partitions).flat_map(function!(|batch| vec![batch.clone(), batch]), ());
        assert_eq!(twice.count().await.unwrap(), 200);
    }
}

#[tokio::test]
async fn the_schema_can_be_told() {
    let bench = Bench::new();
    let picky = function!(|batch| -> Result<RecordBatch, String> {
        if batch.num_rows() == 0 { Err("no rows".to_owned()) } else { Ok(batch) }
    });
    let rows = bench.numbers(2);
    let e = rows.map_partitions(picky, ()).schema().unwrap_err();
    let text = e.to_string();
    assert!(text.contains("called with an empty batch") && text.contains("no rows"), "{text}");
    assert!(text.contains("map_partitions_to") && text.contains("functions.rs"), "{text}");
    let told = rows.map_partitions_to(&rows.schema().unwrap(), picky, ());
    assert_eq!(told.count().await.unwrap(), 100);
}

#[tokio::test]
async fn a_new_column_may_hold_nulls() {
    let bench = Bench::new();
    let halves = bench.numbers(2).map_partitions(
        function!(|batch| -> Result<RecordBatch, ArrowError> {
            let n = batch.column(0).as_primitive::<Int64Type>();
            let half: Int64Array = n.values().iter().map(|n| (n % 2 == 0).then_some(n / 2)).collect();
            RecordBatch::try_from_iter([("half", Arc::new(half) as ArrayRef)])
        }),
        (),
    );
    assert_eq!(halves.filter(col("half").is_null()).count().await.unwrap(), 50);
}

#[derive(Serialize, Deserialize)]
struct Tally {
    rows: Accumulator<i64>,
    sum: Accumulator<f64>,
}

#[tokio::test]
async fn accumulators_add_up_once_over_partitions() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let engine = &bench.engine;
        let (rows, sum) = (engine.accumulator::<i64>("rows"), engine.accumulator::<f64>("sum"));
        let count = function!(|batch, tally: Tally| {
            tally.rows.add(batch.num_rows() as i64);
            tally.sum.add(batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>() as f64);
        });
        let tally = Tally { rows: rows.clone(), sum: sum.clone() };
        bench.numbers(partitions).foreach_partition(count, tally).await.unwrap();
        assert_eq!((engine.accumulated(&rows), engine.accumulated(&sum)), (100, 4950.0));
    }
}

#[tokio::test]
async fn the_counting_pass_of_zip_with_index_adds_to_no_accumulator() {
    let bench = Bench::new();
    let seen = bench.engine.accumulator::<i64>("seen");
    let pass = function!(|batch, seen: Accumulator<i64>| {
        seen.add(batch.num_rows() as i64);
        batch
    });
    let indexed = bench.numbers(4).map_partitions(pass, seen.clone()).zip_with_index("i");
    assert_eq!(indexed.collect().await.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(), 100);
    assert_eq!(bench.engine.accumulated(&seen), 100);
}

#[tokio::test]
async fn a_broadcast_value_reaches_every_partition() {
    let bench = Bench::new();
    let wanted = bench.engine.broadcast(vec![3_i64, 5, 97]).unwrap();
    let keep = function!(|batch, wanted: Broadcast<Vec<i64>>| -> Result<RecordBatch, functions::BoxError> {
        let wanted = wanted.value()?;
        let kept = batch.column(0).as_primitive::<Int64Type>().values().iter().filter(|n| wanted.contains(n));
        let kept: ArrayRef = Arc::new(kept.copied().collect::<Int64Array>());
        Ok(RecordBatch::try_from_iter([("n", kept)])?)
    });
    for partitions in PARTITIONS {
        let rows = bench.numbers(partitions).map_partitions(keep, wanted.clone());
        assert_eq!(integers(&rows, "n").await, [3, 5, 97]);
    }
    bench.engine.forget(&wanted);
    assert!(bench.numbers(1).map_partitions(keep, wanted).count().await.is_err());
}

#[tokio::test]
async fn functions_are_known_by_a_stable_name() {
    let named = function!("identity", |batch| batch);
    assert_eq!(named.name(), "identity");
    let here = function!(|batch| batch);
    assert!(here.name().contains("functions@") && here.name().contains("functions.rs:"), "{}", here.name());
    assert!(functions::known().iter().any(|f| f.name == "identity"));
    let e = functions::lookup("identiti").unwrap_err();
    assert!(e.to_string().contains("did you mean `identity`?"), "{e}");
}
