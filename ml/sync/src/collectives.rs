//! Collectives over any [`Communicator`]: every rank of the gang calls the same one in the same order.
//!
//! ```text
//!   ring all-reduce of N values over R ranks: R−1 steps of reduce-scatter, R−1 of all-gather,
//!   a chunk of N/R each, so every rank sends 2·(N/R)·(R−1) values and no link is hotter than another
//!
//!        ┌─► rank 0 ─► rank 1 ─┐
//!        └── rank 3 ◄─ rank 2 ◄┘
//! ```
//!
//! Orders of summation are fixed by the ranks' numbers, never by who comes first: equal inputs give equal bytes.

use crate::{Communicator, Element, Error, Rank, ReduceOp, Result, settings::equal_ranges};
use std::ops::Range;

/// Collectives, for every [`Communicator`]. An error of any of them names the peer that is missing.
pub trait CommunicatorExt: Communicator {
    /// Every rank's `bytes` become those of `root`. Root sends `bytes.len()·(R−1)`.
    ///
    /// # Errors
    /// A peer that is gone or late.
    fn broadcast_bytes(&mut self, root: Rank, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.named("broadcast", |c| {
            if c.rank() != root {
                return c.receive(root);
            }
            for peer in c.peers() {
                c.send(peer, bytes.clone())?;
            }
            Ok(bytes)
        })
    }

    /// Every rank's `values` become those of `root`.
    ///
    /// # Errors
    /// [`Error::Length`] when a rank's length is not that of `root`; a peer that is gone or late.
    fn broadcast<T: Element>(&mut self, root: Rank, values: &mut [T]) -> Result<()> {
        let bytes = if self.rank() == root { T::write(values) } else { Vec::new() };
        let bytes = self.broadcast_bytes(root, bytes)?;
        if self.rank() != root {
            same_length::<T>(self.rank(), "broadcast", values.len(), bytes.len())?;
            T::read(&bytes, values);
        }
        Ok(())
    }

    /// `parts[r]` of `root` goes to rank `r`; the others' `parts` are not looked at.
    ///
    /// # Errors
    /// [`Error::Length`] when `root` brings another number of parts than there are ranks; a peer that is
    /// gone or late.
    fn scatter(&mut self, root: Rank, mut parts: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        self.named("scatter", |c| {
            if c.rank() != root {
                return c.receive(root);
            }
            one_part_per_rank(c, "scatter", &parts)?;
            for peer in c.peers() {
                c.send(peer, std::mem::take(&mut parts[peer.0]))?;
            }
            Ok(std::mem::take(&mut parts[root.0]))
        })
    }

    /// Every rank's `bytes`, by rank, at `root`; `None` elsewhere.
    ///
    /// # Errors
    /// A peer that is gone or late.
    fn gather(&mut self, root: Rank, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        self.named("gather", |c| {
            if c.rank() != root {
                c.send(root, bytes)?;
                return Ok(None);
            }
            let mut parts = vec![Vec::new(); c.world()];
            parts[root.0] = bytes;
            for peer in c.peers() {
                parts[peer.0] = c.receive(peer)?;
            }
            Ok(Some(parts))
        })
    }

    /// Every rank's `bytes`, by rank, on every rank; passed around the ring.
    ///
    /// # Errors
    /// A peer that is gone or late.
    fn all_gather(&mut self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.named("all_gather", |c| {
            let world = c.world();
            let mut parts = vec![Vec::new(); world];
            parts[c.rank().0] = bytes;
            for step in 0..world.saturating_sub(1) {
                let sent = back(c.rank(), step, world);
                c.send(next(c), parts[sent].clone())?;
                parts[back(c.rank(), step + 1, world)] = c.receive(previous(c))?;
            }
            Ok(parts)
        })
    }

    /// `parts[r]` goes to rank `r`; gives what every rank sent here, by rank.
    ///
    /// # Errors
    /// [`Error::Length`] for another number of parts than there are ranks; a peer that is gone or late.
    fn all_to_all(&mut self, mut parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        self.named("all_to_all", |c| {
            one_part_per_rank(c, "all_to_all", &parts)?;
            for peer in c.peers() {
                c.send(peer, std::mem::take(&mut parts[peer.0]))?;
            }
            for peer in c.peers() {
                parts[peer.0] = c.receive(peer)?;
            }
            Ok(parts)
        })
    }

    /// Combines the ranks' `values` element by element at `root`, in rank order; elsewhere they stay.
    ///
    /// # Errors
    /// [`Error::Length`] when a rank brings another length than `root`; a peer that is gone or late.
    fn reduce<T: Element>(&mut self, root: Rank, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let gathered = self.gather(root, T::write(values)).map_err(|e| e.during("reduce"))?;
        let Some(parts) = gathered else { return Ok(()) };
        for (rank, part) in parts.iter().enumerate() {
            same_length::<T>(Rank(rank), "reduce", part.len() / T::BYTES, values.len() * T::BYTES)?;
            if rank == 0 { T::read(part, values) } else { T::combine(op, values, part) }
        }
        T::finish(op, values, parts.len());
        Ok(())
    }

    /// Combines the ranks' `values` element by element on every rank, with equal bytes everywhere.
    /// A ring: every rank sends 2·(N/R)·(R−1) values.
    ///
    /// # Errors
    /// [`Error::Length`] when two neighbours' lengths differ; a peer that is gone or late.
    fn all_reduce<T: Element>(&mut self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.named("all_reduce", |c| {
            let (rank, world) = (c.rank(), c.world());
            let chunks = equal_ranges(values.len(), world);
            for step in 0..world.saturating_sub(1) {
                let sent = chunks[back(rank, step, world)].clone();
                let kept = chunks[back(rank, step + 1, world)].clone();
                let bytes = exchange(c, &values[sent], kept.clone())?;
                T::combine(op, &mut values[kept], &bytes);
            }
            // This rank now holds the whole sum of the chunk after its own number.
            if let Some(whole) = chunks.get((rank.0 + 1) % world.max(1)) {
                T::finish(op, &mut values[whole.clone()], world);
            }
            for step in 0..world.saturating_sub(1) {
                let sent = chunks[(rank.0 + 1 + world - step) % world].clone();
                let kept = chunks[back(rank, step, world)].clone();
                let bytes = exchange(c, &values[sent], kept.clone())?;
                T::read(&bytes, &mut values[kept]);
            }
            Ok(())
        })
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// A peer that is gone or late.
    fn barrier(&mut self) -> Result<()> {
        self.named("barrier", |c| {
            c.gather(Rank(0), Vec::new())?;
            c.broadcast_bytes(Rank(0), Vec::new()).map(|_| ())
        })
    }

    /// The other ranks, in order, from the one after this rank: no receiver is everybody's first.
    fn peers(&self) -> Vec<Rank> {
        let (rank, world) = (self.rank().0, self.world());
        (1..world).map(|step| Rank((rank + step) % world)).collect()
    }

    #[doc(hidden)]
    fn named<T>(&mut self, what: &'static str, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        f(self).map_err(|e| e.during(what))
    }
}

impl<C: Communicator + ?Sized> CommunicatorExt for C {}

/// Sends `values` to the next rank and receives the previous rank's chunk for `kept`.
fn exchange<C: Communicator + ?Sized, T: Element>(
    c: &mut C,
    values: &[T],
    kept: Range<usize>,
) -> Result<Vec<u8>> {
    c.send(next(c), T::write(values))?;
    let from = previous(c);
    let bytes = c.receive(from)?;
    same_length::<T>(from, "all_reduce", bytes.len() / T::BYTES, kept.len() * T::BYTES)?;
    Ok(bytes)
}

fn next<C: Communicator + ?Sized>(c: &C) -> Rank {
    Rank((c.rank().0 + 1) % c.world())
}

fn previous<C: Communicator + ?Sized>(c: &C) -> Rank {
    Rank(back(c.rank(), 1, c.world()))
}

/// The rank `steps` (at most `world`) before `rank` on the ring.
fn back(rank: Rank, steps: usize, world: usize) -> usize {
    (rank.0 + world - steps) % world
}

fn same_length<T: Element>(
    rank: Rank,
    what: &'static str,
    found: usize,
    expected_bytes: usize,
) -> Result<()> {
    let expected = expected_bytes / T::BYTES;
    if found == expected { Ok(()) } else { Err(Error::Length { rank, what, found, expected }) }
}

fn one_part_per_rank<C: Communicator + ?Sized>(c: &C, what: &'static str, parts: &[Vec<u8>]) -> Result<()> {
    let expected = c.world();
    if parts.len() == expected {
        return Ok(());
    }
    Err(Error::Length { rank: c.rank(), what, found: parts.len(), expected })
}
