//! A DataFusion session set up for datasets: our plan nodes, bounded memory, metadata that survives Parquet.

use crate::{
    aggregates::aggregate_functions,
    error::Result,
    nan::{AskFloats, ForgetFloats, with_nan},
    nodes::DatasetPlanner,
    parquet_lists::ReadListsFast,
    parquet_tables::{FileTables, MergedParquetFactory, VisibleFiles},
    persist::CacheLocation,
    process_memory::memory_of_process,
    row_hash,
    series_arithmetic::{self, SeriesOperators},
};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    error::Result as PlanResult,
    execution::{
        SessionStateBuilder, SessionStateDefaults,
        context::QueryPlanner,
        memory_pool::{FairSpillPool, TrackConsumersPool},
        object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry},
        runtime_env::RuntimeEnvBuilder,
    },
    logical_expr::{LogicalPlan, ScalarUDF},
    physical_optimizer::{PhysicalOptimizerRule, optimizer::PhysicalOptimizer},
    physical_plan::ExecutionPlan,
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
    prelude::{SessionConfig, SessionContext},
};
use std::{collections::BTreeMap, fmt, num::NonZeroUsize, path::PathBuf, sync::Arc};

/// Planners of plan nodes.
pub type ExtensionPlanners = Vec<Arc<dyn ExtensionPlanner + Send + Sync>>;

/// An extension of a session's configuration: finds object stores for plans of other sessions, by the configuration
/// that came with them. Executors use it, who run the plans of many.
pub struct StoresOf(pub fn(&SessionConfig) -> Arc<dyn ObjectStoreRegistry>);

/// Settings of the session below datasets.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Bytes that this process should need in all; half of the machine's memory if not given. Two thirds are a pool
    /// that sorts, joins, aggregations and images take from before they spill; the rest is for what nobody counts:
    /// the program, batches on their way, files that are written.
    pub memory_limit: Option<usize>,
    /// Where they spill to; the system's folder for temporary files if not given.
    pub temp_dir: Option<PathBuf>,
    /// Partitions of scans, joins and aggregations; the machine's cores if not given.
    pub target_partitions: Option<usize>,
    /// Rows of a batch; 8,192 if not given.
    pub batch_size: Option<usize>,
    /// Where object stores are found by URL; local files only if not given.
    pub object_stores: Option<Arc<dyn ObjectStoreRegistry>>,
    /// Where persisted rows are kept, a path or URL; the folder `cache` under the engine's working folder if not
    /// given. On a cluster it must be storage that all executors see.
    pub cache: Option<String>,
    /// Further settings by DataFusion's names, applied last.
    pub settings: BTreeMap<String, String>,
}

/// A session that plans the nodes of datasets and those of `planners`.
///
/// # Errors
/// A setting that does not exist or has a wrong value, a folder for temporary files that cannot be used.
pub fn session_context(planners: ExtensionPlanners, config: &EngineConfig) -> Result<SessionContext> {
    Ok(SessionContext::new_with_state(session_state(planners, config)?.build()))
}

/// As [`session_context`], still open for functions, table factories and rules of others.
///
/// # Errors
/// As [`session_context`].
pub fn session_state(planners: ExtensionPlanners, config: &EngineConfig) -> Result<SessionStateBuilder> {
    let pool = FairSpillPool::new(pool_of(config.memory_limit.unwrap_or_else(half_of_memory)));
    // A folder that was listed once may have other files now: a table is written and read in one session.
    let mut runtime = RuntimeEnvBuilder::new()
        .with_object_list_cache_limit(0)
        .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, NonZeroUsize::MIN.saturating_add(4))));
    if let Some(folder) = &config.temp_dir {
        runtime = runtime.with_temp_file_path(folder);
    }
    let stores = config.object_stores.clone().unwrap_or_else(|| Arc::new(DefaultObjectStoreRegistry::new()));
    runtime = runtime.with_object_store_registry(Arc::new(VisibleFiles(stores)));
    let mut builder = SessionStateBuilder::new_with_default_features();
    if let Some(formats) = builder.file_formats() {
        formats.retain(|format| format.get_ext() != "parquet");
        formats.push(Arc::new(MergedParquetFactory::default()));
    }
    for tables in builder.table_factories().iter_mut().flat_map(|tables| tables.values_mut()) {
        *tables = Arc::new(FileTables::default());
    }
    builder.expr_planners().get_or_insert_default().push(Arc::new(SeriesOperators));
    Ok(builder
        .with_aggregate_functions(aggregate_functions())
        .with_config(session_config(config)?)
        .with_runtime_env(runtime.build_arc()?)
        .with_query_planner(Arc::new(DatasetQueryPlanner::new(planners)))
        .with_physical_optimizer_rules(physical_rules())
        .with_scalar_functions(scalar_functions()))
}

/// DataFusion's rules and ours.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.insert(0, Arc::new(ForgetFloats));
    rules.push(Arc::new(AskFloats));
    rules.push(Arc::new(ReadListsFast));
    rules
}

/// DataFusion's scalar functions and ours: the builder replaces its list rather than adding to it.
fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    let mut all = SessionStateDefaults::default_scalar_functions();
    all.extend([row_hash::row_hash(), with_nan()]);
    all.extend(series_arithmetic::functions());
    all
}

fn session_config(config: &EngineConfig) -> Result<SessionConfig> {
    let mut session = SessionConfig::new().with_information_schema(true);
    let options = session.options_mut();
    // Schema metadata (a grid, a unit) must be there again when a table is read back.
    options.execution.parquet.skip_metadata = false;
    // A string column has one type, whether it was just computed or read back.
    options.execution.parquet.schema_force_view_types = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.parquet.pushdown_filters = true;
    // Nanoseconds hold the years 1677 to 2262 only, and Spark writes the year 9999 for what never ends.
    options.execution.parquet.coerce_int96 = Some("us".into());
    // Folders within a folder are read with it.
    options.execution.listing_table_ignore_subdirectory = false;
    // DataFusion 55 takes a condition on such a subquery below an aggregate without groups, which then gives a row that
    // the condition excludes.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    if let Some(partitions) = config.target_partitions {
        options.execution.target_partitions = partitions.max(1);
    }
    if let Some(rows) = config.batch_size {
        options.set("datafusion.execution.batch_size", &rows.max(1).to_string())?;
    }
    for (name, value) in &config.settings {
        options.set(name, value)?;
    }
    if let Some(cache) = &config.cache {
        session.set_extension(Arc::new(CacheLocation(cache.clone())));
    }
    Ok(session)
}

/// The pool of a process that should need so many bytes in all.
fn pool_of(memory: usize) -> usize {
    memory / 3 * 2
}

/// The bytes that a process should need in all, whose pool has so many; see [`EngineConfig::memory_limit`].
pub fn memory_of_session(pool: usize) -> usize {
    pool / 2 * 3
}

/// Half of what this process may have where the system says how much that is, else 2 GiB.
fn half_of_memory() -> usize {
    memory_of_process().and_then(|bytes| usize::try_from(bytes / 2).ok()).unwrap_or(2 << 30)
}

/// Plans with DataFusion's planner and all extension planners.
struct DatasetQueryPlanner {
    planner: DefaultPhysicalPlanner,
}

impl DatasetQueryPlanner {
    fn new(mut planners: ExtensionPlanners) -> Self {
        planners.insert(0, Arc::new(DatasetPlanner));
        Self { planner: DefaultPhysicalPlanner::with_extension_planners(planners) }
    }
}

impl fmt::Debug for DatasetQueryPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetQueryPlanner").finish_non_exhaustive()
    }
}

#[async_trait]
impl QueryPlanner for DatasetQueryPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        self.planner.create_physical_plan(plan, session).await
    }
}
