//! Runs the ranks of a gang, wherever plans run, to the first cause of a failure or the fitted model.

use super::{
    host::{GangHost, OnReport},
    rank::{Event, Orders, TRAIN_RANK},
    rank_row::{Ending, FailureCause, RankFailure, RankRecord, RankRow},
    spool::SpoolPlace,
};
use crate::{Error, Result, train::TrainJob};
use arrow::record_batch::RecordBatch;
use datafusion::{
    common::{DataFusionError, runtime::JoinSet},
    error::Result as PlanResult,
    execution::{SendableRecordBatchStream, TaskContext},
};
use futures::TryStreamExt;
use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};
use voxelflow_dataset::{
    Runner,
    nodes::{GangRequest, gang_plan},
};
use voxelflow_stage::{History, ProgressSink};
use voxelflow_sync::Topology;

/// What the ranks read, and whom they tell.
pub(super) struct GangRun<'a> {
    pub job: &'a TrainJob,
    pub train: &'a SpoolPlace,
    pub validation: Option<&'a SpoolPlace>,
    pub progress: Option<Arc<dyn ProgressSink>>,
    pub checkpoints: Option<&'a Path>,
    pub writing: &'a Path,
    pub cancelled: &'a Arc<AtomicBool>,
}

/// What came of a gang.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What training did, as its leader tells it.
    pub history: History,
    /// The ranks, by number.
    pub members: Vec<RankRecord>,
}

impl GangRun<'_> {
    /// Trains; the leader has written the model's files then.
    ///
    /// # Errors
    /// The first error of any rank that is not merely the consequence of another one's.
    pub async fn run(&self, context: &Arc<TaskContext>) -> PlanResult<Outcome> {
        let TrainJob { settings, .. } = self.job;
        let progress = self.progress.clone();
        let on_report: OnReport = Arc::new(move |_, bytes| {
            if let Some(sink) = &progress {
                Event::tell(bytes, sink.as_ref());
            }
        });
        let host = GangHost::start(&settings.sync, settings.ranks, on_report, self.cancelled)
            .map_err(|e| Error::from(voxelflow_stage::Error::from(e)))?;
        let runner = Runner::of(context);
        let orders =
            serde_json::to_vec(&self.orders(&host)?).map_err(|e| DataFusionError::External(e.into()))?;
        let payload = runner.seal(&orders)?;
        let plan = gang_plan(self.request(), TRAIN_RANK, payload.into())?;
        let run = runner.run(plan, Arc::clone(context)).await?;
        self.collect(run.streams, &host).await
    }

    /// Ranks may work in other folders: their paths are absolute.
    fn orders(&self, host: &GangHost) -> std::io::Result<Orders> {
        Ok(Orders {
            invitation: host.invitation().clone(),
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

    fn request(&self) -> GangRequest {
        let (ranks, gang) = (self.job.settings.ranks, &self.job.gang);
        GangRequest {
            name: format!("model {}", self.job.model),
            members: ranks,
            min_members: gang.min_ranks.unwrap_or(ranks).clamp(1, ranks),
            strict: self.job.settings.sync.topology == Topology::Ring,
            pool: gang.pool.clone(),
            memory_bytes: gang.memory_mib << 20,
            cards: gang.cards,
            queue: gang.queue.clone().unwrap_or_default(),
            deadline_seconds: gang.gang_deadline_seconds,
        }
    }

    /// Takes the ranks' rows as they come; the first error stops the others.
    async fn collect(&self, streams: Vec<SendableRecordBatchStream>, host: &GangHost) -> PlanResult<Outcome> {
        let mut ranks = JoinSet::new();
        for rows in streams {
            ranks.spawn(rows.try_collect::<Vec<RecordBatch>>());
        }
        let mut collected = Collected::default();
        while let Some(rank) = ranks.join_next().await {
            let batches = rank.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e))).flatten();
            let rows = batches.and_then(|batches| {
                let rows: Result<Vec<_>> = batches.iter().map(RankRow::of_batch).collect();
                Ok(rows?.concat())
            });
            match rows {
                Ok(rows) => rows.into_iter().for_each(|row| collected.add(row)),
                Err(error) => drop(collected.lost.get_or_insert(error)),
            }
            if collected.failed() {
                host.cancel();
            }
        }
        collected.outcome(self.job.estimator.stage(), &self.job.model)
    }
}

/// Rows that have come.
#[derive(Debug, Default)]
struct Collected {
    members: Vec<RankRecord>,
    history: Option<History>,
    /// The failure that says most, the first of those that say equally much.
    failure: Option<(usize, RankFailure)>,
    /// A rank without a row.
    lost: Option<DataFusionError>,
}

impl Collected {
    fn add(&mut self, row: RankRow) {
        let rank = row.member.member;
        self.members.push(row.member);
        match row.ending {
            Ending::Led(history) => self.history = Some(*history),
            Ending::Trained | Ending::Left => {}
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

    fn outcome(mut self, stage: &str, model: &str) -> PlanResult<Outcome> {
        let consequence = |failure: &RankFailure| weight(failure) < weight_of(FailureCause::Machine);
        match (self.failure, self.lost) {
            (Some((rank, failure)), lost) if lost.is_none() || !consequence(&failure) => {
                Err(Error::Rank { rank, stage: stage.to_owned(), failure }.into())
            }
            (_, Some(lost)) => Err(lost),
            (_, None) => {
                self.members.sort_unstable_by_key(|member| member.member);
                let history = self.history.ok_or_else(|| Error::NoLeader { model: model.to_owned() })?;
                Ok(Outcome { history, members: self.members })
            }
        }
    }
}

/// How much a failure tells of the cause: a rank that another one left tells least.
fn weight(failure: &RankFailure) -> u8 {
    weight_of(failure.cause)
}

fn weight_of(cause: FailureCause) -> u8 {
    match cause {
        FailureCause::Consequence => 0,
        FailureCause::Cancelled => 1,
        FailureCause::Machine | FailureCause::Input | FailureCause::Panic => 2,
    }
}

/// Removes checkpoints that are of no more use; what cannot be removed does no harm.
pub(super) fn forget_checkpoints(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn row(member: usize, ending: Ending) -> RankRow {
        let member = RankRecord { member, pid: 1, host: "a".into(), samples: 1, bytes_sent: 1 };
        RankRow { member, ending }
    }

    fn failed(cause: FailureCause, reason: &str) -> Ending {
        Ending::Failed(RankFailure { cause, reason: reason.into(), place: None, log: Vec::new() })
    }

    fn outcome(rows: Vec<RankRow>, lost: Option<DataFusionError>) -> Result<Vec<usize>, String> {
        let mut collected = Collected { lost, ..Collected::default() };
        rows.into_iter().for_each(|row| collected.add(row));
        let outcome = collected.outcome("line", "m").map_err(|e| e.strip_backtrace());
        Ok(outcome?.members.into_iter().map(|m| m.member).collect())
    }

    #[test]
    fn the_first_cause_is_told() {
        use FailureCause::*;
        let led = || row(1, Ending::Led(Box::default()));
        assert_eq!(
            outcome(vec![row(2, Ending::Trained), led(), row(0, Ending::Left)], None).unwrap(),
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
        assert!(outcome(vec![row(0, Ending::Trained)], None).unwrap_err().contains("`m`"));
    }
}
