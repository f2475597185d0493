//! Runs the ranks of a gang, wherever plans run, to the first cause of a failure or the fitted model.

use super::{
    collected::Collected,
    host::{GangPlan, Place, Watch},
    rank::{FeaturesPlace, Orders, TRAIN_RANK},
    rank_row::RankRecord,
    run_record::RunClaim,
    spool::{SpoolPlace, unique},
};
use crate::{observer::Cancellation, train::TrainJob};
use arrow::record_batch::RecordBatch;
use datafusion::{
    common::{DataFusionError, runtime::JoinSet},
    error::Result as PlanResult,
    execution::{SendableRecordBatchStream, TaskContext},
};
use futures::{FutureExt, TryStreamExt};
use std::{fs, path::Path, sync::Arc, time::Duration};
use voxelflow_dataset::{
    Runner, build_id,
    nodes::{GangRequest, gang_plan_in_order},
};
use voxelflow_stage::{History, ProgressSink};
use voxelflow_sync::{
    Invitation, Topology,
    protocol::{Outcome as Ended, RunId},
};

/// What the ranks read, and whom they tell.
pub(super) struct GangRun<'a> {
    pub job: &'a TrainJob,
    pub train: &'a SpoolPlace,
    pub validation: Option<&'a SpoolPlace>,
    pub features: Option<FeaturesPlace>,
    pub validation_features: Option<FeaturesPlace>,
    pub progress: Option<Arc<dyn ProgressSink>>,
    pub checkpoints: Option<&'a Path>,
    pub writing: &'a Path,
    pub cancellation: &'a Cancellation,
    pub claim: &'a Arc<RunClaim>,
}

/// What came of a gang.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What training did.
    pub history: History,
    /// The ranks, by number.
    pub members: Vec<RankRecord>,
    /// How many of them trained to the end.
    pub ranks_at_end: usize,
}

impl GangRun<'_> {
    /// Trains; the leader has written the model's files then.
    ///
    /// # Errors
    /// The first cause, which is not merely the consequence of another one.
    pub async fn run(&self, context: &Arc<TaskContext>) -> PlanResult<Outcome> {
        let runner = Runner::of(context);
        let plan = GangPlan {
            run: RunId(u128::from(unique()) << 64 | u128::from(unique())),
            settings: &self.job.settings,
            options: &self.job.gang,
            place: runner.driver_address().map_or(Place::Here, Place::Elsewhere),
            build: build_id()?,
        };
        let host = plan.start()?;
        let orders = serde_json::to_vec(&self.orders(host.invitation())?);
        let orders = orders.map_err(|e| DataFusionError::External(e.into()))?;
        let mut watch = Watch::start(host, self.progress.clone(), Arc::clone(self.claim))?;
        let payload = runner.seal(&orders)?;
        let dedicated = plan.dedicated_shards();
        let order = in_turn(self.job.settings.ranks, dedicated);
        let gang = gang_plan_in_order(self.request(dedicated), &order, TRAIN_RANK, payload.into())?;
        let run = runner.run(gang, Arc::clone(context)).await?;
        self.claim.note(|record| record.job = run.job)?;
        let mut collected = self.collect(run.streams, plan.place, &mut watch).await;
        let ended = tokio::task::spawn_blocking(move || watch.outcome()).await;
        collected.ended = ended.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
        collected.outcome(self.job.estimator.stage(), &self.job.model)
    }

    /// Ranks may work in other folders: their paths are absolute.
    fn orders(&self, invitation: Invitation) -> std::io::Result<Orders> {
        Ok(Orders {
            invitation,
            model: self.job.model.clone(),
            stage: self.job.estimator.stage().to_owned(),
            options: self.job.options.clone(),
            settings: self.job.settings.clone(),
            memory_bytes: self.job.gang.memory_bytes(),
            own_cards: self.job.gang.cards > 0,
            train: self.train.clone(),
            validation: self.validation.cloned(),
            features: self.features.clone(),
            validation_features: self.validation_features.clone(),
            checkpoints: self.checkpoints.map(std::path::absolute).transpose()?,
            writing: std::path::absolute(self.writing)?,
        })
    }

    /// It begins with all, unless the user says how few are enough; others join when there is room for them.
    fn request(&self, dedicated: usize) -> GangRequest {
        let gang = &self.job.gang;
        let ranks = self.job.settings.ranks;
        GangRequest {
            name: format!("model {}", self.job.model),
            members: ranks + dedicated,
            min_members: gang.min_ranks.unwrap_or(ranks) + dedicated,
            strict: self.job.settings.sync.topology == Topology::Ring,
            pool: gang.pool.clone(),
            memory_bytes: gang.memory_bytes(),
            cards: gang.cards,
            queue: gang.queue.clone().unwrap_or_default(),
            deadline_seconds: gang.gang_deadline_seconds,
        }
    }

    /// Takes the ranks' rows as they come; the first error stops the others. When the gang is over, tasks that are
    /// still there may be those of lost members, which the cluster would be long in giving up: they are dropped.
    async fn collect(
        &self,
        streams: Vec<SendableRecordBatchStream>,
        place: Place,
        watch: &mut Watch,
    ) -> Collected {
        let host = watch.host();
        let mut ranks = JoinSet::new();
        for rows in streams {
            ranks.spawn(rows.try_collect::<Vec<RecordBatch>>());
        }
        let mut collected = Collected::default();
        let mut cancelled = false;
        let mut end = (None, Vec::new());
        let mut wait = Box::pin(std::future::pending().left_future());
        loop {
            let rank = tokio::select! {
                rank = ranks.join_next() => rank,
                (outcome, rows) = watch.ended() => {
                    end = (Some(outcome), rows);
                    if place != Place::Here {
                        wait = Box::pin(tokio::time::sleep(LAST_ROWS).right_future());
                    }
                    continue;
                }
                () = &mut wait => break,
                () = self.cancellation.cancelled(), if !cancelled => {
                    cancelled = true;
                    host.cancel();
                    continue;
                }
            };
            let Some(rank) = rank else { break };
            let batches = rank.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e))).flatten();
            collected.add_all(batches);
            if collected.failed() {
                host.cancel();
            }
        }
        let (outcome, rows) = end;
        collected.add_missing(rows, outcome == Some(Ended::Finished));
        collected
    }
}

/// How long the tasks of a gang that is over may take to give their rows.
const LAST_ROWS: Duration = Duration::from_secs(2);

/// Ranks and, after them by number, holders of shards, dealt out in turn: an executor that gets some of the gang gets
/// its part of both.
fn in_turn(ranks: usize, dedicated: usize) -> Vec<usize> {
    let halves = |i: usize, of_others: usize| (2 * i + 1) * of_others.max(1);
    let mut members: Vec<(usize, usize)> = (0..ranks).map(|rank| (halves(rank, dedicated), rank)).collect();
    members.extend((0..dedicated).map(|shard| (halves(shard, ranks), ranks + shard)));
    members.sort_unstable();
    members.into_iter().map(|(_, member)| member).collect()
}

/// Removes checkpoints that are of no more use; what cannot be removed does no harm.
pub(super) fn forget_checkpoints(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn ranks_and_shards_are_dealt_out_in_turn() {
        assert_eq!(in_turn(3, 0), [0, 1, 2]);
        assert_eq!(in_turn(2, 2), [0, 2, 1, 3]);
        assert_eq!(in_turn(4, 2), [0, 4, 1, 2, 5, 3]);
    }
}
