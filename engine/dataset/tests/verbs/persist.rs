//! Persisting: once for equal plans, across sessions, and again where parts were lost.

use crate::fixture::{Bench, METADATA_KEY, batch, counted, entries, integers};
use datafusion::{
    arrow::datatypes::DataType,
    execution::SessionStateDefaults,
    logical_expr::{Volatility, create_udf},
    object_store::{ObjectStoreExt, memory::InMemory, path::Path as ObjectPath},
    prelude::{col, lit},
};
use futures::TryStreamExt;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use voxelflow_dataset::{
    Accumulator, Dataset, Engine, EngineConfig, NoStages, WriteOptions, function, session_context,
};

/// A session of its own, that works in `folder` and keeps rows in `cache`.
fn session(folder: &Path, cache: Option<&str>) -> Engine {
    let cache = cache.map(str::to_owned);
    let config = EngineConfig { target_partitions: Some(3), cache, ..EngineConfig::default() };
    Engine::new(session_context(Vec::new(), &config).unwrap(), Arc::new(NoStages), folder.join("work"))
}

/// Rows of 4 files, of which function `counter` adds up how many it has seen.
macro_rules! seen {
    ($counter:ident, $engine:expr, $files:expr) => {{
        static $counter: AtomicUsize = AtomicUsize::new(0);
        let rows = $engine.read_parquet($files).await.unwrap().map_partitions(
            function!(|batch| {
                $counter.fetch_add(batch.num_rows(), Ordering::SeqCst);
                batch
            }),
            (),
        );
        (rows, &$counter)
    }};
}

/// The files of rows below `folder`, sorted.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(parts(&path)),
            false => found.extend(path.extension().is_some_and(|e| e == "parquet").then_some(path)),
        }
    }
    found.sort();
    found
}

async fn numbers_in_files(bench: &Bench) -> String {
    let files = bench.path("files");
    bench.numbers(4).write_parquet(&files).await.unwrap();
    files
}

#[tokio::test]
async fn persist_runs_once_and_unpersist_gives_the_lineage_back() {
    let bench = Bench::new();
    let (source, made) = counted(&bench.engine, 2, 3, 10);
    let rows = source.filter(col("n").lt(lit(25)));
    let persisted = rows.persist().await.unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 6);
    assert_eq!(persisted.schema().unwrap().metadata()[METADATA_KEY], "7T");
    assert_eq!(integers(&persisted, "n").await.len(), 50);
    assert_eq!(integers(&rows.persist().await.unwrap(), "n").await.len(), 50);
    assert_eq!(made.load(Ordering::SeqCst), 6, "an equal plan is read from what was kept");
    let cache = bench.engine.work_dir().join("cache");
    assert_eq!(entries(&cache).len(), 1);
    let (other, _) = counted(&bench.engine, 2, 3, 10);
    other.filter(col("n").lt(lit(25))).persist().await.unwrap();
    assert_eq!(entries(&cache).len(), 2, "another table of the same name is another plan");
    let again = persisted.unpersist().await.unwrap();
    assert_eq!(entries(&cache).len(), 1);
    assert_eq!(integers(&again, "n").await.len(), 50);
    assert_eq!(made.load(Ordering::SeqCst), 12);
    let Bench { engine, folder } = bench;
    drop((engine, source, rows, persisted, again, other));
    let left = entries(&folder.path().join("work/cache"));
    assert!(left.is_empty(), "rows of a stream are known to their session only and end with it: {left:?}");
}

#[tokio::test]
async fn a_later_session_reads_what_an_earlier_one_kept() {
    let bench = Bench::new();
    let files = numbers_in_files(&bench).await;
    let rows = |engine: Engine| {
        let files = files.clone();
        async move {
            let (rows, seen) = seen!(ROWS, engine, &files);
            let kept = rows.filter(col("n").lt(lit(60))).persist().await.unwrap();
            assert_eq!(kept.schema().unwrap().metadata()[METADATA_KEY], "7T");
            (integers(&kept, "n").await, seen.load(Ordering::SeqCst))
        }
    };
    let (first, seen) = rows(session(bench.folder.path(), None)).await;
    assert_eq!((first.len(), seen), (60, 100));
    let (again, seen) = rows(session(bench.folder.path(), None)).await;
    assert_eq!(again, first);
    assert_eq!(seen, 100, "the second session computes nothing");

    // Another file, another plan.
    batch_file(&bench, &format!("{files}/part-00003.parquet")).await;
    let (changed, seen) = rows(session(bench.folder.path(), None)).await;
    assert_eq!((changed.len(), seen), (60 + 5, 100 + 80));
    assert_eq!(entries(&bench.folder.path().join("work/cache")).len(), 2);
}

/// Five rows in the place of a file.
async fn batch_file(bench: &Bench, file: &str) {
    let folder = bench.path("other");
    let rows = bench.engine.from_batches(&[batch(0..5)], 1).unwrap();
    rows.write_parquet_with(&folder, &WriteOptions::default().overwrite()).await.unwrap();
    fs::rename(format!("{folder}/part-00000.parquet"), file).unwrap();
}

#[tokio::test]
async fn rows_in_memory_are_known_by_their_content() {
    let bench = Bench::new();
    let cache = bench.folder.path().join("work/cache");
    let persist = |n: i64, partitions: usize| {
        let engine = session(bench.folder.path(), None);
        async move {
            let rows = engine.from_batches(&[batch(0..n)], partitions).unwrap();
            integers(&rows.persist().await.unwrap(), "n").await.len()
        }
    };
    assert_eq!((persist(10, 2).await, persist(10, 2).await), (10, 10));
    assert_eq!(entries(&cache).len(), 1);
    assert_eq!((persist(11, 2).await, persist(10, 3).await), (11, 10));
    assert_eq!(entries(&cache).len(), 3, "other rows and other partitions are other plans");
}

#[tokio::test]
async fn plans_with_other_functions_or_values_are_other_plans() {
    let bench = Bench::new();
    let rows = bench.numbers(2);
    let by = |gain: f64| rows.map_partitions(function!("gain", |batch, _gain: f64| batch), gain);
    let plans = [
        by(1.0),
        by(2.0),
        rows.map_partitions(function!("no gain", |batch, _gain: f64| batch), 1.0),
        rows.filter(col("n").lt(lit(1))),
        rows.filter(col("n").lt(lit(2))),
        rows.repartition(5),
        rows.repartition(6),
    ];
    for plan in &plans {
        plan.persist().await.unwrap();
        plan.persist().await.unwrap();
    }
    assert_eq!(entries(&bench.engine.work_dir().join("cache")).len(), plans.len());
}

#[tokio::test]
async fn chance_and_closures_of_a_session_end_with_it() {
    let bench = Bench::new();
    let closure = create_udf(
        "mine",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|arguments| Ok(arguments[0].clone())),
    );
    let random = SessionStateDefaults::default_scalar_functions();
    let random = random.iter().find(|f| f.name() == "random").unwrap();
    let numbers = bench.numbers(2);
    let plans = [
        numbers.filter(random.call(vec![]).lt(lit(0.5))),
        numbers.filter(closure.call(vec![col("n")]).lt(lit(5))),
    ];
    let cache = bench.engine.work_dir().join("cache");
    for plan in plans {
        let kept = plan.persist().await.unwrap();
        let rows = integers(&kept, "n").await;
        assert_eq!(integers(&plan.persist().await.unwrap(), "n").await, rows, "equal within the session");
        // What is made of it is bound to it.
        kept.filter(col("n").gt(lit(1))).persist().await.unwrap();
    }
    assert_eq!(entries(&cache).len(), 4);
    let Bench { engine, folder: _folder } = bench;
    drop((engine, numbers));
    assert!(entries(&cache).is_empty(), "{:?}", entries(&cache));
}

/// A way to lose rows, and what is done to the cache for it.
type Loss = (&'static str, fn(&Path));

const LOSSES: [Loss; 5] = [
    ("a part is gone", |cache| fs::remove_file(&parts(cache)[1]).unwrap()),
    ("a part is cut short", |cache| {
        let part = fs::OpenOptions::new().write(true).open(&parts(cache)[0]).unwrap();
        part.set_len(part.metadata().unwrap().len() / 2).unwrap();
    }),
    ("a part is something else", |cache| fs::write(&parts(cache)[0], b"no rows").unwrap()),
    ("there is a part too many", |cache| {
        let part = parts(cache).remove(0);
        fs::copy(&part, part.with_file_name("part-77777.parquet")).unwrap();
    }),
    ("the manifest is damaged", |cache| {
        let write = parts(cache)[0].parent().unwrap().to_owned();
        fs::write(format!("{}.json", write.display()), b"{").unwrap();
    }),
];

#[tokio::test]
async fn lost_parts_are_computed_again() {
    for (loss, damage) in LOSSES {
        let bench = Bench::new();
        let files = numbers_in_files(&bench).await;
        let cache = bench.engine.work_dir().join("cache");
        let (rows, seen) = seen!(ROWS, bench.engine, &files);
        let before = seen.load(Ordering::SeqCst);
        let kept = rows.persist().await.unwrap();
        let made_of_it = kept.filter(col("n").gt_eq(lit(10)));
        let expected = integers(&kept, "n").await;
        let again = made_of_it.persist().await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst) - before, 100);

        // Those who hold the dataset find the rows.
        damage(&cache.join(key_with(&cache, 100).await));
        assert_eq!(integers(&kept, "n").await, expected, "{loss}");
        assert_eq!(integers(&again, "n").await.len(), 90, "{loss}");
        assert_eq!(seen.load(Ordering::SeqCst) - before, 200, "{loss}");

        // So does a session that comes later, and it leaves them whole.
        damage(&cache.join(key_with(&cache, 100).await));
        for repaired in [300, 300] {
            let later = session(bench.folder.path(), None);
            let rows = replayed(&later, &rows);
            assert_eq!(integers(&rows.persist().await.unwrap(), "n").await, expected, "{loss}");
            assert_eq!(seen.load(Ordering::SeqCst) - before, repaired, "{loss}");
        }
    }
}

/// The same plan in another session.
fn replayed(engine: &Engine, rows: &Dataset) -> Dataset {
    engine.dataset(rows.logical_plan().unwrap().clone())
}

/// The key in `cache` whose parts hold as many rows as that, lost ones not counted.
async fn key_with(cache: &Path, rows: usize) -> String {
    let keys = entries(cache);
    let bench = Bench::new();
    for key in &keys {
        let folder = parts(&cache.join(key))[0].parent().unwrap().display().to_string();
        if bench.engine.read_parquet(&folder).await.unwrap().count().await.unwrap() == rows {
            return key.clone();
        }
    }
    panic!("no {rows} rows in {keys:?}");
}

#[tokio::test]
async fn removed_rows_are_not_an_empty_table() {
    let bench = Bench::new();
    let kept = bench.numbers(2).persist().await.unwrap();
    let made_of_it = kept.filter(col("n").lt(lit(10)));
    let lineage = kept.unpersist().await.unwrap();
    let e = made_of_it.count().await.unwrap_err();
    assert!(e.to_string().contains("use the dataset that `unpersist` gave"), "{e}");
    assert_eq!(lineage.count().await.unwrap(), 100);
    assert_eq!(kept.unpersist().await.unwrap().count().await.unwrap(), 100, "twice is once");
    assert_eq!(lineage.persist().await.unwrap().count().await.unwrap(), 100);
}

#[tokio::test]
async fn the_cache_can_be_an_object_store() {
    let bench = Bench::new();
    let files = numbers_in_files(&bench).await;
    let store = Arc::new(InMemory::new());
    let url = url::Url::parse("memory://lab").unwrap();
    let open = || {
        let engine = session(bench.folder.path(), Some("memory://lab/cache"));
        engine.context().register_object_store(&url, store.clone());
        engine
    };
    let objects = async || -> Vec<ObjectPath> {
        use datafusion::object_store::ObjectStore;
        let mut all: Vec<_> = store.list(None).map_ok(|o| o.location).try_collect().await.unwrap();
        all.sort();
        all
    };
    let (first, later) = (open(), open());
    let (rows, seen) = seen!(ROWS, first, &files);
    let kept = rows.persist().await.unwrap();
    assert_eq!(integers(&kept, "n").await.len(), 100);
    let there = objects().await;
    assert!(there.len() >= 2 && there.iter().all(|o| o.as_ref().starts_with("cache/")), "{there:?}");
    assert!(!bench.folder.path().join("work/cache").exists());

    let again = replayed(&later, &rows).persist().await.unwrap();
    assert_eq!((integers(&again, "n").await.len(), seen.load(Ordering::SeqCst)), (100, 100));
    let part = there.iter().find(|o| o.as_ref().ends_with(".parquet")).unwrap();
    store.delete(part).await.unwrap();
    assert_eq!((integers(&again, "n").await.len(), seen.load(Ordering::SeqCst)), (100, 200));
    assert_eq!((integers(&kept, "n").await.len(), seen.load(Ordering::SeqCst)), (100, 200));
    again.unpersist().await.unwrap();
    assert_eq!(objects().await, Vec::new());
}

#[tokio::test]
async fn sessions_that_keep_the_same_rows_at_once_do_not_meet() {
    let bench = Bench::new();
    let files = numbers_in_files(&bench).await;
    let persist = async || {
        let engine = session(bench.folder.path(), None);
        let rows = engine.read_parquet(&files).await.unwrap().filter(col("n").lt(lit(50)));
        let kept = rows.persist().await.unwrap();
        (integers(&kept, "n").await.len(), kept)
    };
    let all = futures::future::join_all((0..6).map(|_| persist())).await;
    assert!(all.iter().all(|(rows, _)| *rows == 50));
    for (_, kept) in &all {
        assert_eq!(integers(kept, "n").await.len(), 50);
    }
    assert_eq!(entries(&bench.folder.path().join("work/cache")).len(), 1);
}

#[tokio::test]
async fn values_written_in_a_query_are_all_part_of_the_plan() {
    let bench = Bench::new();
    let query = |last: i64| format!("SELECT * FROM (VALUES (1), (2), (3), (4), (5), (6), ({last})) AS t (n)");
    for last in [7, 8, 7] {
        let kept = bench.engine.sql(&query(last)).await.unwrap().persist().await.unwrap();
        assert_eq!(integers(&kept, "n").await.last(), Some(&last));
    }
    assert_eq!(entries(&bench.engine.work_dir().join("cache")).len(), 2);
}

#[tokio::test]
async fn what_was_counted_in_persisted_rows_is_known_to_later_sessions_once() {
    let bench = Bench::new();
    let files = numbers_in_files(&bench).await;
    for session_number in 0..2 {
        let engine = session(bench.folder.path(), None);
        let (seen, other) = (engine.accumulator::<i64>("rows"), engine.accumulator::<f64>("rows"));
        let count = function!(|batch, sums: (Accumulator<i64>, Accumulator<f64>)| {
            sums.0.add(batch.num_rows() as i64);
            sums.1.add(0.5 * batch.num_rows() as f64);
            batch
        });
        let rows = engine.read_parquet(&files).await.unwrap();
        let rows = rows.map_partitions(count, (seen.clone(), other.clone()));
        let kept = rows.persist().await.unwrap();
        rows.persist().await.unwrap();
        let sums = || (engine.accumulated(&seen), engine.accumulated(&other));
        assert_eq!(sums(), (100, 50.0), "session {session_number}");

        // Rows that are lost are computed again, and counted no more.
        fs::remove_file(&parts(&bench.folder.path().join("work/cache"))[0]).unwrap();
        assert_eq!(integers(&kept, "n").await.len(), 100);
        assert_eq!(sums(), (100, 50.0), "session {session_number}, after a loss");
    }
}

#[tokio::test]
async fn two_accumulators_of_one_name_are_two_sums() {
    let bench = Bench::new();
    let add = || {
        function!(|batch, sum: Accumulator<i64>| {
            sum.add(batch.num_rows() as i64);
        })
    };
    let first = bench.engine.accumulator::<i64>("rows");
    bench.numbers(4).foreach_partition(add(), first.clone()).await.unwrap();
    let second = bench.engine.accumulator::<i64>("rows");
    assert_eq!((first.name(), second.name()), ("rows", "rows"));
    assert_eq!((bench.engine.accumulated(&first), bench.engine.accumulated(&second)), (100, 0));
    bench.numbers(2).foreach_partition(add(), second.clone()).await.unwrap();
    assert_eq!((bench.engine.accumulated(&first), bench.engine.accumulated(&second)), (100, 100));
}
