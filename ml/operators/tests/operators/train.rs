//! `TRAIN MODEL`: ranks, partitions, order, the folder, failures.

use crate::tables::{Bench, ours, series};
use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Float64Type, UInt64Type},
};
use datafusion::{physical_plan::collect, prelude::SessionContext};
use futures::StreamExt;
use object_store::{ObjectStore, memory::InMemory};
use serde_json::json;
use std::{
    fs,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};
use voxelflow_dataset::{EngineConfig, StagePlanner, session_context};
use voxelflow_operators::{Error, FailureCause, TrainObserver, extension_planners};
use voxelflow_stage::{EpochRecord, ProgressSink, StepRecord};

const SETTINGS: fn(usize) -> serde_json::Value = |ranks| json!({"ranks": ranks, "parameter_servers": 2, "minibatch": 4, "epochs": 3, "deterministic": true});

/// The same by a parameter service, or in a ring, which has no shards.
fn with_topology(settings: &mut serde_json::Value, topology: &str) {
    settings["topology"] = json!(topology);
    if topology == "ring"
        && let Some(settings) = settings.as_object_mut()
    {
        settings.remove("parameter_servers");
    }
}

fn uneven() -> Vec<Vec<RecordBatch>> {
    let [a, b] = [Some("a"), Some("b")];
    vec![
        vec![series(a, 0..23), series(b, 3..4)],
        vec![],
        vec![series(a, 23..25)],
        vec![series(b, 0..3), series(b, 4..12)],
    ]
}

#[tokio::test]
async fn any_number_of_ranks_finishes_on_uneven_partitions() {
    for topology in ["parameter_service", "ring"] {
        for ranks in [1, 2, 4, 40, 50] {
            let bench = Bench::new();
            bench.table("bold", uneven());
            let mut settings = SETTINGS(ranks);
            with_topology(&mut settings, topology);
            let rows = bench.train("SELECT * FROM bold", settings).await.unwrap();
            assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 3, "one row for each epoch");
            let column = |name: &str| rows[0].column_by_name(name).unwrap().clone();
            let losses = column("loss");
            let losses = losses.as_primitive::<Float64Type>();
            let before = column("initial_loss").as_primitive::<Float64Type>().value(0);
            assert!(losses.value(2) < before, "{before} -> {losses:?}");
            assert_eq!(column("samples").as_primitive::<UInt64Type>().values(), &[37, 37, 37]);
            assert_eq!(column("rows").as_primitive::<UInt64Type>().value(0), 37);
            assert_eq!(column("ranks").as_primitive::<UInt64Type>().value(0), ranks as u64);
            assert_eq!(bench.left_behind(), ["m"]);
            assert_eq!(bench.spooled(), 0, "rows are left behind");
        }
    }
}

#[tokio::test]
async fn rows_that_are_not_trained_on_are_in_the_ledger_and_what_the_input_has_to_tell_once() {
    let bench = Bench::new();
    bench.table("bold", uneven());
    let ledger = async |train: &str, validation: &str, settings: serde_json::Value| {
        let request = bench.request(train, Some(validation), settings).await;
        let plan = bench.catalog.plan_train(request).unwrap();
        let frame = bench.context.execute_logical_plan(plan).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        collect(Arc::clone(&plan), bench.context.task_ctx()).await.unwrap();
        super::clean::ledger(&plan)
    };
    let of = |subject: &str| format!("SELECT * FROM bold WHERE subject = '{subject}'");
    assert_eq!(ledger(&of("a"), &of("b"), SETTINGS(2)).await, [": held_out voxel 12 at b"]);
    let mut allowed = SETTINGS(1);
    allowed["subject_overlap"] = json!("allow");
    let told = ledger("SELECT * FROM bold", &of("b"), allowed).await;
    assert_eq!(told, [": held_out voxel 12 at b", ": noted value 1 at b"]);
}

#[tokio::test]
async fn the_gang_is_told_rank_by_rank() {
    let bench = Bench::new();
    bench.table("bold", uneven());
    bench.train("SELECT * FROM bold", SETTINGS(3)).await.unwrap();
    let gang = bench.json("gang.json");
    let members = gang["members"].as_array().unwrap();
    assert_eq!(members.iter().map(|m| m["member"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    for member in members {
        assert_eq!(member["pid"].as_u64().unwrap(), u64::from(std::process::id()));
        assert!(member["bytes_sent"].as_u64().unwrap() > 0, "{member}");
    }
}

#[tokio::test]
async fn rows_are_spooled_where_the_statement_says() {
    let mut seen = Vec::new();
    for folder in [None, Some("rows"), Some("memory://rows/of/a/training")] {
        let bench = Bench::new();
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        bench
            .context
            .runtime_env()
            .register_object_store(&"memory://rows".parse().unwrap(), Arc::clone(&store));
        bench.table("bold", uneven());
        let mut settings = SETTINGS(2);
        let place = bench.folder.path().join("rows");
        settings["spool"] = match folder {
            Some("rows") => json!(place),
            other => json!(other),
        };
        bench.train("SELECT * FROM bold", settings).await.unwrap();
        seen.push(bench.file("model.safetensors"));
        assert_eq!(place.exists(), folder == Some("rows"));
        assert!(!place.exists() || fs::read_dir(&place).unwrap().count() == 0, "rows are left behind");
        // A store is emptied in the background.
        let emptied = async {
            while store.list(None).next().await.is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), emptied)
            .await
            .expect("rows are left behind in the store");
    }
    assert!(!seen[0].is_empty() && seen.iter().all(|s| s == &seen[0]));
}

#[tokio::test]
async fn asynchronous_ranks_finish_too() {
    let bench = Bench::new();
    bench.table("bold", uneven());
    let settings =
        json!({"ranks": 3, "consistency": "async", "minibatch": 4, "epochs": 3, "n_push": 2, "n_fetch": 3});
    let rows = bench.train("SELECT * FROM bold", settings).await.unwrap();
    assert_eq!(rows[0].num_rows(), 3);
    assert_eq!(bench.left_behind(), ["m"]);
}

#[tokio::test]
async fn equal_rows_give_equal_bytes_however_they_are_partitioned() {
    let mut seen = Vec::new();
    let one = vec![uneven().concat()];
    for partitions in [uneven(), uneven(), one] {
        let bench = Bench::new();
        bench.table("bold", partitions);
        bench.train("SELECT * FROM bold", SETTINGS(4)).await.unwrap();
        seen.push((bench.file("model.safetensors"), bench.file("statistics.json")));
    }
    assert!(!seen[0].0.is_empty());
    assert!(seen.iter().all(|s| s == &seen[0]));
}

#[tokio::test]
async fn the_folder_says_what_was_trained_on_what() {
    let bench = Bench::new();
    bench.table("bold", vec![vec![series(Some("a"), 0..20), series(Some("b"), 0..5)]]);
    bench.table("held_out", vec![vec![series(Some("c"), 0..7)]]);
    let request = bench.request("SELECT * FROM bold", Some("SELECT * FROM held_out"), SETTINGS(2)).await;
    let rows = bench.run(request).await.unwrap();
    let validation = rows[0].column_by_name("validation_loss").unwrap();
    assert!(validation.as_primitive::<Float64Type>().value(2) > 0.0);
    let config = bench.json("config.json");
    assert_eq!((&config["stage"], &config["time_points"]), (&json!("line"), &json!(6)));
    assert_eq!(config["settings"]["parameter_servers"], json!(2));
    let statistics = bench.json("statistics.json");
    assert_eq!(statistics["subjects"], json!(["a", "b"]));
    assert_eq!(statistics["validation_subjects"], json!(["c"]));
    assert_eq!((&statistics["rows"], &statistics["validation_rows"]), (&json!(25), &json!(7)));
    assert!(statistics["std"].as_f64().unwrap() > 0.1);
    assert_eq!(bench.json("history.json")["epochs"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_model_that_is_trained_again_is_replaced() {
    let bench = Bench::new();
    bench.table("bold", uneven());
    bench.train("SELECT * FROM bold", SETTINGS(1)).await.unwrap();
    let first = bench.file("model.safetensors");
    bench.train("SELECT * FROM bold WHERE voxel < 5", SETTINGS(1)).await.unwrap();
    assert_ne!(bench.file("model.safetensors"), first);
    assert_eq!(bench.left_behind(), ["m"]);
}

#[tokio::test]
async fn a_rank_that_fails_or_panics_is_named_and_nothing_is_half_written() {
    for (option, rank, text) in [
        ("fail", 2, "rank 2 of `line`: line: was told to fail"),
        ("panic", 1, "rank 1 panicked in stage `line`: was told to panic"),
    ] {
        for topology in ["parameter_service", "ring"] {
            let bench = Bench::new();
            bench.table("bold", uneven());
            let mut settings = SETTINGS(4);
            with_topology(&mut settings, topology);
            let mut request = bench.request("SELECT * FROM bold", None, settings.clone()).await;
            request.options.insert(option.into(), json!(rank));
            let error = bench.run(request.clone()).await.unwrap_err();
            assert_eq!(ours(&error).to_string(), text);
            assert_eq!(ours(&error).is_input(), option == "fail");
            assert_eq!(bench.left_behind(), [""; 0], "{option}");

            // A model that is there stays as it is.
            bench.train("SELECT * FROM bold", settings).await.unwrap();
            let before = bench.file("model.safetensors");
            bench.run(request).await.unwrap_err();
            assert_eq!(bench.left_behind(), ["m"]);
            assert_eq!(bench.file("model.safetensors"), before);
        }
    }
}

/// Cancels at the third step that it hears of.
#[derive(Default)]
struct Impatient {
    observer: OnceLock<Weak<TrainObserver>>,
    steps: Mutex<Vec<u64>>,
}

impl ProgressSink for Impatient {
    fn step(&self, record: &StepRecord) {
        let mut steps = self.steps.lock().unwrap();
        steps.push(record.step);
        if steps.len() == 3 {
            self.observer.get().unwrap().upgrade().unwrap().cancel();
        }
    }
    fn epoch(&self, _record: &EpochRecord) {}
}

fn observed(sink: &Arc<Impatient>) -> (SessionContext, Arc<TrainObserver>) {
    let observer = Arc::new(TrainObserver::new(Arc::clone(sink) as Arc<dyn ProgressSink>));
    sink.observer.set(Arc::downgrade(&observer)).unwrap();
    let context = session_context(extension_planners(), &EngineConfig::default()).unwrap();
    context.state_ref().write().config_mut().set_extension(Arc::clone(&observer));
    (context, observer)
}

#[tokio::test]
async fn an_observer_hears_of_steps_and_can_cancel() {
    let sink = Arc::new(Impatient::default());
    let (context, _observer) = observed(&sink);
    let bench = Bench::with(context);
    bench.table("bold", uneven());
    let mut settings = SETTINGS(3);
    settings["epochs"] = json!(1_000_000);
    let error = bench.train("SELECT * FROM bold", settings).await.unwrap_err();
    let Error::Rank { failure, .. } = ours(&error) else { panic!("{error}") };
    assert_eq!((failure.cause, failure.reason.as_str()), (FailureCause::Cancelled, "training was cancelled"));
    let steps = sink.steps.lock().unwrap();
    assert!(steps.len() < 1_000 && steps.iter().copied().eq(0..steps.len() as u64), "{steps:?}");
    assert_eq!(bench.left_behind(), [""; 0]);
}

#[tokio::test]
async fn rows_that_the_keys_do_not_name_are_trained_on_as_well() {
    let bench = Bench::new();
    bench.table("bold", uneven());
    // The only list is the input, whatever its name.
    bench.train("SELECT series AS hidden FROM bold", SETTINGS(2)).await.unwrap();
    assert_eq!(bench.json("statistics.json")["rows"], json!(37));
    assert_eq!(bench.json("statistics.json")["subjects"], json!([]));
    assert!(fs::metadata(bench.model()).unwrap().is_dir());
}
