//! How fast the paper's autoencoder (284 time points, 6,020,381 parameters, Adagrad) trains on this machine's cards.
//!
//! usage: `card_speed …`
//! - `steps PRECISION SWITCHES MINIBATCH SECONDS [CARDS]`: series/s of training steps with their feed from this process's
//!   memory, and memory in use, as one line of JSON. For `integration-tests/bench/card_step.py`. CARDS is 0, or 0,1 and so on.
//! - `cards PRECISION SECONDS CARDS…`: series/s of minibatches of 1600, 3200 and 6400 on each of these sets of cards (0 0,1),
//!   beside the first of them, and how long the exchange of gradients takes alone.
//! - `operations PRECISION MINIBATCH`: every product of a step, beside what the card reaches.
//! - `parts PRECISION MINIBATCH`: the filters' gradients by the number of parts of their sums.
//! - `together PRECISION MINIBATCH`: convolutions by the number of points that a row of their products has.
//! - `once PRECISION MINIBATCH`: one gradient, for a profiler.
//! - `cold`: seconds until the first step is done, as one line of JSON.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a program of ours

use std::{sync::Arc, time::Instant};
use voxelflow_cuda::{Card, Conv1d, Memory, Precision, Rates, Replicas, Rule};

#[path = "shared/mod.rs"]
mod shared;
use shared::{initial, paper, series};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["steps", precision, switches, minibatch, seconds, ref cards @ ..] => {
            let (n, switches) = (minibatch.parse().unwrap(), switches == "switches");
            let mut model = model(named(precision), switches, n, cards.first().unwrap_or(&"0"));
            let [least, middle, most] = steps(&mut model, n, seconds.parse().unwrap());
            let (free, total) = model.replicas()[0].card().memory().unwrap();
            println!(
                "{{\"series_per_second\": {middle:.0}, \"least\": {least:.0}, \"most\": {most:.0}, \"mib\": {}}}",
                (total - free) >> 20
            );
        }
        ["cards", precision, seconds, ref sets @ ..] => {
            cards(named(precision), seconds.parse().unwrap(), sets);
        }
        ["operations", precision, minibatch] => operations(named(precision), minibatch.parse().unwrap()),
        ["parts", precision, minibatch] => parts(named(precision), minibatch.parse().unwrap()),
        ["together", precision, minibatch] => together(named(precision), minibatch.parse().unwrap()),
        ["once", precision, minibatch] => {
            let n: usize = minibatch.parse().unwrap();
            let mut model = model(named(precision), true, n, "0");
            let mut gradient = vec![0.0; model.shape().parameters()];
            let x = series(n);
            println!("{}", model.gradient(&x, &mut gradient).unwrap());
            println!("{}", model.gradient(&x, &mut gradient).unwrap());
        }
        ["cold"] => cold(),
        _ => panic!("see the head of this program for its usage"),
    }
}

fn named(name: &str) -> Precision {
    Precision::ALL.into_iter().find(|(n, _)| *n == name).expect("f32, tf32 or bf16").1
}

fn model(precision: Precision, switches: bool, samples: usize, cards: &str) -> Replicas {
    let ordinals: Vec<usize> = cards.split(',').map(|n| n.parse().unwrap()).collect();
    let cards = Card::open_all(&ordinals).unwrap();
    let shape = paper(switches);
    let mut model = Replicas::new(&cards, &shape, precision, samples, Some(Rule::Adagrad)).unwrap();
    model.set_parameters(&initial(&shape)).unwrap();
    model
}

fn rates(step: u64) -> Rates {
    Rates { learning_rate: 1e-3, epsilon: 1e-10, momentum: 0.9, beta_2: 0.999, mean: true, step }
}

/// Series/s of five parts of `seconds`: the least, the middle and the most.
fn steps(model: &mut Replicas, n: usize, seconds: f64) -> [f64; 3] {
    // Other series every step, from memory that is no cache's.
    let pool = series(4096);
    let values = n * 284;
    let mut at = 0;
    let mut run = |model: &mut Replicas, count: usize| {
        for step in 0..count {
            let into = &mut model.minibatch().unwrap()[..values];
            for chunk in into.chunks_mut(284 * 256) {
                at = if at + chunk.len() > pool.len() { 0 } else { at };
                chunk.copy_from_slice(&pool[at..at + chunk.len()]);
                at += chunk.len();
            }
            model.train(n, &rates(step as u64 + 1)).unwrap();
        }
        model.take_losses().unwrap()
    };
    run(model, 5);
    let clock = Instant::now();
    run(model, 10);
    let count = ((seconds / 5.0) / (clock.elapsed().as_secs_f64() / 10.0)).ceil() as usize;
    let mut speeds = Vec::new();
    for _ in 0..5 {
        let clock = Instant::now();
        let loss = run(model, count);
        assert!(loss.is_finite());
        speeds.push((count * n) as f64 / clock.elapsed().as_secs_f64());
    }
    speeds.sort_by(f64::total_cmp);
    [speeds[0], speeds[2], speeds[4]]
}

fn cards(precision: Precision, seconds: f64, sets: &[&str]) {
    for n in [1600, 3200, 6400] {
        let mut first = None;
        for set in sets {
            let mut model = model(precision, true, n, set);
            let [least, middle, most] = steps(&mut model, n, seconds);
            let one = *first.get_or_insert(middle);
            print!(
                "minibatch {n} in {} on {set}: {middle:.0} series/s ({least:.0} to {most:.0}), {:.2} times",
                precision.name(),
                middle / one
            );
            if let Some(exchange) = model.measure_exchange(200).unwrap() {
                print!(
                    "; exchange alone {:.0} us, {:.0} GB/s received, connected: {}",
                    1e6 * exchange.seconds,
                    exchange.bytes / exchange.seconds / 1e9,
                    model.connected()
                );
            }
            println!();
        }
    }
}

fn operations(precision: Precision, n: usize) {
    let mut model = model(precision, true, n, "0");
    model.loss(&series(n)).unwrap();
    let mut gradient = vec![0.0; model.shape().parameters()];
    model.gradient(&series(n), &mut gradient).unwrap();
    let model = &model.replicas()[0];
    let ceilings = model.card().ceilings(precision).unwrap();
    let (most_operations, most_bytes) =
        (ceilings[0].operations / ceilings[0].seconds, ceilings[1].bytes / ceilings[1].seconds);
    println!(
        "minibatch {n}, {}; ceilings: {:.0} TFLOP/s, {:.0} GB/s",
        precision.name(),
        most_operations / 1e12,
        most_bytes / 1e9
    );
    for row in model.measure(20).unwrap() {
        let (o, b) = (row.operations / row.seconds, row.bytes / row.seconds);
        println!(
            "  {:28} {:8.1} us {:6.0} TFLOP/s ({:3.0} %) {:6.0} GB/s ({:3.0} %)",
            row.name,
            1e6 * row.seconds,
            o / 1e12,
            100.0 * o / most_operations,
            b / 1e9,
            100.0 * b / most_bytes
        );
    }
}

/// Length, channels, filters of the convolutions between series of many channels.
const LAYERS: [(usize, usize, usize); 6] =
    [(142, 32, 64), (71, 64, 128), (36, 128, 256), (36, 256, 128), (71, 128, 64), (142, 64, 32)];

/// Values that are not zero.
fn noise(card: &Card, precision: Precision, values: usize) -> Memory {
    let kind = precision.values();
    let bytes = shared::series(64);
    let bytes: Vec<u8> = bytes.iter().flat_map(|v| (v.to_bits() as u16 | 0x3c00).to_le_bytes()).collect();
    let bytes: Vec<u8> = bytes.iter().copied().cycle().take(values * kind.size()).collect();
    Memory::of(card, kind, &bytes, "noise").unwrap()
}

fn parts(precision: Precision, n: usize) {
    let card = Card::open(0).unwrap();
    for (length, channels, filters) in LAYERS {
        let conv = Conv1d { samples: n, length, channels, filters, kernel: 9 };
        let noise = |channels: usize| noise(&card, precision, conv.padded_rows() * channels);
        let (x, dy) = (noise(channels), noise(filters));
        print!("{length:4} x {channels:3} -> {filters:3}:");
        for phases in [9, 12, 16, 22, 32, 44, 66, 88, 132] {
            let product = conv.weight_gradient(phases);
            let to =
                Memory::zeros(&card, voxelflow_cuda::Values::F32, phases * conv.weights(), "parts").unwrap();
            let seconds = card.time(20, || product.run(&card, precision, &x, &dy, &to)).unwrap();
            print!("  {phases}: {:.0} us", 1e6 * seconds);
        }
        println!();
    }
}

fn together(precision: Precision, n: usize) {
    let card = Card::open(0).unwrap();
    for (length, channels, filters) in LAYERS {
        let conv = Conv1d { samples: n, length, channels, filters, kernel: 9 };
        let x = noise(&card, precision, conv.padded_rows() * channels);
        let y =
            Memory::zeros(&card, precision.values(), conv.output_rows() * filters, "activations").unwrap();
        print!("{length:4} x {channels:3} -> {filters:3}:");
        for together in [1, 2, 3, 4, 5, 6, 8, 10, 12] {
            let w = noise(&card, precision, conv.spread(together));
            let product = conv.forward(together);
            let seconds = card.time(20, || product.run(&card, precision, &x, &w, &y)).unwrap();
            print!("  {together}: {:.1} us", 1e6 * seconds);
        }
        println!();
    }
}

fn cold() {
    let clock = Instant::now();
    let card = Arc::new(Card::open(0).unwrap());
    let opened = clock.elapsed().as_secs_f64();
    card.warm_up().unwrap();
    let compiled = clock.elapsed().as_secs_f64();
    let shape = paper(true);
    let mut model = Replicas::new(&[card], &shape, Precision::Bf16, 1600, Some(Rule::Adagrad)).unwrap();
    model.set_parameters(&vec![0.01; shape.parameters()]).unwrap();
    let built = clock.elapsed().as_secs_f64();
    model.minibatch().unwrap().fill(0.5);
    model.train(1600, &rates(1)).unwrap();
    let loss = model.take_losses().unwrap();
    let done = clock.elapsed().as_secs_f64();
    println!(
        "{{\"opened\": {opened:.2}, \"compiled\": {compiled:.2}, \"built\": {built:.2}, \"first_step\": {done:.2}, \"loss\": {loss:.1}}}"
    );
}
