//! Writing and reading back.

use crate::fixture::{Bench, METADATA_KEY, PARTITIONS, counted, entries, integers, lines};
use datafusion::{
    arrow::{
        array::{ArrayRef, FixedSizeListArray, UInt32Array},
        datatypes::Float32Type,
        record_batch::RecordBatch,
    },
    common::stats::Precision,
    parquet::file::reader::{FileReader, SerializedFileReader},
    physical_plan::{
        displayable,
        statistics::{StatisticsArgs, StatisticsContext},
    },
    prelude::{Expr, ParquetReadOptions, col, lit},
};
use std::{fs, fs::File, sync::Arc};
use voxelflow_dataset::{EngineConfig, WriteOptions, function, session_context};

#[tokio::test]
async fn rows_and_metadata_survive_a_round_trip() {
    let bench = Bench::new();
    for partitions in PARTITIONS {
        let path = bench.path(&format!("rows-{partitions}"));
        let rows = bench.numbers(partitions);
        let summary = rows.write_parquet(&path).await.unwrap();
        assert_eq!((summary.rows, summary.files), (100, partitions));
        let on_disk: u64 = fs::read_dir(&path).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(summary.bytes, on_disk);
        let back = bench.engine.read_parquet(&path).await.unwrap();
        assert_eq!(back.schema().unwrap(), rows.schema().unwrap());
        assert_eq!(back.schema().unwrap().metadata()[METADATA_KEY], "7T");
        assert_eq!(lines(&back).await, lines(&rows).await);
        let file = bench.engine.read_parquet(&format!("{path}/part-00000.parquet")).await.unwrap();
        assert_eq!(file.count().await.unwrap(), 100 / partitions);
    }
}

#[tokio::test]
async fn a_table_without_rows_keeps_its_columns() {
    let bench = Bench::new();
    let path = bench.path("none");
    let summary = bench.numbers(3).filter(col("n").lt(lit(0))).write_parquet(&path).await.unwrap();
    assert_eq!((summary.rows, summary.files), (0, 1));
    let back = bench.engine.read_parquet(&path).await.unwrap();
    assert_eq!(back.count().await.unwrap(), 0);
    assert_eq!(back.schema().unwrap().metadata()[METADATA_KEY], "7T");
}

#[tokio::test]
async fn row_groups_are_bounded_in_bytes() {
    let bench = Bench::new();
    let (rows, _) = counted(&bench.engine, 1, 40, 5_000);
    // One batch is larger than the bound: it is written in pieces.
    let options = WriteOptions { row_group_bytes: 64 << 10, compression_level: 0, ..WriteOptions::default() };
    let path = bench.path("bounded");
    rows.write_parquet_with(&path, &options).await.unwrap();
    let reader =
        SerializedFileReader::new(File::open(format!("{path}/part-00000.parquet")).unwrap()).unwrap();
    let groups = reader.metadata().row_groups();
    assert!(groups.len() > 10, "{} row groups", groups.len());
    let largest = groups.iter().map(|g| g.total_byte_size()).max().unwrap();
    assert!(largest < 160 << 10, "a row group of {largest} bytes");
    assert_eq!(groups.iter().map(|g| g.num_rows()).sum::<i64>(), 200_000);
}

/// Statistics leave NaN out, and readers that believe them read a column of NaN and 1 as the constant 1.
#[tokio::test]
async fn floats_are_written_without_least_and_greatest_values() {
    let bench = Bench::new();
    let path = bench.path("floats");
    bench.numbers(1).write_parquet(&path).await.unwrap();
    let reader =
        SerializedFileReader::new(File::open(format!("{path}/part-00000.parquet")).unwrap()).unwrap();
    let group = reader.metadata().row_group(0);
    let known: Vec<(&str, bool)> =
        group.columns().iter().map(|c| (c.column_descr().name(), c.statistics().is_some())).collect();
    assert_eq!(known, [("n", true), ("parity", true), ("half", false)]);
}

#[tokio::test]
async fn a_taken_target_is_refused_or_replaced() {
    let bench = Bench::new();
    let path = bench.path("taken");
    bench.numbers(2).write_parquet(&path).await.unwrap();
    let fewer = bench.numbers(1).filter(col("n").lt(lit(10)));
    let e = fewer.write_parquet(&path).await.unwrap_err();
    assert!(e.to_string().contains("there is something already") && e.is_input(), "{e}");
    fewer.write_parquet_with(&path, &WriteOptions::default().overwrite()).await.unwrap();
    assert_eq!(bench.engine.read_parquet(&path).await.unwrap().count().await.unwrap(), 10);
    // A table may be replaced by what is made of it.
    let itself = bench.engine.read_parquet(&path).await.unwrap().filter(col("n").gt(lit(6)));
    itself.write_parquet_with(&path, &WriteOptions::default().overwrite()).await.unwrap();
    assert_eq!(bench.engine.read_parquet(&path).await.unwrap().count().await.unwrap(), 3);
    assert_eq!(entries(bench.folder.path()), ["taken"]);
}

#[tokio::test]
async fn a_failed_write_leaves_nothing() {
    let bench = Bench::new();
    let broken = bench.numbers(4).flat_map(
        function!("breaks late", |batch| -> Result<Vec<RecordBatch>, String> {
            if batch.num_rows() > 0 { Err("disk of dreams is full".into()) } else { Ok(vec![batch]) }
        }),
        (),
    );
    let e = broken.write_parquet(&bench.path("half")).await.unwrap_err();
    assert!(e.to_string().contains("disk of dreams"), "{e}");
    assert_eq!(entries(bench.folder.path()), Vec::<String>::new());
    // What was there before a failed overwrite is there after it.
    bench.numbers(1).write_parquet(&bench.path("half")).await.unwrap();
    broken.write_parquet_with(&bench.path("half"), &WriteOptions::default().overwrite()).await.unwrap_err();
    assert_eq!(bench.engine.read_parquet(&bench.path("half")).await.unwrap().count().await.unwrap(), 100);
}

#[tokio::test]
async fn a_target_below_a_file_is_refused() {
    let bench = Bench::new();
    fs::write(bench.path("file"), "x").unwrap();
    let e = bench.numbers(1).write_parquet(&bench.path("file/rows")).await.unwrap_err();
    assert!(e.is_input() && e.to_string().contains("file/rows"), "{e}");
}

#[tokio::test]
async fn a_checkpoint_stays() {
    let bench = Bench::new();
    let path = bench.path("checkpoint");
    let kept = bench.numbers(3).checkpoint(&path).await.unwrap();
    assert_eq!(integers(&kept.unpersist().await.unwrap(), "n").await, (0..100).collect::<Vec<_>>());
    assert_eq!(entries(std::path::Path::new(&path)).len(), 3);
}

#[tokio::test]
async fn an_object_store_gets_whole_objects() {
    use datafusion::object_store::{ObjectStoreExt, memory::InMemory, path::Path};
    let bench = Bench::new();
    let url = url::Url::parse("memory://lab").unwrap();
    let store = std::sync::Arc::new(InMemory::new());
    bench.engine.context().register_object_store(&url, store.clone());
    let summary = bench.numbers(2).write_parquet("memory://lab/rows").await.unwrap();
    assert_eq!((summary.rows, summary.files), (100, 2));
    assert!(store.head(&Path::from("rows/part-00000.parquet")).await.is_ok());
    assert!(bench.numbers(2).write_parquet("memory://lab/rows").await.is_err());
    let fewer = bench.numbers(1).filter(col("n").lt(lit(5)));
    fewer.write_parquet_with("memory://lab/rows", &WriteOptions::default().overwrite()).await.unwrap();
    assert_eq!(bench.engine.read_parquet("memory://lab/rows/").await.unwrap().count().await.unwrap(), 5);
}

/// What a training is going to need is planned from the rows that its inputs say they have.
#[tokio::test]
async fn rows_that_files_count_are_known_before_they_are_read() {
    const ROWS: usize = 50;
    let bench = Bench::new();
    let lists = (0..ROWS).map(|row| Some((0..4).map(move |t| Some((row + t) as f32))));
    let columns: [(&str, ArrayRef); 2] = [
        ("voxel", Arc::new(UInt32Array::from_iter_values(0..ROWS as u32))),
        ("series", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, 4))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = bench.path("series");
    bench.engine.from_batches(&[batch], 2).unwrap().write_parquet(&path).await.unwrap();
    let session = session_context(Vec::new(), &EngineConfig::default()).unwrap();
    let rows = async |filter: Option<Expr>| {
        let all = session.read_parquet(&path, ParquetReadOptions::default()).await.unwrap();
        let some = filter.map_or(all.clone(), |filter| all.filter(filter).unwrap());
        let twice = some.clone().union(some).unwrap().create_physical_plan().await.unwrap();
        let text = displayable(twice.as_ref()).indent(false).to_string();
        assert_eq!(text.matches("ParquetListsExec").count(), 2, "{text}");
        StatisticsContext::new().compute(twice.as_ref(), &StatisticsArgs::new()).unwrap().num_rows
    };
    assert_eq!(rows(None).await, Precision::Exact(2 * ROWS));
    let left = rows(Some(col("voxel").lt(lit(3_u32)))).await;
    assert!(!matches!(left, Precision::Exact(_)), "nobody knows how many a filter leaves: {left:?}");
}

/// Partitions of a join wait for each other where it tells the scan below it what it has: all of them must run.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_is_written_in_little_memory_and_many_partitions() {
    let config =
        EngineConfig { memory_limit: Some(200 << 20), target_partitions: Some(7), ..EngineConfig::default() };
    let bench = Bench::with_config(&config);
    let (engine, table, out) = (&bench.engine, bench.path("series"), bench.path("joined"));
    let series = "SELECT value AS k, make_array(value, value + 1) AS series FROM generate_series(1, 3000)";
    engine.sql(series).await.unwrap().write_parquet(&table).await.unwrap();
    engine.context().register_parquet("t", &table, ParquetReadOptions::default()).await.unwrap();
    let join = "SELECT a.k, b.series FROM t a JOIN t b ON a.k = b.k WHERE a.k % 3 = 0";
    let joined = engine.sql(join).await.unwrap();
    let written = joined.write_parquet(&out);
    let written = tokio::time::timeout(std::time::Duration::from_secs(60), written).await.unwrap().unwrap();
    assert_eq!(written.rows, 1000);
}
