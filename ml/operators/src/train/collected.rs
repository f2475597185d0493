//! What has come of a gang: the rows of its members, and the failure that says most of the cause.

use super::{
    gang::Outcome,
    rank_row::{Ending, FailureCause, RankFailure, RankRecord, RankRow},
};
use crate::{Error, Result};
use arrow::record_batch::RecordBatch;
use datafusion::{common::DataFusionError, error::Result as PlanResult};
use voxelflow_stage::History;
use voxelflow_sync::protocol::{FirstCause, Outcome as Ended};

/// Rows that have come.
#[derive(Debug, Default)]
pub(super) struct Collected {
    members: Vec<RankRecord>,
    /// The longest history of any rank.
    history: Option<History>,
    /// The model's files are written.
    led: bool,
    /// Ranks that have trained to the end.
    trained: usize,
    /// The failure that says most, the first of those that say equally much.
    failure: Option<(usize, RankFailure)>,
    /// A rank without a row.
    lost: Option<DataFusionError>,
    /// How the gang ended, as its host has it.
    pub ended: Option<Ended>,
}

impl Collected {
    /// Adds what a task gave.
    pub fn add_all(&mut self, batches: PlanResult<Vec<RecordBatch>>) {
        let rows = batches.and_then(|batches| {
            let rows: Result<Vec<_>> = batches.iter().map(RankRow::of_batch).collect();
            Ok(rows?.concat())
        });
        match rows {
            Ok(rows) => rows.into_iter().for_each(|row| self.add(row)),
            Err(error) => drop(self.lost.get_or_insert(error)),
        }
    }

    /// Adds the rows of members whose tasks have given none; what became of those tasks is no matter when the gang
    /// has finished.
    pub fn add_missing(&mut self, rows: Vec<RankRow>, finished: bool) {
        if finished {
            self.lost = None;
        }
        for row in rows {
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
                self.trained += 1;
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

    /// Whether somebody has failed, or has given nothing.
    pub fn failed(&self) -> bool {
        self.failure.is_some() || self.lost.is_some()
    }

    /// The failure that says most of the cause: one that a rank has noted itself, else what the host knows of a member
    /// that is lost, else why a task has no row.
    ///
    /// # Errors
    /// That failure.
    pub fn outcome(mut self, stage: &str, model: &str) -> PlanResult<Outcome> {
        let (stage, model) = (stage.to_owned(), model.to_owned());
        let is_cause = |(_, failure): &(usize, RankFailure)| weight(failure) == CAUSE;
        if let Some((rank, failure)) = self.failure.take_if(|failure| is_cause(failure)) {
            return Err(Error::Rank { rank, stage, failure }.into());
        }
        match (self.ended, self.lost, self.failure) {
            (Some(Ended::Failed(cause)), _, _) => Err(Error::Gang { model, cause: told(&cause) }.into()),
            (_, Some(lost), _) => Err(lost),
            (_, None, Some((rank, failure))) => Err(Error::Rank { rank, stage, failure }.into()),
            (Some(Ended::Cancelled), None, None) => {
                Err(Error::from(voxelflow_stage::Error::Cancelled).into())
            }
            (_, None, None) => {
                self.members.sort_unstable_by_key(|member| member.member);
                let history = self.history.filter(|_| self.led).ok_or(Error::NoLeader { model })?;
                Ok(Outcome { history, members: self.members, ranks_at_end: self.trained })
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
