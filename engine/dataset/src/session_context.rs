//! A DataFusion session set up for datasets: our plan nodes, bounded memory, metadata that survives Parquet.

use crate::{
    aggregates::aggregate_functions,
    error::Result,
    join_filters::JoinFilters,
    nan::{AskFloats, ForgetFloats, with_nan},
    nodes::DatasetPlanner,
    null_safe_joins::KeepNullSafeJoins,
    parquet_lists::ReadListsFast,
    parquet_tables::{FileTables, MergedParquetFactory, VisibleFiles},
    partitions::partitions_at_once,
    persist::CacheLocation,
    process_memory::memory_of_process,
    row_hash,
    series_arithmetic::{self, SeriesOperators},
    subquery_conditions::SubqueryConditions,
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
    optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule, eliminate_cross_join::EliminateCrossJoin},
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
    /// Partitions of scans, joins and aggregations; if not given the machine's cores, as far as memory goes.
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
    let pool_bytes = pool_of(config.memory_limit.unwrap_or_else(half_of_memory));
    let pool = FairSpillPool::new(pool_bytes);
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
        .with_config(session_config(config, pool_bytes)?)
        .with_runtime_env(runtime.build_arc()?)
        .with_query_planner(Arc::new(DatasetQueryPlanner::new(planners)))
        .with_analyzer_rules(analyzer_rules())
        .with_optimizer_rules(logical_rules())
        .with_physical_optimizer_rules(physical_rules(partitions_at_once(pool_bytes)))
        .with_scalar_functions(scalar_functions()))
}

/// DataFusion's rules and ours, which come first: types are made equal after it.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(SubqueryConditions));
    rules
}

/// DataFusion's rules, one of them within bounds.
fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let cross_joins = rules.iter_mut().filter(|rule| rule.name() == EliminateCrossJoin::new().name());
    cross_joins.for_each(|rule| *rule = Arc::new(KeepNullSafeJoins::default()));
    rules
}

/// DataFusion's rules and ours.
fn physical_rules(at_once: usize) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let join_filters: Arc<dyn PhysicalOptimizerRule + Send + Sync> =
        Arc::new(JoinFilters::of_partitions(at_once));
    for rule in rules.iter_mut().filter(|rule| rule.name() == join_filters.name()) {
        *rule = Arc::clone(&join_filters);
    }
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

fn session_config(config: &EngineConfig, pool: usize) -> Result<SessionConfig> {
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
    // No more than run side by side: operators share memory by their number, and partitions may wait for each other.
    options.execution.target_partitions =
        config.target_partitions.unwrap_or_else(|| partitions_at_once(pool)).max(1);
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
