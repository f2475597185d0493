//! The one port of an executor: Arrow Flight, for rows that tasks of this executor have written. Only those who have
//! the cluster's key are answered, and only files of jobs in the work folder are read.

use crate::{
    connections_in::incoming,
    control::Guard,
    error::{Error, Result},
    session::MESSAGE_BYTES,
};
use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_executor::flight_service::BallistaFlightService;
use std::{future::Future, path::Path};
use tokio::net::TcpListener;

/// Serves the rows in `work_dir` at `listener`, for as long as it is polled.
pub(super) fn serve_rows(
    listener: TcpListener,
    guard: &Guard,
    work_dir: &Path,
) -> Result<impl Future<Output = Result<()>> + use<>> {
    let service = BallistaFlightService::new(work_dir.display().to_string());
    let service = FlightServiceServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let server = guard.server()?.add_service(service);
    Ok(async move {
        let ended = server.serve_with_incoming(incoming(listener)).await;
        ended.map_err(|e| Error::Ended { role: "executor", reason: e.to_string() })
    })
}
