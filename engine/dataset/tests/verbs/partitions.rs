//! The number of partitions, and what is in them.

use crate::fixture::{Bench, PARTITIONS, integers, values};

#[tokio::test]
async fn repartition_deals_rows_evenly() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let dealt = bench.numbers(partitions).repartition(13);
        assert_eq!(dealt.num_partitions().await.unwrap(), 13);
        let parts = dealt.collect_partitions().await.unwrap();
        let sizes: Vec<usize> = parts.iter().map(|p| p.iter().map(|b| b.num_rows()).sum()).collect();
        assert!(
            sizes.iter().all(|s| (100 / 13 - partitions..=100 / 13 + 1 + partitions).contains(s)),
            "{sizes:?}"
        );
        assert_eq!(integers(&dealt, "n").await, (0..100).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn coalesce_joins_neighbours_in_order() {
    let bench = Bench::new();
    let fewer = bench.numbers(7).coalesce(3);
    assert_eq!(fewer.num_partitions().await.unwrap(), 3);
    let parts = fewer.collect_partitions().await.unwrap();
    let rows: Vec<i64> = parts.iter().flatten().flat_map(|b| values(b, "n")).collect();
    assert_eq!(rows, (0..100).collect::<Vec<_>>());
    assert!(parts.iter().all(|p| !p.is_empty()));
    assert_eq!(bench.numbers(2).coalesce(9).num_partitions().await.unwrap(), 2);
}

#[tokio::test]
async fn no_partitions_are_refused() {
    let bench = Bench::new();
    let e = bench.numbers(2).repartition(0).count().await.unwrap_err();
    assert!(e.to_string().starts_with("repartition: 0 partitions"), "{e}");
    assert!(e.is_input());
}

#[tokio::test]
async fn partitions_may_be_read_one_after_the_other() {
    // A reader that drains partition 0 before it opens the next must not wait for ever.
    let bench = Bench::new();
    let plan = bench.numbers(3).repartition(4).to_frame().unwrap().create_physical_plan().await.unwrap();
    let task = bench.engine.context().task_ctx();
    let mut rows = 0;
    for partition in 0..4 {
        let stream = plan.execute(partition, task.clone()).unwrap();
        let batches = datafusion::physical_plan::common::collect(stream).await.unwrap();
        rows += batches.iter().map(|b| b.num_rows()).sum::<usize>();
    }
    assert_eq!(rows, 100);
}

#[tokio::test]
async fn explain_shows_both_plans() {
    let bench = Bench::new();
    let text = bench.numbers(2).repartition(5).zip_with_index("i").coalesce(2).explain().await.unwrap();
    for node in ["RepartitionRows: 5", "ZipWithIndex: i", "Coalesce: 2", "CoalesceExec: partitions=2"] {
        assert!(text.contains(node), "{node} in\n{text}");
    }
}
