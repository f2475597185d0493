//! `clean` with confounds: each run by its own, whatever the order of rows; lengths that follow from what is kept.

use super::clean::{Planner, ledger, options};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray, UInt32Array,
    },
    datatypes::{DataType, Field, Float32Type, Schema, SchemaRef, UInt32Type},
};
use datafusion::{
    dataframe::DataFrame,
    datasource::MemTable,
    execution::SessionStateBuilder,
    physical_plan::{collect, displayable},
    prelude::*,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
};
use voxelflow_dataset::StageError;
use voxelflow_operators::{ConfoundsReader, RunTable, SessionStores, plan_clean};
use voxelflow_signal::confounds::{Component, Expansion};
use voxelflow_signal::{CleanSettings, Cleaner, ConfoundSettings, ConfoundTable, select_confounds};
use voxelflow_stage::{Grid, RunFiles, RunVolumes};

pub(super) const T: usize = 40;
const MOTION: [&str; 6] = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"];

inventory::submit! { ConfoundsReader { read: counted, version: |run, _| run.confounds.clone() } }

/// Files that were read, and how often, by image.
static READ: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Mutex::default);

fn counted(run: &RunFiles, stores: &SessionStores) -> Result<RunTable, String> {
    *READ.lock().unwrap().entry(run.image.clone()).or_default() += 1;
    read(run, stores)
}

/// Confounds by what stands where a file's path would: motion that depends on the run's number, and the volumes that
/// are dropped at its beginning.
fn read(run: &RunFiles, _: &SessionStores) -> Result<RunTable, String> {
    let text = run.confounds.as_deref().ok_or("no confounds file was found for it")?;
    let (number, dropped) = text.split_once(' ').ok_or("damaged")?;
    let (number, dropped): (f64, usize) = (number.parse().unwrap(), dropped.parse().unwrap());
    let wave = |column: usize| {
        (0..T).map(|t| Some((t as f64 * (0.1 + 0.07 * column as f64) + number).sin())).collect()
    };
    let mut columns: Vec<(String, Vec<Option<f64>>)> =
        MOTION.iter().enumerate().map(|(at, name)| ((*name).to_owned(), wave(at))).collect();
    for volume in 0..dropped {
        let flags = (0..T).map(|t| Some(f64::from(u8::from(t == volume)))).collect();
        columns.push((format!("non_steady_state_outlier{volume:02}"), flags));
    }
    Ok((ConfoundTable::try_new(columns).map_err(|e| e.to_string())?, Vec::new()))
}

fn run(number: &str, confounds: Option<&str>) -> RunFiles {
    RunFiles {
        keys: [Some("01".into()), None, Some("motor".into()), Some(number.into())],
        image: format!("run-{number}_bold.nii.gz"),
        confounds: confounds.map(str::to_owned),
        ..RunFiles::default()
    }
}

/// Key columns, `series` of [`T`] points 2 s apart, and the runs.
pub(super) fn schema(runs: &[RunFiles]) -> SchemaRef {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let mut fields: Vec<Field> =
        ["subject", "session", "task", "run"].map(|name| Field::new(name, DataType::Utf8, true)).to_vec();
    fields.push(Field::new("voxel", DataType::UInt32, false));
    fields.push(Field::new("series", DataType::FixedSizeList(item, T as i32), true));
    let grid = Grid {
        shape: [10, 10, 10],
        affine: [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
        xform_code: 1,
        t_r: Some(2.0),
        mask_hash: "none".into(),
        mask_voxels: 12,
        source: "derivatives".into(),
        history: Vec::new(),
    };
    let mut metadata: HashMap<String, String> = grid.to_metadata().unwrap();
    if !runs.is_empty() {
        metadata.extend(RunFiles::to_metadata(runs).unwrap());
    }
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

fn series(voxel: u32) -> Vec<f32> {
    (0..T)
        .map(|t| 1000.0 + (t as f32 * 0.7 + voxel as f32).sin() * 30.0 + (t as f32 * 0.17).sin() * 9.0)
        .collect()
}

/// Rows of runs that alternate: voxel `v` is of the run at `v % runs`.
fn session(runs: &[RunFiles], rows_of: &[&str]) -> SessionContext {
    let schema = schema(runs);
    let voxels: Vec<u32> = (0..24).collect();
    let DataType::FixedSizeList(item, _) = schema.field(5).data_type() else { unreachable!() };
    let text = |values: Vec<Option<&str>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let number = |v: &u32| Some(rows_of[*v as usize % rows_of.len()]);
    let values: Vec<f32> = voxels.iter().flat_map(|v| series(*v)).collect();
    let values = Arc::new(Float32Array::from(values));
    let columns: Vec<ArrayRef> = vec![
        text(vec![Some("01"); voxels.len()]),
        text(vec![None; voxels.len()]),
        text(vec![Some("motor"); voxels.len()]),
        text(voxels.iter().map(number).collect()),
        Arc::new(UInt32Array::from(voxels)),
        Arc::new(FixedSizeListArray::try_new(Arc::clone(item), T as i32, values, None).unwrap()),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let table = MemTable::try_new(schema, vec![vec![batch.slice(0, 10), batch.slice(10, 14)]]).unwrap();
    let state =
        SessionStateBuilder::new().with_default_features().with_query_planner(Arc::new(Planner)).build();
    let context = SessionContext::new_with_state(state);
    context.register_table("bold", Arc::new(table)).unwrap();
    context
}

async fn cleaned(context: &SessionContext, value: Value) -> Result<DataFrame, StageError> {
    let input = context.table("bold").await.unwrap().into_unoptimized_plan();
    Ok(DataFrame::new(context.state(), plan_clean(input, &options(value), &None)?))
}

fn motion() -> ConfoundSettings {
    ConfoundSettings {
        strategy: vec![Component::Motion],
        motion: Expansion::Basic,
        ..ConfoundSettings::default()
    }
}

/// Series of a voxel cleaned by the confounds of a run, with the functions of `signal` themselves.
fn expected(voxel: u32, run: &RunFiles) -> Vec<f32> {
    let (table, _) = read(run, &None).unwrap();
    let confounds = select_confounds(&table, &[], &motion()).unwrap();
    let cleaner = Cleaner::try_with_confounds(&CleanSettings::default(), Some(2.0), &confounds).unwrap();
    let mut cleaned = vec![0.0; cleaner.kept()];
    cleaner.clean_into(&series(voxel), &mut cleaned).unwrap();
    cleaned
}

/// Cleans rows of two runs and compares each with what its run alone gives; answers the type of the series.
async fn check(runs: &[RunFiles]) -> DataType {
    let context = session(runs, &["1", "2", "2"]);
    let frame = cleaned(&context, json!({"confounds": "motion", "motion": "basic"})).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let mut rows = 0;
    for batch in &batches {
        let voxels = batch.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>();
        let list = batch.column_by_name("series").unwrap();
        for (row, voxel) in voxels.values().iter().enumerate() {
            let found = match list.data_type() {
                DataType::FixedSizeList(..) => list.as_fixed_size_list().value(row),
                _ => list.as_list::<i32>().value(row),
            };
            let run = &runs[usize::from(voxel % 3 != 0)];
            assert_eq!(
                found.as_primitive::<Float32Type>().values().as_ref(),
                expected(*voxel, run),
                "voxel {voxel}"
            );
            rows += 1;
        }
    }
    assert_eq!(rows, 24);
    let dropped: usize = runs.iter().map(|run| T - expected(0, run).len()).sum();
    let told = runs.iter().filter_map(|run| {
        let [.., number] = &run.keys;
        let (number, dropped) = (number.as_ref()?, T - expected(0, run).len());
        (dropped > 0).then(|| format!("01 motor {number}: dropped volume {dropped} at 0-{}", dropped - 1))
    });
    // Each run is told of once, although several batches have rows of it.
    assert_eq!(ledger(&plan), told.collect::<Vec<_>>());
    // Confounds are removed once; the grid says so.
    let schema = plan.schema();
    let left = RunFiles::of(&schema).unwrap();
    assert!(left.len() == runs.len() && left.iter().all(|run| run.cleaned && run.confounds.is_none()));
    // Which volumes are left is known of each run.
    let volumes = RunVolumes::of(&schema).unwrap();
    for run in runs {
        let first = T - expected(0, run).len();
        let kept = volumes.as_ref().and_then(|volumes| volumes.of_run(&run.keys));
        let kept: Option<Vec<usize>> = kept.map(|kept| kept.indices().collect());
        assert_eq!(kept, (first > 0).then(|| (first..T).collect()));
    }
    let history = Grid::of(&schema).unwrap().history;
    assert!(history[0].contains("6 confounds removed") && history[0].contains("trans_x"), "{history:?}");
    assert_eq!(dropped > 0, history[0].contains("volumes of"), "{history:?}");
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("CleanExec: 6 confounds") || text.contains("CleanExec:"), "{text}");
    schema.field_with_name("series").unwrap().data_type().clone()
}

#[tokio::test]
async fn each_run_is_cleaned_by_its_own_confounds() {
    let points =
        |n: i32| DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Float32, true)), n);
    assert_eq!(check(&[run("1", Some("1 0")), run("2", Some("2 0"))]).await, points(40));
    assert_eq!(check(&[run("1", Some("1 3")), run("2", Some("2 3"))]).await, points(37));
}

#[tokio::test]
async fn runs_that_keep_different_numbers_of_volumes_become_lists() {
    let lists = DataType::List(Arc::new(Field::new_list_field(DataType::Float32, true)));
    assert_eq!(check(&[run("1", Some("1 0")), run("2", Some("2 4"))]).await, lists);
}

#[tokio::test]
async fn columns_by_name_are_the_same_as_their_group() {
    let runs = [run("1", Some("1 0"))];
    let context = session(&runs, &["1"]);
    let of = async |value: Value| {
        let frame = cleaned(&context, value).await.unwrap();
        frame.sort(vec![col("voxel").sort(true, true)]).unwrap().collect().await.unwrap()
    };
    let group = of(json!({"confounds": ["motion"], "motion": "basic"})).await;
    let columns = of(json!({"confounds": "trans_*, rot_?"})).await;
    let series = |batches: &[RecordBatch]| batches.iter().map(|b| b.column(5).clone()).collect::<Vec<_>>();
    assert_eq!(series(&group), series(&columns));
}

#[tokio::test]
async fn what_cannot_be_removed_is_named_with_its_run() {
    let motion = json!({"confounds": "motion", "motion": "basic"});
    let both = [run("1", Some("1 0")), run("2", Some("2 0"))];
    for (runs, value, option, says) in [
        (
            &[run("1", Some("1 0")), run("2", None)][..],
            motion.clone(),
            "confounds",
            "run-2: no confounds file",
        ),
        (&[][..], motion.clone(), "confounds", "STORED AS BIDS"),
        (&[run("1", Some("1 40"))][..], motion.clone(), "", "run-1"),
        (&both[..], json!({"confounds": "motion", "motion": "full"}), "", "trans_x_power2"),
        (&both[..], json!({"confounds": "motoin"}), "", "motoin"),
        (&both[..], json!({"confounds": ""}), "confounds", "it names no confounds"),
        (&both[..], json!({"motion": "full"}), "confounds", "say which are removed"),
        (
            &both[..],
            json!({"confounds": "motion", "denoise_strategy": "simple"}),
            "denoise_strategy",
            "give one",
        ),
        (&both[..], json!({"confounds": "motion", "motion": "all"}), "motion", "derivatives"),
        (&both[..], json!({"confounds": "ica_aroma"}), "confounds", "smoothAROMAnonaggr"),
    ] {
        let e = cleaned(&session(runs, &["1", "2"]), value.clone()).await.unwrap_err();
        let text = e.source.to_string();
        assert!(text.contains(says), "{value}: {text}");
        assert!(option.is_empty() || e.option.as_deref() == Some(option), "{value}: {:?}", e.option);
    }
}

#[tokio::test]
async fn volumes_before_the_steady_state_stay_where_that_is_asked_for() {
    let runs = [run("1", Some("1 3"))];
    let context = session(&runs, &["1"]);
    let value = json!({"confounds": "motion", "motion": "basic", "non_steady_state": "keep"});
    let plan = cleaned(&context, value).await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let kept = plan.schema().field_with_name("series").unwrap().data_type().clone();
    assert!(matches!(kept, DataType::FixedSizeList(_, n) if n == T as i32), "{kept}");
    assert_eq!(RunVolumes::of(&plan.schema()).unwrap(), None);
    assert!(ledger(&plan)[0].starts_with("01 motor 1: noted run 1"), "{:?}", ledger(&plan));
    // They may be regressed out one by one.
    let value = json!({"confounds": "trans_x, non_steady_state_outlier*", "non_steady_state": "keep"});
    let plan = cleaned(&context, value).await.unwrap().create_physical_plan().await.unwrap();
    let history = Grid::of(&plan.schema()).unwrap().history;
    assert!(history[0].contains("4 confounds removed"), "{history:?}");
}

#[tokio::test]
async fn rows_of_an_unknown_run_are_an_error() {
    let context = session(&[run("1", Some("1 0"))], &["1", "9"]);
    let frame = cleaned(&context, json!({"confounds": "motion", "motion": "basic"})).await.unwrap();
    let text = frame.collect().await.unwrap_err().to_string();
    assert!(text.contains("run-9") && text.contains("no such run"), "{text}");
}

/// Hundreds of runs have hundreds of faults: all are found in one go, in the order of the runs.
#[tokio::test]
async fn the_faults_of_all_runs_are_told_at_once() {
    let runs: Vec<RunFiles> = (1..=40).map(|n| run(&n.to_string(), (n % 3 != 0).then_some("1 0"))).collect();
    let motion = json!({"confounds": "motion", "motion": "basic"});
    let e = cleaned(&session(&runs, &["1"]), motion).await.unwrap_err();
    let text = e.source.to_string();
    assert!(text.starts_with("13 runs cannot be cleaned:") && text.ends_with("and 3 more"), "{text}");
    let places: Vec<usize> = (3..=30).step_by(3).map(|n| text.find(&format!("run-{n}: ")).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
    assert_eq!(e.option.as_deref(), Some("confounds"));
}

/// As `check`, `plan` and `run` of one process do: each plans anew, and the last one runs.
#[tokio::test]
async fn confounds_are_read_once_until_they_change() {
    let named = |number: &str, confounds| RunFiles {
        image: format!("once-{number}"),
        ..run(number, Some(confounds))
    };
    let mut runs = vec![named("1", "1 0"), named("2", "2 0")];
    let motion = json!({"confounds": "motion", "motion": "basic"});
    let read = |image: &str| READ.lock().unwrap().get(image).copied().unwrap_or_default();
    for _ in 0..2 {
        let context = session(&runs, &["1", "2"]);
        cleaned(&context, motion.clone()).await.unwrap().collect().await.unwrap();
        assert_eq!((read("once-1"), read("once-2")), (1, 1));
    }
    // Another choice is another reading, and so is another version of a file.
    let full = json!({"confounds": "trans_x"});
    cleaned(&session(&runs, &["1"]), full).await.unwrap();
    assert_eq!((read("once-1"), read("once-2")), (2, 2));
    runs[0].confounds = Some("1 3".into());
    let context = session(&runs, &["1", "2"]);
    cleaned(&context, motion).await.unwrap().collect().await.unwrap();
    assert_eq!((read("once-1"), read("once-2")), (3, 2));
}
