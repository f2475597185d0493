//! `concatenate` as a plan: runs behind each other in their order, and what is refused.

use crate::tables::{Bench, T, ours, refused};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, StringArray, UInt16Array, UInt32Array,
    },
    buffer::NullBuffer,
    datatypes::{DataType, Field, Float32Type, Schema, UInt32Type},
    record_batch::RecordBatch,
};
use datafusion::{
    dataframe::DataFrame,
    error::DataFusionError,
    logical_expr::LogicalPlan,
    physical_plan::{collect, displayable},
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};
use voxelflow_dataset::{Finding, Ledger, OptionMap, StageError, StagePlanner};
use voxelflow_operators::{CLEAN, CONCATENATE};
use voxelflow_stage::{Grid, RunFiles, Segments};

fn metadata(files: &[(&str, &str)]) -> HashMap<String, String> {
    let grid = Grid {
        shape: [10, 10, 10],
        affine: [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
        xform_code: 1,
        t_r: Some(2.0),
        mask_hash: "none".into(),
        mask_voxels: 4,
        source: "bold".into(),
        history: vec!["read".into()],
    };
    let run = |(subject, run): &(&str, &str)| RunFiles {
        keys: [Some((*subject).into()), None, Some("rest".into()), Some((*run).into())],
        ..RunFiles::default()
    };
    let mut metadata = grid.to_metadata().unwrap();
    if !files.is_empty() {
        metadata.extend(RunFiles::to_metadata(&files.iter().map(run).collect::<Vec<_>>()).unwrap());
    }
    metadata
}

/// Value of a voxel at a time: whose it is can be read from it.
fn value(subject: &str, run: &str, voxel: u32, t: usize) -> f32 {
    let number = |text: &str| text.bytes().map(f32::from).sum::<f32>();
    number(subject) * 1000.0 + number(run) * 10.0 + voxel as f32 + t as f32 / 8.0
}

fn run_of(subject: &str, run: &str, voxels: &[u32], files: &[(&str, &str)]) -> RecordBatch {
    let n = voxels.len();
    let values: Vec<f32> =
        voxels.iter().flat_map(|v| (0..T).map(move |t| value(subject, run, *v, t))).collect();
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let series = FixedSizeListArray::new(item, T as i32, Arc::new(Float32Array::from(values)), None);
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let fields = vec![
        text("subject"),
        text("task"),
        text("run"),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("i", DataType::UInt16, false),
        Field::new("series", series.data_type().clone(), true),
    ];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![subject; n])),
        Arc::new(StringArray::from(vec!["rest"; n])),
        Arc::new(StringArray::from(vec![run; n])),
        Arc::new(UInt32Array::from(voxels.to_vec())),
        Arc::new(UInt16Array::from_iter_values(voxels.iter().map(|v| (*v % 10) as u16))),
        Arc::new(series),
    ];
    RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, metadata(files))), columns).unwrap()
}

const FILES: [(&str, &str); 6] = [("a", "10"), ("a", "2"), ("a", "1"), ("b", "1"), ("b", "2"), ("b", "10")];

impl Bench {
    async fn joined(&self, query: &str, options: Value) -> Result<LogicalPlan, StageError> {
        let input = self.plan_of(query).await;
        self.catalog.plan_table_operator(CONCATENATE, input, options.as_object().unwrap())
    }

    async fn joined_rows(&self, query: &str, options: Value) -> Result<Vec<RecordBatch>, DataFusionError> {
        let plan = self.joined(query, options).await.unwrap();
        DataFrame::new(self.context.state(), plan).collect().await
    }
}

/// By subject and voxel, the series.
fn series_of(batches: &[RecordBatch]) -> HashMap<(String, u32), Vec<f32>> {
    let mut all = HashMap::new();
    for batch in batches {
        let (subjects, series) = (batch.column(0).as_string::<i32>(), batch.column(5).as_fixed_size_list());
        let voxels = batch.column(3).as_primitive::<UInt32Type>();
        for row in 0..batch.num_rows() {
            let values = series.value(row).as_primitive::<Float32Type>().values().to_vec();
            let key = (subjects.value(row).to_owned(), voxels.value(row));
            assert!(all.insert(key, values).is_none(), "a voxel is there once");
            assert_eq!(
                batch.column(2).as_string::<i32>().value(row),
                "",
                "a run that is several has no name"
            );
        }
    }
    all
}

#[tokio::test]
async fn runs_lie_behind_each_other_in_their_order() {
    // Runs in several partitions, rows in no order, more voxels than fit into a batch.
    let context = {
        let config = voxelflow_dataset::EngineConfig {
            target_partitions: Some(3),
            batch_size: Some(7),
            ..Default::default()
        };
        voxelflow_dataset::session_context(voxelflow_operators::extension_planners(), &config).unwrap()
    };
    let bench = Bench::with(context);
    let voxels: Vec<u32> = (0..50).map(|v| v * 37 % 50).collect();
    let batches = FILES.map(|(subject, run)| run_of(subject, run, &voxels, &FILES));
    bench.table("bold", batches.chunks(2).map(<[RecordBatch]>::to_vec).collect());
    let rows = bench.joined_rows("SELECT * FROM bold", json!({})).await.unwrap();
    let schema = rows[0].schema();
    let all = series_of(&rows);
    assert_eq!(all.len(), 100);
    for ((subject, voxel), series) in &all {
        let expected: Vec<f32> =
            ["1", "2", "10"].iter().flat_map(|run| (0..T).map(|t| value(subject, run, *voxel, t))).collect();
        assert_eq!(*series, expected);
    }
    assert!(matches!(schema.field(5).data_type(), DataType::FixedSizeList(_, n) if *n == 3 * T as i32));
    let segments = Segments::of(&schema).unwrap().unwrap();
    assert_eq!(segments.ranges().last(), Some(("10", 2 * T..3 * T)));
    let history = Grid::of(&schema).unwrap().history;
    assert_eq!(history[1], "concatenate: by subject, task, run 1, 2, 10 (3 × 6 points)");
    assert!(RunFiles::of(&schema).unwrap().is_empty());
}

#[tokio::test]
async fn the_plan_sorts_and_filters_below() {
    let bench = Bench::new();
    bench.table("bold", FILES.map(|(s, r)| vec![run_of(s, r, &[0, 1, 2], &FILES)]).to_vec());
    let plan = bench.joined("SELECT * FROM bold", json!({})).await.unwrap();
    let frame = DataFrame::new(bench.context.state(), plan);
    let few = frame.filter(datafusion::prelude::col("voxel").eq(datafusion::prelude::lit(1_u32))).unwrap();
    let physical = few.clone().create_physical_plan().await.unwrap();
    let text = displayable(physical.as_ref()).indent(true).to_string();
    let place = |name: &str| text.find(name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    assert!(
        place("ConcatenateExec") < place("SortExec") && place("SortExec") < place("FilterExec"),
        "{text}"
    );
    assert_eq!(few.collect().await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
}

#[tokio::test]
async fn voxels_that_a_run_lacks_are_an_error_or_left_out() {
    let bench = Bench::new();
    let files = [("a", "1"), ("a", "2")];
    let mut second = run_of("a", "2", &[0, 1, 3], &files);
    // Voxel 1 has no series in the second run.
    let series = second.column(5).as_fixed_size_list();
    let DataType::FixedSizeList(item, _) = series.data_type() else { panic!("no list") };
    let nulls = NullBuffer::from(vec![true, false, true]);
    let series = FixedSizeListArray::new(item.clone(), T as i32, series.values().clone(), Some(nulls));
    let mut columns = second.columns().to_vec();
    columns[5] = Arc::new(series);
    second = RecordBatch::try_new(second.schema(), columns).unwrap();
    bench.table("bold", vec![vec![run_of("a", "1", &[0, 1, 2], &files)], vec![second]]);
    let told = |e: DataFusionError| {
        assert!(ours(&e).is_input());
        ours(&e).to_string()
    };
    let error = bench.joined_rows("SELECT * FROM bold WHERE voxel <> 1", json!({})).await.map_err(told);
    let error = error.unwrap_err();
    assert!(error.contains("subject a, task rest, voxel 2 is not in run 2"), "{error}");
    let error = bench.joined_rows("SELECT * FROM bold WHERE voxel < 2", json!({})).await.map_err(told);
    let error = error.unwrap_err();
    assert!(error.contains("voxel 1 has no series in run 2"), "{error}");

    let plan = bench.joined("SELECT * FROM bold", json!({"missing": "drop"})).await.unwrap();
    let physical = DataFrame::new(bench.context.state(), plan).create_physical_plan().await.unwrap();
    let rows = collect(Arc::clone(&physical), bench.context.task_ctx()).await.unwrap();
    assert_eq!(series_of(&rows).into_keys().collect::<Vec<_>>(), [("a".to_owned(), 0)]);
    let ledger = Ledger::of_plan(physical.as_ref());
    let told: Vec<_> = ledger.iter().map(|e| (e.run().clone(), e.count(), e.what())).collect();
    let run = |run: &str| [Some("a".to_owned()), None, Some("rest".to_owned()), Some(run.to_owned())];
    assert_eq!(told, [(run("1"), 1, Finding::Dropped), (run("2"), 2, Finding::Dropped)]);
}

#[tokio::test]
async fn what_cannot_be_joined_is_refused() {
    let bench = Bench::new();
    let known = [("a", "1"), ("a", "2")];
    bench.table("bold", vec![vec![run_of("a", "1", &[0, 11], &known), run_of("a", "2", &[0, 11], &known)]]);
    bench.table("unknown", vec![vec![run_of("a", "1", &[0], &[]), run_of("a", "2", &[0], &[])]]);
    let uneven = [("a", "1"), ("a", "2"), ("b", "1")];
    bench.table("uneven", vec![vec![run_of("a", "1", &[0], &uneven)]]);
    let told = async |query: &str, options: Value| {
        let error = refused(bench.joined(query, options).await);
        (error.option.clone().unwrap_or_default(), error.to_string())
    };
    let bold = "SELECT * FROM bold";
    let cases = [
        ("SELECT * FROM unknown", json!({}), "runs", "name them in their order"),
        ("SELECT * FROM uneven", json!({}), "runs", "a rest has 1, 2, but b rest has 1"),
        (bold, json!({"by": "subject, run"}), "by", "leave it out"),
        (bold, json!({"by": "age"}), "by", "`age` is none of"),
        (bold, json!({"runs": ["1", "1"]}), "runs", "'1' twice"),
        (bold, json!({"missing": "skip"}), "missing", "drop"),
        ("SELECT * EXCEPT (voxel) FROM bold", json!({}), "", "`voxel`"),
        ("SELECT * EXCEPT (run) FROM bold", json!({}), "by", "no column that tells the runs apart"),
    ];
    for (query, options, option, words) in cases {
        let (at, message) = told(query, options).await;
        assert!(at == option && message.contains(words), "{at}: {message}");
    }
    let run = async |query: &str, options: Value| {
        ours(&bench.joined_rows(query, options).await.unwrap_err()).to_string()
    };
    let odd = run(bold, json!({"runs": ["1", "3"]})).await;
    assert!(odd.contains("is of run 2, which is none of those to join (1, 3)"), "{odd}");
    let twice = run("SELECT * FROM bold UNION ALL SELECT * FROM bold", json!({})).await;
    assert!(twice.contains("twice"), "{twice}");
    let moved = "SELECT subject, task, run, voxel, arrow_cast(CASE WHEN run = '2' THEN i + 1 ELSE i END, 'UInt16') AS i, \
                 series FROM bold";
    let grids = run(moved, json!({})).await;
    assert!(
        grids.contains("has i 0 in run 1 and 1 in run 2") && grids.contains("different grids"),
        "{grids}"
    );
    let ages = run("SELECT *, run AS age FROM bold", json!({})).await;
    assert!(ages.contains("EXCEPT (age)"), "{ages}");
    // The order that is given counts, and what is joined is not cleaned any more.
    let rows = bench.joined_rows(bold, json!({"runs": ["2", "1"], "by": "subject,task"})).await.unwrap();
    assert_eq!(series_of(&rows)[&("a".to_owned(), 11)][0], value("a", "2", 11, 0));
    let joined = bench.joined(bold, json!({})).await.unwrap();
    let again = refused(bench.catalog.plan_table_operator(CONCATENATE, joined.clone(), &OptionMap::new()));
    assert!(again.to_string().contains("of several runs already"), "{again}");
    let cleaned = refused(bench.catalog.plan_table_operator(CLEAN, joined, &OptionMap::new()));
    assert!(cleaned.to_string().contains("concatenate(clean(…), …)"), "{cleaned}");
}
