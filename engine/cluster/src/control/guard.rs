//! Who may speak to the processes of a cluster: those who have its key, from which all ends make the certificates of
//! mutual TLS. Every port of a scheduler and of an executor is behind it, on loopback too, where the other users of the
//! machine are strangers.

use super::error::{Error, Result};
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use std::{sync::Arc, time::Duration};
use tonic::transport::{Endpoint, Server};
use voxelflow_dataset::build_id;
use voxelflow_sync::network::{ClusterKey, JobCredentials};

/// Requests that one connection may have open at once.
const REQUESTS_OF_CONNECTION: u32 = 512;
/// Bytes of rows that may be on their way on one stream and on one connection.
const WINDOWS: [u32; 2] = [4 << 20, 16 << 20];
/// How long a connection may take to show its certificate.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// How the processes of a cluster trust each other.
#[derive(Clone, Debug)]
pub struct Guard {
    credentials: JobCredentials,
}

impl Guard {
    /// Mutual TLS with certificates from the cluster's key.
    ///
    /// # Errors
    /// A key that no certificates can be made from.
    pub fn of_key(key: &ClusterKey) -> Result<Self> {
        let credentials = JobCredentials::of_cluster(key);
        let credentials = credentials.map_err(|e| Error::setup("the cluster's key")(e.to_string()))?;
        Ok(Self { credentials })
    }

    /// A server that answers those who have the key.
    pub(crate) fn server(&self) -> Result<Server> {
        Server::builder()
            .max_concurrent_streams(REQUESTS_OF_CONNECTION)
            .tls_config(self.credentials.server_tls().timeout(HANDSHAKE_LIMIT))
            .map_err(|e| Error::setup("the cluster's certificate")(e.to_string()))
    }

    /// The server at `address`, `host:port`.
    pub(crate) fn endpoint(&self, address: &str) -> Result<Endpoint> {
        let endpoint = Endpoint::from_shared(format!("https://{address}"));
        let endpoint = endpoint.map_err(|e| Error::setup("the cluster's address")(e.to_string()))?;
        self.secure(endpoint)
    }

    fn secure(&self, endpoint: Endpoint) -> Result<Endpoint> {
        endpoint
            .tcp_nodelay(true)
            .tls_config(self.credentials.client_tls())
            .map_err(|e| Error::setup("the cluster's certificate")(e.to_string()))
    }

    /// The same for Ballista's own clients, of rows on executors. Their addresses must begin with `https`.
    pub(crate) fn for_ballista(&self) -> Arc<BallistaConfigGrpcEndpoint> {
        let guard = self.clone();
        Arc::new(BallistaConfigGrpcEndpoint::new(Arc::new(move |endpoint: Endpoint| {
            let wide = endpoint
                .initial_stream_window_size(WINDOWS[0])
                .initial_connection_window_size(WINDOWS[1])
                .connect_timeout(HANDSHAKE_LIMIT);
            Ok(guard.secure(wide)?)
        })))
    }
}

/// The header of a request that says which build its sender is.
const BUILD: &str = "voxelflow-build";

/// `request`, saying which build this process is: messages of another build may mean something else.
pub(super) fn of_this_build<T>(message: T) -> Result<tonic::Request<T>> {
    let unfit = |reason: String| Error::setup("this program's build")(reason);
    let build = build_id().map_err(|e| unfit(e.to_string()))?;
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(BUILD, build.parse().map_err(|_| unfit("it is no name".into()))?);
    Ok(request)
}

/// Refuses the request of `who`, at another build than this process.
pub(super) fn check_build<T>(
    request: &tonic::Request<T>,
    who: &str,
) -> std::result::Result<(), tonic::Status> {
    let ours = build_id().map_err(|e| tonic::Status::internal(e.to_string()))?;
    let theirs =
        request.metadata().get(BUILD).and_then(|build| build.to_str().ok()).unwrap_or("an unknown one");
    if theirs == ours {
        return Ok(());
    }
    let short = |build: &str| build.chars().take(12).collect::<String>();
    let from = request.remote_addr().map_or_else(String::new, |address| format!(" at {}", address.ip()));
    Err(tonic::Status::failed_precondition(format!(
        "{who}{from} is build {}…, and the scheduler is build {}…: start the driver, the scheduler and the executors \
         from the same program",
        short(theirs),
        short(ours)
    )))
}
