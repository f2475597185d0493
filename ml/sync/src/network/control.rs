//! The control channel where the coordinator is: a tonic service with one method, a stream each way for each member.
//!
//! ```text
//!   Attend(stream ToCoordinator) ─► stream ToMember       token, run and build in the metadata; mutual TLS
//!     │ opened(link, outbox)   said(link, message) …   closed(link)
//!     └─► Attendance
//! ```
//!
//! The server has a thread and a runtime of its own, so that callers need none, and a busy one cannot delay heartbeats.

use super::{
    PostcardCodec,
    credentials::{Security, Token},
};
use crate::{
    Error, Result,
    protocol::{LinkId, ToCoordinator, ToMember},
};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
};
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status, Streaming,
    metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataMap},
    transport::{Server, server::TcpIncoming},
};

#[allow(clippy::all, missing_docs, unused_qualifications, reason = "generated")]
pub(super) mod generated {
    include!(concat!(env!("OUT_DIR"), "/voxelflow.gang.Control.rs"));
}
use generated::control_server::{Control, ControlServer as Service};

/// Longest message: cursors of all blocks, sums of validation losses, the end of a log.
pub(super) const MESSAGE_LIMIT: usize = 16 << 20;
/// A window that holds several messages: control is never throttled by flow control.
pub(super) const WINDOW: u32 = 16 << 20;
/// An idle connection is asked so often whether it lives…
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// … and is taken for lost when no answer comes for so long.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// What is done with members that attend. Called from the server's runtime: must not wait.
pub trait Attendance: Send + Sync + 'static {
    /// A member has connected, with the right credentials.
    fn opened(&self, link: LinkId, outbox: Outbox);
    /// It says something.
    fn said(&self, link: LinkId, message: ToCoordinator);
    /// Its connection is over. The last call about it.
    fn closed(&self, link: LinkId);
}

/// The way to one member. Dropping it ends the connection, after what was sent.
#[derive(Debug)]
pub struct Outbox(mpsc::UnboundedSender<Result<ToMember, Status>>);

impl Outbox {
    /// Sends a message, unless the connection is over.
    pub fn send(&self, message: ToMember) {
        // The end of the connection is told to `Attendance::closed`.
        let _ = self.0.send(Ok(message));
    }
}

/// What members show in the metadata of the call.
#[derive(Clone)]
pub(super) struct Pass {
    pub token: Token,
    pub run: u128,
    pub build: String,
}

const TOKEN: &str = "voxelflow-token-bin";
const RUN: &str = "voxelflow-run-bin";
const BUILD: &str = "voxelflow-build";

impl Pass {
    pub fn write(&self, metadata: &mut MetadataMap) -> Result<()> {
        let mut token = BinaryMetadataValue::from_bytes(self.token.bytes());
        token.set_sensitive(true);
        metadata.insert_bin(TOKEN, token);
        metadata.insert_bin(RUN, BinaryMetadataValue::from_bytes(&self.run.to_le_bytes()));
        let build = AsciiMetadataValue::try_from(self.build.as_str()).map_err(|_| Error::Credentials {
            what: "the build".into(),
            reason: format!("{:?} is no name: only printable ASCII is", self.build),
        })?;
        metadata.insert(BUILD, build);
        Ok(())
    }

    fn judge(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let bytes = |key| metadata.get_bin(key).and_then(|value| value.to_bytes().ok());
        let token = bytes(TOKEN).and_then(|bytes| <[u8; 32]>::try_from(bytes.as_ref()).ok());
        // First, so that a stranger learns nothing else.
        if !token.is_some_and(|token| self.token.admits(&Token::from_bytes(token))) {
            return Err(Status::unauthenticated("the token is not that of this job"));
        }
        if bytes(RUN).as_deref() != Some(&self.run.to_le_bytes()[..]) {
            return Err(Status::failed_precondition(format!(
                "this is the coordinator of run {:032x}",
                self.run
            )));
        }
        let theirs = metadata.get(BUILD).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
        if theirs != self.build {
            return Err(Status::failed_precondition(format!(
                "it runs build {theirs}, the coordinator build {}; start all of them from the same program",
                self.build
            )));
        }
        Ok(())
    }
}

/// The control channel's server, until it is dropped.
pub struct ControlServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ControlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlServer({})", self.address)
    }
}

impl ControlServer {
    /// Serves at a free port of `ip`.
    ///
    /// # Errors
    /// [`Error::Connection`] when the address cannot be bound, [`Error::Credentials`] for odd certificates.
    pub fn start(
        ip: IpAddr,
        security: &Security,
        (run, build): (u128, &str),
        attendance: Arc<dyn Attendance>,
    ) -> Result<Self> {
        let failed = |reason: String| Error::Connection {
            peer: format!("the network at {ip}"),
            what: "listening",
            reason,
        };
        let runtime = runtime("gang control").map_err(&failed)?;
        let incoming = {
            let _inside = runtime.enter();
            TcpIncoming::bind((ip, 0).into()).map_err(|e| failed(e.to_string()))?.with_nodelay(Some(true))
        };
        let address = incoming.local_addr().map_err(|e| failed(e.to_string()))?;
        let pass = Pass { token: security.token().clone(), run, build: build.to_owned() };
        let desk = Desk { pass, attendance, next: Arc::default() };
        let service = Service::new(desk)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        let mut server = Server::builder()
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT));
        if let Security::Tls(job) = security {
            server = server.tls_config(job.server_tls()).map_err(|e| failed(e.to_string()))?;
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = server.add_service(service).serve_with_incoming(incoming);
        let thread = std::thread::Builder::new().name("gang control".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    served = serve => if let Err(e) = served { log::warn!("the control channel ended: {e}") },
                    _ = stopped => {}
                }
            });
            // Ends the streams with the tasks that hold them.
            drop(runtime);
        });
        let thread = Some(thread.map_err(|e| failed(e.to_string()))?);
        Ok(Self { address, stop: Some(stop), thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn runtime(name: &str) -> Result<Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(name)
        .build()
        .map_err(|e| format!("no runtime for it: {e}"))
}

struct Desk {
    pass: Pass,
    attendance: Arc<dyn Attendance>,
    next: Arc<AtomicU64>,
}

/// What goes to a member; its end, whoever ends it, is told once.
pub(super) struct Outgoing {
    messages: mpsc::UnboundedReceiver<Result<ToMember, Status>>,
    link: LinkId,
    attendance: Arc<dyn Attendance>,
}

impl Stream for Outgoing {
    type Item = Result<ToMember, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(context)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.attendance.closed(self.link);
    }
}

#[tonic::async_trait]
impl Control for Desk {
    type AttendStream = Outgoing;

    async fn attend(&self, request: Request<Streaming<ToCoordinator>>) -> Result<Response<Outgoing>, Status> {
        self.pass.judge(request.metadata())?;
        let link = LinkId(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, messages) = mpsc::unbounded_channel();
        let attendance = Arc::clone(&self.attendance);
        // Only the outbox keeps the stream open.
        let end = sender.downgrade();
        attendance.opened(link, Outbox(sender));
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            loop {
                match incoming.message().await {
                    Ok(Some(message)) => attendance.said(link, message),
                    Ok(None) => break,
                    Err(status) => {
                        log::debug!("{link:?}: {}", status.message());
                        break;
                    }
                }
            }
            // The member says no more: its stream ends too, and with it the connection.
            if let Some(sender) = end.upgrade() {
                let _ = sender.send(Err(Status::aborted("the member has ended its stream")));
            }
        });
        Ok(Response::new(Outgoing { messages, link, attendance: Arc::clone(&self.attendance) }))
    }
}

/// As the generated code wants it.
const _: fn() -> PostcardCodec<ToMember, ToCoordinator> = PostcardCodec::default;
