//! Every member reaches every other: a connection for each direction, made when it is first needed.
//!
//! ```text
//!            ┌── out: one at a time writes ──►──┐         a thread per connection:
//!   member 0 │                                  │ member 1  - reads frames that come in
//!            └──◄── in: a thread reads ─────────┘           - waits for the end of one that goes out
//! ```
//!
//! Two connections for two directions: both may carry tensors at once and neither waits for the other, and under
//! TLS no lock is shared between who reads and who writes. The end of either is told to [`Inbox::ended`].

use super::{
    frame::{Header, PAYLOAD_LIMIT},
    handshake::Passport,
    listener::{Listener, Visitors},
    payload::Payload,
    stream::{Closer, TensorStream},
};
use crate::{Error, Result};
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

/// Which of the two connections with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The one that the peer made.
    In,
    /// The one that was made here.
    Out,
}

/// What is done with frames. Called from the threads of the connections; must not own the [`Mesh`].
pub trait Inbox: Send + Sync + 'static {
    /// `from` has made a connection; it does not know yet that it is welcome.
    ///
    /// # Errors
    /// Why it is not welcome.
    fn arrived(&self, from: u32) -> Result<(), String>;
    /// A frame has begun: takes its note and payload from `stream`.
    ///
    /// # Errors
    /// Ends the connection.
    fn frame(&self, from: u32, header: &Header, stream: &mut TensorStream) -> Result<()>;
    /// A connection is no more; with what went wrong, if anything did.
    fn ended(&self, peer: u32, direction: Direction, error: Option<Error>);
    /// The mesh ends: nothing of [`Self::frame`] may wait any more.
    fn closing(&self);
}

/// This member's connections.
pub struct Mesh {
    passport: Arc<Passport>,
    inbox: Arc<dyn Inbox>,
    peers: Mutex<BTreeMap<u32, Arc<Peer>>>,
    /// Dropped first, by hand: its threads use the inbox.
    listener: Option<Listener>,
    address: SocketAddr,
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mesh({:?} at {})", self.passport, self.address)
    }
}

struct Peer {
    address: SocketAddr,
    out: Mutex<Option<Outgoing>>,
    /// Ends the connection also while somebody writes to it.
    closer: Mutex<Option<Closer>>,
}

impl Peer {
    fn new(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self { address, out: Mutex::default(), closer: Mutex::default() })
    }

    fn end(&self) {
        if let Some(closer) = lock(&self.closer).take() {
            closer.close();
        }
    }
}

struct Outgoing {
    stream: TensorStream,
    /// Waits for the peer to end it.
    watch: JoinHandle<()>,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.stream.finish();
    }
}

/// Takes frames; of one member by one connection at a time, so that frames of a later one never overtake.
struct Frames {
    inbox: Arc<dyn Inbox>,
    incoming: Mutex<BTreeMap<u32, Option<Closer>>>,
    ended: Condvar,
}

impl Frames {
    fn leave(&self, member: u32) {
        lock(&self.incoming).remove(&member);
        self.ended.notify_all();
    }
}

impl Visitors for Frames {
    fn arrived(&self, member: u32) -> Result<(), String> {
        let mut incoming = lock(&self.incoming);
        if let Some(Some(earlier)) = incoming.get(&member) {
            earlier.close();
        }
        incoming = self
            .ended
            .wait_while(incoming, |incoming| incoming.contains_key(&member))
            .unwrap_or_else(PoisonError::into_inner);
        incoming.insert(member, None);
        drop(incoming);
        let arrived = self.inbox.arrived(member);
        if arrived.is_err() {
            self.leave(member);
        }
        arrived
    }

    fn serve(&self, member: u32, stream: &mut TensorStream) -> Result<()> {
        lock(&self.incoming).insert(member, Some(stream.closer()?));
        // Between frames a peer may be silent for as long as it likes: its silence is noticed by those who wait.
        while let Some(header) = stream.receive_header(None, PAYLOAD_LIMIT, "a frame")? {
            self.inbox.frame(member, &header, stream)?;
        }
        Ok(())
    }

    fn left(&self, member: u32, error: Option<Error>) {
        self.inbox.ended(member, Direction::In, error);
        self.leave(member);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mesh {
    /// Listens at a free port of `ip`; peers are told by [`Self::meet`].
    ///
    /// # Errors
    /// [`Error::Connection`] when the address cannot be bound.
    pub fn bind(ip: IpAddr, passport: Passport, inbox: Arc<dyn Inbox>) -> Result<Self> {
        let passport = Arc::new(passport);
        let frames =
            Frames { inbox: Arc::clone(&inbox), incoming: Mutex::default(), ended: Condvar::default() };
        let listener = Listener::bind(ip, Arc::clone(&passport), Arc::new(frames))?;
        let address = listener.address();
        Ok(Self { passport, inbox, peers: Mutex::default(), listener: Some(listener), address })
    }

    /// Where this member listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the peers are now. Connections to those who went or moved end.
    pub fn meet(&self, addresses: impl IntoIterator<Item = (u32, SocketAddr)>) {
        let mut gone: Vec<Arc<Peer>> = Vec::new();
        {
            let mut peers = lock(&self.peers);
            let mut before = std::mem::take(&mut *peers);
            for (member, address) in addresses {
                let peer = match before.remove(&member) {
                    Some(peer) if peer.address == address => peer,
                    moved => {
                        gone.extend(moved);
                        Peer::new(address)
                    }
                };
                peers.insert(member, peer);
            }
            gone.extend(before.into_values());
        }
        gone.iter().for_each(|peer| peer.end());
    }

    fn peer(&self, member: u32) -> Result<Arc<Peer>> {
        lock(&self.peers).get(&member).cloned().ok_or_else(|| Error::Connection {
            peer: format!("member {member}"),
            what: "sending",
            reason: "it has no address in this membership".into(),
        })
    }

    /// Makes the connection to `member`, if there is none.
    ///
    /// # Errors
    /// [`Error::Connection`] when it cannot be made.
    pub fn connect(&self, member: u32) -> Result<()> {
        let peer = self.peer(member)?;
        self.connected(member, &peer, &mut lock(&peer.out)).map(|_| ())
    }

    /// Sends a frame to `member`; returns when the kernel has all of it.
    ///
    /// # Errors
    /// [`Error::Connection`] when it cannot be reached or is gone, [`Error::Silent`] when it takes nothing.
    pub fn send(&self, member: u32, header: Header, note: &[u8], payload: Payload<'_>) -> Result<()> {
        let peer = self.peer(member)?;
        let mut out = lock(&peer.out);
        let header = Header { member: self.passport.member(), run: self.passport.run(), ..header };
        let sent = self.connected(member, &peer, &mut out)?.stream.send(header, note, payload);
        if sent.is_err() {
            peer.end();
            *out = None;
        }
        sent
    }

    fn connected<'a>(
        &self,
        member: u32,
        peer: &Peer,
        out: &'a mut Option<Outgoing>,
    ) -> Result<&'a mut Outgoing> {
        // A connection that the peer has ended is made anew: the peer may be back.
        drop(out.take_if(|out| out.watch.is_finished()));
        if out.is_none() {
            *out = Some(self.make(member, peer)?);
        }
        out.as_mut().ok_or_else(|| Error::Connection {
            peer: format!("member {member}"),
            what: "connecting",
            reason: "no connection was made".into(),
        })
    }

    fn make(&self, member: u32, peer: &Peer) -> Result<Outgoing> {
        let mut stream = self.passport.connect(peer.address, member)?;
        let (closer, watched) = (stream.closer()?, stream.watched()?);
        *lock(&peer.closer) = Some(closer);
        let inbox = Arc::clone(&self.inbox);
        let watch = move || {
            watched.wait_for_end();
            inbox.ended(member, Direction::Out, None);
        };
        let watch = thread::Builder::new().name(format!("watch member {member}")).spawn(watch);
        let watch = watch.map_err(|e| Error::Connection {
            peer: stream.peer().to_owned(),
            what: "connecting",
            reason: format!("no thread for it: {e}"),
        })?;
        Ok(Outgoing { stream, watch })
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.inbox.closing();
        let peers = std::mem::take(&mut *lock(&self.peers));
        for peer in peers.values() {
            // In good order, unless somebody writes right now.
            if let Ok(mut out) = peer.out.try_lock() {
                *out = None;
            }
            peer.end();
        }
        self.listener = None;
    }
}
