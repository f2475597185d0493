//! Connections to executors, which have the cluster's key at both ends. They are kept for a while: a stage, and the driver
//! of a result, fetches thousands of partitions, and a connection of its own for each would take a handshake and a port.

use crate::control::Guard;
use async_trait::async_trait;
use ballista_core::{
    client::BallistaClient,
    client_pool::{BallistaClientPool, PooledClient},
    error::Result,
    extension::BallistaConfigGrpcEndpoint,
    utils::GrpcClientConfig,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a connection is kept when nobody uses it.
const KEPT: Duration = Duration::from_secs(60);

type Key = (String, u16, GrpcClientConfig);
type Idle = HashMap<Key, Vec<(BallistaClient, Instant)>>;

/// Idle connections by where they lead.
pub(crate) struct Connections {
    idle: Arc<Mutex<Idle>>,
    secure: Arc<BallistaConfigGrpcEndpoint>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    /// No connections yet.
    pub(crate) fn new(guard: &Guard) -> Self {
        Self { idle: Arc::default(), secure: guard.for_ballista() }
    }

    /// Closes what has been idle for too long.
    fn close_old(&self) {
        let now = Instant::now();
        lock(&self.idle).retain(|_, clients| {
            clients.retain(|(_, since)| now.saturating_duration_since(*since) < KEPT);
            !clients.is_empty()
        });
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl BallistaClientPool for Connections {
    async fn acquire(
        &self,
        host: &str,
        port: u16,
        config: &GrpcClientConfig,
        _: Option<Arc<BallistaConfigGrpcEndpoint>>,
    ) -> Result<PooledClient> {
        self.close_old();
        let key = (host.to_owned(), port, config.clone());
        let idle = lock(&self.idle).get_mut(&key).and_then(Vec::pop);
        let client = match idle {
            Some((client, _)) => client,
            None => connect(host, port, &self.secure, config).await?,
        };
        let idle = Arc::clone(&self.idle);
        let give_back = move |client| lock(&idle).entry(key).or_default().push((client, Instant::now()));
        Ok(PooledClient::new(client, Box::new(give_back)))
    }

    async fn evict_idle(&self) {
        self.close_old();
    }
}

/// A new connection.
async fn connect(
    host: &str,
    port: u16,
    secure: &Arc<BallistaConfigGrpcEndpoint>,
    config: &GrpcClientConfig,
) -> Result<BallistaClient> {
    BallistaClient::try_new(
        host,
        port,
        config.max_message_size,
        true,
        Some(Arc::clone(secure)),
        config.io_retries_times,
        config.io_retry_wait_time_ms,
        config.initial_connection_window_size,
        config.initial_stream_window_size,
    )
    .await
}
