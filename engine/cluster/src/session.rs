//! Sessions of the scheduler and of executors: made by the same function as the driver's, so that a function or a
//! store that the driver knows is known there too.

use crate::policy::JobOptions;
use ballista_core::{
    ConfigProducer, RuntimeProducer,
    config::BallistaConfig,
    extension::{SessionConfigExt, SessionConfigHelperExt},
    registry::BallistaFunctionRegistry,
};
use ballista_scheduler::SessionBuilder;
use datafusion::{
    error::Result,
    execution::{SessionState, SessionStateBuilder, runtime_env::RuntimeEnvBuilder},
    prelude::SessionConfig,
};
use std::sync::Arc;
use voxelflow_dataset::StoresOf;

/// Makes a session as the driver's: its functions, its stores, its settings.
pub type SessionFactory = Arc<dyn Fn() -> Result<SessionState> + Send + Sync>;

/// Largest message between driver, scheduler and executors. A plan is one message; so is a batch of rows.
pub const MESSAGE_BYTES: usize = 256 << 20;

/// Settings of DataFusion that Ballista needs: what it restricts, by name and value. But for one: Ballista prefers
/// sort-merge joins, which spill; DataFusion 55 pushes `ORDER BY … LIMIT` below them and so loses rows
/// (`integration-tests/tests/cluster.rs` has such a query).
pub(crate) fn restricted_settings() -> Vec<(String, String)> {
    const RESTRICTED: &[&str] = &[
        "datafusion.optimizer.enable_round_robin_repartition",
        "datafusion.optimizer.hash_join_single_partition_threshold",
        "datafusion.optimizer.hash_join_single_partition_threshold_rows",
        "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery",
        "datafusion.optimizer.enable_dynamic_filter_pushdown",
    ];
    let config = SessionConfig::new().ballista_restricted_configuration();
    let entries = config.options().entries().into_iter();
    let restricted = entries.filter(|entry| RESTRICTED.contains(&entry.key.as_str()));
    restricted.filter_map(|entry| Some((entry.key, entry.value?))).collect()
}

/// `config` with what jobs say to the scheduler.
pub(crate) fn with_job_settings(config: SessionConfig) -> SessionConfig {
    let config = match config.options().extensions.get::<BallistaConfig>() {
        Some(_) => config,
        None => config.with_option_extension(BallistaConfig::default()),
    };
    let config = match config.options().extensions.get::<JobOptions>() {
        Some(_) => config,
        None => config.with_option_extension(JobOptions::default()),
    };
    config.with_ballista_grpc_client_max_message_size(MESSAGE_BYTES)
}

/// What Ballista asks for in three ways.
pub(crate) struct Sessions {
    state: SessionState,
}

impl Sessions {
    pub(crate) fn of(factory: &SessionFactory) -> Result<Self> {
        Ok(Self { state: factory()? })
    }

    /// Settings that a job's own are laid over.
    pub(crate) fn config_producer(&self, more: impl Fn(SessionConfig) -> SessionConfig) -> ConfigProducer {
        let config = with_job_settings(self.state.config().clone()).ballista_restricted_configuration();
        let config = more(config);
        Arc::new(move || config.clone())
    }

    pub(crate) fn session_builder(&self) -> SessionBuilder {
        let state = self.state.clone();
        Arc::new(move |config| {
            Ok(SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build())
        })
    }

    pub(crate) fn functions(&self) -> Arc<BallistaFunctionRegistry> {
        Arc::new(BallistaFunctionRegistry::from(&self.state))
    }

    /// Memory and disk are shared by all jobs; stores are as each job describes them.
    pub(crate) fn runtime_producer(&self) -> RuntimeProducer {
        let runtime = Arc::clone(self.state.runtime_env());
        let stores = self.state.config().get_extension::<StoresOf>();
        Arc::new(move |config| match &stores {
            Some(stores) => RuntimeEnvBuilder::from_runtime_env(&runtime)
                .with_object_store_registry((stores.0)(config))
                .build_arc(),
            None => Ok(Arc::clone(&runtime)),
        })
    }
}
