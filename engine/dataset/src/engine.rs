//! The engine: where datasets come from, and what they share while they are planned and run.

use crate::{
    Dataset, Ledger, LocalRunner, PlanRunner, Runner, StagePlanner,
    cache_entry::Counted,
    dialect::{self, Refusal},
    error::{Error, Result, similar},
    functions::{Accumulate, Accumulator, Accumulators, Broadcast, Broadcasts},
    parquet_tables::open_parquet,
    persist::PersistedPlans,
};
use arrow::{compute::concat_batches, datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::{
    datasource::{MemTable, provider_as_source},
    logical_expr::{LogicalPlan, LogicalPlanBuilder},
    prelude::SessionContext,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// A DataFusion session, the stages, the models by name, and a folder to work in. Cheap to clone; clones are
/// the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    context: SessionContext,
    planner: Arc<dyn StagePlanner>,
    runner: Arc<dyn PlanRunner>,
    work_dir: PathBuf,
    models: RwLock<BTreeMap<String, PathBuf>>,
    accumulators: Arc<Accumulators>,
    broadcasts: Arc<Broadcasts>,
    persisted: PersistedPlans,
    ledger: Mutex<Ledger>,
    next_number: AtomicU64,
    memory_tables: AtomicU64,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("session", &self.shared.context.session_id())
            .field("work_dir", &self.shared.work_dir)
            .finish_non_exhaustive()
    }
}

/// Makes what stages bring known to a session: their functions, and what their plans look for while they run. An
/// engine does so itself; the session of an executor has no engine, for what is added up there is the driver's.
pub fn register_stages(context: &SessionContext, planner: &dyn StagePlanner) {
    planner.prepare(context.state_ref().write().config_mut());
    for function in planner.model_functions().into_iter().chain(planner.series_functions()) {
        context.register_udf(function.as_ref().clone());
    }
}

impl Engine {
    /// An engine in this process, on `context` (see [`session_context`](crate::session_context)) that keeps models and persisted
    /// datasets under `work_dir`, which is made when first needed. Functions of the stages are registered.
    pub fn new(
        context: SessionContext,
        planner: Arc<dyn StagePlanner>,
        work_dir: impl Into<PathBuf>,
    ) -> Self {
        Self::build(context, planner, work_dir.into(), Arc::new(LocalRunner))
    }

    /// As [`Engine::new`]; plans are run by `runner`, whose settings the session is given.
    ///
    /// # Errors
    /// A setting of the runner that DataFusion does not have.
    pub fn on_runner(
        context: SessionContext,
        planner: Arc<dyn StagePlanner>,
        work_dir: impl Into<PathBuf>,
        runner: Arc<dyn PlanRunner>,
    ) -> Result<Self> {
        {
            let state = context.state_ref();
            let mut state = state.write();
            for (name, value) in runner.session_settings() {
                state.config_mut().options_mut().set(&name, &value)?;
            }
        }
        Ok(Self::build(context, planner, work_dir.into(), runner))
    }

    fn build(
        context: SessionContext,
        planner: Arc<dyn StagePlanner>,
        work_dir: PathBuf,
        runner: Arc<dyn PlanRunner>,
    ) -> Self {
        let (accumulators, broadcasts) = (Arc::<Accumulators>::default(), Arc::<Broadcasts>::default());
        {
            let state = context.state_ref();
            let mut state = state.write();
            let config = state.config_mut();
            config.set_extension(Arc::clone(&accumulators));
            config.set_extension(Arc::clone(&broadcasts));
            config.set_extension(Arc::new(Runner(Arc::clone(&runner))));
        }
        register_stages(&context, planner.as_ref());
        let shared = Shared {
            context,
            planner,
            runner,
            work_dir,
            models: RwLock::default(),
            accumulators,
            broadcasts,
            persisted: PersistedPlans::default(),
            ledger: Mutex::default(),
            next_number: AtomicU64::new(0),
            memory_tables: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The DataFusion session.
    pub fn context(&self) -> &SessionContext {
        &self.shared.context
    }

    /// The stages.
    pub fn planner(&self) -> &Arc<dyn StagePlanner> {
        &self.shared.planner
    }

    /// What plans of this engine that have run to their end had for the data-quality ledger, since this was last
    /// asked.
    pub fn take_ledger(&self) -> Ledger {
        std::mem::take(&mut *self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add_to_ledger(&self, found: &Ledger) {
        let mut ledger = self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.extend(found.iter().cloned());
    }

    /// Takes what was counted while rows were computed that this session reads.
    pub(crate) fn count(&self, counted: Counted) {
        self.shared.accumulators.add(counted.totals);
        self.add_to_ledger(&counted.ledger);
    }

    /// Where plans run.
    pub fn runner(&self) -> &Arc<dyn PlanRunner> {
        &self.shared.runner
    }

    /// The folder to work in.
    pub fn work_dir(&self) -> &Path {
        &self.shared.work_dir
    }

    pub(crate) fn persisted(&self) -> &PersistedPlans {
        &self.shared.persisted
    }

    pub(crate) fn broadcasts(&self) -> &Arc<Broadcasts> {
        &self.shared.broadcasts
    }

    /// A number that this engine has not given before.
    pub(crate) fn next_number(&self) -> u64 {
        self.shared.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

/// Where datasets come from.
impl Engine {
    /// The rows of `plan`.
    pub fn dataset(&self, plan: LogicalPlan) -> Dataset {
        Dataset::new(self.clone(), Ok(plan))
    }

    /// The rows of a Parquet file, or of all Parquet files of a folder or a glob, by path or URL. Names of folders such as
    /// `run=1` are columns; hidden files are left out. Reads their schema only.
    ///
    /// # Errors
    /// A path that does not exist, or files that are no Parquet.
    pub async fn read_parquet(&self, location: &str) -> Result<Dataset> {
        let is_glob = location.contains(['*', '?', '[']);
        if !location.contains("://") && !is_glob && !Path::new(location).exists() {
            return Err(Error::target(
                location,
                "no such file or folder: give a Parquet file or a folder of them",
            ));
        }
        let table = open_parquet(&self.context().state(), location).await;
        let table = table.map_err(|e| match Error::from(e) {
            Error::Execution { source_error } => {
                Error::target(location, crate::error::describe(&source_error))
            }
            own => own,
        })?;
        let frame = self.context().read_table(table).map_err(|e| Error::planning("read_parquet", e))?;
        Ok(self.dataset(frame.into_unoptimized_plan()))
    }

    /// The rows of a table that is registered with the session.
    ///
    /// # Errors
    /// A table that is not there.
    pub async fn read_table(&self, name: &str) -> Result<Dataset> {
        let frame = self.context().table(name).await.map_err(|e| Error::planning("read_table", e))?;
        Ok(self.dataset(frame.into_unoptimized_plan()))
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// A query that cannot be parsed or planned, or has a part that is not understood (see [`dialect`]).
    pub async fn sql(&self, query: &str) -> Result<Dataset> {
        let plan = self.sql_plan(query).await?;
        let frame = self.context().execute_logical_plan(plan).await.map_err(|e| Error::planning("sql", e))?;
        Ok(self.dataset(frame.into_unoptimized_plan()))
    }

    async fn sql_plan(&self, query: &str) -> Result<LogicalPlan> {
        let state = self.context().state();
        let refused = |refusal: Refusal| Error::plan("sql", refusal.within(query));
        let mut statement = dialect::parse(query, &state).map_err(refused)?;
        let is_scalar = |name: &str| state.scalar_functions().contains_key(name);
        dialect::admit(&mut statement, &dialect::tokens(query), &is_scalar).map_err(refused)?;
        state.statement_to_plan(statement).await.map_err(|e| Error::planning("sql", e))
    }

    /// Rows from memory, dealt out to `partitions` partitions of neighbouring rows, in their order.
    ///
    /// # Errors
    /// No batches at all (their schema is needed), or batches of different schemas.
    pub fn from_batches(&self, batches: &[RecordBatch], partitions: usize) -> Result<Dataset> {
        let Some(first) = batches.first() else {
            return Err(Error::plan(
                "from_batches",
                "no batches: give at least one, even empty, for its schema",
            ));
        };
        let parts = deal_out(&first.schema(), batches, partitions.max(1))?;
        let table =
            MemTable::try_new(first.schema(), parts).map_err(|e| Error::planning("from_batches", e))?;
        // Counted by themselves: a program's tables have the same names, so its plans the same keys, every time.
        let name = format!("memory_{}", self.shared.memory_tables.fetch_add(1, Ordering::Relaxed));
        let plan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None);
        let plan =
            plan.and_then(LogicalPlanBuilder::build).map_err(|e| Error::planning("from_batches", e))?;
        Ok(self.dataset(plan))
    }
}

/// Partition `p` of `n` gets the rows from `rows·p/n` to `rows·(p+1)/n`, as slices of the batches.
fn deal_out(schema: &SchemaRef, batches: &[RecordBatch], partitions: usize) -> Result<Vec<Vec<RecordBatch>>> {
    let unfit = |e| Error::plan("from_batches", format!("the batches do not have one schema: {e}"));
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut parts = Vec::with_capacity(partitions);
    for p in 0..partitions {
        let (from, to) = (rows * p / partitions, rows * (p + 1) / partitions);
        let (mut start, mut part) = (0, Vec::new());
        for batch in batches {
            let end = start + batch.num_rows();
            let (a, b) = (from.max(start), to.min(end));
            if a < b {
                // A copy of one batch gives it the common schema and checks that it fits.
                part.push(concat_batches(schema, [&batch.slice(a - start, b - a)]).map_err(unfit)?);
            }
            start = end;
        }
        parts.push(part);
    }
    Ok(parts)
}

/// What functions in plans share with the driver.
impl Engine {
    /// A sum, from 0, that named functions add to; hand it to them in their arguments. Rows that an earlier process has
    /// persisted add what they added then, if the accumulators of this name were made in the same order.
    pub fn accumulator<T: Accumulate>(&self, name: &str) -> Accumulator<T> {
        self.shared.accumulators.create(name)
    }

    /// What has been added so far. Sums reach the driver when a partition ends.
    pub fn accumulated<T: Accumulate>(&self, accumulator: &Accumulator<T>) -> T {
        self.shared.accumulators.get(accumulator)
    }

    /// Keeps `value` for all partitions; hand the handle to functions in their arguments.
    ///
    /// # Errors
    /// A value that serde cannot write.
    pub fn broadcast<T: Serialize + Send + Sync + 'static>(&self, value: T) -> Result<Broadcast<T>> {
        self.shared.broadcasts.put(value)
    }

    /// Forgets a broadcast value; plans that still read it fail.
    pub fn forget<T>(&self, broadcast: &Broadcast<T>) {
        self.shared.broadcasts.remove(broadcast.id());
    }
}

/// Models by name.
impl Engine {
    /// Makes the model in `folder` known as `name`.
    pub fn register_model(&self, name: &str, folder: impl Into<PathBuf>) {
        let mut models = self.shared.models.write().unwrap_or_else(PoisonError::into_inner);
        models.insert(name.to_owned(), folder.into());
    }

    /// The folder of the model `name`.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with similar names.
    pub fn model_folder(&self, name: &str) -> Result<PathBuf> {
        let models = self.shared.models.read().unwrap_or_else(PoisonError::into_inner);
        models.get(name).cloned().ok_or_else(|| Error::UnknownName {
            kind: "model",
            name: name.to_owned(),
            nearest: similar(name, models.keys().map(String::as_str)),
        })
    }

    /// All models and their folders, by name.
    pub fn models(&self) -> BTreeMap<String, PathBuf> {
        self.shared.models.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a model called `name` is kept unless told otherwise.
    pub fn default_model_folder(&self, name: &str) -> PathBuf {
        self.shared.work_dir.join("models").join(name)
    }
}
