//! Who connects, and whether it may.
//!
//! ```text
//!   connects                                     listens
//!      │ TLS: both show the job's certificate ────► │  (none with `Security::Insecure`)
//!      │ Hello { token, run, build, member, to } ─► │
//!      │ ◄─────────────── Welcome, or Refused: why  │
//! ```
//!
//! What does not fit is refused before a single number moves: another job, another build, another layout of
//! frames, a port that now belongs to somebody else.

use super::{
    credentials::{Security, Token, server_name},
    frame::{Header, Kind},
    payload::Payload,
    stream::TensorStream,
};
use crate::{Error, Result};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

/// What one member of a job shows to the others, and what it expects of them.
pub struct Passport {
    run: u128,
    member: u32,
    build: String,
    token: Token,
    server: Option<Arc<ServerConfig>>,
    client: Option<Arc<ClientConfig>>,
    deadline: Duration,
}

impl fmt::Debug for Passport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Passport(member {}, run {:032x})", self.member, self.run)
    }
}

/// The note of a `Hello`.
#[derive(Serialize, Deserialize)]
struct Hello {
    token: [u8; 32],
    build: String,
    to: u32,
}

/// Longest time that a stranger may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);

impl Passport {
    /// Of `member` in `run`; `build` names the program, which must be the same everywhere. Connections give up when
    /// nothing moves for `deadline`.
    ///
    /// # Errors
    /// [`Error::Credentials`] when the certificates cannot be read.
    pub fn new(run: u128, member: u32, build: &str, security: &Security, deadline: Duration) -> Result<Self> {
        let (server, client) = match security {
            Security::Tls(credentials) => (Some(credentials.server()?), Some(credentials.client()?)),
            Security::Insecure { .. } => (None, None),
        };
        let token = security.token().clone();
        Ok(Self { run, member, build: build.to_owned(), token, server, client, deadline })
    }

    /// The run.
    pub fn run(&self) -> u128 {
        self.run
    }

    /// The member.
    pub fn member(&self) -> u32 {
        self.member
    }

    /// The longest silence.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// A connection to `peer`, which listens at `address`.
    ///
    /// # Errors
    /// [`Error::Connection`] when nobody listens there, or when it refuses, with its reason.
    pub fn connect(&self, address: SocketAddr, peer: u32) -> Result<TensorStream> {
        const WHAT: &str = "connecting";
        let name = named(peer, Some(address));
        let failed = |reason: String| Error::Connection { peer: name.clone(), what: WHAT, reason };
        let socket =
            TcpStream::connect_timeout(&address, self.deadline).map_err(|e| failed(e.to_string()))?;
        let tls = match &self.client {
            Some(config) => {
                let tls = ClientConnection::new(Arc::clone(config), server_name()?);
                Some(Connection::Client(tls.map_err(|e| failed(e.to_string()))?))
            }
            None => None,
        };
        let mut stream = TensorStream::new(socket, tls, name.clone(), self.deadline)?;
        let hello = Hello { token: *self.token.bytes(), build: self.build.clone(), to: peer };
        let note = postcard::to_stdvec(&hello).map_err(|e| failed(e.to_string()))?;
        stream.send(self.header(Kind::Hello), &note, Payload::EMPTY)?;
        let answer = stream.receive_header(Some(self.deadline), 0, "its welcome")?;
        match answer {
            Some(header) if header.kind == Kind::Welcome => Ok(stream),
            Some(header) if header.kind == Kind::Refused => {
                let note = stream.receive_note(&header)?;
                Err(failed(String::from_utf8_lossy(&note).into_owned()))
            }
            Some(header) => Err(failed(format!("it answers {:?}", header.kind))),
            None => Err(failed("it ended the connection".into())),
        }
    }

    fn header(&self, kind: Kind) -> Header {
        Header { kind, member: self.member, run: self.run, ..Header::default() }
    }

    /// Looks at who has connected; the stream and the member, which does not know yet that it is welcome.
    pub(super) fn examine(&self, socket: TcpStream) -> Result<(TensorStream, u32)> {
        const WHAT: &str = "its hello";
        let address = socket.peer_addr().ok();
        let name = address.map_or_else(|| "a stranger".to_owned(), |a| format!("a stranger at {a}"));
        let tls = match &self.server {
            Some(config) => {
                let tls = ServerConnection::new(Arc::clone(config));
                Some(Connection::Server(tls.map_err(|e| Error::Connection {
                    peer: name.clone(),
                    what: WHAT,
                    reason: e.to_string(),
                })?))
            }
            None => None,
        };
        let mut stream = TensorStream::new(socket, tls, name, PATIENCE.min(self.deadline))?;
        let Some(header) = stream.receive_header(Some(PATIENCE), 0, WHAT)? else {
            return Err(stream.refused(WHAT, "it ended the connection"));
        };
        let note = stream.receive_note(&header)?;
        if let Err(reason) = self.judge(&header, &note) {
            self.refuse(&mut stream, &reason);
            return Err(stream.refused(WHAT, reason));
        }
        stream.rename(named(header.member, address));
        stream.set_deadline(self.deadline)?;
        Ok((stream, header.member))
    }

    pub(super) fn welcome(&self, stream: &mut TensorStream) -> Result<()> {
        stream.send(self.header(Kind::Welcome), &[], Payload::EMPTY)
    }

    pub(super) fn refuse(&self, stream: &mut TensorStream, reason: &str) {
        // It may be gone already.
        let _ = stream.send(self.header(Kind::Refused), reason.as_bytes(), Payload::EMPTY);
        stream.finish();
    }

    fn judge(&self, header: &Header, note: &[u8]) -> Result<(), String> {
        let hello: Hello = match postcard::from_bytes(note) {
            Ok(hello) if header.kind == Kind::Hello => hello,
            _ => return Err("a connection must begin with a hello".into()),
        };
        // First, so that a stranger learns nothing else.
        if !self.token.admits(&Token::from_bytes(hello.token)) {
            return Err("the token is not that of this job".into());
        }
        if header.run != self.run {
            return Err(format!("this is run {:032x}, not {:032x}", self.run, header.run));
        }
        if hello.build != self.build {
            let (ours, theirs) = (&self.build, &hello.build);
            return Err(format!(
                "it runs build {theirs}, this process build {ours}; start all of them from the same program"
            ));
        }
        if hello.to != self.member {
            return Err(format!("this is member {}, not member {}", self.member, hello.to));
        }
        Ok(())
    }
}

fn named(member: u32, address: Option<SocketAddr>) -> String {
    match address {
        Some(address) => format!("member {member} at {address}"),
        None => format!("member {member}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::network::{Listener, Visitors};
    use std::{
        io::{Read, Write},
        net::{IpAddr, Ipv4Addr},
        sync::mpsc::{Receiver, Sender, channel},
    };

    /// Tells who came and with what it left.
    struct Guestbook(Sender<(u32, Option<String>)>);

    impl Visitors for Guestbook {
        fn arrived(&self, member: u32) -> Result<(), String> {
            if member == 13 { Err("no member 13 here".into()) } else { Ok(()) }
        }
        fn serve(&self, _: u32, stream: &mut TensorStream) -> Result<()> {
            stream.receive_header(Some(Duration::from_secs(20)), 0, "a frame").map(|_| ())
        }
        fn left(&self, member: u32, error: Option<Error>) {
            self.0.send((member, error.map(|e| e.to_string()))).unwrap();
        }
    }

    const SOON: Duration = Duration::from_secs(20);

    fn passport(run: u128, member: u32, build: &str, security: &Security) -> Passport {
        Passport::new(run, member, build, security, SOON).unwrap()
    }

    fn listen(security: &Security) -> (Listener, Receiver<(u32, Option<String>)>) {
        let (sender, receiver) = channel();
        let own = Arc::new(passport(7, 0, "build", security));
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        (Listener::bind(ip, own, Arc::new(Guestbook(sender))).unwrap(), receiver)
    }

    #[test]
    fn who_does_not_belong_is_told_why() {
        for security in [Security::insecure().unwrap(), Security::tls().unwrap()] {
            let (listener, guests) = listen(&security);
            let at = listener.address();
            let refused = |passport: Passport, to: u32| passport.connect(at, to).unwrap_err().to_string();
            let error = refused(passport(8, 1, "build", &security), 0);
            assert!(error.contains("this is run") && error.contains("07"), "{error}");
            let error = refused(passport(7, 1, "other", &security), 0);
            assert!(error.contains("build other") && error.contains("same program"), "{error}");
            let error = refused(passport(7, 1, "build", &security), 5);
            assert!(error.contains("this is member 0, not member 5"), "{error}");
            let error = refused(passport(7, 13, "build", &security), 0);
            assert!(error.contains("no member 13"), "{error}");
            assert!(guests.try_recv().is_err(), "nobody came in");

            let mut welcome = passport(7, 1, "build", &security).connect(at, 0).unwrap();
            welcome.finish();
            assert_eq!(guests.recv_timeout(SOON).unwrap(), (1, None));
        }
    }

    #[test]
    fn a_stranger_learns_nothing() {
        // The token of another job; certificates of another job; none where some are wanted, and the reverse.
        let (insecure, tls) = (Security::insecure().unwrap(), Security::tls().unwrap());
        let pairs = [
            (&insecure, Security::insecure().unwrap()),
            (&tls, Security::tls().unwrap()),
            (&tls, insecure.clone()),
            (&insecure, tls.clone()),
        ];
        for (ours, theirs) in pairs {
            let (listener, guests) = listen(ours);
            let stranger = Passport::new(7, 1, "build", &theirs, Duration::from_secs(2)).unwrap();
            let error = stranger.connect(listener.address(), 0).unwrap_err().to_string();
            assert!(!error.contains("build"), "{error}");
            assert!(guests.try_recv().is_err());
            drop(listener);
        }
    }

    #[test]
    fn noise_is_no_member_and_does_no_harm() {
        for security in [Security::insecure().unwrap(), Security::tls().unwrap()] {
            let (listener, guests) = listen(&security);
            for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 200], &[0xff; 3000], b""] {
                let mut socket = TcpStream::connect(listener.address()).unwrap();
                // The listener may be quicker to end it.
                let _ = socket.write_all(noise);
                let _ = socket.shutdown(std::net::Shutdown::Write);
                socket.set_read_timeout(Some(SOON)).unwrap();
                let _ = socket.read_to_end(&mut Vec::new());
            }
            let stream = passport(7, 1, "build", &security).connect(listener.address(), 0).unwrap();
            drop(stream);
            assert_eq!(guests.recv_timeout(SOON).unwrap().0, 1);
            drop(listener);
        }
    }

    #[test]
    fn the_end_of_a_listener_ends_those_who_are_connected_and_those_who_say_nothing() {
        let security = Security::tls().unwrap();
        let (listener, guests) = listen(&security);
        let at = listener.address();
        let mut inside = passport(7, 1, "build", &security).connect(at, 0).unwrap();
        let silent = TcpStream::connect(at).unwrap();
        drop(listener);
        assert_eq!(guests.recv_timeout(SOON).unwrap().0, 1);
        assert!(!matches!(inside.receive_header(Some(SOON), 0, "a frame"), Ok(Some(_))));
        drop(silent);
        assert!(passport(7, 1, "build", &security).connect(at, 0).is_err(), "nobody listens");
    }
}
