//! What a rank gives back to the driver: one row, however it ended.

use crate::{Error, Result};
use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
    record_batch::RecordBatch,
};
use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::{Arc, LazyLock},
};
use voxelflow_stage::History;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let count = |name: &str| Field::new(name, DataType::UInt64, false);
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        count("member"),
        count("pid"),
        text("host"),
        count("samples"),
        count("bytes_sent"),
        text("ending"),
    ]))
});

/// A rank that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RankRow {
    /// Who it was.
    pub member: RankRecord,
    /// How it ended.
    pub ending: Ending,
}

/// Who a rank was, and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankRecord {
    /// Its number.
    pub member: usize,
    /// Its process.
    pub pid: u32,
    /// The machine of the process.
    pub host: String,
    /// Samples that it trained on.
    pub samples: u64,
    /// Bytes that it sent to other ranks and shards.
    pub bytes_sent: u64,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    /// It has trained to the end.
    Trained {
        /// What training did, as far as it was there.
        history: Box<History>,
        /// It led, and has written the model's files.
        led: bool,
    },
    /// It has held shards to the end.
    Served,
    /// The gang goes on without it.
    Left,
    /// It failed.
    Failed(RankFailure),
}

/// Why a rank failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFailure {
    /// What kind of failure it is.
    pub cause: FailureCause,
    /// What happened.
    pub reason: String,
    /// The process and machine of the rank, where it was not the driver's own.
    pub place: Option<String>,
    /// The last lines of that process's log.
    pub log: Vec<String>,
}

/// Kinds of failures, those that say least of the reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// Another rank failed.
    Consequence,
    /// Training was cancelled.
    Cancelled,
    /// The machine, or the network: another attempt may succeed.
    Machine,
    /// Training itself, a loss that is not a number for example: it would come again.
    Training,
    /// The user's input.
    Input,
    /// A panic: a defect of the stage.
    Panic,
}

impl RankFailure {
    /// Whether another attempt would fail in the same way.
    pub(super) fn is_permanent(&self) -> bool {
        self.cause != FailureCause::Machine
    }
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if let Some(place) = &self.place {
            write!(f, " ({place})")?;
        }
        if !self.log.is_empty() {
            f.write_str("\nthe last lines of its log:")?;
        }
        self.log.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl FailureCause {
    /// What kind of failure `error` is.
    pub(super) fn of(error: &voxelflow_stage::Error) -> Self {
        use voxelflow_sync::Error as Sync;
        match error {
            voxelflow_stage::Error::Cancelled | voxelflow_stage::Error::Sync(Sync::Cancelled) => {
                Self::Cancelled
            }
            voxelflow_stage::Error::Sync(e) if e.is_consequence() => Self::Consequence,
            // Whoever was waited for did not come: another attempt would wait for the same.
            voxelflow_stage::Error::Sync(Sync::Deadline { .. }) => Self::Consequence,
            voxelflow_stage::Error::Sync(
                Sync::NotFinite { .. } | Sync::Length { .. } | Sync::Order { .. },
            ) => Self::Training,
            e if e.is_input() => Self::Input,
            _ => Self::Machine,
        }
    }
}

impl RankRow {
    /// Columns of a row.
    pub fn schema() -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    /// The row as a batch.
    ///
    /// # Errors
    /// A loss that JSON cannot hold.
    pub fn to_batch(&self) -> Result<RecordBatch, DataFusionError> {
        let RankRecord { member, pid, host, samples, bytes_sent } = &self.member;
        let ending = serde_json::to_string(&self.ending).map_err(|e| DataFusionError::External(e.into()))?;
        let count = |value: u64| Arc::new(UInt64Array::from_value(value, 1)) as ArrayRef;
        let text = |value: &str| Arc::new(StringArray::from_iter_values([value])) as ArrayRef;
        let columns = vec![
            count(*member as u64),
            count(u64::from(*pid)),
            text(host),
            count(*samples),
            count(*bytes_sent),
            text(&ending),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns)?)
    }

    /// The rows of a batch.
    ///
    /// # Errors
    /// A batch that [`Self::to_batch`] has not made.
    pub fn of_batch(batch: &RecordBatch) -> Result<Vec<Self>> {
        (0..batch.num_rows()).map(|row| Self::at(batch, row).ok_or(Error::RankRow { row })).collect()
    }

    fn at(batch: &RecordBatch, row: usize) -> Option<Self> {
        let count = |name: &str| {
            let column = batch.column_by_name(name)?.as_primitive_opt::<UInt64Type>()?;
            column.is_valid(row).then(|| column.value(row))
        };
        let text = |name: &str| {
            let column = batch.column_by_name(name)?.as_string_opt::<i32>()?;
            column.is_valid(row).then(|| column.value(row))
        };
        Some(Self {
            member: RankRecord {
                member: usize::try_from(count("member")?).ok()?,
                pid: u32::try_from(count("pid")?).ok()?,
                host: text("host")?.to_owned(),
                samples: count("samples")?,
                bytes_sent: count("bytes_sent")?,
            },
            ending: serde_json::from_str(text("ending")?).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn row(ending: Ending) -> RankRow {
        let member = RankRecord { member: 3, pid: 77, host: "node-2".into(), samples: 12, bytes_sent: 9 };
        RankRow { member, ending }
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let failure = RankFailure {
            cause: FailureCause::Machine,
            reason: "no room".into(),
            place: Some("process 77 on node-2".into()),
            log: vec!["one".into(), "two".into()],
        };
        assert_eq!(
            failure.to_string(),
            "no room (process 77 on node-2)\nthe last lines of its log:\n  one\n  two"
        );
        let history = Box::new(History { initial_loss: 0.5, ..History::default() });
        for ending in
            [Ending::Trained { history, led: true }, Ending::Served, Ending::Left, Ending::Failed(failure)]
        {
            let row = row(ending);
            assert_eq!(RankRow::of_batch(&row.to_batch().unwrap()).unwrap(), [row]);
        }
    }

    #[test]
    fn only_what_another_attempt_may_mend_is_the_machines_failure() {
        use voxelflow_stage::Error::Sync;
        let rank = voxelflow_sync::Rank(1);
        let what = "the driver";
        let late = voxelflow_sync::Error::Deadline { rank, seconds: 5.0, what, missing: what.into() };
        assert_eq!(FailureCause::of(&Sync(late)), FailureCause::Consequence);
        let reason = "connection reset".into();
        let reset = voxelflow_sync::Error::Connection { peer: "rank 0".into(), what: "step", reason };
        assert_eq!(FailureCause::of(&Sync(reset)), FailureCause::Machine);
        assert_eq!(FailureCause::of(&Sync(voxelflow_sync::Error::Cancelled)), FailureCause::Cancelled);
    }

    #[test]
    fn a_row_of_something_else_is_refused() {
        let batch = row(Ending::Left).to_batch().unwrap();
        assert!(RankRow::of_batch(&batch.project(&[0, 1, 2, 3, 4]).unwrap()).is_err());
        let odd: ArrayRef = Arc::new(StringArray::from_iter_values(["{}"]));
        let columns = batch.columns()[..5].iter().cloned().chain([odd]).collect();
        assert!(RankRow::of_batch(&RecordBatch::try_new(RankRow::schema(), columns).unwrap()).is_err());
    }
}
