//! Promises of [`Communicator`] and of the collectives above it, checked against naive computation.

use super::{on_every_rank, values};
use crate::{Communicator, CommunicatorExt, Error, Rank, ReduceOp};
use std::time::{Duration, Instant};

/// Makes a fresh gang: `(world, deadline)`.
pub type Factory<'a, C> = &'a (dyn Fn(usize, Duration) -> Vec<C> + Sync);

const LONG: Duration = Duration::from_secs(60);

/// Every case, for gangs of `worlds` and buffers of `lengths`.
pub fn all<C: Communicator>(factory: Factory<'_, C>, worlds: &[usize], lengths: &[usize]) {
    for &world in worlds {
        for &length in lengths {
            reductions(factory, world, length, length as u64);
            movements(factory, world, length, length as u64);
        }
        ring_traffic(factory, world);
        if world > 1 {
            a_peer_that_left_is_named(factory, world);
            a_peer_that_is_late_is_named(factory, world);
            what_was_sent_before_leaving_arrives(factory, world);
            another_length_is_an_error(factory, world);
        }
    }
}

fn naive(op: ReduceOp, columns: &[Vec<f64>], i: usize) -> f64 {
    let column = columns.iter().map(|c| c[i]);
    match op {
        ReduceOp::Sum => column.sum(),
        ReduceOp::Mean => column.sum::<f64>() / columns.len() as f64,
        ReduceOp::Min => column.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => column.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Product => column.product(),
    }
}

/// reduce and all_reduce of f32 and f64 with every operation.
pub fn reductions<C: Communicator>(factory: Factory<'_, C>, world: usize, length: usize, seed: u64) {
    let inputs: Vec<Vec<f64>> = (0..world).map(|rank| values(seed * 31 + rank as u64, length)).collect();
    for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product] {
        let outputs = on_every_rank(factory(world, LONG), |rank, mut c| {
            let (mut everywhere, mut at_root) = (inputs[rank].clone(), inputs[rank].clone());
            let mut single: Vec<f32> = everywhere.iter().map(|v| *v as f32).collect();
            c.all_reduce(op, &mut everywhere).unwrap();
            c.all_reduce(op, &mut single).unwrap();
            c.reduce(Rank(world - 1), op, &mut at_root).unwrap();
            (everywhere, single, at_root)
        });
        for (rank, (everywhere, single, at_root)) in outputs.iter().enumerate() {
            assert_eq!(everywhere, &outputs[0].0, "{op:?}: ranks differ");
            assert_eq!(single, &outputs[0].1, "{op:?}: ranks differ");
            for i in 0..length {
                let expected = naive(op, &inputs, i);
                assert!((everywhere[i] - expected).abs() < 1e-12, "{op:?} {} {expected}", everywhere[i]);
                assert!((f64::from(single[i]) - expected).abs() < 1e-5, "{op:?} {} {expected}", single[i]);
                let at_root_expected = if rank == world - 1 { expected } else { inputs[rank][i] };
                assert!((at_root[i] - at_root_expected).abs() < 1e-12, "{op:?} at root");
            }
        }
    }
}

/// broadcast, scatter, gather, all_gather, all_to_all, barrier, with parts of different lengths.
pub fn movements<C: Communicator>(factory: Factory<'_, C>, world: usize, length: usize, seed: u64) {
    let part = |from: usize, to: usize| vec![(from * 16 + to) as u8; length + from + 2 * to];
    let root = Rank(seed as usize % world);
    on_every_rank(factory(world, LONG), |rank, mut c| {
        assert_eq!((c.rank(), c.world()), (Rank(rank), world));
        let mut numbers = values(seed + rank as u64, length);
        c.broadcast(root, &mut numbers).unwrap();
        assert_eq!(numbers, values(seed + root.0 as u64, length));

        let parts =
            if Rank(rank) == root { (0..world).map(|to| part(root.0, to)).collect() } else { Vec::new() };
        assert_eq!(c.scatter(root, parts).unwrap(), part(root.0, rank));

        let gathered = c.gather(root, part(rank, 0)).unwrap();
        let expected: Vec<_> = (0..world).map(|from| part(from, 0)).collect();
        assert_eq!(gathered, (Rank(rank) == root).then(|| expected.clone()));
        assert_eq!(c.all_gather(part(rank, 0)).unwrap(), expected);

        let received = c.all_to_all((0..world).map(|to| part(rank, to)).collect()).unwrap();
        assert_eq!(received, (0..world).map(|from| part(from, rank)).collect::<Vec<_>>());
        c.barrier().unwrap();
    });
}

/// all_reduce of N f32 sends 2·(N/R)·(R−1) of them from every rank.
pub fn ring_traffic<C: Communicator>(factory: Factory<'_, C>, world: usize) {
    let n = 60;
    let sent = on_every_rank(factory(world, LONG), |_, mut c| {
        c.all_reduce(ReduceOp::Sum, &mut vec![1.0_f32; n]).unwrap();
        c.traffic()
    });
    if n % world == 0 {
        let expected = (2 * (n / world) * (world - 1) * 4) as u64;
        assert!(
            sent.iter().all(|t| t.sent == expected && t.received == expected),
            "{sent:?}, not {expected}"
        );
    }
}

/// Dropped or panicked, the others learn of it long before the deadline.
pub fn a_peer_that_left_is_named<C: Communicator>(factory: Factory<'_, C>, world: usize) {
    let start = Instant::now();
    let errors = on_every_rank(factory(world, LONG), |rank, mut c| {
        if rank == world - 1 {
            None
        } else {
            Some(c.all_reduce(ReduceOp::Sum, &mut [1.0_f32; 8]).unwrap_err())
        }
    });
    assert!(start.elapsed() < LONG / 2);
    let named =
        |e: &Error| matches!(e, Error::PeerLeft { what: "all_reduce", peer, .. } if *peer == Rank(world - 1));
    assert!(errors.iter().flatten().any(named), "{errors:?}");
    assert!(errors.iter().flatten().all(|e| matches!(e, Error::PeerLeft { .. })), "{errors:?}");
}

/// A peer that lives but says nothing is named when the deadline has passed.
pub fn a_peer_that_is_late_is_named<C: Communicator>(factory: Factory<'_, C>, world: usize) {
    let mut gang = factory(world, Duration::from_millis(250));
    let silent = gang.pop();
    let errors = on_every_rank(gang, |_, mut c| c.barrier().unwrap_err());
    let named =
        |e: &Error| matches!(e, Error::Deadline { missing, .. } if *missing == Rank(world - 1).to_string());
    assert!(errors.iter().any(named), "{errors:?}");
    drop(silent);
}

/// Leaving is no recall.
pub fn what_was_sent_before_leaving_arrives<C: Communicator>(factory: Factory<'_, C>, world: usize) {
    let mut gang = factory(world, LONG);
    let mut first = gang.swap_remove(0);
    let mut last = gang.swap_remove(0);
    assert_eq!(last.rank(), Rank(world - 1));
    last.send(Rank(0), vec![1]).unwrap();
    last.send(Rank(0), vec![2]).unwrap();
    drop(last);
    assert_eq!(first.receive(Rank(world - 1)).unwrap(), [1]);
    assert_eq!(first.receive(Rank(world - 1)).unwrap(), [2]);
    let error = first.receive(Rank(world - 1)).unwrap_err();
    assert!(matches!(error, Error::PeerLeft { .. }), "{error}");
    assert_eq!(first.send(Rank(1), vec![3]).unwrap_err(), error, "the first error stays");
}

/// Buffers of different lengths are found, not cut or padded.
pub fn another_length_is_an_error<C: Communicator>(factory: Factory<'_, C>, world: usize) {
    let results = on_every_rank(factory(world, LONG), |rank, mut c| {
        c.all_reduce(ReduceOp::Sum, &mut vec![1.0_f32; if rank == 0 { 5 } else { 6 }])
    });
    let odd = results.iter().filter(|r| matches!(r, Err(Error::Length { what: "all_reduce", .. })));
    assert!(odd.count() > 0, "{results:?}");
}
