//! A scan of Parquet that has lists to be read by pages, and its files one after another.

use super::{file::FileRows, length_of};
use crate::nodes::unary::UnaryTask;
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::{
    datasource::{
        listing::PartitionedFile,
        physical_plan::{
            FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileReaderFactory,
            ParquetSource, parquet::DefaultParquetFileReaderFactory,
        },
        source::DataSourceExec,
        table_schema::TableSchema,
    },
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{
        expressions::Column,
        projection::{ProjectionExpr, ProjectionExprs},
        utils::collect_columns,
    },
    physical_plan::{
        ExecutionPlan,
        metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{TryStreamExt, stream};
use parquet::arrow::{RowNumber, async_reader::AsyncFileReader};
use std::sync::Arc;

/// Numbers of rows beside the other columns of a scan.
const ROW_NUMBER: &str = "row number in its file";

/// A column of lists that is read by pages.
#[derive(Clone, Debug)]
pub(super) struct ListColumn {
    /// Its number among the columns that the scan gives.
    pub output: usize,
    /// Its name in the files.
    pub name: String,
    /// Values of a list.
    pub length: usize,
}

/// A scan with such columns.
#[derive(Clone)]
pub(super) struct ListScan {
    config: FileScanConfig,
    /// In the order of the columns that the scan gives.
    pub columns: Vec<ListColumn>,
}

impl ListScan {
    /// The scan that `plan` is; none for what is no scan of Parquet files, is limited or in an order, or has no such
    /// columns.
    ///
    /// # Errors
    /// A projection of columns that are not there.
    pub fn of(plan: &dyn ExecutionPlan) -> Result<Option<Self>> {
        let Some(scan) = plan.downcast_ref::<DataSourceExec>() else { return Ok(None) };
        let Some((config, source)) = scan.downcast_to_file_source::<ParquetSource>() else { return Ok(None) };
        let any_order = config.limit.is_none()
            && config.output_ordering.is_empty()
            && config.output_partitioning.is_none()
            && config.expr_adapter_factory.is_none()
            && source.table_schema().virtual_columns().is_empty();
        if !any_order {
            return Ok(None);
        }
        let columns = list_columns(config)?;
        Ok((!columns.is_empty()).then(|| Self { config: config.clone(), columns }))
    }

    /// Names of the list columns in the files.
    pub fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The rows of one partition.
    ///
    /// # Errors
    /// A store that the session does not have, a partition that is not there.
    pub fn rows(self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let Some(files) = self.config.file_groups.get(task.metrics_partition).cloned() else {
            return Err(DataFusionError::Internal(format!(
                "no partition {} of files",
                task.metrics_partition
            )));
        };
        let scan = Arc::new(RunningScan::of(self, &task)?);
        let files = stream::iter(files.into_inner().into_iter().map(Ok::<_, DataFusionError>));
        let rows = files.and_then(move |file| FileRows::open(Arc::clone(&scan), file));
        let counted = MetricBuilder::new(&task.metrics).output_rows(task.metrics_partition);
        let rows = rows.map_ok(FileRows::stream).try_flatten();
        let rows = rows.inspect_ok(move |batch| counted.add(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, rows)))
    }
}

/// The columns of `config` that are read by pages: those that are given as they are, and that nothing else reads.
fn list_columns(config: &FileScanConfig) -> Result<Vec<ListColumn>> {
    let schema = config.file_schema();
    let Some(projection) = config.file_source.projection() else { return Ok(Vec::new()) };
    let filtered = config.file_source.filter().map(|filter| collect_columns(&filter)).unwrap_or_default();
    let mut columns = Vec::new();
    for (output, given) in projection.iter().enumerate() {
        let Some(column) = given.expr.downcast_ref::<Column>() else { continue };
        let Some(field) = schema.fields().get(column.index()) else { continue };
        let Some(length) = length_of(field.data_type()) else { continue };
        let readers = projection.iter().filter(|other| collect_columns(&other.expr).contains(column)).count();
        if readers == 1 && !filtered.contains(column) {
            columns.push(ListColumn { output, name: field.name().clone(), length });
        }
    }
    Ok(columns)
}

/// What the files of a partition have in common while they are read.
pub(super) struct RunningScan {
    scan: ListScan,
    /// The scan without the lists.
    others: Arc<dyn FileSource>,
    files: Arc<dyn ParquetFileReaderFactory>,
    context: Arc<TaskContext>,
    partition: usize,
    metrics: ExecutionPlanMetricsSet,
    /// Columns that it gives.
    pub schema: SchemaRef,
    /// Rows that were read value by value.
    pub slow_rows: Count,
}

impl RunningScan {
    fn of(scan: ListScan, task: &UnaryTask) -> Result<Self> {
        let source = scan.config.file_source.downcast_ref::<ParquetSource>();
        let source = source.ok_or_else(|| DataFusionError::Internal("a scan of something else".into()))?;
        let files = match source.parquet_file_reader_factory() {
            Some(files) => Arc::clone(files),
            None => {
                let store = task.context.runtime_env().object_store(&scan.config.object_store_url)?;
                Arc::new(DefaultParquetFileReaderFactory::new(store))
            }
        };
        Ok(Self {
            others: others(&scan, source)?,
            files,
            context: Arc::clone(&task.context),
            partition: task.metrics_partition,
            metrics: task.metrics.clone(),
            schema: Arc::clone(&task.schema),
            slow_rows: MetricBuilder::new(&task.metrics)
                .counter("rows_value_by_value", task.metrics_partition),
            scan,
        })
    }

    /// Whether some rows are left out: then the last of the other columns has the numbers of those that are not.
    pub fn is_filtered(&self) -> bool {
        self.scan.config.file_source.filter().is_some()
    }

    /// The list columns.
    pub fn lists(&self) -> &[ListColumn] {
        &self.scan.columns
    }

    /// Opens `file` to read bytes of it.
    ///
    /// # Errors
    /// Those of the session's reader.
    pub fn open(&self, file: &PartitionedFile) -> Result<Box<dyn AsyncFileReader + Send>> {
        self.files.create_reader(self.partition, file.clone(), file.metadata_size_hint, &self.metrics)
    }

    /// The rows of `file` as DataFusion reads them.
    ///
    /// # Errors
    /// A scan that cannot begin.
    pub fn planned(&self, file: PartitionedFile) -> Result<SendableRecordBatchStream> {
        self.read(file, Arc::clone(&self.scan.config.file_source))
    }

    /// The columns of `file` that are not read by pages.
    ///
    /// # Errors
    /// A scan that cannot begin.
    pub fn others(&self, file: PartitionedFile) -> Result<SendableRecordBatchStream> {
        self.read(file, Arc::clone(&self.others))
    }

    fn read(&self, file: PartitionedFile, source: Arc<dyn FileSource>) -> Result<SendableRecordBatchStream> {
        let config = FileScanConfigBuilder::from(self.scan.config.clone())
            .with_source(source)
            .with_file_groups(vec![FileGroup::new(vec![file])])
            .build();
        DataSourceExec::from_data_source(config).execute(0, Arc::clone(&self.context))
    }
}

/// `source` without the lists of `scan`, and with the numbers of the rows if it has a filter. Whatever else was asked
/// of it concerned an order that it need not keep.
fn others(scan: &ListScan, source: &ParquetSource) -> Result<Arc<dyn FileSource>> {
    let mut table = source.table_schema().clone();
    let given = source.projection().into_iter().flat_map(ProjectionExprs::iter).enumerate();
    let is_list = |output: usize| scan.columns.iter().any(|column| column.output == output);
    let mut kept: Vec<ProjectionExpr> =
        given.filter(|(output, _)| !is_list(*output)).map(|(_, given)| given.clone()).collect();
    if source.filter().is_some() {
        let number = Field::new(ROW_NUMBER, DataType::Int64, false).with_extension_type(RowNumber);
        let column = Column::new(ROW_NUMBER, table.table_schema().fields().len());
        kept.push(ProjectionExpr::new(Arc::new(column), ROW_NUMBER));
        table = TableSchema::builder(Arc::clone(table.file_schema()))
            .with_table_partition_cols(table.table_partition_cols().iter().cloned().collect::<Vec<_>>())
            .with_virtual_columns(vec![Arc::new(number)])
            .build();
    }
    let mut others =
        ParquetSource::new(table).with_table_parquet_options(source.table_parquet_options().clone());
    if let Some(files) = source.parquet_file_reader_factory() {
        others = others.with_parquet_file_reader_factory(Arc::clone(files));
    }
    if let Some(filter) = source.filter() {
        others = others.with_predicate(filter);
    }
    let others = others.try_pushdown_projection(&ProjectionExprs::new(kept))?;
    others.ok_or_else(|| DataFusionError::Internal("a scan that cannot leave columns out".into()))
}
