//! Gangs over loopback pass the suite of every [`GradientSync`], and lose nothing when a member is cut off.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::{
    Contribution, Error, OptimizerKind, OptimizerSettings, Reduction, Start, Totals,
    conformance::{gradient_sync, on_every_rank},
    network::Security,
    protocol::Outcome,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(60);

fn tcp(security: &Security) -> Transport {
    Transport::Tcp { bind: LOOPBACK, advertise: LOOPBACK, security: security.clone() }
}

fn run() -> RunId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    RunId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The suite, with a gang of its own for every case; the one before ends then.
fn conforms(transport: &Transport, dedicated: usize) {
    let before = Mutex::new(None);
    let factory = |settings: &SyncSettings, ranks: usize| -> Result<Vec<Box<dyn GradientSync>>> {
        let dedicated = if settings.topology == Topology::Ring { 0 } else { dedicated };
        // Connections must be there before anybody can be late.
        let least = if matches!(transport, Transport::InProcess) { 0.0 } else { 1.0 };
        let deadlines =
            Deadlines { missing: settings.deadline_seconds.max(least), ..Deadlines::of(settings) };
        // The suite compares to four digits; what is rounded on its way has fewer.
        let settings = SyncSettings { codec: Some(crate::Codec::F32), ..settings.clone() };
        let spec = GangSpec {
            dedicated_shards: dedicated,
            deadlines,
            build: "test".into(),
            ..GangSpec::fixed(run(), settings, ranks)
        };
        let host = GangHost::start(spec, transport.clone())?;
        let invitation = host.invitation();
        for holder in ranks..ranks + dedicated {
            let invitation = invitation.clone();
            thread::spawn(move || serve(&invitation, &Seat::first(holder, "test"), || false));
        }
        let ranks = (0..ranks).map(|rank| {
            enter(&invitation, &Seat::first(rank, "test")).map(|m| Box::new(m) as Box<dyn GradientSync>)
        });
        let ranks = ranks.collect();
        *before.lock().unwrap() = Some(host);
        ranks
    };
    gradient_sync::all(&factory);
}

#[test]
fn a_gang_in_process_conforms() {
    conforms(&Transport::InProcess, 0);
}

#[test]
fn a_gang_in_process_with_dedicated_shards_conforms() {
    conforms(&Transport::InProcess, 1);
}

#[test]
fn a_gang_over_loopback_conforms() {
    conforms(&tcp(&Security::insecure().unwrap()), 0);
}

#[test]
fn a_gang_over_mutual_tls_conforms() {
    conforms(&tcp(&Security::tls().unwrap()), 0);
}

#[test]
fn a_gang_with_dedicated_shards_over_loopback_conforms() {
    conforms(&tcp(&Security::insecure().unwrap()), 2);
}

#[test]
fn a_gang_with_dedicated_shards_over_mutual_tls_conforms() {
    conforms(&tcp(&Security::tls().unwrap()), 2);
}

const ROWS: usize = 60;

/// What is left of a rank that trained one epoch.
#[derive(Debug)]
struct Trained {
    parameters: Vec<f32>,
    totals: Totals,
    restarts: usize,
}

/// An epoch over rows whose gradient is −1 at their own place: with SGD of rate 1 on the sum, every parameter counts
/// how often its row was trained on. `each` is told of every step before it is made.
fn count(sync: &mut dyn GradientSync, mut each: impl FnMut(u64)) -> Result<Trained> {
    let (mut parameters, mut restarts) = (vec![0.0; ROWS], 0);
    'join: loop {
        match sync.join(&mut parameters, Start::fresh(ROWS)) {
            Ok(_) => {}
            Err(error) if error.wants_join() => continue,
            Err(error) => return Err(error),
        }
        let result = loop {
            let step = (|| {
                each(sync.position().round);
                let lease = sync.lease(1)?;
                let mut gradient = vec![0.0; ROWS];
                let rows = lease.iter().flat_map(|lease| {
                    let start = lease.block_rows(ROWS).start;
                    lease.visits.clone().map(move |visit| start + visit)
                });
                let rows: Vec<usize> = rows.collect();
                rows.iter().for_each(|row| gradient[*row] -= 1.0);
                let samples = rows.len() as u64;
                let contribution = Contribution { gradient: &gradient, samples, loss: samples as f64 };
                let round = sync.step(&mut parameters, contribution)?;
                Ok::<_, Error>(lease.is_none() && round.finished)
            })();
            match step {
                Ok(false) => {}
                Ok(true) => break sync.synchronise(&mut parameters),
                Err(error) => break Err(error),
            }
        };
        match result {
            Ok(totals) => {
                return Ok(Trained { parameters, totals, restarts });
            }
            Err(error) if error.wants_join() => {
                restarts += 1;
                continue 'join;
            }
            Err(error) => return Err(error),
        }
    }
}

fn every_row_counts_once(trained: &Trained) {
    assert_eq!(trained.parameters, [1.0; ROWS]);
    assert_eq!(trained.totals.samples, ROWS as u64);
}

fn counting(ranks: usize, min_ranks: usize, dedicated_shards: usize) -> GangSpec {
    let optimizer = OptimizerSettings {
        optimizer: OptimizerKind::Sgd,
        learning_rate: 1.0,
        ..OptimizerSettings::default()
    };
    // Whole numbers and sums of them: every digit is exact, also in brain floats.
    let optimizer = OptimizerSettings { reduction: Reduction::Sum, ..optimizer };
    let settings =
        SyncSettings { optimizer, deadline_seconds: 60.0, hold_seconds: 5.0, ..SyncSettings::default() };
    GangSpec { min_ranks, dedicated_shards, ..GangSpec::fixed(run(), settings, ranks) }
}

/// Ranks of one gang, of which `cut` loses all its connections before round 7, as if its host had gone.
fn one_is_cut_off(security: &Security, dedicated: usize, cut: usize) {
    let host = GangHost::start(counting(3, 2, dedicated), tcp(security)).unwrap();
    let invitation = host.invitation();
    for holder in 3..3 + dedicated {
        let invitation = invitation.clone();
        thread::spawn(move || serve(&invitation, &Seat::first(holder, ""), || false));
    }
    let members: Vec<_> = (0..3).map(|rank| enter(&invitation, &Seat::first(rank, "")).unwrap()).collect();
    let start = std::time::Instant::now();
    let results = on_every_rank(members, |rank, mut member| {
        let sever = member.severer();
        let trained = count(&mut member, |round| {
            if rank == cut && round == 7 {
                sever();
            }
        });
        if rank == cut { None } else { Some((trained, member.finish(SOON))) }
    });
    for (trained, released) in results.into_iter().flatten() {
        let trained = trained.unwrap();
        every_row_counts_once(&trained);
        assert!(released && trained.restarts > 0, "{trained:?}");
    }
    assert_eq!(host.finish(SOON), Outcome::Finished);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn the_others_go_on_when_a_rank_is_cut_off() {
    one_is_cut_off(&Security::insecure().unwrap(), 0, 1);
    one_is_cut_off(&Security::tls().unwrap(), 0, 2);
    one_is_cut_off(&Security::insecure().unwrap(), 2, 1);
}

#[test]
fn the_others_go_on_when_the_leader_is_cut_off() {
    // The leader's work is done by the next: its own end is not that of the gang.
    one_is_cut_off(&Security::insecure().unwrap(), 0, 0);
}

#[test]
fn a_member_whose_task_is_taken_away_leaves_a_call_that_waits() {
    let host = GangHost::start(counting(2, 2, 0), tcp(&Security::insecure().unwrap())).unwrap();
    let mut alone = enter(&host.invitation(), &Seat::first(0, "")).unwrap();
    let line = alone.line();
    let waiting = thread::spawn(move || alone.join(&mut [0.0; ROWS], Start::fresh(ROWS)));
    assert!(!line.wait_released(Duration::from_millis(50)), "it waits for the other one");
    line.abandon();
    assert_eq!(waiting.join().unwrap().unwrap_err(), Error::Cancelled);
}

/// Ranks that have something to tell before they join: all of it is heard, in order, and they meet.
fn words_before_joining_are_heard(transport: &Transport, topology: Topology) {
    const WORDS: u8 = 50;
    let settings = SyncSettings { topology, deadline_seconds: 10.0, ..SyncSettings::default() };
    let host = GangHost::start(GangSpec::fixed(run(), settings, 2), transport.clone()).unwrap();
    let invitation = host.invitation();
    // Each on its own thread from the beginning: nothing is between entering and the first word.
    on_every_rank(vec![(), ()], |rank, ()| {
        let mut member = enter(&invitation, &Seat::first(rank, "")).unwrap();
        let line = member.line();
        (0..WORDS).for_each(|word| line.report(vec![word]));
        member.join(&mut [0.0; ROWS], Start::fresh(ROWS)).unwrap();
        line.report(vec![WORDS]);
        assert!(member.finish(SOON));
    });
    let mut heard = [Vec::new(), Vec::new()];
    while let Some(signal) = host.next_signal(SOON) {
        match signal {
            Signal::Report { member, bytes } => heard[member.index()].extend(bytes),
            Signal::Ended(outcome) => {
                assert_eq!(outcome, Outcome::Finished);
                break;
            }
            _ => {}
        }
    }
    let said: Vec<u8> = (0..=WORDS).collect();
    assert_eq!(heard, [said.clone(), said]);
}

#[test]
fn what_ranks_say_before_they_join_is_heard() {
    let loopback = tcp(&Security::insecure().unwrap());
    for topology in [Topology::ParameterService, Topology::Ring] {
        words_before_joining_are_heard(&loopback, topology);
        // Threads decide who speaks first: it must not matter.
        (0..20).for_each(|_| words_before_joining_are_heard(&Transport::InProcess, topology));
    }
}

/// Parameters after three steps of two ranks, and the bytes that they received: those are counted before anybody
/// goes on, bytes that were sent only afterwards.
fn three_steps(codec: crate::Codec) -> (Vec<f32>, u64) {
    let optimizer = OptimizerSettings { optimizer: OptimizerKind::Sgd, ..OptimizerSettings::default() };
    let settings = SyncSettings { optimizer, codec: Some(codec), ..SyncSettings::default() };
    let spec = GangSpec::fixed(run(), settings, 2);
    let host = GangHost::start(spec, tcp(&Security::insecure().unwrap())).unwrap();
    let invitation = host.invitation();
    let members: Vec<_> = (0..2).map(|rank| enter(&invitation, &Seat::first(rank, "")).unwrap()).collect();
    let trained = on_every_rank(members, |_, mut member| {
        let mut w = vec![0.0; 20_000];
        member.join(&mut w, Start::fresh(0)).unwrap();
        let gradient: Vec<f32> = (0..w.len()).map(|i| 1.0 + i as f32 / 7.0).collect();
        for _ in 0..3 {
            member.step(&mut w, Contribution { gradient: &gradient, samples: 1, loss: 0.0 }).unwrap();
        }
        member.synchronise(&mut w).unwrap();
        let received = member.traffic().received;
        assert!(member.finish(SOON));
        (w, received)
    });
    assert_eq!(trained[0].0, trained[1].0);
    assert_eq!(host.finish(SOON), Outcome::Finished);
    (trained[0].0.clone(), trained.iter().map(|(_, received)| received).sum())
}

#[test]
fn brain_floats_halve_what_gradients_cost() {
    let ((exact, all), (rounded, fewer)) = (three_steps(crate::Codec::F32), three_steps(crate::Codec::Bf16));
    assert!(exact.iter().zip(&rounded).all(|(a, b)| (a - b).abs() <= a.abs() / 250.0));
    assert_ne!(exact, rounded);
    // Three steps of two ranks, that push half of the gradient to each other.
    let saved = 3 * 2 * 10_000 * 2;
    assert!(all.abs_diff(fewer + saved) < 2_000, "{all} bytes, {fewer} with brain floats");
}
