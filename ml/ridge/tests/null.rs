//! Rearrangements and the p-values that come of them.
#![allow(clippy::unwrap_used)]

use faer::Mat;
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rayon::ThreadPoolBuilder;
use voxelflow_ridge::{
    Error, NullResult, NullTest, Permuted, Rearrangement, RidgeCv, RidgeSettings, pearson, rearrangements,
};

fn noise(samples: usize, targets: usize, seed: u64) -> Mat<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    Mat::from_fn(samples, targets, |_, _| random.random::<f64>() - 0.5)
}

/// Targets 0 to 4 are predicted well, the others not at all.
fn data(samples: usize, targets: usize) -> (Mat<f64>, Mat<f64>) {
    let (y, other) = (noise(samples, targets, 1), noise(samples, targets, 2));
    let p = Mat::from_fn(samples, targets, |i, j| other[(i, j)] + if j < 5 { y[(i, j)] } else { 0.0 });
    (y, p)
}

fn test(y: &Mat<f64>, p: &Mat<f64>, orders: &[Vec<u32>], block: usize) -> NullResult {
    let mut test = NullTest::new(orders.to_vec()).unwrap();
    for start in (0..y.ncols()).step_by(block) {
        let size = block.min(y.ncols() - start);
        test.add(y.as_ref().subcols(start, size), p.as_ref().subcols(start, size)).unwrap();
    }
    test.finish()
}

#[test]
fn p_values_are_those_counted_by_hand() {
    let (y, p) = data(40, 21);
    let orders = rearrangements(&vec![0; 40], Rearrangement::Shuffle, 99, 3).unwrap();
    let found = test(&y, &p, &orders, 7);
    let column = |m: &Mat<f64>, j: usize| m.col(j).iter().copied().collect::<Vec<f64>>();
    let null: Vec<Vec<f64>> = orders
        .iter()
        .map(|order| {
            let of = |j: usize| {
                let p = column(&p, j);
                pearson(&column(&y, j), &order.iter().map(|i| p[*i as usize]).collect::<Vec<_>>())
            };
            (0..21).map(of).collect()
        })
        .collect();
    let largest: Vec<f64> = null.iter().map(|own| own.iter().copied().fold(f64::MIN, f64::max)).collect();
    for j in 0..21 {
        let r = pearson(&column(&y, j), &column(&p, j));
        assert!((found.r[j] - r).abs() < 1e-12);
        let b = null.iter().filter(|own| own[j] >= r).count();
        assert_eq!(found.p[j], (b + 1) as f64 / 100.0, "target {j}");
        let b = largest.iter().filter(|largest| **largest >= r).count();
        assert_eq!(found.p_family[j], (b + 1) as f64 / 100.0, "target {j}");
        assert!(found.p_family[j] >= found.p[j]);
    }
    assert!(found.p_family[..5].iter().all(|p| *p == 0.01) && found.q[..5].iter().all(|q| *q <= 0.05));
    assert!(found.p_family[5..].iter().all(|p| *p > 0.05), "{:?}", found.p_family);
    assert_eq!(found.rearrangements, 99);
}

#[test]
fn results_depend_on_neither_blocks_nor_threads() {
    let (y, p) = data(60, 50);
    let runs: Vec<usize> = (0..60).map(|i| i / 20).collect();
    for how in [
        Rearrangement::Shuffle,
        Rearrangement::Blocks { length: 4 },
        Rearrangement::CircularShift { least: 3 },
    ] {
        let orders = rearrangements(&runs, how, 200, 5).unwrap();
        let whole = test(&y, &p, &orders, 50);
        for (block, threads) in [(1, 1), (7, 3), (16, 2), (33, 4)] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| test(&y, &p, &orders, block)), whole, "{how:?}, {block}, {threads}");
        }
        // An order depends on the seed and its own number.
        assert_eq!(rearrangements(&runs, how, 10, 5).unwrap()[..], orders[..10]);
        assert_ne!(rearrangements(&runs, how, 10, 6).unwrap()[..], orders[..10]);
    }
}

#[test]
fn blocks_and_shifts_stay_in_their_runs_and_keep_neighbours() {
    let runs: Vec<usize> = (0..50).map(|i| usize::from(i >= 22)).collect();
    let within = |order: &[u32]| order.iter().enumerate().all(|(i, from)| runs[i] == runs[*from as usize]);
    let breaks = |order: &[u32]| order.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    for order in rearrangements(&runs, Rearrangement::Blocks { length: 5 }, 100, 1).unwrap() {
        // 22 samples are 5 blocks, 28 are 6.
        assert!(within(&order) && breaks(&order) <= 10, "{order:?}");
    }
    for order in rearrangements(&runs, Rearrangement::CircularShift { least: 4 }, 100, 1).unwrap() {
        assert!(within(&order) && breaks(&order) <= 3, "{order:?}");
        let turned = |start: u32, n: u32| (order[start as usize] + n - start) % n;
        for (start, n) in [(0, 22), (22, 28)] {
            assert!((4..=n - 4).contains(&turned(start, n)), "{order:?}");
        }
    }
    let free = rearrangements(&runs, Rearrangement::Shuffle, 100, 1).unwrap();
    assert!(free.iter().all(|order| !within(order)));
}

#[test]
fn a_free_shuffle_of_slow_series_finds_what_is_not_there_and_blocks_do_not() {
    // Random walks with a short memory: neighbours are alike, no target has to do with its prediction.
    let slow = |seed| {
        let mut m = noise(300, 200, seed);
        for mut column in m.col_iter_mut() {
            (1..300).for_each(|i| column[i] += 0.9 * column[i - 1]);
        }
        m
    };
    let (y, p) = (slow(11), slow(12));
    let runs: Vec<usize> = (0..300).map(|i| i / 150).collect();
    let share = |how| {
        let found = test(&y, &p, &rearrangements(&runs, how, 499, 1).unwrap(), 64);
        found.p.iter().filter(|p| **p <= 0.05).count() as f64 / 200.0
    };
    let (free, blocks, shift) = (
        share(Rearrangement::Shuffle),
        share(Rearrangement::Blocks { length: 25 }),
        share(Rearrangement::CircularShift { least: 10 }),
    );
    assert!(free > 0.2, "{free}");
    assert!(blocks < 0.12 && shift < 0.12, "{blocks} and {shift}");
}

#[test]
fn what_is_constant_or_not_finite_is_not_tested_and_touches_no_other() {
    let (y, p) = data(40, 8);
    let orders = rearrangements(&vec![0; 40], Rearrangement::Shuffle, 99, 3).unwrap();
    let alone = test(&y, &p, &orders, 8);
    let odd = |m: &Mat<f64>, first: f64| {
        Mat::from_fn(40, 10, |i, j| match j {
            0 => first,
            1 if i == 3 => f64::NAN,
            1 => i as f64,
            _ => m[(i, j - 2)],
        })
    };
    let found = test(&odd(&y, 0.1), &odd(&p, 1.0), &orders, 10);
    for (all, own) in
        [(&found.r, &alone.r), (&found.p, &alone.p), (&found.p_family, &alone.p_family), (&found.q, &alone.q)]
    {
        assert!(all[..2].iter().all(|v| v.is_nan()));
        assert_eq!(all[2..], own[..]);
    }
}

#[test]
fn more_orders_than_there_are_and_runs_too_short_are_refused() {
    let message = |runs: &[usize], how, count| rearrangements(runs, how, count, 0).unwrap_err().to_string();
    let one = vec![0; 30];
    assert!(
        message(&one, Rearrangement::CircularShift { least: 5 }, 100).contains("there are 21 different ones")
    );
    assert!(rearrangements(&one, Rearrangement::CircularShift { least: 5 }, 21, 0).is_ok());
    assert!(message(&one, Rearrangement::Blocks { length: 30 }, 1).contains("there are 0"));
    assert!(message(&one, Rearrangement::Blocks { length: 10 }, 6).contains("there are 5"));
    assert!(message(&one, Rearrangement::CircularShift { least: 16 }, 1).contains("give at most 15"));
    assert!(message(&one, Rearrangement::Shuffle, 0).contains("0 are asked for"));
    assert!(message(&one, Rearrangement::CircularShift { least: 0 }, 1).contains("least"));
    assert!(message(&one, Rearrangement::Blocks { length: 0 }, 1).contains("length"));
    assert!(NullTest::new(vec![]).is_err() && NullTest::new(vec![vec![0, 1, 1, 2]]).is_err());
    let mut test = NullTest::new(rearrangements(&one, Rearrangement::Shuffle, 9, 0).unwrap()).unwrap();
    let (y, short) = (noise(30, 2, 1), noise(29, 2, 1));
    let e = test.add(y.as_ref(), short.as_ref()).unwrap_err();
    assert_eq!(e, Error::Samples { what: "a prediction", found: 29, expected: 30 });
    assert!(test.add(y.as_ref(), y.as_ref().subcols(0, 1)).is_err());
}

#[test]
fn one_decomposition_serves_fits_of_shuffled_responses_as_the_paper_makes_them() {
    let x = noise(120, 6, 4);
    let weights = noise(6, 10, 5);
    let mut y = &x * &weights;
    y += noise(120, 10, 6) * faer::Scale(0.1);
    let ridge =
        RidgeCv::new(x.clone(), RidgeSettings { score: voxelflow_ridge::Score::R2, ..Default::default() });
    let ridge = ridge.unwrap();
    let best = |scores: &[f64]| scores.iter().copied().fold(f64::MIN, f64::max);
    let real = best(&ridge.choose(&mut y.as_ref()).unwrap().mean_scores);
    assert!(real > 0.8, "{real}");
    for order in rearrangements(&[0; 120], Rearrangement::Shuffle, 20, 9).unwrap() {
        let mut whole = y.as_ref();
        let null = best(&ridge.choose(&mut Permuted::new(&mut whole, &order).unwrap()).unwrap().mean_scores);
        // The same as of targets that were shuffled before.
        let shuffled = Mat::from_fn(120, 10, |i, j| y[(order[i] as usize, j)]);
        assert_eq!(null, best(&ridge.choose(&mut shuffled.as_ref()).unwrap().mean_scores));
        assert!(null < 0.1, "{null}");
    }
    assert!(Permuted::new(&mut y.as_ref(), &[0, 1]).is_err());
}
