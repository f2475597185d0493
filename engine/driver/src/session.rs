//! The entry: a DataFusion session with the stages, tables and functions of this build.

use crate::{
    Error, Result,
    command::cluster_key,
    error::input_in,
    flags::ClusterFlags,
    model_store::{StoredModels, is_remote, publish_model},
    stores::{LiveOptions, SessionStores, StoreSettings, before_glob, stores_of},
};
use datafusion::{
    catalog::TableProviderFactory, datasource::provider_as_source, error::DataFusionError,
    execution::SessionState, logical_expr::LogicalPlanBuilder, prelude::SessionContext,
};
use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
};
use voxelflow_cluster::{
    ClusterAddress, ClusterRunner, LocalCluster, LocalClusterSettings, SessionFactory,
    node::{self, Nodes, NodesConfig, Wish},
};
use voxelflow_dataset::{
    Dataset, Engine, EngineConfig, OptionMap, StagePlanner, StageSpec, StoresOf, TrainedModel, build_id,
    register_stages, runner::Fault, session_state, with_tables_by_location,
};
use voxelflow_operators::{NoteJoinKeys, SameGrid, StageCatalog, end_cut_off, extension_planners};
use voxelflow_storage::{Purpose, StoreOptions, StoreRegistry, is_published};
use voxelflow_sync::network::ClusterKey;
use voxelflow_tables::{ExportOptions, ImageTables, Stores, TextTables, check_export, export_maps};

/// Folder of what a session writes, unless told otherwise.
pub const DEFAULT_OUT: &str = "voxelflow-out";

/// The entry to everything. Cheap to clone; also an [`Engine`], whose methods it has.
#[derive(Clone, Debug)]
pub struct Session {
    engine: Engine,
    stores: LiveOptions,
}

/// Settings of a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    out: PathBuf,
    config: EngineConfig,
    cluster: ClusterFlags,
    stores: StoreOptions,
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self {
            out: DEFAULT_OUT.into(),
            config: EngineConfig::default(),
            cluster: ClusterFlags::default(),
            stores: StoreOptions::default(),
        }
    }
}

impl SessionBuilder {
    /// Folder of models, persisted datasets and whatever is written by relative name.
    #[must_use]
    pub fn out(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out = folder.into();
        self
    }

    /// Bytes that this process should need: sorts, joins, aggregations and images spill when their shares are used
    /// up. Half of the machine's memory, or of its container's, if not given.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.config.memory_limit = Some(bytes);
        self
    }

    /// How stores are reached; what is not said comes from the environment and from AWS profiles. Keys that are given
    /// here are this process's own: executors have theirs.
    #[must_use]
    pub fn stores(mut self, options: StoreOptions) -> Self {
        self.stores = options;
        self
    }

    /// Partitions of scans, joins and aggregations.
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.config.target_partitions = Some(partitions);
        self
    }

    /// Runs on the cluster of the scheduler at `url`, for example `df://host:50050`. Files must lie where all its
    /// executors see them, and its executors must be of this program.
    #[must_use]
    pub fn cluster(mut self, url: &str) -> Self {
        self.cluster.cluster = Some(url.to_owned());
        self
    }

    /// Runs on `count` executors, started on this machine for this session. They share its cores: each computes with its part
    /// of them, or with RAYON_NUM_THREADS threads where that is set.
    #[must_use]
    pub fn executors(mut self, count: usize) -> Self {
        self.cluster.executors = Some(count);
        self
    }

    /// File of the key that the executors of [`cluster`](Self::cluster) have: only who has it is served.
    #[must_use]
    pub fn cluster_key(mut self, file: impl Into<PathBuf>) -> Self {
        self.cluster.cluster_key = Some(file.into());
        self
    }

    /// Tasks that each of the [`executors`](Self::executors) runs at once; the machine's cores if not given.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.cluster.slots = Some(slots);
        self
    }

    /// Runs where the command line says.
    #[must_use]
    pub fn place(mut self, flags: &ClusterFlags) -> Self {
        self.cluster = flags.clone();
        self
    }

    /// The session, in this process.
    ///
    /// # Errors
    /// A setting that cannot be used; a cluster, which only [`start`](Self::start) can reach.
    pub fn build(self) -> Result<Session> {
        if self.cluster.cluster.is_some() || self.cluster.executors.is_some() {
            return Err(Error::input("session", "it runs on a cluster: make it with `start().await`"));
        }
        local_folder(&self.out)?;
        let stores = LiveOptions::new(self.stores);
        let context = session_context(&self.config, &stores)?;
        Ok(Session { engine: Engine::new(context, stages(&stores), self.out), stores })
    }

    /// The session, where it was told to run; executors of its own are started.
    ///
    /// # Errors
    /// A setting that cannot be used, a cluster that does not start.
    pub async fn start(mut self) -> Result<Session> {
        local_folder(&self.out)?;
        let runner = match (&self.cluster.cluster, self.cluster.executors) {
            (Some(url), None) if url.starts_with(node::SCHEME) => {
                let nodes = self.start_on_nodes(url).await?;
                let partitions = nodes.granted().iter().map(|(_, granted)| granted.cores).sum();
                self.config.target_partitions.get_or_insert(partitions);
                ClusterRunner::of_nodes(nodes)?
            }
            (Some(url), None) => {
                let runner = ClusterRunner::connect(ClusterAddress::parse(url)?, self.key()?)?;
                end_cut_off(&self.out.join("models"), &runner).await;
                runner
            }
            (None, Some(executors)) => {
                let mut settings = LocalClusterSettings::new(executors);
                settings.slots = self.cluster.slots.unwrap_or(settings.slots).max(1);
                settings.memory_bytes = self.config.memory_limit.map_or(settings.memory_bytes, |b| b as u64);
                let partitions = executors.saturating_mul(settings.slots);
                self.config.target_partitions.get_or_insert(partitions);
                ClusterRunner::of_local(LocalCluster::start(&settings).await?)?
            }
            (None, None) => return self.build(),
            (Some(_), Some(_)) => {
                let reason =
                    "a session runs on a cluster that is there, or on executors of its own: give one";
                return Err(Error::input("--cluster and --executors", reason));
            }
        };
        let stores = LiveOptions::new(self.stores);
        let context = session_context(&self.config, &stores)?;
        let engine = Engine::on_runner(context, stages(&stores), self.out, Arc::new(runner))?;
        Ok(Session { engine, stores })
    }
}

impl SessionBuilder {
    /// This program's own scheduler and executors on the machines of agents.
    async fn start_on_nodes(&self, url: &str) -> Result<Nodes> {
        let program = running_program()?;
        let name =
            program.file_name().map_or_else(|| "a program".into(), |n| n.to_string_lossy().into_owned());
        let config = NodesConfig {
            agents: node::agents(url).map_err(voxelflow_cluster::Error::from)?,
            key: self.key()?,
            name,
            program: RUNNING_IMAGE.into(),
            hash: build_id()?.to_owned(),
            wish: Wish { cores: self.cluster.slots, ..Wish::default() },
        };
        let started = tokio::task::spawn_blocking(|| Nodes::start(config)).await;
        let started = started.map_err(|e| Error::io(&program, e.into()))?;
        Ok(started.map_err(voxelflow_cluster::Error::from)?)
    }

    /// The key of a cluster that is there.
    fn key(&self) -> Result<ClusterKey> {
        let reason =
            "a cluster serves those who have its key: give its file (VOXELFLOW_CLUSTER_KEY for a program)";
        let file = self.cluster.cluster_key.as_deref();
        cluster_key(file.ok_or_else(|| Error::input("--cluster-key", reason))?)
    }
}

/// The running program itself, also when its file was replaced since.
const RUNNING_IMAGE: &str = "/proc/self/exe";

fn running_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| Error::io(Path::new(RUNNING_IMAGE), e))
}

/// Files can be named in FROM, as in `SELECT … FROM 'series.parquet'`.
fn session_context(config: &EngineConfig, stores: &LiveOptions) -> Result<SessionContext> {
    Ok(with_tables_by_location(SessionContext::new_with_state(session_state_of(config, stores)?)))
}

fn stages(stores: &LiveOptions) -> Arc<dyn StagePlanner> {
    let models = StoredModels::new(stores.clone());
    let files = Arc::new(SessionStores::new(stores.clone()));
    Arc::new(StageCatalog::new(crate::stages::stages()).with_models(Arc::new(models)).with_stores(files))
}

/// What is written by relative name is renamed into its place, so its folder is one of a file system.
fn local_folder(out: &Path) -> Result<()> {
    if is_remote(&out.to_string_lossy()) {
        let reason = "the working folder is one of a file system: give a local path, write tables to stores by \
                      `COPY … TO`, and models by `publish => '…'`";
        return Err(Error::input(out.display(), reason));
    }
    Ok(())
}

/// A session's state with all that this build knows but the stages' functions, which the engine registers.
fn session_state_of(config: &EngineConfig, stores: &LiveOptions) -> Result<SessionState> {
    let mut config = config.clone();
    config.object_stores.get_or_insert_with(|| Arc::new(SessionStores::new(stores.clone())));
    let mut state = session_state(extension_planners(), &config)?
        .with_analyzer_rule(Arc::new(SameGrid))
        .with_analyzer_rule(Arc::new(NoteJoinKeys))
        .build();
    state.config_mut().options_mut().extensions.insert(StoreSettings::new(stores));
    for tables in ImageTables::ALL {
        let factory: Arc<dyn TableProviderFactory> = Arc::new(tables);
        state.table_factories_mut().insert(tables.name().to_owned(), factory);
    }
    for tables in TextTables::ALL {
        let factory: Arc<dyn TableProviderFactory> = Arc::new(tables);
        state.table_factories_mut().insert(tables.name().to_owned(), factory);
    }
    Ok(state)
}

/// Sessions of schedulers and executors: what the driver's knows, they know.
pub(crate) fn cluster_sessions(config: EngineConfig) -> SessionFactory {
    Arc::new(move || {
        let stores = LiveOptions::default();
        let state = session_state_of(&config, &stores);
        let mut state = state.map_err(|e| DataFusionError::External(Box::new(e)))?;
        state.config_mut().set_extension(Arc::new(StoresOf(stores_of)));
        state.config_mut().set_extension(Arc::new(Fault(|error| input_in(error))));
        let context = SessionContext::new_with_state(state);
        register_stages(&context, stages(&stores).as_ref());
        Ok(context.state())
    })
}

impl Session {
    /// Settings to start from.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Publishes a trained model, whole, as `location` (`s3://…`, `hdfs://…`), instead of one that is there. Wherever
    /// the folder of a model is asked for, the location serves as well.
    ///
    /// # Errors
    /// A location that is none, a store that cannot be written to.
    pub async fn publish_model(&self, model: &TrainedModel, location: &str) -> Result<()> {
        self.publish_folder(&model.folder, location).await
    }

    /// How stores are reached now.
    pub(crate) fn store_options(&self) -> StoreOptions {
        self.stores.now()
    }

    /// Publishes the local folder of a model.
    pub(crate) async fn publish_folder(&self, folder: &Path, location: &str) -> Result<()> {
        publish_model(folder, location, &self.stores.now()).await
    }

    /// Looks at a location in a store before any work: what is wrong with its description is named within seconds. Of
    /// a glob it looks at the folder. Locations of this machine are left to whoever opens them.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(crate) async fn check_location(&self, location: &str, purpose: Purpose) -> Result<()> {
        if !is_remote(location) || location.starts_with("memory://") {
            return Ok(());
        }
        let named = before_glob(location);
        if named != location && location.starts_with("http") {
            // A question mark begins a query there, and folders are not listed.
            return Ok(());
        }
        Ok(voxelflow_storage::check(named, &self.stores.now(), purpose).await?)
    }

    /// Whether the local folder of a model is what was published as `location`.
    ///
    /// # Errors
    /// A store that cannot be asked.
    pub(crate) async fn is_published(&self, folder: &Path, location: &str) -> Result<bool> {
        let target = StoreRegistry::global().resolve_with(location, &self.stores.now())?;
        Ok(is_published(folder, target.store.as_ref(), &target.path).await?)
    }

    /// The voxel series of NIfTI images: a file, a folder or a glob, with the options that
    /// `CREATE EXTERNAL TABLE … STORED AS NIFTI` takes.
    ///
    /// # Errors
    /// A location without images, images that are damaged or of different grids, an unknown option.
    pub fn read_nifti(&self, location: &str, options: &[(&str, &str)]) -> Result<Dataset> {
        self.read_images(ImageTables::Nifti, location, options)
    }

    /// The voxel series of all runs of a folder of BIDS derivatives that are asked for, with the options that
    /// `CREATE EXTERNAL TABLE … STORED AS BIDS` takes.
    ///
    /// # Errors
    /// A folder without such runs, runs that exist in several variants or cannot be used, an unknown option.
    pub fn read_bids(&self, location: &str, options: &[(&str, &str)]) -> Result<Dataset> {
        self.read_images(ImageTables::Bids, location, options)
    }

    fn read_images(&self, kind: ImageTables, location: &str, options: &[(&str, &str)]) -> Result<Dataset> {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect();
        let stores = Stores::of(&self.engine.context().runtime_env());
        let table = kind.open(&[location.to_owned()], &options, &stores)?;
        let name = Path::new(location).file_name().and_then(|n| n.to_str()).unwrap_or("images");
        let plan = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.build()?;
        Ok(self.engine.dataset(plan))
    }

    /// Applies a table operator of the pipeline language, for example `clean`.
    ///
    /// # Errors
    /// An unknown operator or option, or a table that lacks what the operator needs.
    pub fn apply(&self, operator: &str, input: &Dataset, options: OptionMap) -> Result<Dataset> {
        let applied = input.apply(StageSpec { stage: operator.to_owned(), options });
        applied.logical_plan()?;
        Ok(applied)
    }

    /// Writes every numeric column of `rows` as a NIfTI map; a relative target lies under the session's folder. Voxels
    /// without a value are NaN.
    ///
    /// # Errors
    /// Rows that lost their key columns or grid; a column without any value; a folder that cannot be written.
    pub async fn export_maps(&self, rows: &Dataset, target: &str) -> Result<Vec<PathBuf>> {
        self.export_maps_filled(rows, target, f32::NAN).await
    }

    /// As [`Session::export_maps`], with `fill` in voxels without a value.
    ///
    /// # Errors
    /// As [`Session::export_maps`].
    pub async fn export_maps_filled(&self, rows: &Dataset, target: &str, fill: f32) -> Result<Vec<PathBuf>> {
        let target = self.engine.work_dir().join(target);
        let target =
            target.to_str().ok_or_else(|| Error::input(target.display(), "its name is no Unicode text"))?;
        let plan = check_export(rows.schema()?.as_ref(), target)?;
        let options = ExportOptions { fill, ..ExportOptions::default() };
        Ok(export_maps(&plan, rows.stream().await?, &options).await?)
    }
}

impl Deref for Session {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}
