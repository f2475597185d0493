//! Connections that a port takes: not more at once than the process has room for. One that does not show a certificate
//! in time is closed ([`Guard`](crate::control::Guard)), so whoever has no key holds a place for seconds only.

use futures::{Stream, stream};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections at once: some from each of hundreds of executors and drivers.
const CONNECTIONS: usize = 4096;
/// After a connection could not be taken, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection, which has a place among those that are taken at once.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// The connections that come to `listener`.
pub(crate) fn incoming(listener: TcpListener) -> impl Stream<Item = io::Result<Incoming>> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    stream::unfold((listener, places), |(listener, places)| async move {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // It is slower without, not wrong.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Incoming { stream, _place: place }), (listener, places)));
                }
                Err(e) => {
                    log::warn!("a connection could not be taken: {e}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    })
}

impl Connected for Incoming {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Incoming {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
