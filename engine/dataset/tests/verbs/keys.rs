//! Grouping, reducing, joining.

use crate::fixture::{Bench, PARTITIONS, integers, lines};
use datafusion::{
    arrow::{
        array::{ArrayRef, Int64Array, RecordBatch},
        compute::sum,
        error::ArrowError,
    },
    common::JoinType,
    functions_aggregate::expr_fn::{count, max},
    prelude::{col, lit},
};
use std::sync::Arc;
use voxelflow_dataset::{Dataset, ReduceOp, function};

#[tokio::test]
async fn group_by_and_aggregate() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let rows = bench.numbers(partitions);
        let grouped = rows.group_by([col("parity")]);
        assert_eq!(lines(&grouped.aggregate([max(col("n")).alias("most")])).await, ["|even|98|", "|odd|99|"]);
        assert_eq!(lines(&grouped.count()).await, ["|even|50|", "|odd|50|"]);
        assert_eq!(lines(&rows.aggregate([count(col("n")).alias("rows")])).await, ["|100|"]);
    }
}

#[tokio::test]
async fn key_by_and_reduce_by_key() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let reduced = bench.numbers(partitions).key_by(col("n") % lit(3_i64)).reduce_by_key(
            &["key"],
            &[("n", ReduceOp::Sum), ("half", ReduceOp::Max), ("parity", ReduceOp::Count)],
        );
        assert_eq!(lines(&reduced).await, ["|0|1683|49.5|34|", "|1|1617|48.5|33|", "|2|1650|49.0|33|"]);
    }
}

/// One row with the sums of n and half.
fn add(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    use datafusion::arrow::{array::AsArray, datatypes::Float64Type, datatypes::Int64Type};
    if batch.num_rows() == 0 {
        return Ok(batch.clone());
    }
    let n = sum(batch.column(0).as_primitive::<Int64Type>()).unwrap();
    let half = sum(batch.column(2).as_primitive::<Float64Type>()).unwrap();
    let half: ArrayRef = Arc::new(datafusion::arrow::array::Float64Array::from(vec![half]));
    let columns = vec![Arc::new(Int64Array::from(vec![n])) as ArrayRef, batch.column(1).slice(0, 1), half];
    RecordBatch::try_new(batch.schema(), columns)
}

#[tokio::test]
async fn reduce_with_a_function_of_ones_own() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let rows = bench.numbers(partitions);
        let by_key = rows.reduce_by_key_with(&["parity"], function!(|batch| add(&batch)), ());
        assert_eq!(lines(&by_key).await, ["|2450|even|1225.0|", "|2500|odd|1250.0|"]);
        let all = rows.reduce(function!(|batch| add(&batch)), ()).await.unwrap().unwrap();
        assert_eq!(crate::fixture::values(&all, "n"), [4950]);
        let none = rows.filter(col("n").lt(lit(0))).reduce(function!(|batch| add(&batch)), ()).await.unwrap();
        assert!(none.is_none());
    }
}

#[tokio::test]
async fn map_groups_sees_each_group_whole() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let sizes = bench.numbers(partitions).key_by(col("n") % lit(7_i64)).map_groups(
            &["key"],
            function!(|batch| -> Result<RecordBatch, ArrowError> {
                let size: ArrayRef = Arc::new(Int64Array::from(vec![batch.num_rows() as i64]));
                RecordBatch::try_from_iter([("size", size)])
            }),
            (),
        );
        assert_eq!(integers(&sizes, "size").await, [14, 14, 14, 14, 14, 15, 15]);
    }
}

#[tokio::test]
async fn groups_of_one_file_are_whole_however_it_is_filtered_or_sorted() {
    let bench = Bench::new();
    let path = bench.path("rows");
    bench.numbers(1).write_parquet(&path).await.unwrap();
    let file = bench.engine.read_parquet(&path).await.unwrap();
    let even = col("parity").eq(lit("even"));
    let in_order = [col("n").sort(false, true)];
    let by_key = [col("parity").sort(true, true)];
    let (all, halves) = (vec!["|even|50|", "|odd|50|"], vec!["|even|25|", "|odd|25|"]);
    let cases = [
        (file.clone(), all.clone()),
        (file.filter(col("n").lt(lit(50))), halves.clone()),
        (file.filter(even.clone()), vec!["|even|50|"]),
        (file.filter(col("n").lt(lit(50))).select([col("parity"), col("n")]), halves.clone()),
        (file.sort_by(in_order.clone()), all.clone()),
        (file.sort_by(by_key.clone()), all),
        (file.filter(col("n").lt(lit(50))).sort_by(in_order), halves.clone()),
        (file.filter(even).sort_by(by_key), vec!["|even|50|"]),
        (file.filter(col("n").lt(lit(50))).repartition(4).coalesce(2), halves),
    ];
    for (at, (rows, expected)) in cases.into_iter().enumerate() {
        let sizes = rows.map_groups(
            &["parity"],
            function!(|batch| -> Result<RecordBatch, ArrowError> {
                let rows = batch.num_rows();
                let size: ArrayRef = Arc::new(Int64Array::from(vec![rows as i64; rows.min(1)]));
                let parity = batch.column_by_name("parity").unwrap().slice(0, rows.min(1));
                RecordBatch::try_from_iter([("parity", parity), ("size", size)])
            }),
            (),
        );
        assert_eq!(lines(&sizes).await, expected, "case {at}");
    }
}

#[tokio::test]
async fn group_by_key_makes_lists() {
    let bench = Bench::new();
    let rows = bench.numbers(2).filter(col("n").lt(lit(4))).select([col("parity"), col("n")]);
    let sorted = rows.sort_by([col("n").sort(true, true)]);
    let lists = lines(&sorted.group_by_key(&["parity"])).await;
    assert_eq!(lists, ["|even|[0, 2]|", "|odd|[1, 3]|"]);
}

fn named(bench: &Bench, column: &str, rows: &[(i64, i64)]) -> Dataset {
    let keys: ArrayRef = Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>());
    let values: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>());
    let batch = RecordBatch::try_from_iter([("key", keys), (column, values)]).unwrap();
    bench.engine.from_batches(&[batch], 2).unwrap()
}

#[tokio::test]
async fn join_gives_key_columns_once() {
    let bench = Bench::new();
    let (a, b) = (named(&bench, "a", &[(1, 10), (2, 20)]), named(&bench, "b", &[(2, 200), (3, 300)]));
    assert_eq!(lines(&a.join(&b, &["key"], JoinType::Inner)).await, ["|2|20|200|"]);
    assert_eq!(lines(&a.join(&b, &["key"], JoinType::Left)).await, ["|1|10||", "|2|20|200|"]);
    assert_eq!(lines(&a.join(&b, &["key"], JoinType::Full)).await, ["|1|10||", "|2|20|200|", "|3||300|"]);
    assert_eq!(lines(&a.join(&b, &["key"], JoinType::Right)).await, ["|2|20|200|", "|3||300|"]);
    assert_eq!(lines(&a.join(&b, &["key"], JoinType::LeftAnti)).await, ["|1|10|"]);
    assert_eq!(lines(&a.join(&b, &["key"], JoinType::RightSemi)).await, ["|2|200|"]);
    let e = a.join(&a, &["key"], JoinType::Inner).count().await.unwrap_err();
    assert!(e.to_string().contains("both sides have a column `a`"), "{e}");
}

#[tokio::test]
async fn cogroup_lists_both_sides() {
    let bench = Bench::new();
    let (a, b) = (named(&bench, "a", &[(1, 10), (2, 20)]), named(&bench, "b", &[(2, 200), (3, 300)]));
    let grouped = lines(&a.cogroup(&b, &["key"])).await;
    assert_eq!(grouped, ["|1|[10]||", "|2|[20]|[200]|", "|3||[300]|"]);
}
