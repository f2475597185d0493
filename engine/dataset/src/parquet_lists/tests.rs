//! What is read by pages is what DataFusion reads by itself, whatever the files are like.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::written_files::{Shape, shapes};
use crate::{EngineConfig, session_context};
use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::concat_batches,
    datatypes::{Float32Type, UInt32Type},
};
use datafusion::{
    common::internal_err,
    error::Result,
    physical_plan::{ExecutionPlan, collect, displayable},
    prelude::{DataFrame, Expr, ParquetReadOptions, SessionConfig, SessionContext, col, lit},
};
use parquet::{
    arrow::ArrowWriter,
    file::reader::{FileReader, SerializedFileReader},
};
use proptest::prelude::*;
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};
use tempfile::TempDir;

/// The file or folder, in a session that reads lists by pages and in one of DataFusion's own.
struct Sessions {
    ours: SessionContext,
    plain: SessionContext,
    path: String,
}

impl Sessions {
    fn new(path: &Path, partitions: usize) -> Self {
        let config = EngineConfig { target_partitions: Some(partitions), ..EngineConfig::default() };
        let mut own = SessionConfig::new().with_target_partitions(partitions);
        own.options_mut().execution.parquet.skip_metadata = false;
        own.options_mut().execution.parquet.schema_force_view_types = false;
        let ours = session_context(Vec::new(), &config).unwrap();
        ours.state_ref().write().config_mut().options_mut().optimizer.repartition_file_min_size = 0;
        own.options_mut().optimizer.repartition_file_min_size = 0;
        Self { ours, plain: SessionContext::new_with_config(own), path: path.to_str().unwrap().to_owned() }
    }

    /// Rows and how many of them were read value by value.
    async fn by_pages(&self, columns: &[&str]) -> Result<(Vec<RecordBatch>, usize)> {
        self.some_by_pages(columns, None).await
    }

    async fn some_by_pages(
        &self,
        columns: &[&str],
        filter: Option<Expr>,
    ) -> Result<(Vec<RecordBatch>, usize)> {
        let rows = some(&self.ours, &self.path, columns, filter).await?;
        let plan = rows.create_physical_plan().await?;
        let text = displayable(plan.as_ref()).indent(false).to_string();
        assert!(text.contains("ParquetListsExec: series"), "{text}");
        let rows = collect(Arc::clone(&plan), self.ours.task_ctx()).await?;
        Ok((rows, slow_rows(&plan)))
    }

    async fn as_planned(&self, columns: &[&str]) -> Result<Vec<RecordBatch>> {
        some(&self.plain, &self.path, columns, None).await?.collect().await
    }
}

async fn some(
    session: &SessionContext,
    path: &str,
    columns: &[&str],
    filter: Option<Expr>,
) -> Result<DataFrame> {
    let options = ParquetReadOptions::default().skip_metadata(false);
    let rows = session.read_parquet(path, options).await?;
    let rows = if let Some(filter) = filter { rows.filter(filter)? } else { rows };
    rows.select_columns(columns)
}

fn filters() -> impl Strategy<Value = Expr> {
    prop_oneof![
        (0_u32..300, 0_u32..100).prop_map(|(a, n)| col("voxel").between(lit(a), lit(a + n))),
        (1_u32..9).prop_map(|n| (col("voxel") % lit(n)).eq(lit(0_u32))),
        (0_u32..5).prop_map(|n| col("subject").eq(lit(format!("s{n}")))),
        Just(col("subject").is_null()),
    ]
}

fn slow_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name("rows_value_by_value"));
    own.map_or(0, |count| count.as_usize()) + plan.children().into_iter().map(slow_rows).sum::<usize>()
}

fn one(batches: &[RecordBatch], like: &RecordBatch) -> RecordBatch {
    concat_batches(&batches.first().unwrap_or(like).schema(), batches).unwrap()
}

fn now<T>(rows: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(rows)
}

fn file(shape: &Shape) -> (TempDir, std::path::PathBuf, RecordBatch) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    let batch = shape.write(&path);
    (folder, path, batch)
}

/// Where the last page of a file ends.
fn pages_end(path: &Path) -> usize {
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let chunks = file.metadata().row_groups().iter().flat_map(|group| group.columns());
    chunks.map(|chunk| chunk.byte_range()).map(|(start, bytes)| start + bytes).max().unwrap_or(0) as usize
}

/// The `parquet` crate panics on some damaged pages; a session makes an error of it.
fn caught<T>(rows: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(rows)).unwrap_or_else(|_| internal_err!("it panics"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn rows_are_those_that_were_written(shape in shapes()) {
        let (_folder, path, written) = file(&shape);
        let sessions = Sessions::new(&path, 1);
        for columns in [&["subject", "series", "voxel"][..], &["series"], &["voxel", "series"]] {
            let (rows, slow) = now(sessions.by_pages(columns)).unwrap();
            let expected: Vec<usize> = columns.iter().map(|name| written.schema().index_of(name).unwrap()).collect();
            let expected = written.project(&expected).unwrap();
            let rows = one(&rows, &expected);
            prop_assert_eq!(rows.columns(), expected.columns());
            if shape.is_regular() {
                prop_assert_eq!(slow, 0);
            }
        }
    }

    #[test]
    fn rows_that_are_left_are_those_that_datafusion_leaves(shape in shapes(), filter in filters()) {
        let (_folder, path, written) = file(&shape);
        let sessions = Sessions::new(&path, 1);
        for columns in [&["subject", "series", "voxel"][..], &["series"]] {
            let (rows, slow) = now(sessions.some_by_pages(columns, Some(filter.clone()))).unwrap();
            let planned = now(async {
                some(&sessions.plain, &sessions.path, columns, Some(filter.clone())).await?.collect().await
            });
            let like: Vec<usize> = columns.iter().map(|name| written.schema().index_of(name).unwrap()).collect();
            let like = written.slice(0, 0).project(&like).unwrap();
            let (rows, planned) = (one(&rows, &like), one(&planned.unwrap(), &like));
            prop_assert_eq!(rows.columns(), planned.columns());
            if shape.is_regular() {
                prop_assert_eq!(slow, 0);
            }
        }
    }

    #[test]
    fn damage_is_found_wherever_datafusion_finds_it(
        shape in shapes(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (_folder, path, written) = file(&shape);
        let mut bytes = fs::read(&path).unwrap();
        // Footer and page index are DataFusion's affair.
        let pages = pages_end(&path);
        for (at, bits) in damage {
            if pages > 4 {
                bytes[4 + at.index(pages - 4)] ^= bits;
            }
        }
        fs::write(&path, bytes).unwrap();
        let sessions = Sessions::new(&path, 1);
        let columns = &["series"];
        let ours = caught(|| now(sessions.by_pages(columns)));
        let planned = caught(|| now(sessions.as_planned(columns)));
        match (ours, planned) {
            (Ok((ours, _)), Ok(planned)) => {
                let bits = |rows: &[RecordBatch]| format!("{:?}", one(rows, &written).columns());
                prop_assert_eq!(bits(&ours), bits(&planned));
            }
            // With a page index DataFusion does not look at the sizes in the headers of pages.
            (Err(ours), planned) => prop_assert!(planned.is_err() || ours.to_string().contains("cannot be read"), "{ours}"),
            (Ok(_), Err(planned)) => prop_assert!(false, "it reads what fails with {planned}"),
        }
    }
}

/// Rows of three files in a folder, read in partitions that are smaller than files.
#[tokio::test]
async fn ranges_of_files_give_every_row_once() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape::regular();
    for name in ["a", "b", "c"] {
        shape.write(&folder.path().join(format!("{name}.parquet")));
    }
    let sessions = Sessions::new(folder.path(), 5);
    let (rows, slow) = sessions.by_pages(&["voxel", "series"]).await.unwrap();
    assert_eq!(slow, 0);
    let rows = one(&rows, &shape.batch());
    let mut voxels: Vec<u32> = rows.column(0).as_primitive::<UInt32Type>().values().to_vec();
    voxels.sort_unstable();
    let expected: Vec<u32> = (0..shape.rows as u32).flat_map(|voxel| [voxel; 3]).collect();
    assert_eq!(voxels, expected);
    let written = shape.batch();
    for row in 0..rows.num_rows() {
        let voxel = rows.column(0).as_primitive::<UInt32Type>().value(row) as usize;
        let (found, series) = (rows.column(1).as_fixed_size_list(), written.column(1).as_fixed_size_list());
        assert_eq!(&found.value(row), &series.value(voxel));
    }
}

#[tokio::test]
async fn from_the_first_null_on_rows_are_read_value_by_value() {
    let (_folder, path, written) = file(&Shape { null_values: 1_000, ..Shape::regular() });
    let sessions = Sessions::new(&path, 1);
    let (rows, slow) = sessions.by_pages(&["subject", "series", "voxel"]).await.unwrap();
    assert_eq!(one(&rows, &written).columns(), written.columns());
    // Value 999 is in row 142, which is in the second row group of 90 rows, and there in the second page of 30.
    assert_eq!(slow, 200 - 90);
}

#[tokio::test]
async fn files_of_another_kind_are_read_as_planned() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape::regular();
    shape.write(&folder.path().join("a.parquet"));
    // A table has the columns of all of its files: this one has no series.
    let batch = shape.batch().project(&[2]).unwrap();
    let mut writer = ArrowWriter::try_new(
        fs::File::create(folder.path().join("b.parquet")).unwrap(),
        batch.schema(),
        None,
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let sessions = Sessions::new(folder.path(), 1);
    let (rows, slow) = sessions.by_pages(&["voxel", "series"]).await.unwrap();
    let planned = sessions.as_planned(&["voxel", "series"]).await.unwrap();
    assert_eq!(one(&rows, &batch).columns(), one(&planned, &batch).columns());
    assert_eq!(slow, shape.rows);
}

#[tokio::test]
async fn scans_with_a_limit_and_of_other_columns_are_left_alone() {
    let (_folder, path, _) = file(&Shape::regular());
    let sessions = Sessions::new(&path, 1);
    let rows = sessions.ours.read_parquet(&sessions.path, ParquetReadOptions::default()).await.unwrap();
    for left_alone in [rows.clone().limit(0, Some(3)).unwrap(), rows.select_columns(&["voxel"]).unwrap()] {
        let plan = left_alone.clone().create_physical_plan().await.unwrap();
        assert!(!displayable(plan.as_ref()).indent(false).to_string().contains("ParquetListsExec"));
        assert!(!left_alone.collect().await.unwrap().is_empty());
    }
}

/// Files of `integration-tests/reference/parquet_lists.py`.
#[tokio::test]
async fn files_of_pyarrow_are_read_by_pages() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for name in ["plain", "dictionary", "split"] {
        let sessions = Sessions::new(&fixtures.join(format!("lists-{name}.parquet")), 1);
        let (rows, slow) = sessions.by_pages(&["voxel", "series"]).await.unwrap();
        let rows = concat_batches(&rows[0].schema(), &rows).unwrap();
        let lists = rows.column(1).as_fixed_size_list();
        let values = lists.values().as_primitive::<Float32Type>().values();
        assert_eq!((lists.len(), lists.value_length(), lists.null_count()), (60, 7, 0), "{name}");
        assert!(values.iter().enumerate().all(|(i, value)| *value == i as f32 / 2.0), "{name}");
        assert_eq!(slow, 0, "{name}");
    }
}
