//! Promises of [`GradientSync`], checked on a model whose gradient is known: `loss = ½·|w − x|²` per sample.

use super::{on_every_rank, values};
use crate::{
    Consistency, Contribution, Error, GradientSync, Lease, LocalStepCount, OptimizerKind, OptimizerSettings,
    OptimizerState, Outer, Position, Rank, Result, Round, Start, SyncSettings, Topology, Totals,
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Makes a fresh gang of so many ranks.
pub type Factory<'a> = &'a (dyn Fn(&SyncSettings, usize) -> Result<Vec<Box<dyn GradientSync>>> + Sync);

/// Parameters of the model: not a multiple of any shard count below.
const N: usize = 23;

/// Every case for every topology and update rule.
pub fn all(factory: Factory<'_>) {
    for topology in [Topology::ParameterService, Topology::Ring] {
        for optimizer in
            [OptimizerKind::Adagrad, OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam]
        {
            let settings = settings(topology, optimizer);
            many_ranks_equal_one(factory, &settings);
            state_survives_a_new_gang(factory, &settings);
            warm_up_reaches_every_rank(factory, &settings);
        }
        let settings = settings(topology, OptimizerKind::Adagrad);
        join_gives_rank_zero_parameters(factory, &settings);
        ragged_ranks_finish(factory, &settings);
        samples_are_the_weights(factory, &settings);
        sums_are_everywhere(factory, &settings);
        every_row_of_an_epoch_is_leased_once(factory, &settings);
        another_gang_takes_up_an_epoch(factory, &settings);
        equal_inputs_give_equal_bytes(factory, &settings);
        refusals(factory, &settings);
    }
    let settings = SyncSettings {
        consistency: Consistency::Async,
        ..settings(Topology::ParameterService, OptimizerKind::Sgd)
    };
    join_gives_rank_zero_parameters(factory, &settings);
    warm_up_reaches_every_rank(factory, &settings);
    sums_are_everywhere(factory, &settings);
    every_row_of_an_epoch_is_leased_once(factory, &settings);
    refusals(factory, &settings);
    asynchronous_ranks_learn(factory, &settings);
    asynchronous_ranks_learn(factory, &SyncSettings { delay_compensation: 0.04, ..settings.clone() });
    pushes_and_fetches_keep_their_rhythm(factory, &settings);
    staleness_counts_the_others(factory, &settings);
    stale_synchronous(factory, &settings);
    local_steps(factory);
}

/// Ranks that wait for one that is too far behind.
fn stale_synchronous(factory: Factory<'_>, settings: &SyncSettings) {
    for staleness in [0, 1, 4] {
        let settings = SyncSettings { consistency: Consistency::Ssp(Some(staleness)), ..settings.clone() };
        nobody_leads_by_more(factory, &settings, staleness);
        every_row_of_an_epoch_is_leased_once(factory, &settings);
        asynchronous_ranks_learn(factory, &settings);
        refusals(factory, &settings);
    }
}

/// Promises that hold with local steps, too.
fn local_steps(factory: Factory<'_>) {
    for topology in [Topology::ParameterService, Topology::Ring] {
        let measured =
            SyncSettings { local_steps: LocalStepCount::Auto, ..settings(topology, OptimizerKind::Adagrad) };
        ragged_ranks_finish(factory, &measured);
        every_row_of_an_epoch_is_leased_once(factory, &measured);
        for outer in [Outer::Average, Outer::Nesterov] {
            let settings = SyncSettings {
                local_steps: LocalStepCount::Fixed(3),
                outer,
                ..settings(topology, OptimizerKind::Adagrad)
            };
            join_gives_rank_zero_parameters(factory, &settings);
            warm_up_reaches_every_rank(factory, &settings);
            ragged_ranks_finish(factory, &settings);
            sums_are_everywhere(factory, &settings);
            every_row_of_an_epoch_is_leased_once(factory, &settings);
            equal_inputs_give_equal_bytes(factory, &settings);
            refusals(factory, &settings);
        }
    }
}

fn settings(topology: Topology, optimizer: OptimizerKind) -> SyncSettings {
    SyncSettings {
        topology,
        parameter_servers: 3,
        broadcast_every: 4,
        deadline_seconds: 60.0,
        optimizer: OptimizerSettings { optimizer, learning_rate: 0.05, ..OptimizerSettings::default() },
        ..SyncSettings::default()
    }
}

/// The sum of gradients and losses of `samples` at `w`.
struct Minibatch {
    gradient: Vec<f32>,
    samples: u64,
    loss: f64,
}

impl Minibatch {
    fn at(w: &[f32], samples: std::ops::Range<u64>) -> Self {
        let mut minibatch = Self { gradient: vec![0.0; w.len()], samples: 0, loss: 0.0 };
        for sample in samples {
            for ((g, w), x) in minibatch.gradient.iter_mut().zip(w).zip(values(sample, w.len())) {
                *g += w - x as f32;
                minibatch.loss += 0.5 * (f64::from(*w) - x).powi(2);
            }
            minibatch.samples += 1;
        }
        minibatch
    }

    fn contribution(&self) -> Contribution<'_> {
        Contribution { gradient: &self.gradient, samples: self.samples, loss: self.loss }
    }
}

fn step(sync: &mut dyn GradientSync, w: &mut [f32], samples: std::ops::Range<u64>) -> Round {
    let minibatch = Minibatch::at(w, samples);
    sync.step(w, minibatch.contribution()).unwrap()
}

fn joined(sync: &mut dyn GradientSync) -> Vec<f32> {
    let mut w = vec![sync.rank().0 as f32; N];
    sync.join(&mut w, Start::fresh(0)).unwrap();
    w
}

fn close(a: &[f32], b: &[f32], tolerance: f32) {
    let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far <= tolerance && a.len() == b.len(), "parameters differ by {far}");
}

/// Everybody starts from rank 0's parameters, whatever they brought.
pub fn join_gives_rank_zero_parameters(factory: Factory<'_>, settings: &SyncSettings) {
    for world in 1..=5 {
        on_every_rank(factory(settings, world).unwrap(), |rank, mut sync| {
            assert_eq!((sync.rank(), sync.world()), (Rank(rank), world));
            assert_eq!(joined(&mut *sync), [0.0; N]);
            sync.synchronise(&mut [0.0; N]).unwrap();
        });
    }
}

/// 20 steps of R ranks equal 20 steps of one rank that has the summed minibatch.
pub fn many_ranks_equal_one(factory: Factory<'_>, settings: &SyncSettings) {
    let train = |world: u64| {
        let share = 12 / world;
        on_every_rank(factory(settings, world as usize).unwrap(), |rank, mut sync| {
            let mut w = joined(&mut *sync);
            let mut losses = Vec::new();
            for s in 0..20 {
                let first = s * 12 + rank as u64 * share;
                let round = step(&mut *sync, &mut w, first..first + share);
                assert_eq!((round.round, round.samples, round.staleness, round.finished), (s, 12, 0, false));
                losses.push(round.loss);
            }
            sync.synchronise(&mut w).unwrap();
            (w, losses)
        })
    };
    let one = train(1).remove(0);
    assert!(one.1[19] < one.1[0], "the loss falls: {:?}", one.1);
    for world in [2, 3, 4] {
        let many = train(world);
        for (w, losses) in &many {
            assert_eq!(w, &many[0].0, "ranks differ");
            close(w, &one.0, 1e-4);
            assert!(losses.iter().zip(&one.1).all(|(a, b)| (a - b).abs() < 1e-4 * b.abs().max(1.0)));
        }
    }
}

/// Ranks with 9, 0, 1 and 4 samples, two at a time: all end in the same round, every sample counts once.
pub fn ragged_ranks_finish(factory: Factory<'_>, settings: &SyncSettings) {
    let rows = [9_u64, 0, 1, 4];
    let counts = on_every_rank(factory(settings, 4).unwrap(), |rank, mut sync| {
        let mut w = joined(&mut *sync);
        for epoch in 0..2 {
            let (mut next, mut samples) = (0, 0);
            loop {
                let end = (next + 2).min(rows[rank]);
                let round = step(&mut *sync, &mut w, next..end);
                samples += round.samples;
                if round.finished {
                    assert_eq!(next, rows[rank], "finished with rows left");
                    break;
                }
                next = end;
            }
            sync.synchronise(&mut w).unwrap();
            assert_eq!(samples, 14, "epoch {epoch}");
        }
        w
    });
    assert!(counts.iter().all(|w| w == &counts[0]));
}

/// 3 samples here and 1 there are the mean over 4, not the mean of two means.
pub fn samples_are_the_weights(factory: Factory<'_>, settings: &SyncSettings) {
    let optimizer =
        OptimizerSettings { optimizer: OptimizerKind::Sgd, learning_rate: 1.0, ..settings.optimizer.clone() };
    let settings = SyncSettings { optimizer, ..settings.clone() };
    let mean: Vec<f32> =
        (0..N).map(|i| ((0..4).map(|s| values(s, N)[i]).sum::<f64>() / 4.0) as f32).collect();
    on_every_rank(factory(&settings, 2).unwrap(), |rank, mut sync| {
        let mut w = joined(&mut *sync);
        step(&mut *sync, &mut w, if rank == 0 { 0..3 } else { 3..4 });
        close(&w, &mean, 1e-6);
    });
}

/// Rank 0's steps alone, and the optimizer's memory of them, count for everybody.
pub fn warm_up_reaches_every_rank(factory: Factory<'_>, settings: &SyncSettings) {
    let train = |world: u64| {
        let all = on_every_rank(factory(settings, world as usize).unwrap(), |rank, mut sync| {
            let mut w = joined(&mut *sync);
            for s in 0..if rank == 0 { 3 } else { 0 } {
                let minibatch = Minibatch::at(&w, s * 5..(s + 1) * 5);
                let round = sync.step_alone(&mut w, minibatch.contribution()).unwrap();
                assert_eq!((round.round, round.samples, round.staleness), (s, 5, 0));
            }
            sync.synchronise(&mut w).unwrap();
            let state = sync.optimizer_state().unwrap();
            assert_eq!(state.steps, 3);
            (w, state)
        });
        assert!(all.iter().all(|a| a == &all[0]), "ranks differ after warm-up");
        all.into_iter().next().unwrap()
    };
    let (one, three) = (train(1), train(3));
    assert_eq!(one, three);
    assert!(one.0.iter().any(|w| *w != 0.0));
}

/// 6 steps equal 3, a checkpoint, and 3 in a gang of another size.
pub fn state_survives_a_new_gang(factory: Factory<'_>, settings: &SyncSettings) {
    let train = |world: u64, steps: std::ops::Range<u64>, start: Option<&(Vec<f32>, OptimizerState)>| {
        on_every_rank(factory(settings, world as usize).unwrap(), |rank, mut sync| {
            let (mut w, state) = match start {
                Some((w, state)) if rank == 0 => (w.clone(), Some(state.clone())),
                _ => (vec![0.0; N], None),
            };
            let start = Start { optimizer: state, ..Start::fresh(0) };
            sync.join(&mut w, start).unwrap();
            for s in steps.clone() {
                let first = s * 4 + rank as u64 * 4 / world;
                step(&mut *sync, &mut w, first..first + 4 / world);
            }
            sync.synchronise(&mut w).unwrap();
            let state = sync.optimizer_state().unwrap();
            (w, state)
        })
    };
    let through = train(2, 0..6, None).remove(0);
    let half = train(2, 0..3, None).remove(0);
    assert!(half.1.vectors.iter().all(|(_, v)| v.len() == N), "{:?}", half.1);
    let same = train(2, 3..6, Some(&half)).remove(1);
    assert_eq!(through, same);
    let other = train(4, 3..6, Some(&half)).remove(3);
    close(&other.0, &through.0, 1e-4);
    assert_eq!(other.1.steps, 6);
}

/// Leases, steps on their rows until nothing is left or `rounds` are over; gives the rows.
fn train_leases(sync: &mut dyn GradientSync, w: &mut [f32], rows: usize, rounds: u64) -> Vec<usize> {
    let mut seen = Vec::new();
    for _ in 0..rounds {
        let lease = sync.lease(3).unwrap();
        assert!(lease.as_ref().is_none_or(|l| (1..=3).contains(&l.len())), "{lease:?}");
        let leased = lease.as_ref().map_or(0..0, |l: &Lease| {
            let first = l.block_rows(rows).start;
            first + l.visits.start..first + l.visits.end
        });
        seen.extend(leased.clone());
        let round = step(sync, w, leased.start as u64..leased.end as u64);
        if leased.is_empty() && round.finished {
            break;
        }
    }
    seen
}

/// Two epochs on more rows than the ranks share evenly, after a warm-up: each row once an epoch, equal totals everywhere.
pub fn every_row_of_an_epoch_is_leased_once(factory: Factory<'_>, settings: &SyncSettings) {
    const ROWS: usize = 41;
    for world in [1, 3, 4] {
        let all = on_every_rank(factory(settings, world).unwrap(), |rank, mut sync| {
            let mut w = vec![0.0; N];
            assert_eq!(sync.join(&mut w, Start::fresh(ROWS)).unwrap(), Position::default());
            assert_eq!((sync.place().index, sync.place().of), (rank, world));
            if rank == 0 {
                let minibatch = Minibatch::at(&w, 0..5);
                sync.step_alone(&mut w, minibatch.contribution()).unwrap();
            }
            assert_eq!(sync.synchronise(&mut w).unwrap().samples, 5);
            let mut seen = Vec::new();
            for epoch in 0..2 {
                assert_eq!((sync.position().epoch, sync.position().at_epoch_start()), (epoch, true));
                seen.push(train_leases(&mut *sync, &mut w, ROWS, u64::MAX));
                let totals = sync.synchronise(&mut w).unwrap();
                assert_eq!(totals.samples, if epoch == 0 { 46 } else { 41 });
                assert_eq!(sync.position().previous, totals);
            }
            (seen, sync.position())
        });
        for epoch in 0..2 {
            let mut rows: Vec<_> = all.iter().flat_map(|(seen, _)| seen[epoch].clone()).collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..ROWS).collect::<Vec<_>>());
        }
        assert!(all.iter().all(|(_, position)| *position == all[0].1), "ranks stand at different positions");
        assert_eq!((all[0].1.epoch, all[0].1.totals), (2, Totals::default()));
    }
}

/// An epoch that two ranks began and three, or one, end: each row once, rounds numbered on.
pub fn another_gang_takes_up_an_epoch(factory: Factory<'_>, settings: &SyncSettings) {
    const ROWS: usize = 29;
    for world in [1, 2, 3] {
        let first = on_every_rank(factory(settings, 2).unwrap(), |_, mut sync| {
            let mut w = vec![0.0; N];
            sync.join(&mut w, Start::fresh(ROWS)).unwrap();
            let seen = train_leases(&mut *sync, &mut w, ROWS, 2);
            (seen, sync.position(), sync.optimizer_state().unwrap(), w)
        });
        let (_, position, state, weights) = &first[1];
        assert_eq!((position.round, position.totals.samples), (2, 12));
        let second = on_every_rank(factory(settings, world).unwrap(), |rank, mut sync| {
            let (mut w, mut start) = (vec![0.5; N], Start::fresh(ROWS));
            if rank == 0 {
                w.copy_from_slice(weights);
                start = Start { optimizer: Some(state.clone()), position: position.clone(), rows: ROWS };
            }
            assert_eq!(&sync.join(&mut w, start).unwrap(), position);
            assert_eq!(&w, weights);
            let seen = train_leases(&mut *sync, &mut w, ROWS, u64::MAX);
            assert_eq!(sync.synchronise(&mut w).unwrap().samples, ROWS as u64);
            assert!(sync.position().round > 2);
            seen
        });
        let mut rows: Vec<_> = first.iter().map(|f| &f.0).chain(&second).flatten().copied().collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..ROWS).collect::<Vec<_>>());
    }
}

/// Sums of f64 on every rank.
pub fn sums_are_everywhere(factory: Factory<'_>, settings: &SyncSettings) {
    on_every_rank(factory(settings, 4).unwrap(), |rank, mut sync| {
        joined(&mut *sync);
        let mut sums = [rank as f64, 1.0, 0.5];
        sync.sum(&mut sums).unwrap();
        assert_eq!(sums, [6.0, 4.0, 2.0]);
        sync.sum(&mut []).unwrap();
    });
}

/// With `deterministic`, whoever comes first: the bytes are the same.
pub fn equal_inputs_give_equal_bytes(factory: Factory<'_>, settings: &SyncSettings) {
    let settings = SyncSettings { deterministic: true, ..settings.clone() };
    let train = || {
        on_every_rank(factory(&settings, 4).unwrap(), |rank, mut sync| {
            let mut w = joined(&mut *sync);
            for s in 0..10 {
                step(&mut *sync, &mut w, s * 20 + rank as u64 * 5..s * 20 + rank as u64 * 5 + 3);
            }
            sync.synchronise(&mut w).unwrap();
            w.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        })
    };
    let first = train();
    assert!(first.iter().all(|w| w == &first[0]));
    for _ in 0..3 {
        assert_eq!(train(), first);
    }
}

/// Wrong lengths, values that are not finite, ranks that are gone or late: errors, on every rank, in time.
pub fn refusals(factory: Factory<'_>, settings: &SyncSettings) {
    another_length_is_refused(factory, settings);
    what_is_not_finite_is_refused(factory, settings);
    a_rank_that_leaves_is_named(factory, settings);
    a_rank_that_is_late_is_named(factory, settings);
    let none = SyncSettings { n_fetch: 0, ..settings.clone() };
    assert!(factory(&none, 2).is_err_and(|e| e.is_input()));
    assert!(factory(settings, 0).is_err_and(|e| e.is_input()));
}

fn another_length_is_refused(factory: Factory<'_>, settings: &SyncSettings) {
    let errors = on_every_rank(factory(settings, 3).unwrap(), |rank, mut sync| {
        sync.join(&mut vec![0.0; if rank == 2 { N + 1 } else { N }], Start::fresh(0)).unwrap_err()
    });
    let odd =
        |e: &Error| matches!(e, Error::Length { rank: Rank(2), found, expected: N, .. } if *found == N + 1);
    assert!(errors.iter().any(odd), "{errors:?}");
    on_every_rank(factory(settings, 1).unwrap(), |_, mut sync| {
        let mut w = joined(&mut *sync);
        let short = Contribution { gradient: &[1.0; N - 1], samples: 1, loss: 1.0 };
        let error = sync.step(&mut w, short).unwrap_err();
        assert!(matches!(error, Error::Length { what: "step", .. }), "{error}");
    });
}

fn what_is_not_finite_is_refused(factory: Factory<'_>, settings: &SyncSettings) {
    for (odd, loss, what) in
        [(f32::NAN, 1.0, "gradient"), (f32::INFINITY, 1.0, "gradient"), (0.0, f64::NAN, "loss")]
    {
        let results = on_every_rank(factory(settings, 2).unwrap(), |rank, mut sync| {
            let mut w = joined(&mut *sync);
            // The peer may be gone before this step is through where ranks do not go in lockstep.
            sync.step(&mut w, Minibatch::at(&[0.0; N], 0..1).contribution())?;
            // The one has its step before the other fails.
            sync.sum(&mut [0.0])?;
            if rank == 0 {
                return sync.synchronise(&mut w).map(|_| ());
            }
            let gradient = [odd; N];
            sync.step(&mut w, Contribution { gradient: &gradient, samples: 1, loss }).map(|_| ())
        });
        assert_eq!(results[1], Err(Error::NotFinite { rank: Rank(1), what, step: 1 }));
        assert!(results[0].as_ref().is_err_and(Error::is_consequence), "{:?}", results[0]);
    }
}

fn a_rank_that_leaves_is_named(factory: Factory<'_>, settings: &SyncSettings) {
    let start = Instant::now();
    let results = on_every_rank(factory(settings, 3).unwrap(), |rank, mut sync| {
        let mut w = joined(&mut *sync);
        sync.step(&mut w, Minibatch::at(&[0.0; N], 0..1).contribution())?;
        // All have come so far before one of them leaves.
        sync.sum(&mut [0.0])?;
        if rank == 1 { Ok(()) } else { sync.synchronise(&mut w).map(|_| ()) }
    });
    assert!(
        start.elapsed() < Duration::from_secs_f64(settings.deadline_seconds / 2.0),
        "waited for a rank that is gone"
    );
    let errors: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert_eq!(errors.len(), 2, "{results:?}");
    assert!(errors.iter().all(|e| matches!(e, Error::PeerLeft { .. })), "{results:?}");
    assert!(errors.iter().any(|e| matches!(e, Error::PeerLeft { peer: Rank(1), .. })), "{results:?}");
}

fn a_rank_that_is_late_is_named(factory: Factory<'_>, settings: &SyncSettings) {
    let settings = SyncSettings { deadline_seconds: 0.25, ..settings.clone() };
    let mut gang = factory(&settings, 3).unwrap();
    let late = gang.pop();
    let errors = on_every_rank(gang, |_, mut sync| sync.join(&mut [0.0; N], Start::fresh(0)).unwrap_err());
    let named = |e: &Error| matches!(e, Error::Deadline { missing, .. } if missing.contains("rank 2"));
    assert!(errors.iter().any(named), "{errors:?}");
    drop(late);
}

/// Downpour on ragged ranks, one of them empty: everybody ends, with equal parameters and a lower loss.
pub fn asynchronous_ranks_learn(factory: Factory<'_>, settings: &SyncSettings) {
    let rows = [40_u64, 0, 13, 27];
    let all = on_every_rank(factory(settings, 4).unwrap(), |rank, mut sync| {
        let mut w = joined(&mut *sync);
        // Others may have stepped before this rank has fetched anything.
        let before = Minibatch::at(&[0.0; N], 0..40).loss;
        for _ in 0..20 {
            let mut next = 0;
            loop {
                let end = (next + 4).min(rows[rank]);
                if step(&mut *sync, &mut w, next..end).finished {
                    break;
                }
                next = end;
            }
            sync.synchronise(&mut w).unwrap();
        }
        let after = Minibatch::at(&w, 0..40).loss;
        assert!(after < before, "{before} -> {after}");
        w
    });
    assert!(all.iter().all(|w| w == &all[0]), "ranks differ after synchronise");
}

/// n_fetch 3, n_push 2: parameters change at every third step, updates happen at every second and at the end.
pub fn pushes_and_fetches_keep_their_rhythm(factory: Factory<'_>, settings: &SyncSettings) {
    let settings = SyncSettings { n_fetch: 3, n_push: 2, ..settings.clone() };
    on_every_rank(factory(&settings, 1).unwrap(), |_, mut sync| {
        let mut w = joined(&mut *sync);
        let mut changed = Vec::new();
        for s in 0..7 {
            let before = w.clone();
            step(&mut *sync, &mut w, s..s + 1);
            changed.push(w != before);
        }
        assert_eq!(changed, [false, false, true, false, false, true, false]);
        sync.synchronise(&mut w).unwrap();
        assert_eq!(sync.optimizer_state().unwrap().steps, 4, "three pushes of two, one of the rest");
    });
}

/// Rank 0 takes a step only when the others have come as far ahead as they may, so that they wait for it; once it has
/// no rows left it holds nobody up.
pub fn nobody_leads_by_more(factory: Factory<'_>, settings: &SyncSettings, staleness: u64) {
    const STEPS: u64 = 12;
    let begun: [AtomicU64; 3] = Default::default();
    let slowest = |ranks: &[AtomicU64]| ranks.iter().map(|b| b.load(Ordering::SeqCst)).min().unwrap();
    on_every_rank(factory(settings, 3).unwrap(), |rank, mut sync| {
        let mut w = joined(&mut *sync);
        for s in 0..if rank == 0 { STEPS / 2 } else { STEPS } {
            let deadline = Instant::now() + Duration::from_secs_f64(settings.deadline_seconds);
            while rank == 0 && slowest(&begun[1..]) < (s + staleness + 1).min(STEPS) {
                assert!(
                    Instant::now() < deadline,
                    "the others wait before they lead by {staleness}: {begun:?}"
                );
                std::thread::yield_now();
            }
            assert!(s <= slowest(&begun).saturating_add(staleness), "step {s} of rank {rank}: {begun:?}");
            begun[rank].store(s + 1, Ordering::SeqCst);
            step(&mut *sync, &mut w, s..s + 1);
        }
        begun[rank].store(u64::MAX, Ordering::SeqCst);
        assert!(step(&mut *sync, &mut w, 0..0).finished);
        sync.synchronise(&mut w).unwrap();
    });
}

/// A push after k pushes by another rank has staleness k.
pub fn staleness_counts_the_others(factory: Factory<'_>, settings: &SyncSettings) {
    let gang = factory(settings, 2).unwrap();
    let barrier = std::sync::Barrier::new(2);
    on_every_rank(gang, |rank, mut sync| {
        let mut w = joined(&mut *sync);
        barrier.wait();
        if rank == 0 {
            for s in 0..3 {
                assert_eq!(step(&mut *sync, &mut w, s..s + 1).staleness, 0);
            }
        }
        barrier.wait();
        if rank == 1 {
            assert_eq!(step(&mut *sync, &mut w, 0..1).staleness, 3);
            assert_eq!(step(&mut *sync, &mut w, 0..1).staleness, 0);
        }
        sync.synchronise(&mut w).unwrap();
    });
}
