//! `split` as a plan: whole subjects, the same whatever the partitions, and what is refused.

use crate::tables::{Bench, ours, refused, series, with_values};
use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::{DataType, Field, Schema, UInt32Type},
    record_batch::RecordBatch,
};
use datafusion::{dataframe::DataFrame, error::DataFusionError, logical_expr::LogicalPlan};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use voxelflow_dataset::{StageError, StagePlanner, TrainRequest};
use voxelflow_operators::{SPLIT, SPLIT_COLUMN};
use voxelflow_stage::{Grid, Lineage};

fn grid() -> Grid {
    Grid {
        shape: [10, 10, 10],
        affine: [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
        xform_code: 1,
        t_r: Some(2.0),
        mask_hash: "none".into(),
        mask_voxels: 4,
        source: "bold.nii.gz".into(),
        history: Vec::new(),
    }
}

/// Four voxels of a subject, with the subject's sex and a run for every two voxels.
fn rows(subject: &str) -> RecordBatch {
    let batch = series(Some(subject), 0..4);
    let sex = if subject.ends_with(['0', '1', '2']) { "F" } else { "M" };
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let fields: Vec<Field> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    let fields = [fields, vec![text("sex"), text("run")]].concat();
    let schema = Schema::new_with_metadata(fields, grid().to_metadata().unwrap());
    let more: [ArrayRef; 2] =
        [Arc::new(StringArray::from(vec![sex; 4])), Arc::new(StringArray::from(vec!["1", "1", "2", "2"]))];
    let columns = batch.columns().iter().cloned().chain(more).collect();
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn subjects(n: usize) -> Vec<RecordBatch> {
    (0..n).map(|i| rows(&format!("{i:02}"))).collect()
}

impl Bench {
    async fn split(&self, query: &str, options: Value) -> Result<LogicalPlan, StageError> {
        let input = self.plan_of(query).await;
        self.catalog.plan_table_operator(SPLIT, input, options.as_object().unwrap())
    }

    async fn split_rows(&self, query: &str, options: Value) -> Result<Vec<RecordBatch>, DataFusionError> {
        let plan = self.split(query, options).await.unwrap();
        DataFrame::new(self.context.state(), plan).collect().await
    }
}

/// The part of each subject; every row of a subject must have the same.
fn parts(batches: &[RecordBatch], by: &str) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    for batch in batches {
        let text = |name: &str| {
            let column = arrow::compute::cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
            column.as_string::<i32>().iter().map(|v| v.unwrap().to_owned()).collect::<Vec<_>>()
        };
        let column = batch.schema().fields().last().unwrap().name().clone();
        for (group, part) in text(by).into_iter().zip(text(&column)) {
            assert_eq!(*parts.entry(group).or_insert(part.clone()), part, "a group is in one part");
        }
    }
    parts
}

fn count(parts: &BTreeMap<String, String>) -> BTreeMap<&str, usize> {
    parts.values().fold(BTreeMap::new(), |mut counts, part| {
        *counts.entry(part.as_str()).or_default() += 1;
        counts
    })
}

/// How batches are spread over partitions.
type Order = fn(Vec<RecordBatch>) -> Vec<Vec<RecordBatch>>;

#[tokio::test]
async fn subjects_stay_whole_whatever_the_partitions_and_the_order() {
    let options = json!({"test": 0.2, "validation": 0.1, "seed": 7});
    let mut all = Vec::new();
    let orders: [Order; 3] = [
        |batches| vec![batches],
        |batches| batches.into_iter().rev().map(|batch| vec![batch]).collect(),
        // Every subject in two partitions.
        |batches| {
            let half = |from: usize| batches.iter().map(|b| b.slice(from, 2)).collect();
            vec![half(0), half(2)]
        },
    ];
    for order in orders {
        let bench = Bench::new();
        bench.table("bold", order(subjects(20)));
        let rows = bench.split_rows("SELECT * FROM bold", options.clone()).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 80);
        all.push(parts(&rows, "subject"));
    }
    assert_eq!(count(&all[0]), BTreeMap::from([("test", 4), ("train", 14), ("validation", 2)]));
    assert!(all.iter().all(|parts| *parts == all[0]));

    let bench = Bench::new();
    bench.table("bold", vec![subjects(20)]);
    let other = bench.split_rows("SELECT * FROM bold", json!({"test": 0.2, "seed": 8})).await.unwrap();
    let test = |parts: &BTreeMap<String, String>| -> BTreeSet<String> {
        parts.iter().filter(|(_, part)| *part == "test").map(|(subject, _)| subject.clone()).collect()
    };
    assert_ne!(test(&parts(&other, "subject")), test(&all[0]));
}

#[tokio::test]
async fn rows_keep_their_columns_their_order_and_their_grid() {
    let bench = Bench::new();
    bench.table("bold", vec![subjects(5)]);
    let rows = bench.split_rows("SELECT * FROM bold", json!({"test": 0.2})).await.unwrap();
    let schema = rows[0].schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["subject", "voxel", "series", "sex", "run", SPLIT_COLUMN]);
    let history = Grid::of(&schema).unwrap().history;
    assert_eq!(history, ["split: by subject, test 0.2, validation 0, seed 0"]);
    let before: Vec<ArrayRef> = subjects(5).iter().map(|b| Arc::clone(b.column(2))).collect();
    let concat = |arrays: &[ArrayRef]| {
        arrow::compute::concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()).unwrap()
    };
    let after: Vec<ArrayRef> = rows.iter().map(|b| Arc::clone(b.column(2))).collect();
    assert_eq!(&concat(&before), &concat(&after));
    // Fewer columns are asked for: those that make the groups are read all the same.
    let plan = bench.split("SELECT * FROM bold", json!({"test": 0.2})).await.unwrap();
    let frame = DataFrame::new(bench.context.state(), plan).select_columns(&["voxel", "split"]).unwrap();
    let few = frame.filter(datafusion::prelude::col("split").eq(datafusion::prelude::lit("test"))).unwrap();
    assert_eq!(few.collect().await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 4);
}

#[tokio::test]
async fn folds_and_strata_are_even() {
    let bench = Bench::new();
    bench.table("bold", vec![subjects(10), Vec::new()]);
    let options = json!({"folds": 5, "stratify": "sex"});
    let rows = bench.split_rows("SELECT * FROM bold", options).await.unwrap();
    let folds = parts(&rows, "subject");
    assert_eq!(count(&folds), BTreeMap::from([("0", 2), ("1", 2), ("2", 2), ("3", 2), ("4", 2)]));
    assert!(rows.iter().all(|b| b.column(5).as_primitive_opt::<UInt32Type>().is_some()));
    // Three of ten are women: in a test of four, one of them, to within rounding.
    let options = json!({"test": 0.4, "stratify": "sex", "seed": 3});
    let rows = bench.split_rows("SELECT * FROM bold", options).await.unwrap();
    let split = parts(&rows, "subject");
    let women = ["00", "01", "02"].iter().filter(|s| split[**s] == "test").count();
    assert_eq!((count(&split)["test"], women), (4, 1));
    // By run: a run of all subjects is in one part.
    let options = json!({"test": 0.5, "by": "run"});
    let rows = bench.split_rows("SELECT * FROM bold", options).await.unwrap();
    assert_eq!(count(&parts(&rows, "run")), BTreeMap::from([("test", 1), ("train", 1)]));
    let options = json!({"folds": 4, "by": ["subject", "run"]});
    let rows = bench.split_rows("SELECT * FROM bold", options).await.unwrap();
    assert!(!rows.is_empty());
}

#[tokio::test]
async fn what_cannot_be_split_is_refused() {
    let bench = Bench::new();
    bench.table("bold", vec![subjects(4)]);
    let told = async |options: Value| {
        let error = refused(bench.split("SELECT * FROM bold", options).await);
        (error.option.clone().unwrap_or_default(), error.to_string())
    };
    let cases = [
        (json!({}), "test", "test => 0.2"),
        (json!({"test": 1.5}), "test", "below 1"),
        (json!({"test": 0.5, "validation": 0.5}), "validation", "nothing is left"),
        (json!({"folds": 1}), "folds", "2 or more"),
        (json!({"folds": 3, "test": 0.2}), "folds", "stands for itself"),
        (json!({"test": 0.2, "by": "subjet"}), "by", "did you mean `subject`"),
        (json!({"test": 0.2, "by": 3}), "by", "must be names"),
        (json!({"test": 0.2, "stratify": "subject"}), "stratify", "makes the groups"),
        (json!({"tset": 0.2}), "tset", "did you mean `test`"),
    ];
    for (options, option, words) in cases {
        let (at, message) = told(options).await;
        assert!(at == option && message.contains(words), "{at}: {message}");
    }
    let taken = refused(bench.split("SELECT *, 1 AS split FROM bold", json!({"test": 0.5})).await);
    assert!(taken.to_string().contains("EXCEPT (split)"), "{taken}");

    let run = async |query: &str, options: Value| {
        let error = bench.split_rows(query, options).await.unwrap_err();
        assert!(ours(&error).is_input());
        ours(&error).to_string()
    };
    let none = run("SELECT * FROM bold", json!({"test": 0.1})).await;
    assert!(none.contains("test => 0.1 of 4 groups is none"), "{none}");
    let few = run("SELECT * FROM bold", json!({"folds": 5})).await;
    assert!(few.contains("5 folds of 4 groups"), "{few}");
    let nobody = "SELECT nullif(subject, '02') AS subject, voxel, series FROM bold";
    let null = run(nobody, json!({"test": 0.25})).await;
    assert!(null.contains("`subject` is null or empty in some rows"), "{null}");
    let several = run("SELECT * FROM bold", json!({"test": 0.25, "stratify": "run"})).await;
    assert!(several.contains("subject 00 has several values of run: 1; 2"), "{several}");
}

/// A model is not validated on what it has seen, however the rows were split.
#[tokio::test]
async fn a_leak_is_refused() {
    let bench = Bench::new();
    bench.table("bold", vec![subjects(4)]);
    let run = async |train: &str, validation: &str, settings: Value| {
        let rows = |filter: &str| format!("SELECT * FROM bold WHERE {filter}");
        let request = bench.request(&rows(train), Some(&rows(validation)), settings).await;
        bench.run(request).await.map(drop).map_err(|e| ours(&e).to_string())
    };
    let by_run = ("run = '1'", "run = '2'");
    let told = run(by_run.0, by_run.1, json!({})).await.unwrap_err();
    assert!(told.contains("subject 00, 01, 02, 03") && told.contains("by => 'subject'"), "{told}");
    run(by_run.0, by_run.1, json!({"subject_overlap": "other_runs"})).await.unwrap();
    let statistics = bench.json("statistics.json");
    assert_eq!(statistics["subjects"], json!(["00", "01", "02", "03"]));
    assert_eq!(statistics["runs"][0], json!("subject 00, run 1"));
    assert_eq!(statistics["validation_runs"][3], json!("subject 03, run 2"));
    let told = run("voxel < 3", "voxel = 3", json!({"subject_overlap": "other_runs"})).await.unwrap_err();
    assert!(told.contains("subject 00, run 2") && told.contains("by => 'run'"), "{told}");
    run("voxel < 3", "voxel = 3", json!({"subject_overlap": "allow"})).await.unwrap();
    // One subject: its voxels and runs may be split, but no series may be on both sides.
    run("subject = '00' AND voxel < 3", "subject = '00' AND voxel = 3", json!({})).await.unwrap();
    let told = run("subject = '00'", "subject = '00' AND voxel > 1", json!({})).await.unwrap_err();
    assert!(told.contains("2 series are in both") && told.contains("subject 00, run 2, voxel 2"), "{told}");
    run("subject = '00'", "subject = '00' AND voxel > 1", json!({"subject_overlap": "allow"})).await.unwrap();
}

/// Series are known by their values, whoever's they are said to be; what does not vary is the same everywhere.
#[tokio::test]
async fn series_under_another_name_are_a_leak() {
    let bench = Bench::new();
    bench.table("bold", vec![subjects(3)]);
    let renamed = "SELECT '09' AS subject, run, voxel, series FROM bold WHERE subject = '01'";
    let told = async |train: &str, validation: &str, settings: Value| {
        let request = bench.request(train, Some(validation), settings).await;
        bench
            .run(request)
            .await
            .map(drop)
            .map_err(|e| (ours(&e).option() == Some("subject_overlap"), ours(&e).to_string()))
    };
    let train = "SELECT * FROM bold WHERE subject <> '02'";
    let (option, said) = told(train, renamed, json!({})).await.unwrap_err();
    assert!(option && said.starts_with("4 series to validate on"), "{said}");
    assert!(said.contains("subject 09, run 1, voxel 0 is that of subject 01, run 1, voxel 0"), "{said}");
    told(train, renamed, json!({"subject_overlap": "other_runs"})).await.unwrap_err();
    told(train, renamed, json!({"subject_overlap": "allow"})).await.unwrap();
    told(train, "SELECT * FROM bold WHERE subject = '02'", json!({})).await.unwrap();
    let dead = |subject: &str| {
        with_values(
            Some(subject),
            0..2,
            vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0],
            None,
        )
    };
    bench.table("dead", vec![vec![dead("01"), dead("02")]]);
    told("SELECT * FROM dead WHERE subject = '01'", "SELECT * FROM dead WHERE subject = '02'", json!({}))
        .await
        .unwrap();
}

/// What a model before has seen is not new, whether the plan applies it or a table was made by it.
#[tokio::test]
async fn what_a_model_before_has_seen_is_a_leak() {
    let bench = Bench::new();
    bench.table("bold", vec![subjects(4)]);
    bench.train("SELECT * FROM bold WHERE subject IN ('00', '01')", json!({})).await.unwrap();
    let model = bench.model().display().to_string();
    let second = bench.folder.path().join("models").join("second");
    let rows = |subject: &str| {
        format!(
            "SELECT subject, run, voxel, reconstruct('{model}', series) AS series FROM bold WHERE subject = '{subject}'"
        )
    };
    let run = async |train: &str, validation: &str, settings: Value| {
        let request = bench.request(train, Some(validation), settings).await;
        let request = TrainRequest { model: "second".into(), folder: second.clone(), ..request };
        bench.run(request).await.map(drop).map_err(|e| ours(&e).to_string())
    };
    let said = run(&rows("02"), &rows("01"), json!({})).await.unwrap_err();
    assert!(said.contains("the model `m`") && said.contains("subject 01"), "{said}");
    // Rows of the one that was seen, in a plan of its own.
    let plain = "SELECT * FROM bold WHERE subject = '01'";
    run(&rows("02"), plain, json!({})).await.unwrap_err();
    let said = run(&rows("02"), &rows("01"), json!({"subject_overlap": "other_runs"})).await.unwrap_err();
    assert!(said.contains("subject 01, run 1; subject 01, run 2"), "{said}");
    run(&rows("02"), &rows("01"), json!({"subject_overlap": "allow"})).await.unwrap();
    run(&rows("02"), &rows("03"), json!({})).await.unwrap();
    // The second model hands on what the first has seen.
    let statistics: Value =
        serde_json::from_slice(&std::fs::read(second.join("statistics.json")).unwrap()).unwrap();
    assert_eq!(statistics["upstream"]["m"]["subjects"], json!(["00", "01"]));
    // Tables say what their rows went through.
    let twice = format!("SELECT subject, encode('{}', series) AS series FROM bold", second.display());
    let metadata = bench.catalog.metadata_of(&bench.plan_of(&twice).await);
    let lineage = Lineage::of(&Schema::empty().with_metadata(metadata)).unwrap();
    let models: Vec<String> =
        lineage.iter().map(|(model, seen)| format!("{model} {:?}", seen.subjects)).collect();
    assert_eq!(models, [r#"m {"00", "01"}"#, r#"second {"02"}"#]);
}
