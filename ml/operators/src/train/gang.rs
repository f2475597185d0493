//! Runs the ranks of a gang, wherever plans run, to the first cause of a failure or the fitted model.

use super::{
    host::{GangPlan, Place, Watch},
    rank::{Orders, TRAIN_RANK},
    rank_row::{Ending, FailureCause, RankFailure, RankRecord, RankRow},
    spool::{SpoolPlace, unique},
};
use crate::{Error, Result, observer::Cancellation, train::TrainJob};
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
    protocol::{FirstCause, Outcome as Ended, RunId},
};

/// What the ranks read, and whom they tell.
pub(super) struct GangRun<'a> {
    pub job: &'a TrainJob,
    pub train: &'a SpoolPlace,
    pub validation: Option<&'a SpoolPlace>,
    pub progress: Option<Arc<dyn ProgressSink>>,
    pub checkpoints: Option<&'a Path>,
    pub writing: &'a Path,
    pub cancellation: &'a Cancellation,
}

/// What came of a gang.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What training did.
    pub history: History,
    /// The ranks, by number.
    pub members: Vec<RankRecord>,
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
        let mut watch = Watch::start(host, self.progress.clone())?;
        let payload = runner.seal(&orders)?;
        let order = in_turn(self.job.settings.ranks, plan.dedicated_shards());
        let gang = gang_plan_in_order(self.request(order.len()), &order, TRAIN_RANK, payload.into())?;
        let run = runner.run(gang, Arc::clone(context)).await?;
        let mut collected = self.collect(run.streams, &mut watch).await;
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
            train: self.train.clone(),
            validation: self.validation.cloned(),
            checkpoints: self.checkpoints.map(std::path::absolute).transpose()?,
            writing: std::path::absolute(self.writing)?,
        })
    }

    fn request(&self, members: usize) -> GangRequest {
        let gang = &self.job.gang;
        // It goes on with fewer, but begins with all.
        GangRequest {
            name: format!("model {}", self.job.model),
            members,
            min_members: members,
            strict: self.job.settings.sync.topology == Topology::Ring,
            pool: gang.pool.clone(),
            memory_bytes: gang.memory_mib << 20,
            cards: gang.cards,
            queue: gang.queue.clone().unwrap_or_default(),
            deadline_seconds: gang.gang_deadline_seconds,
        }
    }

    /// Takes the ranks' rows as they come; the first error stops the others. When the gang has finished, the tasks
    /// that are still there are those of lost members, which the cluster would be long in giving up: they are dropped.
    async fn collect(&self, streams: Vec<SendableRecordBatchStream>, watch: &mut Watch) -> Collected {
        let host = watch.host();
        let mut ranks = JoinSet::new();
        for rows in streams {
            ranks.spawn(rows.try_collect::<Vec<RecordBatch>>());
        }
        let mut collected = Collected::default();
        let mut cancelled = false;
        let mut done = Vec::new();
        let mut wait = Box::pin(std::future::pending().left_future());
        loop {
            let rank = tokio::select! {
                rank = ranks.join_next() => rank,
                rows = watch.finished() => {
                    done = rows;
                    wait = Box::pin(tokio::time::sleep(LAST_ROWS).right_future());
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
        collected.add_missing(done);
        collected
    }
}

/// How long the tasks of a gang that has finished may take to give their rows.
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

/// Rows that have come.
#[derive(Debug, Default)]
struct Collected {
    members: Vec<RankRecord>,
    /// The longest history of any rank.
    history: Option<History>,
    /// The model's files are written.
    led: bool,
    /// The failure that says most, the first of those that say equally much.
    failure: Option<(usize, RankFailure)>,
    /// A rank without a row.
    lost: Option<DataFusionError>,
    /// How the gang ended, as its host has it.
    ended: Option<Ended>,
}

impl Collected {
    fn add_all(&mut self, batches: PlanResult<Vec<RecordBatch>>) {
        let rows = batches.and_then(|batches| {
            let rows: Result<Vec<_>> = batches.iter().map(RankRow::of_batch).collect();
            Ok(rows?.concat())
        });
        match rows {
            Ok(rows) => rows.into_iter().for_each(|row| self.add(row)),
            Err(error) => drop(self.lost.get_or_insert(error)),
        }
    }

    /// Adds the rows of members whose tasks have given none; what became of those tasks is no matter then.
    fn add_missing(&mut self, done: Vec<RankRow>) {
        if !done.is_empty() {
            self.lost = None;
        }
        for row in done {
            if self.members.iter().all(|known| known.member != row.member.member) {
                self.add(row);
            }
        }
    }

    fn add(&mut self, row: RankRow) {
        let rank = row.member.member;
        self.members.push(row.member);
        match row.ending {
            Ending::Trained { history, led } => {
                self.led |= led;
                // A rank that joined late knows less of it.
                if self.history.as_ref().is_none_or(|known| known.steps.len() < history.steps.len()) {
                    self.history = Some(*history);
                }
            }
            Ending::Served | Ending::Left => {}
            Ending::Failed(failure) => {
                let says_more = |(_, known): &(usize, RankFailure)| weight(&failure) > weight(known);
                if self.failure.as_ref().is_none_or(says_more) {
                    self.failure = Some((rank, failure));
                }
            }
        }
    }

    fn failed(&self) -> bool {
        self.failure.is_some() || self.lost.is_some()
    }

    /// The failure that says most of the cause: one that a rank has noted itself, else what the host knows of a member
    /// that is lost, else why a task has no row.
    fn outcome(mut self, stage: &str, model: &str) -> PlanResult<Outcome> {
        let (stage, model) = (stage.to_owned(), model.to_owned());
        let is_cause = |(_, failure): &(usize, RankFailure)| weight(failure) == CAUSE;
        if let Some((rank, failure)) = self.failure.take_if(|failure| is_cause(failure)) {
            return Err(Error::Rank { rank, stage, failure }.into());
        }
        match (self.ended, self.lost, self.failure) {
            (Some(Ended::Failed(cause)), _, _) => Err(Error::Gang { model, cause: told(&cause) }.into()),
            (_, Some(lost), _) => Err(lost),
            (_, None, Some((rank, failure))) => Err(Error::Rank { rank, stage, failure }.into()),
            (_, None, None) => {
                self.members.sort_unstable_by_key(|member| member.member);
                let history = self.history.filter(|_| self.led).ok_or(Error::NoLeader { model })?;
                Ok(Outcome { history, members: self.members })
            }
        }
    }
}

/// The first cause as the host has it: who, what, and the end of that member's log.
fn told(cause: &FirstCause) -> String {
    let mut text = cause.member.map(|member| format!("{member}: ")).unwrap_or_default() + &cause.reason;
    if !cause.log_tail.is_empty() {
        text += "\nthe last lines of its log:";
    }
    cause.log_tail.iter().for_each(|line| text += &format!("\n  {line}"));
    text
}

/// How much a failure tells of the cause: a rank that another one left tells least.
fn weight(failure: &RankFailure) -> u8 {
    match failure.cause {
        FailureCause::Consequence => 0,
        FailureCause::Cancelled => 1,
        _ => CAUSE,
    }
}

/// The weight of a failure that is no other one's consequence.
const CAUSE: u8 = 2;

/// Removes checkpoints that are of no more use; what cannot be removed does no harm.
pub(super) fn forget_checkpoints(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use voxelflow_stage::StepRecord;

    fn row(member: usize, ending: Ending) -> RankRow {
        let member = RankRecord { member, pid: 1, host: "a".into(), samples: 1, bytes_sent: 1 };
        RankRow { member, ending }
    }

    fn failed(cause: FailureCause, reason: &str) -> Ending {
        Ending::Failed(RankFailure { cause, reason: reason.into(), place: None, log: Vec::new() })
    }

    fn outcome(rows: Vec<RankRow>, lost: Option<DataFusionError>) -> Result<Vec<usize>, String> {
        outcome_of(rows, lost, None)
    }

    fn outcome_of(
        rows: Vec<RankRow>,
        lost: Option<DataFusionError>,
        ended: Option<Ended>,
    ) -> Result<Vec<usize>, String> {
        let mut collected = Collected { lost, ended, ..Collected::default() };
        rows.into_iter().for_each(|row| collected.add(row));
        let outcome = collected.outcome("line", "m").map_err(|e| e.strip_backtrace());
        Ok(outcome?.members.into_iter().map(|m| m.member).collect())
    }

    #[test]
    fn ranks_and_shards_are_dealt_out_in_turn() {
        assert_eq!(in_turn(3, 0), [0, 1, 2]);
        assert_eq!(in_turn(2, 2), [0, 2, 1, 3]);
        assert_eq!(in_turn(4, 2), [0, 4, 1, 2, 5, 3]);
    }

    #[test]
    fn the_first_cause_is_told() {
        use FailureCause::*;
        let trained = |member, steps, led| {
            let step = StepRecord {
                epoch: 0,
                step: 0,
                samples: 1,
                loss: 1.0,
                staleness: 0,
                feed_seconds: 0.0,
                compute_seconds: 0.0,
                sync_seconds: 0.0,
            };
            let history = Box::new(History { steps: vec![step; steps], ..History::default() });
            row(member, Ending::Trained { history, led })
        };
        let led = || trained(1, 2, true);
        assert_eq!(
            outcome(vec![trained(2, 5, false), led(), row(0, Ending::Left)], None).unwrap(),
            [0, 1, 2]
        );
        let rows = vec![
            row(0, failed(Consequence, "left")),
            led(),
            row(3, failed(Cancelled, "cancelled")),
            row(2, failed(Input, "bad data")),
            row(4, failed(Panic, "later")),
        ];
        let lost = || Some(DataFusionError::Execution("the executor is gone".into()));
        for also_lost in [None, lost()] {
            let told = outcome(rows.clone(), also_lost).unwrap_err();
            assert!(told.ends_with("rank 2 of `line`: bad data"), "{told}");
        }
        let told = outcome(rows[..3].to_vec(), lost()).unwrap_err();
        assert!(told.ends_with("the executor is gone"), "{told}");
        let told = outcome(rows[..3].to_vec(), None).unwrap_err();
        assert!(told.ends_with("rank 3 of `line`: cancelled"), "{told}");
        // The host knows of members that say nothing themselves.
        let log_tail = vec!["no room".to_owned()];
        let cause = FirstCause { member: None, reason: "2 ranks are missing".into(), log_tail };
        let ended = Some(Ended::Failed(cause));
        let told = outcome_of(rows[..3].to_vec(), lost(), ended.clone()).unwrap_err();
        assert!(told.ends_with("2 ranks are missing\nthe last lines of its log:\n  no room"), "{told}");
        let told = outcome_of(rows, lost(), ended).unwrap_err();
        assert!(told.ends_with("rank 2 of `line`: bad data"), "{told}");
        assert!(outcome(vec![trained(0, 5, false)], None).unwrap_err().contains("`m`"));
        let mut collected = Collected::default();
        [trained(2, 5, false), led()].into_iter().for_each(|row| collected.add(row));
        assert_eq!(collected.outcome("line", "m").unwrap().history.steps.len(), 5);
    }
}
