//! Local SGD and DiLoCo against their formulas; what becomes of memories; H that is measured.

#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::{
    OptimizerKind, Outer, Topology,
    conformance::{on_every_rank, values},
    in_process_gang,
};

const N: usize = 11;
const RANKS: usize = 3;
const H: u64 = 4;

fn settings(inner: OptimizerKind, outer: Outer) -> SyncSettings {
    let optimizer =
        OptimizerSettings { optimizer: inner, learning_rate: 0.05, ..OptimizerSettings::default() };
    SyncSettings {
        local_steps: LocalStepCount::Fixed(H),
        outer,
        deadline_seconds: 60.0,
        optimizer,
        ..SyncSettings::default()
    }
}

/// Samples of a rank's step; ranks bring different numbers.
fn minibatch(rank: usize, step: u64) -> Vec<Vec<f64>> {
    (0..=rank as u64).map(|i| values(1000 * rank as u64 + 10 * step + i, N)).collect()
}

fn gradient(w: &[f64], minibatch: &[Vec<f64>]) -> Vec<f64> {
    (0..N).map(|i| minibatch.iter().map(|x| w[i] - x[i]).sum()).collect()
}

/// One rank's `steps`, from `w`.
fn steps(sync: &mut dyn GradientSync, w: &mut [f32], steps: std::ops::Range<u64>) -> Vec<Round> {
    let step = |step| {
        let (minibatch, rank) = (minibatch(sync.rank().0, step), sync.rank().0 as u64);
        let wide: Vec<f64> = w.iter().map(|v| f64::from(*v)).collect();
        let gradient: Vec<f32> = gradient(&wide, &minibatch).iter().map(|g| *g as f32).collect();
        sync.step(w, Contribution { gradient: &gradient, samples: rank + 1, loss: 1.0 }).unwrap()
    };
    steps.map(step).collect()
}

/// Local SGD and DiLoCo as their papers write them, in 64 bits, with no gang at all.
fn reference(settings: &SyncSettings, rounds: u64) -> Vec<f64> {
    let OptimizerSettings { optimizer, learning_rate, epsilon, .. } = settings.optimizer;
    let (rate, epsilon) = (f64::from(learning_rate), f64::from(epsilon));
    let (outer_rate, momentum) = match settings.outer {
        Outer::Average => (1.0, 0.0),
        Outer::Sgd => (0.5, 0.0),
        Outer::Nesterov => (0.7, f64::from(settings.outer_momentum)),
    };
    let (mut w, mut velocity) = (vec![0.0; N], [0.0; N]);
    let mut squares = vec![vec![0.0; N]; RANKS];
    for round in 0..rounds {
        let mut delta = [0.0; N];
        for (rank, squares) in squares.iter_mut().enumerate() {
            let (mut own, n) = (w.clone(), (rank + 1) as f64);
            for step in round * H..(round + 1) * H {
                let gradient = gradient(&own, &minibatch(rank, step));
                for i in 0..N {
                    let g = gradient[i] / n;
                    squares[i] += g * g;
                    let root: f64 = squares[i];
                    own[i] -= match optimizer {
                        OptimizerKind::Sgd => rate * g,
                        _ => rate * g / (root.sqrt() + epsilon),
                    };
                }
            }
            // Weights: every step of rank r has r + 1 of the 1 + 2 + 3 samples.
            delta.iter_mut().zip(&w).zip(&own).for_each(|((d, w), own)| *d += n / 6.0 * (w - own));
        }
        for i in 0..N {
            velocity[i] = momentum * velocity[i] + delta[i];
            w[i] -= outer_rate * (delta[i] + momentum * velocity[i]);
        }
    }
    w
}

#[test]
fn rounds_equal_the_papers_formulas() {
    for topology in [Topology::ParameterService, Topology::Ring] {
        for inner in [OptimizerKind::Sgd, OptimizerKind::Adagrad] {
            for outer in [Outer::Average, Outer::Sgd, Outer::Nesterov] {
                let mut settings = SyncSettings { topology, ..settings(inner, outer) };
                settings.outer_learning_rate = (outer == Outer::Sgd).then_some(0.5);
                let expected = reference(&settings, 5);
                on_every_rank(in_process_gang(&settings, RANKS).unwrap(), |_, mut sync| {
                    let mut w = vec![0.0; N];
                    sync.join(&mut w, Start::fresh(0)).unwrap();
                    let rounds = steps(&mut *sync, &mut w, 0..5 * H);
                    for (i, round) in rounds.iter().enumerate() {
                        let samples = if i as u64 % H == H - 1 { 6 * H } else { 0 };
                        assert_eq!((round.round, round.samples), (i as u64 / H, samples), "step {i}");
                    }
                    for (found, expected) in w.iter().zip(&expected) {
                        let far = (f64::from(*found) - expected).abs();
                        assert!(far < 1e-5, "{inner:?} {outer:?}: {found} != {expected}");
                    }
                });
            }
        }
    }
}

/// What is resumed from a checkpoint equals what went on from it, to the bit, with the memory of the inner rule.
#[test]
fn a_resumed_run_equals_the_one_that_went_on() {
    let settings = settings(OptimizerKind::Adam, Outer::Nesterov);
    let gang = || in_process_gang(&settings, RANKS).unwrap();
    let whole = on_every_rank(gang(), |_, mut sync| {
        let mut w = vec![0.0; N];
        sync.join(&mut w, Start::fresh(0)).unwrap();
        steps(&mut *sync, &mut w, 0..2 * H);
        let start =
            Start { optimizer: Some(sync.optimizer_state().unwrap()), position: sync.position(), rows: 0 };
        let half = w.clone();
        steps(&mut *sync, &mut w, 2 * H..4 * H);
        (w, half, start)
    });
    let (end, half, start) = &whole[0];
    assert_eq!(start.position.round, 2);
    let names: Vec<_> =
        start.optimizer.iter().flat_map(|o| &o.vectors).map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["velocity", "inner_first_moment", "inner_second_moment"]);
    on_every_rank(gang(), |rank, mut sync| {
        let (mut w, mut own) = (vec![0.5; N], Start::fresh(0));
        if rank == 0 {
            (w, own) = (half.clone(), start.clone());
        }
        sync.join(&mut w, own).unwrap();
        steps(&mut *sync, &mut w, 2 * H..4 * H);
        assert_eq!(&w, end);
    });
}

/// Steps that no round has taken yet are not lost at the end of an epoch.
#[test]
fn an_epoch_s_end_takes_what_is_left() {
    let settings = settings(OptimizerKind::Sgd, Outer::Average);
    let all = on_every_rank(in_process_gang(&settings, RANKS).unwrap(), |_, mut sync| {
        let mut w = vec![0.0; N];
        sync.join(&mut w, Start::fresh(0)).unwrap();
        steps(&mut *sync, &mut w, 0..H);
        let before = w.clone();
        steps(&mut *sync, &mut w, H..H + 1);
        let totals = sync.synchronise(&mut w).unwrap();
        assert_eq!((totals.samples, sync.position().round), (6 * (H + 1), 2));
        assert_ne!(w, before);
        w
    });
    assert!(all.iter().all(|w| *w == all[0]));
}

fn automatic(topology: Topology) -> SyncSettings {
    let settings = settings(OptimizerKind::Adagrad, Outer::Average);
    SyncSettings { topology, local_steps: LocalStepCount::Auto, ..settings }
}

/// Ranks whose rounds are those of `settings` without local steps, and that may have some.
fn automatic_gang(settings: &SyncSettings) -> Vec<LocalSteps<Box<dyn GradientSync>>> {
    let plain = SyncSettings { local_steps: LocalStepCount::Fixed(1), ..settings.clone() };
    let ranks = in_process_gang(&plain, RANKS).unwrap();
    ranks.into_iter().map(|rank| LocalSteps::new(rank, settings)).collect()
}

/// As if every step so far had taken a second, and its round `round` seconds.
fn measured(sync: &mut LocalSteps<Box<dyn GradientSync>>, round: f64) {
    sync.stopwatch.measured(StepTiming { compute: 1.0, round });
}

#[test]
fn cheap_rounds_stay_rounds_of_single_steps() {
    for topology in [Topology::ParameterService, Topology::Ring] {
        let settings = automatic(topology);
        let found = on_every_rank(automatic_gang(&settings), |_, mut sync| {
            let mut w = vec![0.0; N];
            sync.join(&mut w, Start::fresh(0)).unwrap();
            steps(&mut sync, &mut w, 0..4);
            measured(&mut sync, 0.01);
            let rounds = steps(&mut sync, &mut w, 4..20);
            assert!(rounds.iter().all(|round| round.samples == 6), "{rounds:?}");
            assert_eq!(sync.every, Some(1));
            w
        });
        let plain = SyncSettings { local_steps: LocalStepCount::Fixed(1), ..settings };
        let expected = on_every_rank(in_process_gang(&plain, RANKS).unwrap(), |_, mut sync| {
            let mut w = vec![0.0; N];
            sync.join(&mut w, Start::fresh(0)).unwrap();
            steps(&mut *sync, &mut w, 0..20);
            w
        });
        assert_eq!(found, expected);
    }
}

/// Four rounds of single steps, then rounds of three: in 64 bits, with no gang.
fn reference_of_auto(settings: &SyncSettings) -> (Vec<f64>, Vec<f64>) {
    let rate = f64::from(settings.optimizer.learning_rate);
    let adagrad = |w: &mut [f64], squares: &mut [f64], gradient: &[f64], n: f64| {
        for i in 0..N {
            let g = gradient[i] / n;
            squares[i] += g * g;
            w[i] -= rate * g / (squares[i].sqrt() + f64::from(settings.optimizer.epsilon));
        }
    };
    let (mut w, mut squares) = (vec![0.0; N], vec![0.0; N]);
    for step in 0..4 {
        let whole: Vec<_> = (0..RANKS).flat_map(|rank| minibatch(rank, step)).collect();
        let gradient = gradient(&w, &whole);
        adagrad(&mut w, &mut squares, &gradient, 6.0);
    }
    let mut own_squares = vec![squares; RANKS];
    for round in 0..2 {
        let mut mean = vec![0.0; N];
        for (rank, squares) in own_squares.iter_mut().enumerate() {
            let mut own = w.clone();
            for step in 4 + 3 * round..7 + 3 * round {
                let gradient = gradient(&own, &minibatch(rank, step));
                adagrad(&mut own, squares, &gradient, (rank + 1) as f64);
            }
            mean.iter_mut().zip(own).for_each(|(m, own)| *m += (rank + 1) as f64 / 6.0 * own);
        }
        w = mean;
    }
    let squares = (0..N).map(|i| own_squares.iter().map(|s| s[i]).sum::<f64>() / RANKS as f64).collect();
    (w, squares)
}

#[test]
fn dear_rounds_become_fewer_and_the_rule_keeps_its_memory() {
    for topology in [Topology::ParameterService, Topology::Ring] {
        let settings = automatic(topology);
        let (expected, squares) = reference_of_auto(&settings);
        let close = |found: &[f32], expected: &[f64]| {
            let far = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-5, "{topology:?}: {found:?} != {expected:?}");
        };
        let states = on_every_rank(automatic_gang(&settings), |_, mut sync| {
            let mut w = vec![0.0; N];
            sync.join(&mut w, Start::fresh(0)).unwrap();
            steps(&mut sync, &mut w, 0..4);
            measured(&mut sync, 0.2);
            let rounds = steps(&mut sync, &mut w, 4..10);
            assert_eq!(sync.every, Some(3));
            let samples: Vec<_> = rounds.iter().map(|round| round.samples).collect();
            assert_eq!(samples, [0, 0, 18, 0, 0, 18]);
            close(&w, &expected);
            // A checkpoint is that of a run whose steps are all rounds.
            let state = sync.optimizer_state().unwrap();
            assert_eq!((state.vectors[0].0.as_str(), state.vectors.len()), ("sum_of_squares", 1));
            close(&state.vectors[0].1, &squares);
            (w, Start { optimizer: Some(state), position: sync.position(), rows: 0 })
        });
        let (half, start) = &states[0];
        on_every_rank(automatic_gang(&settings), |_, mut sync| {
            let mut w = half.clone();
            let position = sync.join(&mut w, start.clone()).unwrap();
            assert_eq!((position.round, sync.every), (6, None), "it measures anew");
            let state = sync.optimizer_state().unwrap();
            assert_eq!(state.vectors, start.optimizer.as_ref().unwrap().vectors);
        });
    }
}

/// Whoever comes to a gang that knows its H takes it, and the mean of the others' memories.
#[test]
fn who_joins_takes_the_number_of_local_steps() {
    let mut gang = automatic_gang(&automatic(Topology::ParameterService));
    gang[1].every = Some(3);
    on_every_rank(gang, |_, mut sync| {
        let mut w = vec![0.0; N];
        sync.join(&mut w, Start::fresh(0)).unwrap();
        let rounds = steps(&mut sync, &mut w, 0..3);
        assert_eq!((sync.every, rounds[1].samples, rounds[2].samples), (Some(3), 0, 18));
    });
}

/// Nothing is put in the stopwatch's place: whatever H comes of it, all have the same and the loss falls.
#[test]
fn ranks_that_measure_agree() {
    let all = on_every_rank(in_process_gang(&automatic(Topology::Ring), RANKS).unwrap(), |_, mut sync| {
        let mut w = vec![0.0; N];
        sync.join(&mut w, Start::fresh(0)).unwrap();
        let rounds = steps(&mut *sync, &mut w, 0..600);
        sync.synchronise(&mut w).unwrap();
        (rounds.iter().map(|round| round.samples).collect::<Vec<_>>(), w)
    });
    assert!(all.iter().all(|rank| *rank == all[0]));
    assert!(all[0].1.iter().any(|w| *w != 0.0));
}
