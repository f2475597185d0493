//! The connection of a driver and an agent: who has the cluster's key may knock, what follows is mutual TLS.
//!
//! ```text
//!   driver                                              agent
//!     │ MAGIC, length, seal(credentials, cluster key) ──► │ open(…, cluster key)
//!     │ ◄─────────────────────────────── ADMITTED or NOT  │
//!     │ ◄── TLS 1.3: both show these credentials ───────► │
//!     │ length, JSON ───────────────────────────────────► │
//!     │ ◄─────────────────────────────────── length, JSON │
//! ```
//!
//! A knock that is heard and played again opens nothing: its credentials' key is inside the seal. An agent
//! without the cluster's key cannot show the credentials either.

use super::{
    error::{Error, Result},
    message::{CHUNK, MESSAGE},
};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};
use voxelflow_sync::network::{ClusterKey, JobCredentials, Security, Token, open, seal, server_name};

const MAGIC: &[u8; 8] = b"vfnode1\n";
const ADMITTED: u8 = b'+';
const NOT: u8 = b'-';
/// Longest sealed credentials.
const KNOCK: usize = 64 << 10;
/// A stranger must say who it is within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection on which both ends know each other.
pub(crate) struct Channel {
    stream: Box<dyn Stream>,
    /// The other end, as errors name it.
    peer: String,
}

trait Stream: Read + Write + Send {
    fn socket(&self) -> &TcpStream;
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

impl Stream for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.peer)
    }
}

/// Credentials of one application, and the knock that brings them to an agent.
pub(crate) struct Knock {
    credentials: JobCredentials,
    bytes: Vec<u8>,
}

impl Knock {
    pub fn new(key: &ClusterKey) -> Result<Self> {
        let credentials = JobCredentials::generate()?;
        let security = Security::Tls(credentials.clone());
        let text = serde_json::to_vec(&security).map_err(|e| Error::connection("any", KNOCKING, e))?;
        let sealed = seal(&text, key)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::try_from(sealed.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(sealed);
        Ok(Self { credentials, bytes })
    }
}

#[cfg(test)]
impl Knock {
    /// What goes over the network in the clear.
    pub fn overheard(&self) -> &[u8] {
        &self.bytes
    }
}

const KNOCKING: &str = "being let in";

impl Channel {
    /// Connects to the agent at `address`; nothing may be silent for longer than `silence`.
    ///
    /// # Errors
    /// Nobody listens there, it has another key, or it is no agent.
    pub fn connect(address: &str, knock: &Knock, silence: Duration) -> Result<Self> {
        const CONNECTING: &str = "connecting";
        let broke = Error::io(address, CONNECTING);
        let mut last = Error::connection(address, CONNECTING, "the name has no address");
        for resolved in address.to_socket_addrs().map_err(&broke)? {
            match TcpStream::connect_timeout(&resolved, PATIENCE) {
                Ok(socket) => return Self::knock(socket, address, knock, silence),
                Err(e) => {
                    let reason = format!("{e}; does `voxelflow node` run there?");
                    last = Error::connection(address, CONNECTING, reason);
                }
            }
        }
        Err(last)
    }

    fn knock(mut socket: TcpStream, agent: &str, knock: &Knock, silence: Duration) -> Result<Self> {
        let broke = Error::io(agent, KNOCKING);
        timeouts(&socket, PATIENCE).map_err(&broke)?;
        socket.write_all(&knock.bytes).map_err(&broke)?;
        let mut answer = [0];
        socket.read_exact(&mut answer).map_err(&broke)?;
        match answer[0] {
            ADMITTED => {}
            NOT => {
                let reason =
                    "its cluster key is another one; give --cluster-key the file that the agents have";
                return Err(Error::Refused { agent: agent.to_owned(), reason: reason.to_owned() });
            }
            _ => return Err(Error::connection(agent, KNOCKING, "what listens there is no agent")),
        }
        let tls = ClientConnection::new(knock.credentials.client()?, server_name()?);
        let tls = tls.map_err(|e| Error::connection(agent, KNOCKING, e))?;
        Self::shake_hands(StreamOwned::new(tls, socket), agent, silence)
    }

    /// Takes in who has connected, and gives what it can be known by when it comes again.
    ///
    /// # Errors
    /// No knock, or one that the cluster's key does not open.
    pub fn accept(
        mut socket: TcpStream,
        peer: &str,
        key: &ClusterKey,
        silence: Duration,
    ) -> Result<(Self, Token)> {
        let broke = Error::io(peer, KNOCKING);
        timeouts(&socket, PATIENCE).map_err(&broke)?;
        let mut start = [0; MAGIC.len() + 4];
        socket.read_exact(&mut start).map_err(&broke)?;
        let (magic, length) = start.split_at(MAGIC.len());
        let length = length.iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
        if magic != MAGIC || length > KNOCK {
            return Err(Error::connection(peer, KNOCKING, "it does not knock as a driver does"));
        }
        let mut sealed = vec![0; length];
        socket.read_exact(&mut sealed).map_err(&broke)?;
        let opened = open(&sealed, key).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let Some(security @ Security::Tls(_)) = opened else {
            socket.write_all(&[NOT]).map_err(&broke)?;
            return Err(Error::connection(peer, KNOCKING, "it has another cluster key"));
        };
        let token = security.token().clone();
        let Security::Tls(credentials) = security else {
            return Err(Error::connection(peer, KNOCKING, "it brings no certificate"));
        };
        let tls = ServerConnection::new(credentials.server()?);
        let tls = tls.map_err(|e| Error::connection(peer, KNOCKING, e))?;
        socket.write_all(&[ADMITTED]).map_err(&broke)?;
        Ok((Self::shake_hands(StreamOwned::new(tls, socket), peer, silence)?, token))
    }

    fn shake_hands<S: Stream + 'static>(mut stream: S, peer: &str, silence: Duration) -> Result<Self> {
        let broke = Error::io(peer, "the TLS handshake");
        // The handshake happens with the first flush that finds something to send.
        stream.flush().map_err(&broke)?;
        timeouts(stream.socket(), silence).map_err(&broke)?;
        Ok(Self { stream: Box::new(stream), peer: peer.to_owned() })
    }

    /// Waits for the other end no longer than `time` from now on.
    ///
    /// # Errors
    /// A connection that broke.
    pub fn be_patient_for(&self, time: Duration) -> Result<()> {
        timeouts(self.stream.socket(), time).map_err(Error::io(&self.peer, "setting its deadline"))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let broke = Error::io(&self.peer, "sending");
        let text = serde_json::to_vec(message).map_err(io::Error::other).map_err(&broke)?;
        self.send_frame(&text).map_err(&broke)
    }

    /// Sends a piece of a binary.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send_chunk(&mut self, bytes: &[u8]) -> Result<()> {
        self.send_frame(bytes).map_err(Error::io(&self.peer, "sending the binary"))
    }

    fn send_frame(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.stream.write_all(&length.to_le_bytes())?;
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next message; none when the other end has ended the connection.
    ///
    /// # Errors
    /// The connection broke, was silent too long, or brought no such message.
    pub fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let broke = Error::io(&self.peer, "waiting for a message");
        let Some(text) = self.receive_frame(MESSAGE).map_err(&broke)? else { return Ok(None) };
        let message = serde_json::from_slice(&text);
        message.map(Some).map_err(|e| broke(io::Error::new(io::ErrorKind::InvalidData, e)))
    }

    /// The next piece of a binary.
    ///
    /// # Errors
    /// The connection ended, broke or was silent too long.
    pub fn receive_chunk(&mut self) -> io::Result<Vec<u8>> {
        self.receive_frame(CHUNK)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn receive_frame(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut length = [0; 4];
        match self.stream.read(&mut length) {
            Ok(0) => return Ok(None),
            // The peer ended without a word of farewell: killed.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Ok(read) => self.stream.read_exact(&mut length[read..])?,
            Err(e) => return Err(e),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > most {
            let reason = format!("a message of {length} bytes, of at most {most}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// A request and its answer.
    ///
    /// # Errors
    /// The connection ended, broke or was silent too long.
    pub fn ask<Q: Serialize, A: DeserializeOwned>(&mut self, request: &Q) -> Result<A> {
        self.send(request)?;
        let answer = self.receive()?;
        answer
            .ok_or_else(|| Error::connection(&self.peer, "waiting for its answer", "it ended the connection"))
    }
}

fn timeouts(socket: &TcpStream, silence: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(silence))?;
    socket.set_write_timeout(Some(silence))
}
