//! The scheduler: Ballista's, with our sessions, our codec, and our policy of who runs when.

use crate::{
    address::check_bind,
    codec::VoxelflowCodec,
    control::{Guard, SchedulerControl, control_port},
    error::{Error, Result},
    session::{MESSAGE_BYTES, SessionFactory, Sessions},
};
use ballista_core::{config::TaskSchedulingPolicy, error::BallistaError};
use ballista_scheduler::{
    config::SchedulerConfig,
    scheduler_process::{create_scheduler, start_grpc_service_with_listener},
};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::net::TcpListener;
use voxelflow_sync::network::ClusterKey;

/// Seconds without a sign of life after which an executor counts as dead; executors give one every
/// [`HEARTBEAT_SECONDS`](crate::executor::HEARTBEAT_SECONDS).
const EXECUTOR_TIMEOUT_SECONDS: u64 = 20;

/// Pairs of free ports that are tried before the scheduler gives up.
const PAIRS_TRIED: usize = 16;

/// How a scheduler is set up.
#[derive(Clone, Debug)]
pub struct SchedulerSettings {
    /// Address to bind to.
    pub bind: IpAddr,
    /// Port to bind to; 0: one that is free.
    pub port: u16,
    /// Name or address under which executors reach it; that of `bind` if not given.
    pub external_host: Option<String>,
    /// The user knows that strangers can reach the address.
    pub insecure: bool,
    /// Shares of queues by their names; 1 where not given.
    pub weights: BTreeMap<String, u32>,
    /// The cluster's key: only who has it may ask the control service.
    pub key: Option<ClusterKey>,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            bind: Ipv4Addr::LOCALHOST.into(),
            port: 50050,
            external_host: None,
            insecure: false,
            weights: BTreeMap::new(),
            key: None,
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
    check_bind(settings.bind, settings.insecure)?;
    let guard = Guard::of(settings.key.as_ref())?;
    guard.check(settings.bind, settings.insecure)?;
    let [listener, beside] = bind_pair(settings.bind, settings.port).await?;
    let address = listener.local_addr().map_err(Error::io("scheduler's address"))?;
    let mut config = scheduler_config(&settings, address, sessions)?;
    let control = SchedulerControl::new(settings.weights);
    let sessions = Sessions::of(sessions)?;
    let configs = sessions.config_producer(|config| config);
    let cluster = control.cluster(&config.scheduler_id, sessions.session_builder(), configs);
    config.task_distribution = control.policy();
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config))
        .await
        .map_err(ended)?;
    ready(address);
    tokio::select! {
        ended_with = start_grpc_service_with_listener(listener, scheduler.clone()) => ended_with.map_err(ended),
        ended_with = control.serve(scheduler, beside, &guard) => Ok(ended_with?),
    }
}

/// Listens at `port` and at the next one, where the control service is; at any two such ports if `port` is 0.
async fn bind_pair(bind: IpAddr, port: u16) -> Result<[TcpListener; 2]> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let failed = |port: u16| Error::io(format!("scheduler, binding {bind}:{port}"));
        let first = TcpListener::bind((bind, port)).await.map_err(failed(port))?;
        let taken = first.local_addr().map_err(Error::io("scheduler's address"))?.port();
        let next = control_port(taken)?;
        match TcpListener::bind((bind, next)).await {
            Ok(second) => return Ok([first, second]),
            // Another process has the next port: two others are tried.
            Err(_) if port == 0 && attempt < PAIRS_TRIED => {}
            Err(e) => return Err(failed(next)(e)),
        }
    }
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
        grpc_server_max_decoding_message_size: message,
        grpc_server_max_encoding_message_size: message,
        grpc_client_max_message_size: message,
        executor_timeout_seconds: EXECUTOR_TIMEOUT_SECONDS,
        expire_dead_executor_interval_seconds: 2,
        no_executors_grace_period_seconds: EXECUTOR_TIMEOUT_SECONDS,
        override_config_producer: Some(sessions.config_producer(|config| config)),
        override_session_builder: Some(sessions.session_builder()),
        override_physical_codec: Some(Arc::new(VoxelflowCodec::try_new()?)),
        ..SchedulerConfig::default()
    };
    config.validate().map_err(ended)?;
    Ok(config)
}
