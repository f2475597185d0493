//! A dataset: a plan of rows in partitions, and the engine that runs it.

use crate::{
    Engine,
    error::{Error, Result},
    persist::Kept,
};
use arrow::datatypes::SchemaRef;
use datafusion::{dataframe::DataFrame, error::Result as PlanResult, logical_expr::LogicalPlan};
use std::{fmt, sync::Arc};

/// Partitioned rows that are described by a plan and read when an action asks for them.
///
/// Verbs give a new dataset and do not fail: a fault (a column that is not there) waits for the action, or
/// for [`Dataset::schema`], and names the verb. Nothing is read before an action; a partition that is needed
/// again is computed again from the plan, unless it was persisted.
#[derive(Clone)]
pub struct Dataset {
    engine: Engine,
    plan: Result<LogicalPlan>,
    kept: Option<Arc<Kept>>,
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            Ok(plan) => write!(f, "Dataset\n{}", plan.display_indent()),
            Err(e) => write!(f, "Dataset that cannot be run: {e}"),
        }
    }
}

impl Dataset {
    pub(crate) fn new(engine: Engine, plan: Result<LogicalPlan>) -> Self {
        Self { engine, plan, kept: None }
    }

    pub(crate) fn with_kept(self, kept: Arc<Kept>) -> Self {
        Self { kept: Some(kept), ..self }
    }

    pub(crate) fn kept(&self) -> Option<&Arc<Kept>> {
        self.kept.as_ref()
    }

    /// The engine that it runs on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The plan.
    ///
    /// # Errors
    /// The first fault in the chain of verbs.
    pub fn logical_plan(&self) -> Result<&LogicalPlan> {
        self.plan.as_ref().map_err(Clone::clone)
    }

    /// Names, types and metadata of the columns.
    ///
    /// # Errors
    /// The first fault in the chain of verbs.
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(Arc::new(self.logical_plan()?.schema().as_arrow().clone()))
    }

    /// The plan as DataFusion's frame, for verbs that are not here.
    ///
    /// # Errors
    /// The first fault in the chain of verbs.
    pub fn to_frame(&self) -> Result<DataFrame> {
        Ok(DataFrame::new(self.engine.context().state(), self.logical_plan()?.clone()))
    }

    /// The next dataset of a chain: its plan made from this one's.
    pub(crate) fn then(
        &self,
        verb: &'static str,
        next: impl FnOnce(LogicalPlan) -> PlanResult<LogicalPlan>,
    ) -> Self {
        self.try_then(|dataset| next(dataset.logical_plan()?.clone()).map_err(|e| Error::planning(verb, e)))
    }

    /// As [`Dataset::then`], over DataFusion's frame.
    pub(crate) fn then_frame(
        &self,
        verb: &'static str,
        next: impl FnOnce(DataFrame) -> PlanResult<DataFrame>,
    ) -> Self {
        self.try_then(|dataset| {
            let frame = next(dataset.to_frame()?).map_err(|e| Error::planning(verb, e))?;
            Ok(frame.into_unoptimized_plan())
        })
    }

    /// The next dataset of a chain, or its fault.
    pub(crate) fn try_then(&self, next: impl FnOnce(&Self) -> Result<LogicalPlan>) -> Self {
        Self::new(self.engine.clone(), next(self))
    }
}
