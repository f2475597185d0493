//! The control channel where a member is: connects, and connects again whenever the connection is lost.

use super::{
    control::{
        KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, MESSAGE_LIMIT, Pass, WINDOW,
        generated::control_client::ControlClient as Stub, runtime,
    },
    credentials::Security,
};
use crate::{
    Error, Result,
    protocol::{ToCoordinator, ToMember},
};
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

/// What happens on the control channel.
#[derive(Debug)]
pub enum ControlEvent {
    /// There is a connection; the first message on it must be a `Hello`.
    Connected,
    /// The coordinator says something.
    Told(ToMember),
    /// The connection is lost; another is tried.
    Disconnected,
    /// The coordinator does not want this member: there will be no connection.
    Refused(String),
}

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(200);
/// Time in which the coordinator must have taken what was said before the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A member's end of the control channel, until it is dropped.
pub struct ControlClient {
    outgoing: Arc<Mutex<Option<mpsc::UnboundedSender<ToCoordinator>>>>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ControlClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlClient")
    }
}

/// Where and how to connect.
struct Way {
    endpoint: Endpoint,
    pass: Pass,
}

impl ControlClient {
    /// Connects to the coordinator at `address`. What happens is told to `events`, from a thread of its own.
    ///
    /// # Errors
    /// [`Error::Credentials`] for odd certificates, [`Error::Connection`] when the system has no thread for it.
    pub fn start(
        address: SocketAddr,
        security: &Security,
        (run, build): (u128, &str),
        events: impl Fn(ControlEvent) + Send + 'static,
    ) -> Result<Self> {
        let failed = |reason: String| Error::Connection {
            peer: format!("the coordinator at {address}"),
            what: "connecting",
            reason,
        };
        let scheme = if matches!(security, Security::Tls(_)) { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|e| failed(e.to_string()))?
            .connect_timeout(KEEP_ALIVE_TIMEOUT)
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if let Security::Tls(job) = security {
            endpoint = endpoint.tls_config(job.client_tls()).map_err(|e| failed(e.to_string()))?;
        }
        let pass = Pass { token: security.token().clone(), run, build: build.to_owned() };
        let way = Way { endpoint, pass };
        let runtime = runtime("gang control").map_err(&failed)?;
        let outgoing = Arc::new(Mutex::new(None));
        let (stop, mut stopped) = watch::channel(false);
        let ours = Arc::clone(&outgoing);
        let attend = move || {
            runtime.block_on(async {
                let mut until = stopped.clone();
                let attending = attend(&way, &ours, &events, &mut stopped);
                tokio::select! {
                    () = attending => {}
                    () = async {
                        let _ = until.wait_for(|stop| *stop).await;
                        tokio::time::sleep(LAST_WORDS).await;
                    } => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("gang control".into()).spawn(attend);
        Ok(Self { outgoing, stop, thread: Some(thread.map_err(|e| failed(e.to_string()))?) })
    }

    /// Says something; without a connection it is dropped.
    pub fn tell(&self, message: ToCoordinator) {
        if let Some(sender) = &*self.outgoing.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = sender.send(message);
        }
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take().filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

type Outgoing = Mutex<Option<mpsc::UnboundedSender<ToCoordinator>>>;

fn close(outgoing: &Outgoing) -> Option<mpsc::UnboundedSender<ToCoordinator>> {
    outgoing.lock().unwrap_or_else(PoisonError::into_inner).take()
}

async fn attend(
    way: &Way,
    outgoing: &Outgoing,
    events: &impl Fn(ControlEvent),
    stopped: &mut watch::Receiver<bool>,
) {
    while !*stopped.borrow() {
        match connection(way, outgoing, events, stopped).await {
            Ok(()) => {
                close(outgoing);
                events(ControlEvent::Disconnected);
            }
            Err(Failed::Refused(reason)) => return events(ControlEvent::Refused(reason)),
            Err(Failed::Unreachable(reason)) => log::debug!("the coordinator cannot be reached: {reason}"),
        }
        let _ = tokio::time::timeout(AGAIN, stopped.wait_for(|stop| *stop)).await;
    }
}

enum Failed {
    /// It was never there, or is not now.
    Unreachable(String),
    /// It is there and does not want this member.
    Refused(String),
}

/// One connection, to its end.
async fn connection(
    way: &Way,
    outgoing: &Outgoing,
    events: &impl Fn(ControlEvent),
    stopped: &mut watch::Receiver<bool>,
) -> std::result::Result<(), Failed> {
    let unreachable = |e: tonic::transport::Error| {
        let source = std::error::Error::source(&e).map(|s| format!(": {s}")).unwrap_or_default();
        Failed::Unreachable(format!("{e}{source}"))
    };
    let channel: Channel = way.endpoint.connect().await.map_err(unreachable)?;
    let mut stub =
        Stub::new(channel).max_decoding_message_size(MESSAGE_LIMIT).max_encoding_message_size(MESSAGE_LIMIT);
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut request = Request::new(UnboundedReceiverStream::new(receiver));
    way.pass.write(request.metadata_mut()).map_err(|e| Failed::Refused(e.to_string()))?;
    let response = stub.attend(request).await.map_err(|status| match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::FailedPrecondition => {
            Failed::Refused(status.message().to_owned())
        }
        _ => Failed::Unreachable(status.message().to_owned()),
    })?;
    let mut incoming = response.into_inner();
    *outgoing.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    events(ControlEvent::Connected);
    let mut stopping = false;
    loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            _ = stopped.wait_for(|stop| *stop), if !stopping => {
                // Ends the outgoing stream after what is in it; the coordinator then ends the other.
                stopping = true;
                close(outgoing);
                continue;
            }
        };
        match message {
            Ok(Some(message)) => events(ControlEvent::Told(message)),
            Ok(None) => return Ok(()),
            Err(status) => {
                log::debug!("the connection to the coordinator is lost: {}", status.message());
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::{
        network::{Attendance, ControlServer, Outbox},
        protocol::{Generation, LinkId},
    };
    use std::{
        net::{IpAddr, Ipv4Addr},
        sync::mpsc::{Receiver, Sender, channel},
    };

    const SOON: Duration = Duration::from_secs(20);
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[derive(Debug)]
    enum Seen {
        Opened(LinkId, Outbox),
        Said(LinkId, ToCoordinator),
        Closed(LinkId),
    }

    struct Witness(Sender<Seen>);

    impl Attendance for Witness {
        fn opened(&self, link: LinkId, outbox: Outbox) {
            self.0.send(Seen::Opened(link, outbox)).unwrap();
        }
        fn said(&self, link: LinkId, message: ToCoordinator) {
            self.0.send(Seen::Said(link, message)).unwrap();
        }
        fn closed(&self, link: LinkId) {
            let _ = self.0.send(Seen::Closed(link));
        }
    }

    fn server(security: &Security) -> (ControlServer, Receiver<Seen>) {
        let (sender, seen) = channel();
        (ControlServer::start(LOOPBACK, security, (7, "build"), Arc::new(Witness(sender))).unwrap(), seen)
    }

    fn client(
        address: SocketAddr,
        security: &Security,
        run: u128,
        build: &str,
    ) -> (ControlClient, Receiver<ControlEvent>) {
        let (sender, events) = channel();
        let tell = move |event| drop(sender.send(event));
        (ControlClient::start(address, security, (run, build), tell).unwrap(), events)
    }

    #[test]
    fn messages_go_both_ways_until_either_side_ends_it() {
        for security in [Security::insecure().unwrap(), Security::tls().unwrap()] {
            let (server, seen) = server(&security);
            let (member, events) = client(server.address(), &security, 7, "build");
            let Seen::Opened(link, outbox) = seen.recv_timeout(SOON).unwrap() else { panic!("not opened") };
            assert!(matches!(events.recv_timeout(SOON).unwrap(), ControlEvent::Connected));
            // Larger than the usual limit of gRPC.
            let report = ToCoordinator::Report(vec![7; 8 << 20]);
            member.tell(report.clone());
            let Seen::Said(from, message) = seen.recv_timeout(SOON).unwrap() else { panic!("nothing said") };
            assert!(from == link && message == report);
            let freeze = ToMember::Freeze { generation: Generation(3) };
            outbox.send(freeze.clone());
            let ControlEvent::Told(message) = events.recv_timeout(SOON).unwrap() else { panic!("not told") };
            assert_eq!(message, freeze);

            // The coordinator ends it; the member connects again.
            drop(outbox);
            assert!(matches!(events.recv_timeout(SOON).unwrap(), ControlEvent::Disconnected));
            let mut again = None;
            while again.is_none() {
                if let Seen::Opened(link, outbox) = seen.recv_timeout(SOON).unwrap() {
                    again = Some((link, outbox));
                }
            }
            assert!(matches!(events.recv_timeout(SOON).unwrap(), ControlEvent::Connected));
            // The member ends it, after its last words.
            member.tell(ToCoordinator::Heartbeat);
            drop(member);
            let mut rest = Vec::new();
            while !rest.iter().any(|seen| matches!(seen, Seen::Closed(l) if *l != link)) {
                rest.push(seen.recv_timeout(SOON).unwrap());
            }
            assert!(rest.iter().any(|s| matches!(s, Seen::Said(_, ToCoordinator::Heartbeat))), "{rest:?}");
        }
    }

    #[test]
    fn a_member_notices_the_end_of_the_coordinator_and_finds_no_other() {
        let security = Security::insecure().unwrap();
        let (server, _seen) = server(&security);
        let (_member, events) = client(server.address(), &security, 7, "build");
        assert!(matches!(events.recv_timeout(SOON).unwrap(), ControlEvent::Connected));
        drop(server);
        assert!(matches!(events.recv_timeout(SOON).unwrap(), ControlEvent::Disconnected));
    }

    #[test]
    fn who_does_not_belong_is_refused() {
        for security in [Security::insecure().unwrap(), Security::tls().unwrap()] {
            let (server, seen) = server(&security);
            let refusal = |run, build| {
                let (_member, events) = client(server.address(), &security, run, build);
                match events.recv_timeout(SOON).unwrap() {
                    ControlEvent::Refused(reason) => reason,
                    other => panic!("{other:?}"),
                }
            };
            assert!(refusal(8, "build").contains("run"));
            assert!(refusal(7, "other").contains("same program"));
            assert!(seen.try_recv().is_err(), "nobody was let in");
        }
        let (server, seen) = server(&Security::insecure().unwrap());
        let (_member, events) = client(server.address(), &Security::insecure().unwrap(), 7, "build");
        let ControlEvent::Refused(reason) = events.recv_timeout(SOON).unwrap() else { panic!("let in") };
        assert!(reason.contains("token") && !reason.contains("build"), "{reason}");
        assert!(seen.try_recv().is_err());
    }

    #[test]
    fn certificates_of_another_job_lead_nowhere() {
        let (server, seen) = server(&Security::tls().unwrap());
        let (member, events) = client(server.address(), &Security::tls().unwrap(), 7, "build");
        // It goes on trying, as it would for a coordinator that is not there yet.
        assert!(events.recv_timeout(Duration::from_secs(1)).is_err());
        assert!(seen.try_recv().is_err());
        drop(member);
    }
}
