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
    card_claim::CardClaim,
    model_folder::write_model,
    outlook::room_of,
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
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;
use voxelflow_dataset::{
    build_id,
    log_tail::{current_task, in_task, log_tail},
    nodes::{GangFunction, GangTask},
    runner::unseal,
};
use voxelflow_stage::{
    EpochRecord, Estimator, Explained, Fitted, Gang, Needs, Options, ProgressSink, Room, Samples, SeriesFeed,
    StepRecord, TrainSettings,
};
use voxelflow_sync::{Invitation, Line, Seat, enter, protocol::Role, serve};

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
    /// What is reserved for a rank on the cluster; 0: nothing is.
    pub memory_bytes: u64,
    /// Whether each rank has cards of its own.
    pub own_cards: bool,
    /// Rows to train on.
    pub train: SpoolPlace,
    /// Rows to validate on.
    pub validation: Option<SpoolPlace>,
    /// What the series are to be explained by, for a stage that explains.
    pub features: Option<FeaturesPlace>,
    /// The same for the rows to validate on.
    pub validation_features: Option<FeaturesPlace>,
    /// Where checkpoints are written.
    pub checkpoints: Option<PathBuf>,
    /// Where the leader writes the model's files.
    pub writing: PathBuf,
}

/// Where features lie, and what they are features of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FeaturesPlace {
    /// A row a sample.
    pub place: SpoolPlace,
    /// Which samples, and where the targets lie.
    pub samples: Samples,
}

/// What a rank tells the driver while it trains, and in the end.
#[derive(Serialize, Deserialize)]
pub(super) enum Event {
    Started(u64),
    Planned(Needs),
    Step(StepRecord),
    Epoch(EpochRecord),
    /// The rank has ended, and will not be started again; the row is the one that its task will give.
    Done(Box<RankRow>),
}

/// Sends progress to the driver.
struct Reporter(Line);

impl Reporter {
    fn send(&self, event: &Event) {
        // Numbers always become JSON.
        if let Ok(bytes) = serde_json::to_vec(event) {
            self.0.report(bytes);
        }
    }
}

impl ProgressSink for Reporter {
    fn started(&self, samples: u64) {
        self.send(&Event::Started(samples));
    }
    fn planned(&self, needs: &Needs) {
        self.send(&Event::Planned(needs.clone()));
    }
    fn step(&self, record: &StepRecord) {
        self.send(&Event::Step(*record));
    }
    fn epoch(&self, record: &EpochRecord) {
        self.send(&Event::Epoch(*record));
    }
}

impl Event {
    /// What a rank has reported; nothing where it cannot be read.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).inspect_err(|e| log::warn!("a report that cannot be read: {e}")).ok()
    }

    /// Tells `sink`; gives the row of a rank that has ended.
    pub fn tell(self, sink: Option<&dyn ProgressSink>) -> Option<RankRow> {
        match (self, sink) {
            (Self::Done(row), _) => return Some(*row),
            (Self::Started(samples), Some(sink)) => sink.started(samples),
            (Self::Planned(needs), Some(sink)) => sink.planned(&needs),
            (Self::Step(record), Some(sink)) => sink.step(&record),
            (Self::Epoch(record), Some(sink)) => sink.epoch(&record),
            (_, None) => {}
        }
        None
    }
}

fn run(task: GangTask) -> BoxFuture<'static, PlanResult<RecordBatch>> {
    Box::pin(async move {
        let orders = unseal(&task.context, &task.payload)?;
        let orders: Orders = serde_json::from_slice(&orders)
            .map_err(|_| DataFusionError::Plan("the orders of a rank were received damaged".into()))?;
        let seat = Seat {
            member: task.member,
            attempt: attempt(task.context.task_id().as_deref()),
            build: build_id()?.to_owned(),
            bind: None,
        };
        let me = Me { member: task.member, task: current_task().filter(|task| !task.is_empty()) };
        let work = match orders.invitation.role(task.member) {
            Some(Role::Shards) => Work::Shards,
            _ => Work::Rank(Box::new(rank(&orders, &task).await?)),
        };
        let cancelled = Arc::clone(&task.cancelled);
        let abandoned = AbandonOnDrop::default();
        let line = Arc::clone(&abandoned.0);
        let row =
            on_a_thread(
                format!("{} rank {}", orders.model, task.member),
                me.task.clone(),
                move || match work {
                    Work::Shards => me.serve(&orders, &seat, &cancelled),
                    Work::Rank(rank) => me.train(&rank, &orders, &seat, &cancelled, &line),
                },
            )
            .await?;
        row?.to_batch()
    })
}

/// Ends a rank when its task is dropped, also while it waits for others.
#[derive(Default)]
struct AbandonOnDrop(Arc<OnceLock<Line>>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        // One that has ended does not listen.
        if let Some(line) = self.0.get() {
            line.abandon();
        }
    }
}

/// What a member does.
enum Work {
    Rank(Box<Rank>),
    Shards,
}

async fn rank(orders: &Orders, task: &GangTask) -> PlanResult<Rank> {
    let catalog = task.context.session_config().get_extension::<StageCatalog>();
    let catalog = catalog.ok_or_else(|| Error::NoStages { stage: orders.stage.clone() })?;
    Ok(Rank {
        estimator: catalog.estimator(&orders.stage, &orders.options)?,
        train: Arc::new(SpoolReader::open(&orders.train, &task.context).await?),
        validation: match &orders.validation {
            Some(place) => Some(Arc::new(SpoolReader::open(place, &task.context).await?)),
            None => None,
        },
        features: open_features(orders.features.as_ref(), task).await?,
        validation_features: open_features(orders.validation_features.as_ref(), task).await?,
        room: room_of(orders.settings.ranks, orders.memory_bytes, &task.context),
    })
}

async fn open_features(
    features: Option<&FeaturesPlace>,
    task: &GangTask,
) -> PlanResult<Option<OpenFeatures>> {
    let Some(FeaturesPlace { place, samples }) = features else { return Ok(None) };
    let reader = Arc::new(SpoolReader::open(place, &task.context).await?);
    Ok(Some(OpenFeatures { reader, samples: samples.clone() }))
}

/// A number that grows with every time that a cluster starts the member anew: Ballista counts the tasks of a job
/// (`TID job/stage.attempt/task.attempt`).
fn attempt(task: Option<&str>) -> u32 {
    let number = task.and_then(|task| task.rsplit('/').next()?.split('.').next()?.parse().ok());
    number.unwrap_or(0)
}

/// Runs `work` on a thread of its own, as part of the cluster's task if there is one.
async fn on_a_thread<T: Send + 'static>(
    name: String,
    task: Option<Arc<str>>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PlanResult<T> {
    let (tell, told) = oneshot::channel();
    let spawned = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
        // Nobody listens when the query was dropped.
        let _ = tell.send(match task {
            Some(task) => in_task(&task, work),
            None => work(),
        });
    });
    spawned.map_err(DataFusionError::IoError)?;
    told.await.map_err(|e| DataFusionError::External(Box::new(e)))
}

/// A rank whose rows are at hand.
struct Rank {
    estimator: Box<dyn Estimator>,
    train: Arc<SpoolReader>,
    validation: Option<Arc<SpoolReader>>,
    features: Option<OpenFeatures>,
    validation_features: Option<OpenFeatures>,
    room: Room,
}

/// Features at hand.
struct OpenFeatures {
    reader: Arc<SpoolReader>,
    samples: Samples,
}

/// A member, as it calls itself.
struct Me {
    member: usize,
    /// The cluster's task that it is, if it is one.
    task: Option<Arc<str>>,
}

/// Lines of a rank's log that a failure brings along.
const LOG_LINES: usize = 20;
/// Training code of some layers recurses; the threads' default of 2 MiB would be little.
const STACK: usize = 16 << 20;
/// How often a rank that has finished, and still serves shards, looks whether it is still wanted.
const SERVING: Duration = Duration::from_millis(200);

impl Me {
    /// Holds shards until the gang is over.
    fn serve(&self, orders: &Orders, seat: &Seat, cancelled: &AtomicBool) -> PlanResult<RankRow> {
        let served = serve(&orders.invitation, seat, || cancelled.load(Ordering::Relaxed));
        let ending = match served {
            Ok(()) => Ending::Served,
            Err(e) => self.failed(&Error::from(voxelflow_stage::Error::from(e))),
        };
        Ok(self.row(ending, 0, 0))
    }

    /// Trains, and then serves shards as long as others need them. A failure that another attempt may not have is an
    /// error of the task, which the cluster then starts anew; every other ending is a row.
    fn train(
        &self,
        rank: &Rank,
        orders: &Orders,
        seat: &Seat,
        cancelled: &Arc<AtomicBool>,
        known_as: &OnceLock<Line>,
    ) -> PlanResult<RankRow> {
        let membership = match enter(&orders.invitation, seat) {
            Ok(membership) => membership,
            Err(e) => return self.ended(self.failed(&Error::from(voxelflow_stage::Error::from(e))), 0, 0),
        };
        let line = membership.line();
        let _ = known_as.set(line.clone());
        let mut gang = Gang {
            sync: Box::new(membership),
            settings: orders.settings.clone(),
            progress: Some(Arc::new(Reporter(line.clone()))),
            checkpoints: orders.checkpoints.clone(),
            output: Some(orders.writing.clone()),
            room: rank.room,
            cancelled: Arc::clone(cancelled),
        };
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let rank_name = format!("rank {} of model {}", self.member, orders.model);
            let claim = orders.own_cards.then(|| CardClaim::take(&orders.settings.device, &rank_name));
            let _cards = claim.transpose()?;
            let fitted = rank.fit(&mut gang)?;
            let leads = gang.sync.place().leads();
            if leads {
                write_model(orders, rank.train.time_points(), &fitted)?;
            }
            Ok::<_, Error>((fitted.history, leads))
        }));
        let bytes_sent = gang.sync.traffic().sent;
        let (ending, samples) = match caught {
            Ok(Ok((history, leads))) => {
                let samples = history.samples_per_rank.get(self.member).copied().unwrap_or(0);
                (Ending::Trained { history: Box::new(history), led: leads }, samples)
            }
            Ok(Err(error)) => (self.failed(&error), 0),
            Err(panic) => (self.panicked(&*panic), 0),
        };
        let failure = match &ending {
            Ending::Failed(failure) => Some(failure),
            _ => None,
        };
        // What has taken the task away, the launcher knows better.
        let permanent =
            failure.is_none_or(|failure| failure.is_permanent() && !cancelled.load(Ordering::Relaxed));
        if permanent {
            // The driver need not wait for the cluster to notice that the tasks of lost members are gone.
            let row = self.row(ending.clone(), samples, bytes_sent);
            Reporter(line.clone()).send(&Event::Done(Box::new(row)));
        }
        if let Some(failure) = failure {
            line.fail(failure.reason.clone(), permanent, failure.log.clone());
        }
        // The others learn at once that this one has ended.
        drop(gang);
        if matches!(ending, Ending::Trained { .. }) {
            while !line.wait_released(SERVING) && !cancelled.load(Ordering::Relaxed) {}
        }
        self.ended(ending, samples, bytes_sent)
    }

    fn ended(&self, ending: Ending, samples: u64, bytes_sent: u64) -> PlanResult<RankRow> {
        match ending {
            Ending::Failed(failure) if self.task.is_some() && failure.cause == FailureCause::Machine => {
                Err(DataFusionError::IoError(std::io::Error::other(failure.to_string())))
            }
            ending => Ok(self.row(ending, samples, bytes_sent)),
        }
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
        let reason = match cause {
            // Whoever of the gang noticed it first.
            FailureCause::Cancelled => voxelflow_stage::Error::Cancelled.to_string(),
            _ => error.to_string(),
        };
        Ending::Failed(self.failure(cause, reason))
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

impl Rank {
    fn fit(&self, gang: &mut Gang) -> voxelflow_stage::Result<Fitted> {
        let mut feed = SpoolFeed::new(Arc::clone(&self.train));
        let mut validation = self.validation.as_ref().map(|reader| SpoolFeed::new(Arc::clone(reader)));
        if let Some(OpenFeatures { reader, samples }) = &self.features {
            let mut features = SpoolFeed::new(Arc::clone(reader));
            let train = Explained { series: &mut feed, features: &mut features, samples };
            let held_out = self.validation_features.as_ref();
            let mut others = held_out.map(|open| SpoolFeed::new(Arc::clone(&open.reader)));
            let validation = match (&mut validation, &mut others, held_out) {
                (Some(series), Some(features), Some(OpenFeatures { samples, .. })) => {
                    Some(Explained { series, features, samples })
                }
                _ => None,
            };
            return self.estimator.fit_features(train, validation, gang);
        }
        let validation = validation.as_mut().map(|feed| feed as &mut dyn SeriesFeed);
        self.estimator.fit(&mut feed, validation, gang)
    }
}

/// The machine's name, for people.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown host".to_owned() } else { name.to_owned() }
}
