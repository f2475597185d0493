//! The ranks of one gang, as the settings want them, in this process.

use crate::{
    GradientSync, Result, Ring, SyncSettings, Topology, in_process_communicators,
    service::in_process::parameter_service, with_local_steps,
};
use std::time::Duration;

/// One [`GradientSync`] for each of `ranks` threads of this process, by rank.
///
/// # Errors
/// [`Error::Setting`](crate::Error::Setting) for settings that cannot work.
pub fn in_process_gang(settings: &SyncSettings, ranks: usize) -> Result<Vec<Box<dyn GradientSync>>> {
    settings.validate(ranks)?;
    let ranks: Result<Vec<Box<dyn GradientSync>>> = match settings.topology {
        Topology::ParameterService => {
            let clients = parameter_service(settings, ranks).into_iter();
            Ok(clients.map(|client| Box::new(client) as Box<dyn GradientSync>).collect())
        }
        Topology::Ring => in_process_communicators(ranks, Duration::from_secs_f64(settings.deadline_seconds))
            .into_iter()
            .map(|c| Ok(Box::new(Ring::try_new(c, settings)?) as Box<dyn GradientSync>))
            .collect(),
    };
    Ok(ranks?.into_iter().map(|rank| with_local_steps(rank, settings)).collect())
}
