//! Nothing is read before an action, and no more than it needs.

use crate::fixture::{Bench, counted};
use datafusion::prelude::{col, lit};
use futures::StreamExt;
use std::sync::atomic::Ordering;
use voxelflow_dataset::{Accumulator, function};

#[tokio::test]
async fn verbs_read_nothing() {
    let bench = Bench::new();
    let calls = bench.engine.accumulator::<i64>("calls");
    let (rows, made) = counted(&bench.engine, 3, 4, 10);
    let count = function!(|batch, calls: Accumulator<i64>| {
        calls.add(1);
        batch
    });
    let chain = rows
        .map_partitions(count, calls.clone())
        .filter(col("n").gt(lit(2)))
        .repartition(2)
        .sample(0.9, 1)
        .zip_with_index("i");
    chain.schema().unwrap();
    chain.explain().await.unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 0);
    assert_eq!(bench.engine.accumulated(&calls), 0);
    chain.collect().await.unwrap();
    assert!(made.load(Ordering::SeqCst) > 0);
    assert!(bench.engine.accumulated(&calls) > 0);
}

#[tokio::test]
async fn take_of_a_huge_dataset_reads_little() {
    let bench = Bench::new();
    let (rows, made) = counted(&bench.engine, 4, 1_000_000, 1_000);
    let doubled = rows.map_partitions(function!(|batch| batch), ()).with_column("m", col("n") * lit(2_i64));
    assert_eq!(doubled.take(1).await.unwrap()[0].num_rows(), 1);
    let made = made.load(Ordering::SeqCst);
    assert!(made < 200, "{made} batches of 4,000,000 were made for one row");
}

#[tokio::test]
async fn a_dropped_stream_ends_the_work() {
    let bench = Bench::new();
    let (rows, made) = counted(&bench.engine, 2, 1_000_000, 1_000);
    let mut stream = rows.repartition(3).stream().await.unwrap();
    let mut read = 0;
    while read < 5_000 {
        read += stream.next().await.unwrap().unwrap().num_rows();
    }
    drop(stream);
    let made = made.load(Ordering::SeqCst);
    assert!(made < 10_000, "{made} batches for 5,000 rows");
}

#[tokio::test]
async fn a_stream_gives_all_rows() {
    let bench = Bench::new();
    let (rows, _) = counted(&bench.engine, 5, 20, 100);
    let mut stream = rows.stream().await.unwrap();
    let mut read = 0;
    while let Some(batch) = stream.next().await {
        read += batch.unwrap().num_rows();
    }
    assert_eq!(read, 5 * 20 * 100);
}
