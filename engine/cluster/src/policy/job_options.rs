//! What a job asks of the scheduler, as session settings that travel with it.

use datafusion::{
    config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions},
    error::{DataFusionError, Result},
};
use std::any::Any;

/// Settings of a session: `SET voxelflow.queue = 'small'`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// The queue whose share the session's jobs take; the common one if empty.
    pub queue: String,
    /// The only pool whose executors its jobs may use; any if empty.
    pub pool: String,
}

impl ConfigExtension for JobOptions {
    const PREFIX: &'static str = "voxelflow";
}

/// By hand: the names of entries must have the prefix, or they are lost on the way to the scheduler.
impl ExtensionOptions for JobOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let field = match key {
            "queue" => &mut self.queue,
            "pool" => &mut self.pool,
            _ => {
                let reason = format!(
                    "there is no setting voxelflow.{key}; there are voxelflow.queue and voxelflow.pool"
                );
                return Err(DataFusionError::Configuration(reason));
            }
        };
        value.clone_into(field);
        Ok(())
    }
    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: &str, description| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value: Some(value.to_owned()),
            description,
        };
        vec![
            entry("queue", &self.queue, "the queue whose share the session's jobs take"),
            entry("pool", &self.pool, "the only pool whose executors the session's jobs may use"),
        ]
    }
}

impl JobOptions {
    /// The options in `config`; the defaults where they are not part of it.
    pub fn of(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use ballista_core::extension::{SessionConfigExt, SessionConfigHelperExt};
    use datafusion::prelude::SessionConfig;

    #[test]
    fn options_travel_with_a_session() {
        let fresh = || SessionConfig::new_with_ballista().with_option_extension(JobOptions::default());
        let mut session = fresh();
        session.options_mut().set("voxelflow.queue", "small").unwrap();
        let received = fresh().update_from_key_value_pair(&session.to_key_value_pairs());
        let options = JobOptions::of(received.options());
        assert_eq!((options.queue.as_str(), options.pool.as_str()), ("small", ""));
        assert_eq!(JobOptions::of(&ConfigOptions::new()), JobOptions::default());
        let odd = session.options_mut().set("voxelflow.colour", "red").unwrap_err().to_string();
        assert!(odd.contains("voxelflow.queue and voxelflow.pool"), "{odd}");
    }
}
