//! Messages: which partition, which function, which verb, and why.

use crate::fixture::Bench;
use datafusion::{
    arrow::{array::AsArray, datatypes::Int64Type, record_batch::RecordBatch},
    prelude::{col, lit},
};
use voxelflow_dataset::{Accumulator, Error, function};

#[tokio::test]
async fn a_failing_function_names_itself_and_its_partition() {
    let bench = Bench::new();
    let refuse = function!("refuse 57", |batch| -> Result<RecordBatch, String> {
        match batch.column(0).as_primitive::<Int64Type>().values().contains(&57) {
            true => Err("57 is not a voxel".to_owned()),
            false => Ok(batch),
        }
    });
    // Row 57 of 100 lies in the fifth of eight partitions.
    let rows = bench.numbers(8).map_partitions(refuse, ());
    let e = rows.collect().await.unwrap_err();
    let text = e.to_string();
    assert!(text.starts_with("partition 4 of 8: function `refuse 57` at "), "{text}");
    assert!(text.contains("failures.rs:") && text.ends_with("57 is not a voxel"), "{text}");
    assert!(!e.is_input());
    // The steps behind it do not hide where it happened.
    let behind = rows.filter(col("n").gt(lit(1))).sort_by([col("n").sort(true, true)]);
    assert_eq!(behind.collect().await.unwrap_err().to_string(), text);
    assert_eq!(rows.count().await.unwrap_err().to_string(), text);
    assert_eq!(rows.repartition(3).zip_with_index("i").collect().await.unwrap_err().to_string(), text);
}

#[tokio::test]
async fn a_panic_in_user_code_is_an_error_that_says_the_same() {
    let bench = Bench::new();
    let seen = bench.engine.accumulator::<i64>("seen");
    let panics = function!("careless", |batch, seen: Accumulator<i64>| {
        seen.add(batch.num_rows() as i64);
        assert!(!batch.column(0).as_primitive::<Int64Type>().values().contains(&99), "out of cheese");
    });
    let e = bench.numbers(2).foreach_partition(panics, seen.clone()).await.unwrap_err();
    let text = e.to_string();
    assert!(text.starts_with("partition 1 of 2: function `careless` at "), "{text}");
    assert!(text.ends_with("it panicked: out of cheese"), "{text}");
    assert!(bench.engine.accumulated(&seen) <= 50, "a failed partition adds nothing");
}

#[tokio::test]
async fn a_failure_outside_of_functions_names_its_partition() {
    let bench = Bench::new();
    let divided = bench.numbers(4).coalesce(4).select([(lit(1_i64) / (col("n") - lit(80_i64))).alias("q")]);
    let text = divided.collect().await.unwrap_err().to_string();
    assert!(
        text.contains(" of ") && text.starts_with("partition ") && text.contains("ivide by zero"),
        "{text}"
    );
}

#[tokio::test]
async fn a_fault_in_the_chain_waits_and_names_its_verb() {
    let bench = Bench::new();
    let chain = bench.numbers(2).filter(col("parit").eq(lit("odd"))).repartition(2).limit(3);
    let e = chain.count().await.unwrap_err();
    assert!(e.to_string().starts_with("filter: ") && e.to_string().contains("parit"), "{e}");
    assert!(e.is_input());
    assert_eq!(chain.schema().unwrap_err().to_string(), e.to_string());
    let e = bench.numbers(2).union(&bench.numbers(2).select_columns(&["n"])).count().await.unwrap_err();
    assert!(e.to_string().contains("3 columns and 1 columns"), "{e}");
    let e = bench.numbers(2).zip_with_index("n").count().await.unwrap_err();
    assert!(e.to_string().contains("a column `n` already"), "{e}");
    let e = bench.numbers(2).sample(1.5, 0).count().await.unwrap_err();
    assert!(e.to_string().contains("not between 0 and 1"), "{e}");
    let no_key = bench.numbers(2).map_groups(&["subject"], function!(|batch| batch), ());
    assert!(
        no_key
            .count()
            .await
            .unwrap_err()
            .to_string()
            .contains("no column `subject`; the columns are n, parity")
    );
}

#[tokio::test]
async fn a_function_that_changes_its_columns_is_refused() {
    let bench = Bench::new();
    let fickle = function!("fickle", |batch| match batch.num_rows() {
        0 => batch,
        _ => batch.project(&[0]).unwrap_or(batch),
    });
    let text = bench.numbers(1).map_partitions(fickle, ()).collect().await.unwrap_err().to_string();
    assert!(text.contains("it gave the columns (n Int64), but for an empty batch"), "{text}");
}

#[tokio::test]
async fn sources_that_are_not_there_are_named() {
    let bench = Bench::new();
    let e = bench.engine.read_parquet(&bench.path("nothing")).await.unwrap_err();
    assert!(matches!(e, Error::Target { .. }) && e.is_input(), "{e}");
    std::fs::create_dir(bench.path("empty")).unwrap();
    let e = bench.engine.read_parquet(&bench.path("empty")).await.unwrap_err();
    assert!(e.to_string().contains("empty"), "{e}");
    let e = bench.engine.read_table("series").await.unwrap_err();
    assert!(e.to_string().starts_with("read_table: ") && e.to_string().contains("series"), "{e}");
    std::fs::write(bench.path("broken.parquet"), b"not parquet at all").unwrap();
    let e = bench.engine.read_parquet(&bench.path("broken.parquet")).await.unwrap_err();
    assert!(e.to_string().contains("broken.parquet") && e.is_input(), "{e}");
    assert!(bench.engine.from_batches(&[], 2).is_err());
}
