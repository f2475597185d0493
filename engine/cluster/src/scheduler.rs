//! The scheduler: Ballista's, which plans stages and places tasks, with our sessions, our codec, our policy of who runs
//! when, and our service before it.

use crate::{
    address::check_bind,
    codec::VoxelflowCodec,
    control::{Guard, Scheduler, SchedulerControl},
    error::{Error, Result},
    session::{MESSAGE_BYTES, SessionFactory, Sessions},
};
use ballista_core::{
    config::TaskSchedulingPolicy,
    error::BallistaError,
    serde::{BallistaCodec, BallistaLogicalExtensionCodec},
};
use ballista_scheduler::{config::SchedulerConfig, metrics::default_metrics_collector};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;
use voxelflow_sync::network::ClusterKey;

/// How long an executor may be silent before it counts as lost, unless the user says otherwise.
pub const EXECUTOR_TIMEOUT: Duration = Duration::from_secs(20);

/// How a scheduler is set up.
#[derive(Clone, Debug)]
pub struct SchedulerSettings {
    /// Address to bind to.
    pub bind: IpAddr,
    /// Port to bind to; 0: one that is free.
    pub port: u16,
    /// Name or address under which executors reach it; that of `bind` if not given.
    pub external_host: Option<String>,
    /// The user wants it at an address that strangers can reach.
    pub public: bool,
    /// Shares of queues by their names; 1 where not given.
    pub weights: BTreeMap<String, u32>,
    /// How long an executor may be silent before it counts as lost.
    pub executor_timeout: Duration,
    /// The cluster's key: only who has it is answered.
    pub key: ClusterKey,
}

impl SchedulerSettings {
    /// A scheduler on this machine, at the usual port.
    pub fn new(key: ClusterKey) -> Self {
        Self {
            bind: Ipv4Addr::LOCALHOST.into(),
            port: 50050,
            external_host: None,
            public: false,
            weights: BTreeMap::new(),
            executor_timeout: EXECUTOR_TIMEOUT,
            key,
        }
    }
}

/// Runs a scheduler until it fails or the future is dropped; `ready` is told its address when it can be reached.
///
/// # Errors
/// An address that strangers reach or that is taken; a scheduler that ends.
pub async fn run_scheduler(
    settings: SchedulerSettings,
    sessions: &SessionFactory,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    check_bind(settings.bind, settings.public)?;
    let guard = Guard::of_key(&settings.key)?;
    let (bind, port) = (settings.bind, settings.port);
    let bound = TcpListener::bind((bind, port)).await;
    let listener = bound.map_err(Error::io(format!("scheduler, binding {bind}:{port}")))?;
    let address = listener.local_addr().map_err(Error::io("scheduler's address"))?;
    let mut config = scheduler_config(&settings, address, sessions)?;
    let sessions = Sessions::of(sessions)?;
    let control = SchedulerControl::new(
        &config.scheduler_id,
        sessions.session_builder(),
        sessions.config_producer(|config| config),
        settings.weights,
        settings.executor_timeout,
    );
    config.task_distribution = control.policy();
    let scheduler = create_scheduler(&control, config).await.map_err(ended)?;
    ready(address);
    Ok(control.serve(scheduler, listener, &guard).await?)
}

/// Ballista's scheduler, of the parts of `control`. It listens nowhere.
pub(crate) async fn create_scheduler(
    control: &SchedulerControl,
    config: SchedulerConfig,
) -> Result<Scheduler, BallistaError> {
    let codec = BallistaCodec::new(
        Arc::new(BallistaLogicalExtensionCodec::default()),
        Arc::new(VoxelflowCodec::try_new()?),
    );
    let mut scheduler = Scheduler::new_with_task_launcher(
        config.scheduler_endpoint(),
        control.cluster(),
        codec,
        Arc::new(config),
        default_metrics_collector()?,
        control.launcher(),
    );
    scheduler.init().await?;
    Ok(scheduler)
}

fn ended(error: BallistaError) -> Error {
    Error::Ended { role: "scheduler", reason: error.to_string() }
}

fn scheduler_config(
    settings: &SchedulerSettings,
    address: SocketAddr,
    sessions: &SessionFactory,
) -> Result<SchedulerConfig> {
    let sessions = Sessions::of(sessions)?;
    let message = u32::try_from(MESSAGE_BYTES).unwrap_or(u32::MAX);
    let config = SchedulerConfig {
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        external_host: settings.external_host.clone().unwrap_or_else(|| address.ip().to_string()),
        scheduling_policy: TaskSchedulingPolicy::PushStaged,
        grpc_client_max_message_size: message,
        // Who is lost our sessions say, at once and for good.
        executor_termination_grace_period: 0,
        // Ballista would call executors to cancel tasks and to remove files. Their sessions are told which jobs are
        // over, which is all that is needed; executors have no port for such calls.
        override_create_grpc_client_endpoint: Some(Arc::new(|_| {
            Err("executors are told in their sessions".into())
        })),
        override_config_producer: Some(sessions.config_producer(|config| config)),
        override_session_builder: Some(sessions.session_builder()),
        override_physical_codec: Some(Arc::new(VoxelflowCodec::try_new()?)),
        ..SchedulerConfig::default()
    };
    config.validate().map_err(ended)?;
    Ok(config)
}
