//! `voxelflow why-waiting JOB`: which of its stages have no room, and why.

use super::control::{client, seconds};
use crate::{Result, flags::JobFlags};
use voxelflow_cluster::control::messages::Waits;

pub(super) async fn why_waiting(flags: JobFlags, json: bool) -> Result<()> {
    let waits = client(&flags.control)?.why_waiting(&flags.job).await;
    let waits = waits.map_err(voxelflow_cluster::Error::from)?;
    match json {
        true => say!("{}", serde_json::json!({ "job": flags.job, "waits": waits })),
        false => crate::output::say(format_args!("{}", text(&flags.job, &waits))),
    }
    Ok(())
}

fn text(job: &str, waits: &Waits) -> String {
    let phase = waits.phase.map_or_else(String::new, |phase| phase.to_string());
    if waits.stages.is_empty() {
        return format!("job {job} is {phase} and waits for no room\n");
    }
    let line = |stage: &voxelflow_cluster::control::messages::StageWaits| {
        format!("stage {} for {}: {}\n", stage.stage, seconds(stage.seconds as u64), stage.reason)
    };
    waits.stages.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use voxelflow_cluster::control::messages::{JobPhase, StageWaits};

    #[test]
    fn every_stage_that_waits_has_its_line() {
        let mut waits = Waits { phase: Some(JobPhase::Running), stages: Vec::new() };
        assert_eq!(text("j1", &waits), "job j1 is running and waits for no room\n");
        let reason = "waits for 4 slots: 3 free of 4".to_owned();
        waits.stages.push(StageWaits { stage: 2, seconds: 75.9, reason });
        assert_eq!(text("j1", &waits), "stage 2 for 1m 15s: waits for 4 slots: 3 free of 4\n");
    }
}
