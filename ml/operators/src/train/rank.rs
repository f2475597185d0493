//! A rank, wherever it runs: the function that every member of a training's gang executes.
//!
//! ```text
//!   GangTask { member, payload } ─► Orders ─► enter the gang ─► spooled rows ─► Estimator::fit ─► RankRow
//!                                             │                                  │ the leader: model files
//!                                             └─ the stage, by name, from the session's StageCatalog
//! ```
//! Training blocks for as long as it takes, so it has a thread of its own. How it ends, be it by a panic, is a row:
//! the driver decides what becomes of the others.

use super::{
    host::{Invitation, Line, Membership, enter},
    model_folder::write_model,
    rank_row::{Ending, FailureCause, RankFailure, RankRecord, RankRow},
    spool::{SpoolFeed, SpoolPlace, SpoolReader},
};
use crate::{Error, StageCatalog};
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result as PlanResult};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::{
    any::Any,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tokio::sync::oneshot;
use voxelflow_dataset::{
    log_tail::{current_task, in_task, log_tail},
    nodes::{GangFunction, GangTask},
    runner::unseal,
};
use voxelflow_stage::{
    EpochRecord, Estimator, Fitted, Gang, Options, ProgressSink, SeriesFeed, StepRecord, TrainSettings,
};

/// The name of the function in plans.
pub(super) const TRAIN_RANK: &str = "train_rank";

inventory::submit! { GangFunction { name: TRAIN_RANK, schema: RankRow::schema, run } }

/// All that a rank is told. Travels sealed: the invitation holds credentials.
#[derive(Serialize, Deserialize)]
pub(super) struct Orders {
    /// Where the others are.
    pub invitation: Invitation,
    /// The model's name.
    pub model: String,
    /// The stage.
    pub stage: String,
    /// Its options.
    pub options: Options,
    /// Settings of the loop and of the gang.
    pub settings: TrainSettings,
    /// Rows to train on.
    pub train: SpoolPlace,
    /// Rows to validate on.
    pub validation: Option<SpoolPlace>,
    /// Where checkpoints are written.
    pub checkpoints: Option<PathBuf>,
    /// Where the leader writes the model's files.
    pub writing: PathBuf,
}

/// What a rank tells the driver while it trains.
#[derive(Serialize, Deserialize)]
pub(super) enum Event {
    Started(u64),
    Step(StepRecord),
    Epoch(EpochRecord),
}

/// Sends progress to the driver.
struct Reporter(Line);

impl Reporter {
    fn send(&self, event: &Event) {
        // Numbers always become JSON.
        if let Ok(bytes) = serde_json::to_vec(event) {
            self.0.report(&bytes);
        }
    }
}

impl ProgressSink for Reporter {
    fn started(&self, samples: u64) {
        self.send(&Event::Started(samples));
    }
    fn step(&self, record: &StepRecord) {
        self.send(&Event::Step(*record));
    }
    fn epoch(&self, record: &EpochRecord) {
        self.send(&Event::Epoch(*record));
    }
}

impl Event {
    /// Tells `sink` what a rank has reported; what cannot be read is of another build, and no reason to fail.
    pub fn tell(bytes: &[u8], sink: &dyn ProgressSink) {
        match serde_json::from_slice(bytes) {
            Ok(Self::Started(samples)) => sink.started(samples),
            Ok(Self::Step(record)) => sink.step(&record),
            Ok(Self::Epoch(record)) => sink.epoch(&record),
            Err(e) => log::debug!("progress that cannot be read: {e}"),
        }
    }
}

fn run(task: GangTask) -> BoxFuture<'static, PlanResult<RecordBatch>> {
    Box::pin(async move {
        let orders = unseal(&task.context, &task.payload)?;
        let orders: Orders = serde_json::from_slice(&orders)
            .map_err(|_| DataFusionError::Plan("the orders of a rank were received damaged".into()))?;
        let catalog = task.context.session_config().get_extension::<StageCatalog>();
        let catalog = catalog.ok_or_else(|| Error::NoStages { stage: orders.stage.clone() })?;
        let rank = Rank {
            estimator: catalog.estimator(&orders.stage, &orders.options)?,
            train: Arc::new(SpoolReader::open(&orders.train, &task.context).await?),
            validation: match &orders.validation {
                Some(place) => Some(Arc::new(SpoolReader::open(place, &task.context).await?)),
                None => None,
            },
            member: task.member,
            task: current_task().filter(|task| !task.is_empty()),
            orders,
        };
        rank.on_a_thread().await?.to_batch()
    })
}

/// A rank whose rows are at hand.
struct Rank {
    estimator: Box<dyn Estimator>,
    train: Arc<SpoolReader>,
    validation: Option<Arc<SpoolReader>>,
    member: usize,
    /// The cluster's task that it is, if it is one.
    task: Option<Arc<str>>,
    orders: Orders,
}

/// Lines of a rank's log that a failure brings along.
const LOG_LINES: usize = 20;

/// Training code of some layers recurses; the threads' default of 2 MiB would be little.
const STACK: usize = 16 << 20;

impl Rank {
    async fn on_a_thread(self) -> PlanResult<RankRow> {
        let Some(membership) = enter(&self.orders.invitation, self.member) else {
            return Ok(self.row(Ending::Left, 0, 0));
        };
        let mut unless_done = CancelOnDrop { cancelled: Some(Arc::clone(&membership.cancelled)) };
        let (tell, told) = oneshot::channel();
        let name = format!("{} rank {}", self.orders.model, self.member);
        let spawned = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            // Nobody listens when the query was dropped.
            let _ = tell.send(match self.task.clone() {
                Some(task) => in_task(&task, || self.train(membership)),
                None => self.train(membership),
            });
        });
        spawned.map_err(DataFusionError::IoError)?;
        let row = told.await.map_err(|e| DataFusionError::External(Box::new(e)));
        unless_done.cancelled = None;
        row
    }

    fn train(&self, membership: Membership) -> RankRow {
        let Membership { sync, line, cancelled } = membership;
        let mut gang = Gang {
            sync,
            settings: self.orders.settings.clone(),
            progress: Some(Arc::new(Reporter(line))),
            checkpoints: self.orders.checkpoints.clone(),
            cancelled,
        };
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let fitted = self.fit(&mut gang)?;
            let leads = gang.sync.place().leads();
            if leads {
                write_model(&self.orders, self.train.time_points(), &fitted)?;
            }
            Ok::<_, Error>((fitted.history, leads))
        }));
        let bytes_sent = gang.sync.traffic().sent;
        // The others learn at once that this one has ended.
        drop(gang);
        let (ending, samples) = match caught {
            Ok(Ok((history, leads))) => {
                let samples = history.samples_per_rank.get(self.member).copied().unwrap_or(0);
                (if leads { Ending::Led(Box::new(history)) } else { Ending::Trained }, samples)
            }
            Ok(Err(error)) => (self.failed(&error), 0),
            Err(panic) => (self.panicked(&*panic), 0),
        };
        self.row(ending, samples, bytes_sent)
    }

    fn fit(&self, gang: &mut Gang) -> voxelflow_stage::Result<Fitted> {
        let mut feed = SpoolFeed::new(Arc::clone(&self.train));
        let mut validation = self.validation.as_ref().map(|reader| SpoolFeed::new(Arc::clone(reader)));
        let validation = validation.as_mut().map(|feed| feed as &mut dyn SeriesFeed);
        self.estimator.fit(&mut feed, validation, gang)
    }

    fn failed(&self, error: &Error) -> Ending {
        let cause = match error {
            Error::Stage(voxelflow_stage::Error::Sync(voxelflow_sync::Error::Fenced { .. })) => {
                return Ending::Left;
            }
            Error::Stage(error) => FailureCause::of(error),
            other if other.is_input() => FailureCause::Input,
            _ => FailureCause::Machine,
        };
        Ending::Failed(self.failure(cause, error.to_string()))
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Ending {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without a message".into());
        Ending::Failed(self.failure(FailureCause::Panic, text))
    }

    /// In another process than the driver's, a failure says where, and what came before it.
    fn failure(&self, cause: FailureCause, reason: String) -> RankFailure {
        let place = self.task.as_ref().map(|_| format!("process {} on {}", process::id(), host_name()));
        let log = self.task.as_ref().map(|task| log_tail(task, LOG_LINES)).unwrap_or_default();
        RankFailure { cause, reason, place, log: log.iter().map(ToString::to_string).collect() }
    }

    fn row(&self, ending: Ending, samples: u64, bytes_sent: u64) -> RankRow {
        let member =
            RankRecord { member: self.member, pid: process::id(), host: host_name(), samples, bytes_sent };
        RankRow { member, ending }
    }
}

/// Ends the training of a rank that nobody waits for any more.
struct CancelOnDrop {
    cancelled: Option<Arc<AtomicBool>>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(flag) = &self.cancelled {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// The machine's name, for people.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown host".to_owned() } else { name.to_owned() }
}
