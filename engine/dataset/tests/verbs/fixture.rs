//! Engines and rows that the tests share.

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray},
        compute::concat_batches,
        datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
        util::pretty::pretty_format_batches,
    },
    catalog::streaming::StreamingTable,
    datasource::provider_as_source,
    execution::TaskContext,
    logical_expr::LogicalPlanBuilder,
    physical_plan::{
        SendableRecordBatchStream, stream::RecordBatchStreamAdapter, streaming::PartitionStream,
    },
};
use futures::StreamExt;
use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;
use voxelflow_dataset::{Dataset, Engine, EngineConfig, NoStages, session_context};

/// The numbers of partitions that results must not depend on.
pub const PARTITIONS: [usize; 3] = [1, 2, 7];
/// A key of schema metadata that the engine knows nothing of.
pub const METADATA_KEY: &str = "lab.scanner";

/// An engine, and the folder that it works in.
pub struct Bench {
    pub engine: Engine,
    pub folder: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self::with_config(&EngineConfig { target_partitions: Some(3), ..EngineConfig::default() })
    }

    pub fn with_config(config: &EngineConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let context = session_context(Vec::new(), config).unwrap();
        let engine = Engine::new(context, Arc::new(NoStages), folder.path().join("work"));
        Self { engine, folder }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// 100 rows: n 0..100, parity `even`/`odd`, half = n/2; metadata that must survive.
    pub fn numbers(&self, partitions: usize) -> Dataset {
        self.engine.from_batches(&[batch(0..60), batch(60..100)], partitions).unwrap()
    }
}

pub fn schema() -> SchemaRef {
    let fields = vec![
        Field::new("n", DataType::Int64, false),
        Field::new("parity", DataType::Utf8, true),
        Field::new("half", DataType::Float64, false),
    ];
    let metadata = HashMap::from([(METADATA_KEY.to_owned(), "7T".to_owned())]);
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

pub fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
    let parity: StringArray =
        numbers.clone().map(|n| Some(if n % 2 == 0 { "even" } else { "odd" })).collect();
    let half: Float64Array = numbers.clone().map(|n| n as f64 / 2.0).collect();
    let n: Int64Array = numbers.collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(n), Arc::new(parity), Arc::new(half)];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The names in a folder, sorted.
pub fn entries(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All values of an integer column, sorted.
pub async fn integers(dataset: &Dataset, column: &str) -> Vec<i64> {
    let mut all = integers_in_order(dataset, column).await;
    all.sort_unstable();
    all
}

pub async fn integers_in_order(dataset: &Dataset, column: &str) -> Vec<i64> {
    let batches = dataset.collect().await.unwrap();
    batches.iter().flat_map(|b| values(b, column)).collect()
}

pub fn values(batch: &RecordBatch, column: &str) -> Vec<i64> {
    let array = batch.column_by_name(column).unwrap_or_else(|| panic!("no column {column}"));
    let array = datafusion::arrow::compute::cast(array, &DataType::Int64).unwrap();
    array.as_primitive::<Int64Type>().values().to_vec()
}

/// The rows as text, sorted, so that order does not matter.
pub async fn lines(dataset: &Dataset) -> Vec<String> {
    let batches = dataset.collect().await.unwrap();
    let text = match batches.first() {
        Some(first) => pretty_format_batches(&[concat_batches(&first.schema(), &batches).unwrap()]).unwrap(),
        None => return Vec::new(),
    };
    let text = text.to_string();
    let rows = text.lines().filter(|l| l.starts_with('|')).skip(1);
    let mut rows: Vec<String> =
        rows.map(|l| l.split('|').map(str::trim).collect::<Vec<_>>().join("|")).collect();
    rows.sort();
    rows
}

/// An endless-seeming source that counts the batches it is asked for.
#[derive(Debug)]
struct Counting {
    batches: usize,
    rows: usize,
    made: Arc<AtomicUsize>,
    schema: SchemaRef,
}

impl PartitionStream for Counting {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (made, rows) = (Arc::clone(&self.made), self.rows as i64);
        let batches = futures::stream::iter(0..self.batches as i64).map(move |b| {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(batch(b * rows..(b + 1) * rows))
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches))
    }
}

impl Counting {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// `partitions` partitions of `batches` batches of `rows` rows, and how many batches were made.
pub fn counted(
    engine: &Engine,
    partitions: usize,
    batches: usize,
    rows: usize,
) -> (Dataset, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let sources = (0..partitions).map(|_| {
        let source = Counting { batches, rows, made: Arc::clone(&made), schema: schema() };
        Arc::new(source) as Arc<dyn PartitionStream>
    });
    let table = StreamingTable::try_new(schema(), sources.collect()).unwrap();
    let plan = LogicalPlanBuilder::scan("counted", provider_as_source(Arc::new(table)), None);
    (engine.dataset(plan.unwrap().build().unwrap()), made)
}
