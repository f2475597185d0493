//! Point-to-point messages between the ranks of a gang: the seam that a transport implements.

use crate::{Rank, Result, Traffic};

/// Messages between ranks. Required: what a transport must bring. Collectives stand on top, in
/// [`CommunicatorExt`](crate::CommunicatorExt).
///
/// Promises of every implementation:
/// - messages from one rank to another arrive whole, once and in the order of sending;
/// - [`Self::send`] does not wait for the receiver, so that ranks may send to each other at once;
/// - a peer that is gone (dropped, failed, panicked) is an error, never a hang; what it sent before is
///   still received;
/// - after an error this rank leaves, so that its peers learn of it too; further calls give the same error.
pub trait Communicator: Send {
    /// This rank.
    fn rank(&self) -> Rank;
    /// Number of ranks.
    fn world(&self) -> usize;
    /// Sends `bytes` to `to`.
    ///
    /// # Errors
    /// [`Error::PeerLeft`](crate::Error::PeerLeft) when `to` is known to be gone.
    fn send(&mut self, to: Rank, bytes: Vec<u8>) -> Result<()>;
    /// The next message from `from`.
    ///
    /// # Errors
    /// [`Error::PeerLeft`](crate::Error::PeerLeft) when `from` is gone,
    /// [`Error::Deadline`](crate::Error::Deadline) when it sends nothing in time.
    fn receive(&mut self, from: Rank) -> Result<Vec<u8>>;
    /// Bytes moved so far.
    fn traffic(&self) -> Traffic;
}

impl<C: Communicator + ?Sized> Communicator for Box<C> {
    fn rank(&self) -> Rank {
        (**self).rank()
    }
    fn world(&self) -> usize {
        (**self).world()
    }
    fn send(&mut self, to: Rank, bytes: Vec<u8>) -> Result<()> {
        (**self).send(to, bytes)
    }
    fn receive(&mut self, from: Rank) -> Result<Vec<u8>> {
        (**self).receive(from)
    }
    fn traffic(&self) -> Traffic {
        (**self).traffic()
    }
}
