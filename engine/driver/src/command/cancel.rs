//! `voxelflow cancel JOB`.

use super::control::client;
use crate::{Result, flags::JobFlags};

pub(super) async fn cancel(flags: JobFlags, json: bool) -> Result<()> {
    client(&flags.control)?.cancel(&flags.job).await.map_err(voxelflow_cluster::Error::from)?;
    match json {
        true => say!("{}", serde_json::json!({ "job": flags.job, "state": "cancelled" })),
        false => say!("job {} is cancelled", flags.job),
    }
    Ok(())
}
