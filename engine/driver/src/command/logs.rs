//! `voxelflow logs JOB`: what its tasks wrote, on whichever executor.

use super::control::client;
use crate::{Result, flags::LogsFlags};
use std::time::Duration;

/// Between two questions for new lines.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn logs(flags: LogsFlags, json: bool) -> Result<()> {
    let client = client(&flags.control)?;
    let (mut from, mut most) = (0, flags.last);
    loop {
        let page = client.logs(&flags.job, from, most).await.map_err(voxelflow_cluster::Error::from)?;
        for line in &page.lines {
            match json {
                true => say!("{}", serde_json::json!(line)),
                false => say!("{line}"),
            }
        }
        if !flags.follow || page.ended {
            return Ok(());
        }
        (from, most) = (page.next, usize::MAX);
        tokio::time::sleep(PAUSE).await;
    }
}
