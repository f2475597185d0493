//! Columns and rows: select, filter, union, distinct, sort, sample, zip_with_index.

use crate::fixture::{Bench, METADATA_KEY, PARTITIONS, integers, integers_in_order, lines};
use datafusion::{
    arrow::datatypes::DataType,
    prelude::{col, lit},
};
use proptest::prelude::*;

#[tokio::test]
async fn select_filter_and_with_column_compute_row_by_row() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let rows = bench
            .numbers(partitions)
            .filter(col("parity").eq(lit("odd")))
            .with_column("double", col("n") * lit(2_i64))
            .select([col("double")]);
        let expected: Vec<i64> = (0..100).filter(|n| n % 2 == 1).map(|n| n * 2).collect();
        assert_eq!(integers(&rows, "double").await, expected);
        let names = |d: &voxelflow_dataset::Dataset| {
            d.schema().unwrap().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&bench.numbers(partitions).select_columns(&["half", "n"])), ["half", "n"]);
        assert_eq!(names(&bench.numbers(partitions).drop_columns(&["parity"])), ["n", "half"]);
    }
}

#[tokio::test]
async fn union_keeps_duplicates_and_distinct_drops_them() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let rows = bench.numbers(partitions);
        let twice = rows.union(&bench.numbers(2));
        assert_eq!(twice.count().await.unwrap(), 200);
        assert_eq!(lines(&twice.distinct()).await, lines(&rows).await);
    }
}

#[tokio::test]
async fn sort_by_orders_all_rows() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let sorted = bench.numbers(partitions).sort_by([col("n").sort(false, false)]);
        assert_eq!(integers_in_order(&sorted, "n").await, (0..100).rev().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn take_and_first_give_no_more_than_asked() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let rows = bench.numbers(partitions);
        assert_eq!(rows.take(7).await.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(), 7);
        assert_eq!(rows.first().await.unwrap().unwrap().num_rows(), 1);
        assert!(rows.filter(col("n").lt(lit(0))).first().await.unwrap().is_none());
    }
    assert!(bench.numbers(1).to_text(1).await.unwrap().contains("| 0 | even"));
}

#[tokio::test]
async fn a_sample_depends_on_rows_and_seed_only() {
    let bench = Bench::new();
    let sample = integers(&bench.numbers(1).sample(0.3, 42), "n").await;
    assert!((15..=45).contains(&sample.len()), "{} of 100 rows", sample.len());
    for partitions in PARTITIONS {
        assert_eq!(integers(&bench.numbers(partitions).sample(0.3, 42), "n").await, sample);
        let shuffled = bench.numbers(partitions).repartition(5).sort_by([col("half").sort(false, true)]);
        assert_eq!(integers(&shuffled.sample(0.3, 42), "n").await, sample);
    }
    assert_ne!(integers(&bench.numbers(1).sample(0.3, 43), "n").await, sample);
    assert_eq!(bench.numbers(2).sample(0.0, 1).count().await.unwrap(), 0);
    assert_eq!(bench.numbers(2).sample(1.0, 1).count().await.unwrap(), 100);
    let by_parity = bench.numbers(2).sample_by(&["parity"], 0.5, 3).count().await.unwrap();
    assert!([0, 50, 100].contains(&by_parity), "equal keys go together: {by_parity}");
}

#[tokio::test]
async fn zip_with_index_numbers_partition_by_partition() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        // In-memory rows are dealt in order, so the index must equal n.
        let rows = bench.numbers(partitions).zip_with_index("index");
        assert_eq!(rows.schema().unwrap().field_with_name("index").unwrap().data_type(), &DataType::UInt64);
        assert_eq!(rows.filter(col("index").not_eq(col("n"))).count().await.unwrap(), 0);
        assert_eq!(integers(&rows, "index").await, (0..100).collect::<Vec<_>>());
        let uneven = bench.numbers(partitions).filter(col("n").gt(lit(40))).zip_with_index("index");
        assert_eq!(integers(&uneven, "index").await, (0..59).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn metadata_survive_select_filter_and_index() {
    let bench = Bench::new();
    let rows = bench
        .numbers(2)
        .filter(col("n").gt(lit(3)))
        .select([col("n"), col("half")])
        .with_column("x", col("half") + lit(1.0))
        .zip_with_index("index")
        .repartition(2)
        .coalesce(1)
        .sample(0.9, 1);
    assert_eq!(rows.schema().unwrap().metadata()[METADATA_KEY], "7T");
    assert_eq!(rows.collect().await.unwrap()[0].schema().metadata()[METADATA_KEY], "7T");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_row_is_lost_or_made_by_partitioning_indexing_and_sampling(
        rows in 0_i64..500, from in 1_usize..9, to in 1_usize..9, fraction in 0.0..1.0_f64, seed: u64,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new();
            let source = bench.engine.from_batches(&[crate::fixture::batch(0..rows)], from).unwrap();
            let all: Vec<i64> = (0..rows).collect();
            let dealt = source.repartition(to);
            let parts = dealt.collect_partitions().await.unwrap();
            let sizes: Vec<usize> = parts.iter().map(|p| p.iter().map(|b| b.num_rows()).sum()).collect();
            assert_eq!(sizes.len(), to);
            let (most, least) = (sizes.iter().max().unwrap(), sizes.iter().min().unwrap());
            assert!(most - least <= from, "{sizes:?}");
            assert_eq!(integers(&dealt, "n").await, all);
            assert_eq!(integers(&dealt.zip_with_index("index"), "index").await, all);
            let (sampled, again) = (source.sample(fraction, seed), dealt.coalesce(2).sample(fraction, seed));
            assert_eq!(integers(&sampled, "n").await, integers(&again, "n").await);
        });
    }
}
