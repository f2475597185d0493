//! [`Communicator`] over a [`Mesh`]: ranks in different processes.
//!
//! ```text
//!   send ─► connection to the peer            connection from the peer ─► queue (bounded in bytes) ─► receive
//! ```
//!
//! A rank reads what its peers send while it sends itself, so that neighbours of a ring exchange chunks of any
//! size. A queue that is full stops its connection, and with it the sender, until something is received; a message
//! that is larger than the whole queue is taken when the queue is empty.

use super::{
    credentials::Security,
    frame::{Dtype, Header, Kind},
    handshake::Passport,
    mesh::{Direction, Inbox, Mesh},
    payload::Payload,
    stream::TensorStream,
};
use crate::{Communicator, Error, Rank, Result, Traffic};
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// After an interruption, messages that are on their way are still waited for as long.
const LAST_MESSAGES: Duration = Duration::from_secs(2);
/// Bytes that wait in the queue of one peer.
const QUEUE: u64 = 256 << 20;

/// A rank that listens, before it knows its peers.
#[derive(Debug)]
pub struct Bound {
    rank: Rank,
    generation: u64,
    deadline: Duration,
    shared: Arc<Queues>,
    mesh: Mesh,
}

impl Bound {
    /// Listens at a free port of `ip` for the ranks of `generation` in `run`.
    ///
    /// # Errors
    /// [`Error::Connection`] when the address cannot be bound, [`Error::Credentials`] for odd certificates.
    pub fn new(
        ip: IpAddr,
        rank: Rank,
        (run, generation): (u128, u64),
        build: &str,
        security: &Security,
        deadline: Duration,
    ) -> Result<Self> {
        let shared = Arc::new(Queues { generation, ..Queues::default() });
        let passport = Passport::new(run, rank.0 as u32, build, security, deadline)?;
        let inbox: Arc<dyn Inbox> = Arc::clone(&shared) as _;
        let mesh = Mesh::bind(ip, passport, inbox)?;
        Ok(Self { rank, generation, deadline, shared, mesh })
    }

    /// Where this rank listens.
    pub fn address(&self) -> SocketAddr {
        self.mesh.address()
    }

    /// For another thread that wants the communicator to wait for nobody any more.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.shared))
    }

    /// The communicator, once all addresses are known, by rank. All ranks listen by then.
    pub fn meet(self, addresses: &[SocketAddr]) -> NetworkCommunicator {
        let Self { rank, generation, deadline, shared, mesh } = self;
        let world = addresses.len();
        shared.lock().peers.resize_with(world.max(rank.0 + 1), FromPeer::default);
        let others = addresses.iter().enumerate().filter(|(peer, _)| *peer != rank.0);
        mesh.meet(others.map(|(peer, address)| (peer as u32, *address)));
        let (failed, traffic) = (None, Traffic::default());
        NetworkCommunicator {
            rank,
            world,
            generation,
            deadline,
            shared,
            mesh: Some(mesh),
            seq: 0,
            failed,
            traffic,
        }
    }
}

/// Ends the waiting of a communicator, as if all its peers had gone.
#[derive(Clone, Debug)]
pub struct Interrupter(Arc<Queues>);

impl Interrupter {
    /// Ends it.
    pub fn interrupt(&self) {
        self.0.closing();
    }
}

/// One rank's connections to the others, each in a process of its own.
#[derive(Debug)]
pub struct NetworkCommunicator {
    rank: Rank,
    world: usize,
    generation: u64,
    deadline: Duration,
    shared: Arc<Queues>,
    /// Emptied when this rank leaves, which its peers see as closed connections.
    mesh: Option<Mesh>,
    seq: u64,
    failed: Option<Error>,
    traffic: Traffic,
}

/// What the threads of the connections leave for the rank.
#[derive(Debug, Default)]
struct Queues {
    generation: u64,
    state: Mutex<Peers>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Peers {
    peers: Vec<FromPeer>,
    closing: bool,
}

#[derive(Debug, Default)]
struct FromPeer {
    messages: VecDeque<Vec<u8>>,
    bytes: u64,
    /// Connections from the peer that are open.
    open: usize,
    /// A connection from it, or to it, has ended: it is gone once nothing is open.
    ended: bool,
}

impl FromPeer {
    /// What it sent before is still to be received; nothing else will come.
    fn is_gone(&self) -> bool {
        self.ended && self.open == 0
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, Peers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, peer: u32, f: impl FnOnce(&mut FromPeer)) {
        let mut state = self.lock();
        let peer = peer as usize;
        if peer >= state.peers.len() && peer < MOST_RANKS {
            state.peers.resize_with(peer + 1, FromPeer::default);
        }
        if let Some(peer) = state.peers.get_mut(peer) {
            f(peer);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until `length` bytes from `peer` have room.
    fn make_room(&self, peer: usize, length: u64) {
        let full = |state: &mut Peers| {
            let waiting = state.peers.get(peer).map_or(0, |p| p.bytes);
            !state.closing && waiting > 0 && waiting.saturating_add(length) > QUEUE
        };
        drop(self.changed.wait_while(self.lock(), full));
    }
}

/// A peer's number comes from the network and is looked at before memory is taken for it.
const MOST_RANKS: usize = 1 << 16;

impl Inbox for Queues {
    fn arrived(&self, from: u32) -> Result<(), String> {
        if from as usize >= MOST_RANKS {
            return Err(format!("no gang has a rank {from}"));
        }
        self.change(from, |peer| peer.open += 1);
        Ok(())
    }

    fn frame(&self, from: u32, header: &Header, stream: &mut TensorStream) -> Result<()> {
        if header.kind != Kind::Message || header.dtype != Dtype::Bytes || header.note != 0 {
            return Err(stream.refused(MESSAGE, format!("{:?} is none", header.kind)));
        }
        if header.generation != self.generation {
            let reason = format!("it is of generation {}, not {}", header.generation, self.generation);
            return Err(stream.refused(MESSAGE, reason));
        }
        self.make_room(from as usize, header.length);
        let message = stream.receive_bytes(header)?;
        self.change(from, |peer| {
            peer.bytes += message.len() as u64;
            peer.messages.push_back(message);
        });
        Ok(())
    }

    fn ended(&self, peer: u32, direction: Direction, error: Option<Error>) {
        if let Some(error) = error
            && !self.lock().closing
        {
            log::debug!("{error}");
        }
        self.change(peer, |peer| {
            peer.ended = true;
            if direction == Direction::In {
                peer.open -= 1;
            }
        });
    }

    fn closing(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }
}

const MESSAGE: &str = "a message";

impl NetworkCommunicator {
    fn mesh(&self, peer: Rank) -> Result<&Mesh> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mesh = self.mesh.as_ref().filter(|_| peer.0 < self.world);
        mesh.ok_or_else(|| Error::Message {
            rank: self.rank,
            what: MESSAGE,
            reason: format!("{peer} is not one of the {} ranks", self.world),
        })
    }

    fn leave<T>(&mut self, error: Error) -> Result<T> {
        self.mesh = None;
        self.failed = Some(error.clone());
        Err(error)
    }

    fn peer_left<T>(&mut self, peer: Rank) -> Result<T> {
        self.leave(Error::PeerLeft { rank: self.rank, peer, what: MESSAGE })
    }

    fn late<T>(&mut self, peer: Rank) -> Result<T> {
        self.leave(Error::Deadline {
            rank: self.rank,
            seconds: self.deadline.as_secs_f64(),
            what: MESSAGE,
            missing: peer.to_string(),
        })
    }

    /// A peer that has made no connection can only be seen to go on one that is made here.
    fn watch(&mut self, peer: Rank) -> Result<()> {
        let unknown = self.shared.lock().peers.get(peer.0).is_some_and(|p| p.open == 0 && !p.ended);
        if unknown
            && peer != self.rank
            && let Err(error) = self.mesh(peer)?.connect(peer.0 as u32)
        {
            log::debug!("{error}");
            self.shared.change(peer.0 as u32, |peer| peer.ended = true);
        }
        Ok(())
    }

    /// The next message, or none when the peer is gone, or the error of the deadline.
    fn wait(&self, from: Rank) -> Option<Option<Vec<u8>>> {
        let mut end = Instant::now() + self.deadline;
        let mut state = self.shared.lock();
        loop {
            let closing = state.closing;
            if closing {
                end = end.min(Instant::now() + LAST_MESSAGES);
            }
            let peer = state.peers.get_mut(from.0)?;
            if let Some(message) = peer.messages.pop_front() {
                peer.bytes -= message.len() as u64;
                drop(state);
                self.shared.changed.notify_all();
                return Some(Some(message));
            }
            let left = end.saturating_duration_since(Instant::now());
            if peer.is_gone() || (closing && left.is_zero()) {
                return Some(None);
            }
            if left.is_zero() {
                return None;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Communicator for NetworkCommunicator {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn send(&mut self, to: Rank, bytes: Vec<u8>) -> Result<()> {
        let mesh = self.mesh(to)?;
        let length = bytes.len() as u64;
        if to == self.rank {
            self.shared.change(to.0 as u32, |own| {
                own.bytes += length;
                own.messages.push_back(bytes);
            });
        } else {
            let gone = self.shared.lock().peers.get(to.0).is_some_and(FromPeer::is_gone);
            if gone {
                return self.peer_left(to);
            }
            let header = Header { generation: self.generation, seq: self.seq, ..Header::default() };
            match mesh.send(to.0 as u32, header, &[], Payload::Bytes(&bytes)) {
                Ok(()) => self.seq += 1,
                Err(Error::Silent { .. }) => return self.late(to),
                Err(error) => {
                    log::debug!("{error}");
                    return self.peer_left(to);
                }
            }
        }
        self.traffic.sent += length;
        Ok(())
    }

    fn receive(&mut self, from: Rank) -> Result<Vec<u8>> {
        self.mesh(from)?;
        self.watch(from)?;
        match self.wait(from) {
            Some(Some(message)) => {
                self.traffic.received += message.len() as u64;
                Ok(message)
            }
            Some(None) => self.peer_left(from),
            None => self.late(from),
        }
    }

    /// Bytes of the messages; headers (72 bytes each) and what TLS adds come on top.
    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::{
        GradientSync, Ring, SyncSettings, Topology,
        conformance::{collectives, gradient_sync, on_every_rank},
        in_process_gang,
    };
    use std::net::Ipv4Addr;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn gang(security: &Security, world: usize, deadline: Duration) -> Vec<NetworkCommunicator> {
        let bound: Vec<_> = (0..world)
            .map(|rank| Bound::new(LOOPBACK, Rank(rank), (7, 1), "build", security, deadline).unwrap())
            .collect();
        let addresses: Vec<_> = bound.iter().map(Bound::address).collect();
        bound.into_iter().map(|bound| bound.meet(&addresses)).collect()
    }

    fn collectives_over(security: &Security) {
        let factory = |world, deadline| gang(security, world, deadline);
        collectives::all(&factory, &[1, 2, 3, 4], &[0, 1, 7, 101]);
    }

    #[test]
    fn collectives_over_loopback() {
        collectives_over(&Security::insecure().unwrap());
    }

    #[test]
    fn collectives_over_mutual_tls() {
        collectives_over(&Security::tls().unwrap());
    }

    fn ring_over(security: &Security) {
        // A parameter service has links of its own; here only the ring is looked at.
        let factory = |settings: &SyncSettings, ranks: usize| match settings.topology {
            Topology::ParameterService => in_process_gang(settings, ranks),
            Topology::Ring => {
                settings.validate(ranks)?;
                // Connections must be there before anybody can be late.
                gang(security, ranks, Duration::from_secs_f64(settings.deadline_seconds.max(1.0)))
                    .into_iter()
                    .map(|c| Ok(Box::new(Ring::try_new(c, settings)?) as Box<dyn GradientSync>))
                    .collect()
            }
        };
        gradient_sync::all(&factory);
    }

    #[test]
    fn a_ring_over_loopback() {
        ring_over(&Security::insecure().unwrap());
    }

    #[test]
    fn a_ring_over_mutual_tls() {
        ring_over(&Security::tls().unwrap());
    }

    #[test]
    fn neighbours_exchange_what_no_buffer_of_the_kernel_holds() {
        let size = 48 << 20;
        for security in [Security::insecure().unwrap(), Security::tls().unwrap()] {
            on_every_rank(gang(&security, 2, Duration::from_secs(60)), |rank, mut c| {
                let peer = Rank(1 - rank);
                c.send(peer, vec![rank as u8; size]).unwrap();
                let received = c.receive(peer).unwrap();
                assert!(received.len() == size && received.iter().all(|b| *b == peer.0 as u8));
                assert_eq!(c.traffic(), Traffic { sent: size as u64, received: size as u64 });
            });
        }
    }

    #[test]
    fn a_queue_is_bounded_and_the_sender_goes_on_when_it_empties() {
        let mut ranks = gang(&Security::insecure().unwrap(), 2, Duration::from_secs(60));
        let (mut second, mut first) = (ranks.pop().unwrap(), ranks.pop().unwrap());
        let sender = std::thread::spawn(move || {
            for _ in 0..5 {
                first.send(Rank(1), vec![0; 100 << 20]).unwrap();
            }
        });
        for _ in 0..5 {
            assert_eq!(second.receive(Rank(0)).unwrap().len(), 100 << 20);
            let waiting = second.shared.lock().peers[0].bytes;
            assert!(waiting <= QUEUE, "{waiting} bytes wait");
        }
        sender.join().unwrap();
    }

    #[test]
    fn another_generation_is_refused() {
        let security = Security::insecure().unwrap();
        let bind = |rank, generation| {
            Bound::new(LOOPBACK, Rank(rank), (7, generation), "build", &security, Duration::from_secs(60))
        };
        let (old, new) = (bind(0, 1).unwrap(), bind(1, 2).unwrap());
        let addresses = [old.address(), new.address()];
        let (mut old, mut new) = (old.meet(&addresses), new.meet(&addresses));
        old.send(Rank(1), vec![1]).unwrap();
        let error = new.receive(Rank(0)).unwrap_err();
        assert!(matches!(error, Error::PeerLeft { peer: Rank(0), .. }), "{error}");
        let error = old.receive(Rank(1)).unwrap_err();
        assert!(matches!(error, Error::PeerLeft { peer: Rank(1), .. }), "{error}");
    }
}
