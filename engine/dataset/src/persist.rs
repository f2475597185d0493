//! Keeping what was computed: as Parquet under `<cache>/<key>`, read again from there.
//!
//! ```text
//!   plan ──► identity (plan_identity) ──► entry (cache_entry) ──whole──► read
//!                                              └─ nothing, damaged ──► run, write, publish, read
//! ```
//!
//! The key is the plan's content, so equal plans are written once: in this session, in a later one, in one on
//! another machine that sees the same cache. What is known within a session only (a stream, `random()`) is kept
//! in the session's own folder and ends with it. Before a plan that reads persisted rows is run, their parts are
//! looked at; if some are lost or are not what was written, the rows are computed again from their lineage.
//! A checkpoint stays, and its plan forgets where it came from.

use crate::{
    Dataset, Engine,
    cache_entry::{CacheEntry, Found},
    error::{Error, Result},
    plan_identity::PlanIdentity,
};
use datafusion::{
    catalog::TableProvider,
    common::tree_node::TreeNodeRecursion,
    datasource::{DefaultTableSource, ViewTable, listing::ListingTable},
    error::Result as PlanResult,
    logical_expr::LogicalPlan,
};
use futures::{FutureExt, future::BoxFuture};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Where persisted rows are kept, a path or URL: an extension of the session's configuration.
#[derive(Debug)]
pub(crate) struct CacheLocation(pub String);

/// What a persisted dataset was before, and where its rows are.
#[derive(Debug)]
pub(crate) struct Kept {
    identity: PlanIdentity,
    entry: CacheEntry,
    /// The folder of the rows, as a URL that ends with a slash.
    place: String,
    /// Held also because a plan that is bound to its session may be known by the addresses of its tables.
    lineage: LogicalPlan,
    removed: AtomicBool,
    /// One repairs, others wait.
    mending: tokio::sync::Mutex<()>,
}

/// The persisted plans of one engine, by the place of their rows.
#[derive(Debug, Default)]
pub(crate) struct PersistedPlans(Mutex<BTreeMap<String, Arc<Kept>>>);

impl PersistedPlans {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Kept>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Equal plans that were found at one place are kept once.
    fn keep(&self, kept: Kept) -> Arc<Kept> {
        Arc::clone(self.lock().entry(kept.place.clone()).or_insert_with(|| Arc::new(kept)))
    }

    fn at(&self, place: &str) -> Option<Arc<Kept>> {
        self.lock().get(place).cloned()
    }

    /// What the rows at `place` are, if this engine has persisted them.
    pub(crate) fn identity_at(&self, place: &str) -> Option<PlanIdentity> {
        self.at(place).map(|kept| kept.identity.clone())
    }

    /// All that `plan` reads.
    fn read_by(&self, plan: &LogicalPlan) -> PlanResult<Vec<Arc<Kept>>> {
        let mut kept = BTreeMap::new();
        if !self.lock().is_empty() {
            for_each_table(plan, &mut |table| {
                let files = table.downcast_ref::<ListingTable>();
                for url in files.into_iter().flat_map(ListingTable::table_paths) {
                    kept.extend(self.at(url.as_str()).map(|k| (k.place.clone(), k)));
                }
            })?;
        }
        Ok(kept.into_values().collect())
    }
}

impl Drop for PersistedPlans {
    fn drop(&mut self) {
        let bound = |kept: &&Arc<Kept>| kept.identity.bound;
        for folder in self.lock().values().filter(bound).filter_map(|kept| kept.entry.local()) {
            // Nobody is left to tell; the working folder is the user's to clear.
            drop(fs::remove_dir_all(folder));
        }
    }
}

fn for_each_table(plan: &LogicalPlan, found: &mut impl FnMut(&dyn TableProvider)) -> PlanResult<()> {
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(TreeNodeRecursion::Continue) };
        if let Some(source) = scan.source.downcast_ref::<DefaultTableSource>() {
            match source.table_provider.downcast_ref::<ViewTable>() {
                Some(view) => for_each_table(view.logical_plan(), found)?,
                None => found(source.table_provider.as_ref()),
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

impl Kept {
    fn dataset(&self, engine: &Engine) -> Dataset {
        engine.dataset(self.lineage.clone())
    }

    /// Computes the rows again if they are not all there.
    async fn mend(&self, engine: &Engine) -> Result<()> {
        if self.removed.load(Ordering::SeqCst) {
            let reason =
                "these rows were removed: use the dataset that `unpersist` gave, or persist it again";
            return Err(Error::plan("unpersist", reason));
        }
        let _alone = self.mending.lock().await;
        if !self.entry.holds(&self.place).await? {
            // What is counted now was counted when the rows were computed first.
            self.entry.write(&self.dataset(engine), Some(&self.place)).await?;
        }
        Ok(())
    }
}

/// Makes sure that the persisted rows that `plan` reads are there. (Boxed: mending runs a plan, which may read
/// persisted rows itself.)
pub(crate) fn mend<'a>(engine: &'a Engine, plan: &'a LogicalPlan) -> BoxFuture<'a, Result<()>> {
    async move {
        for kept in engine.persisted().read_by(plan)? {
            kept.mend(engine).await?;
        }
        Ok(())
    }
    .boxed()
}

impl Dataset {
    /// Keeps the rows as Parquet in the cache and gives a dataset that reads them from there. Rows of an equal
    /// plan that are there already, also from an earlier session, are not computed again; a plan is equal while
    /// what it does, the files and rows that it reads, and the build of the program are. Rows that cannot be
    /// known by content end with the engine, all others stay until [`Dataset::unpersist`].
    ///
    /// The cache is the setting [`EngineConfig::cache`](crate::EngineConfig), or the folder `cache` under the
    /// engine's working folder. On a cluster it must be storage that all executors see.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub async fn persist(&self) -> Result<Self> {
        let (engine, lineage) = (self.engine(), self.logical_plan()?.clone());
        let identity = PlanIdentity::of(engine, &lineage).await?;
        let cache = cache_of(engine, &identity)?;
        let entry = CacheEntry::open(engine, &cache, &identity.key)?;
        let (place, counted) = match entry.find().await? {
            Found::Whole(place, counted) => (place, counted),
            Found::Damaged(place) => entry.write(self, Some(&place)).await?,
            Found::Nothing => entry.write(self, None).await?,
        };
        // Once a session, whoever has computed the rows.
        if engine.persisted().at(&place).is_none() {
            engine.count(counted);
        }
        let kept = engine.persisted().keep(Kept {
            identity,
            entry,
            place,
            lineage,
            removed: AtomicBool::new(false),
            mending: tokio::sync::Mutex::default(),
        });
        Ok(engine.read_parquet(&kept.place).await?.with_kept(kept))
    }

    /// Removes the rows that [`Dataset::persist`] kept, for all who read them, and gives the dataset as it was
    /// before; one that was not persisted is given as it is.
    ///
    /// # Errors
    /// Files that cannot be removed.
    pub async fn unpersist(&self) -> Result<Self> {
        let Some(kept) = self.kept() else { return Ok(self.clone()) };
        if !kept.removed.swap(true, Ordering::SeqCst) {
            kept.entry.remove().await?;
        }
        Ok(kept.dataset(self.engine()))
    }

    /// Runs the plan and writes its rows to `location` to stay; the answer reads them from there.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub async fn checkpoint(&self, location: &str) -> Result<Self> {
        self.write_parquet(location).await?;
        self.engine().read_parquet(location).await
    }
}

/// Rows that are bound to a session are in its own folder, wherever others are: it removes them at its end.
fn cache_of(engine: &Engine, identity: &PlanIdentity) -> Result<String> {
    let own = engine.work_dir().join("cache");
    match engine.context().state().config().get_extension::<CacheLocation>() {
        Some(cache) if !identity.bound => Ok(cache.0.clone()),
        _ => path_text(&own).map(str::to_owned),
    }
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::target(path.display(), "its name is no Unicode text"))
}
