//! Keeping what was computed: as Parquet in the working folder, read again from there.
//!
//! A persisted dataset lives as long as the engine, or until it is unpersisted; equal plans are written once.
//! A checkpoint stays, and its plan forgets where it came from.

use crate::{
    Dataset, Engine, WriteOptions,
    error::{Error, Result},
};
use datafusion::{
    common::tree_node::TreeNodeRecursion, datasource::DefaultTableSource, logical_expr::LogicalPlan,
};
use std::{
    collections::HashMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a persisted dataset was before.
#[derive(Debug)]
pub(crate) struct Kept {
    key: String,
    lineage: LogicalPlan,
}

/// The persisted plans of one engine and their folders, by key.
#[derive(Debug, Default)]
pub(crate) struct PersistedPlans(Mutex<HashMap<String, Persisted>>);

#[derive(Debug)]
struct Persisted {
    folder: PathBuf,
    /// Held, so that the tables that the key names by address live as long as the key.
    _plan: LogicalPlan,
}

impl PersistedPlans {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Persisted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, key: &str) -> Option<PathBuf> {
        self.lock().get(key).map(|p| p.folder.clone()).filter(|f| f.exists())
    }

    fn insert(&self, key: &str, folder: PathBuf, plan: LogicalPlan) {
        self.lock().insert(key.to_owned(), Persisted { folder, _plan: plan });
    }

    fn remove(&self, key: &str) -> Option<PathBuf> {
        self.lock().remove(key).map(|p| p.folder)
    }
}

impl Drop for PersistedPlans {
    fn drop(&mut self) {
        for persisted in self.lock().values() {
            // Nobody is left to tell; the working folder is the user's to clear.
            drop(fs::remove_dir_all(&persisted.folder));
        }
    }
}

impl Dataset {
    /// Runs the plan and keeps its rows as Parquet under the engine's working folder; the answer reads them from
    /// there. A plan that is persisted already is not run again.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub async fn persist(&self) -> Result<Self> {
        let plan = self.logical_plan()?;
        let key = key_of(self.engine(), plan)?;
        let persisted = self.engine().persisted();
        let folder = match persisted.folder(&key) {
            Some(folder) => folder,
            None => {
                let folder = self.engine().work_dir().join("cache").join(&key);
                self.write_parquet_with(path_text(&folder)?, &WriteOptions::default().overwrite()).await?;
                persisted.insert(&key, folder.clone(), plan.clone());
                folder
            }
        };
        let kept = Kept { key, lineage: plan.clone() };
        Ok(self.engine().read_parquet(path_text(&folder)?).await?.with_kept(kept.into()))
    }

    /// Removes the rows that [`Dataset::persist`] kept and gives the dataset as it was before; one that was not
    /// persisted is given as it is.
    ///
    /// # Errors
    /// A folder that cannot be removed.
    pub async fn unpersist(&self) -> Result<Self> {
        let Some(kept) = self.kept() else { return Ok(self.clone()) };
        if let Some(folder) = self.engine().persisted().remove(&kept.key) {
            let removed = tokio::fs::remove_dir_all(&folder).await;
            removed.map_err(|e| Error::target(folder.display(), e))?;
        }
        Ok(self.engine().dataset(kept.lineage.clone()))
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

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::target(path.display(), "its name is no Unicode text"))
}

/// The hash of a plan within this engine: what it does, and which tables (by address) and models (by how many
/// there have been) it does it with.
fn key_of(engine: &Engine, plan: &LogicalPlan) -> Result<String> {
    let mut text = format!("{}\n{}\n", engine.context().session_id(), engine.models_registered());
    let mut tables = String::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let address = match scan.source.downcast_ref::<DefaultTableSource>() {
                Some(source) => Arc::as_ptr(&source.table_provider).cast::<()>(),
                None => Arc::as_ptr(&scan.source).cast::<()>(),
            };
            writeln!(tables, "{} {address:p}", scan.table_name).ok();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    write!(text, "{}\n{tables}", plan.display_indent_schema()).ok();
    Ok(blake3::hash(text.as_bytes()).to_hex()[..32].to_owned())
}
