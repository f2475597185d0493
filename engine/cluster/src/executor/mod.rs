//! An executor: it runs tasks for the scheduler that it has gone to, and gives out the rows that they have written.
//!
//! ```text
//!   membership ◄── one stream ──► scheduler          rows ◄── Arrow Flight ── executors, drivers
//!       │ Run, Forget                                  │
//!       ▼                                              ▼
//!     tasks ── Ballista's engine for stages ──► work_folder
//! ```
//!
//! It is Ballista's engine for stages in a service of ours: Ballista's own takes orders from whoever reaches its port,
//! and dies with a plan that cannot be decoded.

mod membership;
mod rows;
mod tasks;
mod work_folder;

use crate::{
    address::{ClusterAddress, check_bind},
    control::{self, ControlClient, Guard, messages::Registration, push_logs},
    error::{Error, Result},
    policy::ExecutorName,
    session::{SessionFactory, Sessions},
    task_engine::TaskEngine,
};
use ballista_core::ConfigProducer;
use datafusion::error::DataFusionError;
use membership::register;
use rows::serve_rows;
use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tasks::Workshop;
use tokio::net::TcpListener;
use uuid::Uuid;
use voxelflow_dataset::{build_id, runner::Unsealer};
use voxelflow_sync::network::{ClusterKey, open};

/// How long a scheduler may take to answer the first time.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// The shortest and the longest pause before the scheduler is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// How an executor is set up.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The scheduler.
    pub scheduler: ClusterAddress,
    /// Address to bind to.
    pub bind: IpAddr,
    /// Port for rows; 0: one that is free.
    pub port: u16,
    /// Name or address under which the others reach it; that of `bind` if not given.
    pub external_host: Option<String>,
    /// The user wants it at an address that strangers can reach.
    pub public: bool,
    /// Tasks that it runs at once.
    pub slots: usize,
    /// Its pool, for jobs that ask for one.
    pub pool: String,
    /// Bytes of memory that it gives to tasks.
    pub memory_bytes: u64,
    /// Accelerator cards that it has.
    pub cards: u32,
    /// Folder for what passes between stages.
    pub work_dir: PathBuf,
    /// The cluster's key.
    pub key: ClusterKey,
}

impl ExecutorSettings {
    /// An executor of `scheduler` on this machine, with as many slots as it has cores.
    pub fn new(scheduler: ClusterAddress, work_dir: impl Into<PathBuf>, key: ClusterKey) -> Self {
        Self {
            scheduler,
            bind: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            external_host: None,
            public: false,
            slots: std::thread::available_parallelism().map_or(1, usize::from),
            pool: "cpu".into(),
            memory_bytes: 1 << 30,
            cards: 0,
            work_dir: work_dir.into(),
            key,
        }
    }
}

/// Runs an executor until the future is dropped; `ready` is told its name when the scheduler has taken it. When it is
/// lost to the scheduler, or the scheduler to it, it stops what it does and goes there again, under another name.
///
/// # Errors
/// An address that strangers reach, a scheduler that does not answer at first or that does not take it, a port or a
/// folder that cannot be used.
pub async fn run_executor(
    settings: ExecutorSettings,
    sessions: &SessionFactory,
    ready: impl FnOnce(&str),
) -> Result<()> {
    check_bind(settings.bind, settings.public)?;
    let guard = Guard::of_key(&settings.key)?;
    let folder = Arc::new(work_folder::WorkFolder::create(&settings.work_dir)?);
    let bound = TcpListener::bind((settings.bind, settings.port)).await;
    let listener =
        bound.map_err(Error::io(format!("executor, binding {}:{}", settings.bind, settings.port)))?;
    let port = listener.local_addr().map_err(Error::io("executor's address"))?.port();
    let rows = serve_rows(listener, &guard, folder.path())?;
    let client = ControlClient::new(&settings.scheduler, &guard)?;
    let host = settings.external_host.clone().unwrap_or_else(|| settings.bind.to_string());
    let sessions = Sessions::of(sessions)?;
    let unsealer = Arc::new(unsealer(settings.key.clone()));
    let configs = sessions.config_producer(move |config| config.with_extension(Arc::clone(&unsealer)));
    let member = Member { settings: &settings, client, guard, sessions, configs, folder, host, port };
    tokio::select! {
        ended = rows => ended,
        ended = member.go_on(ready) => ended,
    }
}

struct Member<'a> {
    settings: &'a ExecutorSettings,
    client: ControlClient,
    guard: Guard,
    sessions: Sessions,
    configs: ConfigProducer,
    folder: Arc<work_folder::WorkFolder>,
    host: String,
    port: u16,
}

impl Member<'_> {
    fn registration(&self) -> Result<Registration> {
        let settings = self.settings;
        let name = ExecutorName::new(&settings.pool, settings.memory_bytes, settings.cards)
            .map_err(|reason| Error::Setting { what: "--pool", reason })?;
        Ok(Registration {
            id: name.id(&Uuid::new_v4().simple().to_string()),
            build: build_id().map_err(DataFusionError::from)?.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            port: self.port,
            slots: u32::try_from(settings.slots.max(1)).unwrap_or(u32::MAX),
        })
    }

    /// What the tasks of one membership need. Its connections live on the threads of these tasks, and end with them.
    fn workshop(&self) -> Result<Workshop> {
        let (engine, folder) = (TaskEngine::new(&self.guard), Arc::clone(&self.folder));
        let room = (self.settings.slots.max(1), self.settings.memory_bytes.max(64 << 20));
        Workshop::new(&self.sessions, Arc::clone(&self.configs), engine, folder, self.host.clone(), room)
    }

    /// One membership after the other.
    async fn go_on(&self, ready: impl FnOnce(&str)) -> Result<()> {
        let mut ready = Some(ready);
        loop {
            let registration = self.registration()?;
            let id = registration.id.clone();
            let membership = self.enter(registration, ready.is_some()).await?;
            if let Some(ready) = ready.take() {
                ready(&id);
            }
            let workshop = Arc::new(self.workshop()?);
            let ended = tokio::select! {
                ended = membership.serve(workshop, id.clone()) => ended?,
                () = push_logs(self.client.clone(), id.clone()) => "log lines end".to_owned(),
            };
            log::warn!(
                "executor {id} is no member any more: {ended}; it stops its tasks and goes to the scheduler again"
            );
            self.folder.clear();
        }
    }

    /// Registers, however often that takes; the first time not for long.
    async fn enter(&self, registration: Registration, is_first: bool) -> Result<membership::Membership> {
        let mut pause = PAUSES[0];
        let began = Instant::now();
        loop {
            match register(&self.client, registration.clone()).await {
                Ok(membership) => return Ok(membership),
                Err(Error::Control(control::Error::Unreachable { .. }))
                    if !is_first || began.elapsed() < FIRST_ANSWER =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES[1]);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// Opens what a driver with the same key has sealed.
fn unsealer(key: ClusterKey) -> Unsealer {
    Unsealer(Box::new(move |sealed| open(sealed, &key).map_err(|e| DataFusionError::External(Box::new(e)))))
}
