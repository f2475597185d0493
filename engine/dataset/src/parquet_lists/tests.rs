//! What is read by pages is what DataFusion reads by itself, whatever the files are like.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::{EngineConfig, session_context};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray, UInt32Array,
    },
    compute::concat_batches,
    datatypes::{DataType, Field, Float32Type, Schema, UInt32Type},
};
use datafusion::{
    common::internal_err,
    error::Result,
    physical_plan::{ExecutionPlan, collect, displayable},
    prelude::{DataFrame, Expr, ParquetReadOptions, SessionConfig, SessionContext, col, lit},
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding, ZstdLevel},
    file::{
        properties::{WriterProperties, WriterVersion},
        reader::{FileReader, SerializedFileReader},
    },
    schema::types::ColumnPath,
};
use proptest::{prelude::*, sample::select};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};
use tempfile::TempDir;

/// A file to be written.
#[derive(Clone, Debug)]
struct Shape {
    rows: usize,
    length: usize,
    /// Different values: few of them make dictionaries worth it.
    distinct: u32,
    /// One in so many lists and values is null; 0: none is.
    null_lists: usize,
    null_values: usize,
    nullable: bool,
    encoding: Option<Encoding>,
    compression: Compression,
    version: WriterVersion,
    page_rows: usize,
    group_rows: usize,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let compressions =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())];
    (
        (0_usize..300, 1_usize..40, select(vec![3_u32, 1_000_000])),
        (select(vec![0_usize, 0, 0, 50]), select(vec![0_usize, 0, 0, 500]), any::<bool>()),
        select(vec![None, Some(Encoding::PLAIN), Some(Encoding::BYTE_STREAM_SPLIT)]),
        select(compressions.to_vec()),
        select(vec![WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]),
        (1_usize..100, 1_usize..150),
    )
        .prop_map(|(size, nulls, encoding, compression, version, pages)| Shape {
            rows: size.0,
            length: size.1,
            distinct: size.2,
            null_lists: nulls.0,
            null_values: nulls.1,
            nullable: nulls.2 || nulls.0 > 0 || nulls.1 > 0,
            encoding,
            compression,
            version,
            page_rows: pages.0,
            group_rows: pages.1,
        })
}

impl Shape {
    /// A file that is read by pages.
    fn regular() -> Self {
        Self {
            rows: 200,
            length: 7,
            distinct: 1_000_000,
            null_lists: 0,
            null_values: 0,
            nullable: true,
            encoding: Some(Encoding::PLAIN),
            compression: Compression::UNCOMPRESSED,
            version: WriterVersion::PARQUET_1_0,
            page_rows: 30,
            group_rows: 90,
        }
    }

    fn is_regular(&self) -> bool {
        self.null_lists == 0 && self.null_values == 0
    }

    fn batch(&self) -> RecordBatch {
        let is_null = |one_in: usize, i: usize| one_in > 0 && i % one_in == one_in - 1;
        let value = |i: usize| (i as u32).wrapping_mul(2_654_435_761) % self.distinct;
        let values: Float32Array = (0..self.rows * self.length)
            .map(|i| (!is_null(self.null_values, i)).then(|| value(i) as f32 - 0.5))
            .collect();
        let lists = (0..self.rows).map(|row| !is_null(self.null_lists, row)).collect::<Vec<_>>();
        let lists = (self.null_lists > 0).then(|| lists.into());
        let item = Arc::new(Field::new_list_field(DataType::Float32, self.nullable));
        let lists = FixedSizeListArray::new(item, self.length as i32, Arc::new(values), lists);
        let voxels: UInt32Array = (0..self.rows as u32).collect();
        let subjects: StringArray =
            (0..self.rows).map(|row| (row % 5 > 0).then(|| format!("s{}", row / 60))).collect();
        let schema = Schema::new(vec![
            Field::new("subject", DataType::Utf8, true),
            Field::new("series", lists.data_type().clone(), self.nullable),
            Field::new("voxel", DataType::UInt32, false),
        ]);
        let columns: Vec<ArrayRef> = vec![Arc::new(subjects), Arc::new(lists), Arc::new(voxels)];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    fn write(&self, path: &Path) -> RecordBatch {
        let batch = self.batch();
        let series = ColumnPath::new(vec!["series".into(), "list".into(), "element".into()]);
        let mut properties = WriterProperties::builder()
            .set_writer_version(self.version)
            .set_compression(self.compression)
            .set_data_page_row_count_limit(self.page_rows)
            .set_write_batch_size(16)
            .set_max_row_group_row_count(Some(self.group_rows))
            .set_column_dictionary_enabled(series.clone(), self.encoding.is_none());
        if let Some(encoding) = self.encoding {
            properties = properties.set_column_encoding(series, encoding);
        }
        let file = fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        batch
    }
}

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
