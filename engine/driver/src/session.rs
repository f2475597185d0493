//! The entry: a DataFusion session with the stages, tables and functions of this build.

use crate::{Error, Result};
use datafusion::{catalog::TableProviderFactory, logical_expr::LogicalPlanBuilder};
use datafusion::{datasource::provider_as_source, prelude::SessionContext};
use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
};
use voxelflow_dataset::{Dataset, Engine, EngineConfig, OptionMap, StagePlanner, session_state};
use voxelflow_operators::{StageCatalog, extension_planners};
use voxelflow_tables::{ExportOptions, NIFTI, NiftiTable, NiftiTableFactory, check_export, export_maps};

/// Folder of what a session writes, unless told otherwise.
pub const DEFAULT_OUT: &str = "voxelflow-out";

/// The entry to everything. Cheap to clone; also an [`Engine`], whose methods it has.
#[derive(Clone, Debug)]
pub struct Session {
    engine: Engine,
}

/// Settings of a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    out: PathBuf,
    config: EngineConfig,
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self { out: DEFAULT_OUT.into(), config: EngineConfig::default() }
    }
}

impl SessionBuilder {
    /// Folder of models, persisted datasets and whatever is written by relative name.
    #[must_use]
    pub fn out(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out = folder.into();
        self
    }

    /// Bytes that sorts, joins and aggregations may hold before they spill.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.config.memory_limit = Some(bytes);
        self
    }

    /// Partitions of scans, joins and aggregations.
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.config.target_partitions = Some(partitions);
        self
    }

    /// The session.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub fn build(self) -> Result<Session> {
        let stages: Arc<dyn StagePlanner> = Arc::new(StageCatalog::new(voxelflow_nn::stages()));
        let mut state = session_state(extension_planners(), &self.config)?.build();
        let nifti: Arc<dyn TableProviderFactory> = Arc::new(NiftiTableFactory);
        state.table_factories_mut().insert(NIFTI.to_owned(), nifti);
        // Files can be named in FROM, as in SELECT … FROM 'series.parquet'.
        let context = SessionContext::new_with_state(state).enable_url_table();
        Ok(Session { engine: Engine::new(context, stages, self.out) })
    }
}

impl Session {
    /// Settings to start from.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The voxel series of NIfTI images: a file, a folder or a glob, with the options that
    /// `CREATE EXTERNAL TABLE … STORED AS NIFTI` takes.
    ///
    /// # Errors
    /// A location without images, images that are damaged or of different grids, an unknown option.
    pub fn read_nifti(&self, location: &str, options: &[(&str, &str)]) -> Result<Dataset> {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect();
        let table = NiftiTable::try_new(&[location], &options)?;
        let name = Path::new(location).file_name().and_then(|n| n.to_str()).unwrap_or("nifti");
        let plan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None)?.build()?;
        Ok(self.engine.dataset(plan))
    }

    /// Applies a table operator of the pipeline language, for example `clean`.
    ///
    /// # Errors
    /// An unknown operator or option, or a table that lacks what the operator needs.
    pub fn apply(&self, operator: &str, input: &Dataset, options: OptionMap) -> Result<Dataset> {
        let plan = input.logical_plan()?.clone();
        let plan = self.engine.planner().plan_table_operator(operator, plan, &options);
        Ok(self.engine.dataset(plan.map_err(voxelflow_dataset::Error::from)?))
    }

    /// Writes every numeric column of `rows` as a NIfTI map; a relative target lies under the session's folder.
    ///
    /// # Errors
    /// Rows that lost their key columns or grid; a folder that cannot be written.
    pub async fn export_maps(&self, rows: &Dataset, target: &str) -> Result<Vec<PathBuf>> {
        let target = self.engine.work_dir().join(target);
        let target =
            target.to_str().ok_or_else(|| Error::input(target.display(), "its name is no Unicode text"))?;
        let plan = check_export(rows.schema()?.as_ref(), target)?;
        Ok(export_maps(&plan, rows.stream().await?, &ExportOptions::default()).await?)
    }
}

impl Deref for Session {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}
