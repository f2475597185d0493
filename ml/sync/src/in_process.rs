//! Ranks that are threads of this process: a channel from every rank to every other.

use crate::{Communicator, Error, Rank, Result, Traffic};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::Duration,
};

/// This rank's ends of the two channels between it and a peer.
type Ends = (Sender<Vec<u8>>, Receiver<Vec<u8>>);

/// A rank's ends of the channels to and from every other rank (and itself).
#[derive(Debug)]
pub struct InProcessCommunicator {
    rank: Rank,
    world: usize,
    deadline: Duration,
    /// By peer; emptied when this rank leaves, which its peers see as closed channels.
    ends: Vec<Ends>,
    failed: Option<Error>,
    traffic: Traffic,
}

/// One communicator for every rank of a gang of `world`; a rank waits for a message for `deadline`.
pub fn in_process_communicators(world: usize, deadline: Duration) -> Vec<InProcessCommunicator> {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    senders.resize_with(world, Vec::new);
    receivers.resize_with(world, Vec::new);
    for to_peers in &mut senders {
        for from_peers in &mut receivers {
            let (send, receive) = channel();
            to_peers.push(send);
            from_peers.push(receive);
        }
    }
    let ends = senders.into_iter().zip(receivers).map(|(to, from)| to.into_iter().zip(from).collect());
    ends.enumerate()
        .map(|(rank, ends)| InProcessCommunicator {
            rank: Rank(rank),
            world,
            deadline,
            ends,
            failed: None,
            traffic: Traffic::default(),
        })
        .collect()
}

impl InProcessCommunicator {
    fn end(&self, peer: Rank) -> Result<&Ends> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.ends.get(peer.0).ok_or_else(|| Error::Message {
            rank: self.rank,
            what: MESSAGE,
            reason: format!("{peer} is not one of the {} ranks", self.world),
        })
    }

    fn leave<T>(&mut self, error: Error) -> Result<T> {
        self.ends.clear();
        self.failed = Some(error.clone());
        Err(error)
    }

    fn peer_left<T>(&mut self, peer: Rank) -> Result<T> {
        self.leave(Error::PeerLeft { rank: self.rank, peer, what: MESSAGE })
    }
}

const MESSAGE: &str = "a message";

impl Communicator for InProcessCommunicator {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn send(&mut self, to: Rank, bytes: Vec<u8>) -> Result<()> {
        let length = bytes.len() as u64;
        if self.end(to)?.0.send(bytes).is_err() {
            return self.peer_left(to);
        }
        self.traffic.sent += length;
        Ok(())
    }

    fn receive(&mut self, from: Rank) -> Result<Vec<u8>> {
        match self.end(from)?.1.recv_timeout(self.deadline) {
            Ok(bytes) => {
                self.traffic.received += bytes.len() as u64;
                Ok(bytes)
            }
            Err(RecvTimeoutError::Disconnected) => self.peer_left(from),
            Err(RecvTimeoutError::Timeout) => self.leave(Error::Deadline {
                rank: self.rank,
                seconds: self.deadline.as_secs_f64(),
                what: MESSAGE,
                missing: from.to_string(),
            }),
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}
