//! Parquet whose files may differ: the schema of a table is what all of its files can be read as.

use super::merge::merged;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::{GetExt, Statistics},
    datasource::{
        file_format::{
            FileFormat, FileFormatFactory, FileMeta, file_compression_type::FileCompressionType,
            parquet::ParquetFormatFactory,
        },
        physical_plan::{FileScanConfig, FileSinkConfig, FileSource},
        table_schema::TableSchema,
    },
    error::Result,
    physical_expr::{LexOrdering, LexRequirement},
    physical_plan::ExecutionPlan,
};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStore};
use std::{collections::HashMap, sync::Arc};

/// Makes the format `parquet` of a session.
#[derive(Debug, Default)]
pub(crate) struct MergedParquetFactory {
    inner: ParquetFormatFactory,
}

impl GetExt for MergedParquetFactory {
    fn get_ext(&self) -> String {
        self.inner.get_ext()
    }
}

impl FileFormatFactory for MergedParquetFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(MergedParquet(self.inner.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(MergedParquet(self.inner.default()))
    }
}

/// DataFusion's format, but for the schema.
#[derive(Debug)]
struct MergedParquet(Arc<dyn FileFormat>);

#[async_trait]
impl FileFormat for MergedParquet {
    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let at_once = state.config_options().execution.meta_fetch_concurrency.get();
        let mut files: Vec<&ObjectMeta> = objects.iter().collect();
        files.sort_by(|a, b| a.location.cmp(&b.location));
        let schemas = stream::iter(files)
            .map(|file| async move {
                let schema = self.0.infer_schema(state, store, std::slice::from_ref(file)).await;
                let schema = schema.map_err(|e| e.context(file.location.to_string()));
                Ok::<_, datafusion::error::DataFusionError>((file.location.to_string(), schema?))
            })
            .boxed()
            .buffered(at_once)
            .try_collect::<Vec<_>>()
            .await?;
        merged(&schemas).map(Arc::new)
    }

    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.0.infer_stats(state, store, table_schema, object).await
    }

    async fn infer_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        self.0.infer_ordering(state, store, table_schema, object).await
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        self.0.infer_stats_and_ordering(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_physical_plan(state, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(input, state, config, order).await
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}
