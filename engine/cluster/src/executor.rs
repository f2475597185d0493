//! An executor: Ballista's, with our sessions and our codec.

use crate::{
    address::{ClusterAddress, check_bind},
    codec::VoxelflowCodec,
    control::{ControlClient, Guard, push_logs},
    error::{Error, Result},
    policy::ExecutorName,
    session::{MESSAGE_BYTES, SessionFactory, Sessions},
    task_engine::TaskEngine,
};
use ballista_core::{config::TaskSchedulingPolicy, error::BallistaError};
use ballista_executor::{
    executor_process::{ExecutorProcessConfig, start_executor_process},
    health::ExecutorHealth,
};
use datafusion::error::DataFusionError;
use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;
use voxelflow_dataset::runner::Unsealer;
use voxelflow_sync::network::{ClusterKey, open};

/// Seconds between two signs of life of an executor.
pub const HEARTBEAT_SECONDS: u64 = 5;
/// Seconds between two clean-ups of what finished jobs have left on disk.
const CLEAN_UP_SECONDS: u64 = 600;
/// Seconds after which the files of a job that nobody has written to are removed.
const JOB_DATA_SECONDS: u64 = 24 * 3600;
/// How often it is looked at whether the executor is registered.
const READY_POLL: Duration = Duration::from_millis(20);

/// How an executor is set up.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The scheduler.
    pub scheduler: ClusterAddress,
    /// Address to bind to.
    pub bind: IpAddr,
    /// Ports for tasks and for rows; 0: ones that are free.
    pub ports: [u16; 2],
    /// Name or address under which the others reach it; that of `bind` if not given.
    pub external_host: Option<String>,
    /// The user knows that strangers can reach the address.
    pub insecure: bool,
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
    /// The cluster's key, for the scheduler's control service.
    pub key: Option<ClusterKey>,
}

impl ExecutorSettings {
    /// An executor of `scheduler` on this machine, with as many slots as it has cores.
    pub fn new(scheduler: ClusterAddress, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            scheduler,
            bind: Ipv4Addr::LOCALHOST.into(),
            ports: [0, 0],
            external_host: None,
            insecure: false,
            slots: std::thread::available_parallelism().map_or(1, usize::from),
            pool: "cpu".into(),
            memory_bytes: 1 << 30,
            cards: 0,
            work_dir: work_dir.into(),
            key: None,
        }
    }
}

/// Runs an executor until it is stopped or fails; `ready` is told its id when the scheduler knows it.
///
/// # Errors
/// An address that strangers reach, a scheduler that does not answer, an executor that ends.
pub async fn run_executor(
    settings: ExecutorSettings,
    sessions: &SessionFactory,
    ready: impl FnOnce(&str),
) -> Result<()> {
    check_bind(settings.bind, settings.insecure)?;
    std::fs::create_dir_all(&settings.work_dir)
        .map_err(Error::io(format!("executor's folder {}", settings.work_dir.display())))?;
    let health = ExecutorHealth::new();
    let config = executor_config(&settings, sessions, health.clone())?;
    let id = config.executor_id.clone();
    let control = ControlClient::new(&settings.scheduler, &Guard::of(settings.key.as_ref())?)?;
    let running = start_executor_process(Arc::new(config));
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return ended.map_err(stopped),
        () = registered(&health) => ready(&id),
    }
    tokio::select! {
        ended = running => ended.map_err(stopped),
        () = push_logs(control, id) => Ok(()),
    }
}

/// Ends when the scheduler has answered a sign of life.
async fn registered(health: &ExecutorHealth) {
    while !health.is_ready() {
        // Ballista tells by a flag only.
        tokio::time::sleep(READY_POLL).await;
    }
}

fn stopped(error: BallistaError) -> Error {
    Error::Ended { role: "executor", reason: error.to_string() }
}

fn executor_config(
    settings: &ExecutorSettings,
    sessions: &SessionFactory,
    health: ExecutorHealth,
) -> Result<ExecutorProcessConfig> {
    let sessions = Sessions::of(sessions)?;
    let name = ExecutorName::new(&settings.pool, settings.memory_bytes, settings.cards)
        .map_err(|reason| Error::Setting { what: "--pool", reason })?;
    let [grpc_port, port] = free_ports(settings.bind, settings.ports)?;
    let message = u32::try_from(MESSAGE_BYTES).unwrap_or(u32::MAX);
    Ok(ExecutorProcessConfig {
        executor_id: name.id(&Uuid::new_v4().simple().to_string()),
        bind_host: settings.bind.to_string(),
        external_host: Some(settings.external_host.clone().unwrap_or_else(|| settings.bind.to_string())),
        port,
        grpc_port,
        scheduler_host: settings.scheduler.host().to_owned(),
        scheduler_port: settings.scheduler.port(),
        scheduler_connect_timeout_seconds: 10,
        vcores: settings.slots.max(1),
        task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
        work_dir: Some(settings.work_dir.display().to_string()),
        job_data_ttl_seconds: JOB_DATA_SECONDS,
        job_data_clean_up_interval_seconds: CLEAN_UP_SECONDS,
        grpc_max_decoding_message_size: message,
        grpc_max_encoding_message_size: message,
        executor_heartbeat_interval_seconds: HEARTBEAT_SECONDS,
        memory_pool_size: Some(settings.memory_bytes.max(64 << 20)),
        override_function_registry: Some(sessions.functions()),
        override_runtime_producer: Some(sessions.runtime_producer()),
        override_config_producer: Some(sessions.config_producer(|config| match settings.key.clone() {
            Some(key) => config.with_extension(Arc::new(unsealer(key))),
            None => config,
        })),
        override_physical_codec: Some(Arc::new(VoxelflowCodec::try_new()?)),
        override_execution_engine: Some(Arc::new(TaskEngine::new())),
        health,
        ..ExecutorProcessConfig::default()
    })
}

/// Opens what a driver with the same key has sealed.
fn unsealer(key: ClusterKey) -> Unsealer {
    Unsealer(Box::new(move |sealed| open(sealed, &key).map_err(|e| DataFusionError::External(Box::new(e)))))
}

/// `wanted`, zeros replaced by ports that are free now. Another process may take one before Ballista binds it: then
/// the executor ends, and whoever started it starts it again.
fn free_ports(bind: IpAddr, wanted: [u16; 2]) -> Result<[u16; 2]> {
    let mut held = Vec::new();
    let mut free = |port: u16| -> Result<u16> {
        if port != 0 {
            return Ok(port);
        }
        let listener =
            TcpListener::bind((bind, 0)).map_err(Error::io(format!("executor, binding {bind}")))?;
        let port = listener.local_addr().map_err(Error::io("executor's address"))?.port();
        held.push(listener);
        Ok(port)
    };
    Ok([free(wanted[0])?, free(wanted[1])?])
}
