//! Is what the card computes on images right?
//!
//! usage: `image_check`: outputs and all gradients of convolutions, poolings and up-sampling of many shapes against plain
//! programs in f64, at every precision, by the kernels for any card and, where there are, by the faster ones; the same bits
//! from a second run and from a captured graph; and, on shapes of VGG, both kinds of kernels against each other.

#![allow(clippy::unwrap_used)] // a program of ours

use std::sync::Arc;
use voxelflow_cuda::{
    Card, Memory, Precision, Values,
    cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
    image::{Conv2d, Conv2dShape, Pool2d, Repeat2d},
};

#[path = "shared/images.rs"]
mod images;
#[path = "shared/mod.rs"]
mod shared;
use images::{download, upload};
use shared::Random;

fn main() {
    let card = Arc::new(Card::open(0).unwrap());
    println!("{} (compute capability {:?})", card.name(), card.capability());
    let clock = std::time::Instant::now();
    card.warm_up_images().unwrap();
    println!("kernels after {:.1} s", clock.elapsed().as_secs_f64());
    let mut wrong = 0;
    for (i, (shape, samples)) in shapes().into_iter().enumerate() {
        wrong += convolution(&card, &shape, samples, i as u64);
    }
    for (i, (window, stride, ceil, size, channels)) in pools().into_iter().enumerate() {
        wrong += pooling(&card, window, stride, ceil, size, channels, i as u64);
    }
    for (side, channels, filters, n) in
        [(224, 64, 64, 5), (56, 256, 256, 9), (14, 512, 512, 32), (28, 128, 200, 7), (112, 64, 128, 4)]
    {
        wrong += both(&card, &Conv2dShape::new(channels, filters, [3, 3], [side, side]).with_relu(true), n);
    }
    println!("{}", if wrong == 0 { "all right".into() } else { format!("{wrong} WRONG") });
    std::process::exit(i32::from(wrong > 0));
}

/// Shapes with their samples.
fn shapes() -> Vec<(Conv2dShape, usize)> {
    let new = Conv2dShape::new;
    vec![
        (new(1, 1, [3, 3], [5, 7]), 2),
        (new(3, 5, [3, 3], [9, 8]).with_relu(true), 3),
        (new(5, 3, [4, 2], [7, 6]).full(), 2),
        (new(8, 8, [1, 1], [6, 5]).with_relu(true), 4),
        (new(3, 64, [3, 3], [33, 29]).with_relu(true), 2),
        (new(3, 16, [7, 7], [20, 23]).with_stride([2, 2]).with_relu(true), 2),
        (new(16, 24, [5, 3], [12, 13]).with_stride([2, 3]), 2),
        (new(24, 130, [3, 3], [14, 14]), 2),
        // From here on with the faster kernels too.
        (new(16, 16, [3, 3], [8, 8]), 1),
        (new(64, 64, [3, 3], [16, 16]), 2),
        (new(64, 64, [3, 3], [15, 17]).with_relu(true), 3),
        (new(40, 72, [3, 3], [9, 21]).valid().with_relu(true), 3),
        (new(128, 200, [3, 3], [14, 14]).with_relu(true), 6),
        (new(72, 136, [5, 5], [7, 7]).full(), 5),
        (new(96, 64, [1, 1], [13, 11]).with_relu(true), 4),
        (new(64, 128, [2, 3], [10, 12]), 2),
        (new(256, 256, [3, 3], [4, 4]).with_relu(true), 9),
        (new(64, 64, [3, 3], [40, 56]).with_relu(true), 8),
        (new(128, 128, [3, 3], [56, 56]).with_relu(true), 12),
    ]
}

/// ‖found − expected‖ / ‖expected‖.
fn error(found: &[f32], expected: &[f64]) -> f64 {
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    (difference / expected.iter().map(|b| b * b).sum::<f64>().max(1e-300)).sqrt()
}

/// Uniform numbers as the precision keeps them.
fn noise(random: &mut Random, count: usize, values: Values) -> Vec<f32> {
    (0..count).map(|_| images::kept(random.uniform() as f32, values)).collect()
}

/// What all passes of a convolution gave.
#[derive(PartialEq)]
struct Found {
    y: Vec<f32>,
    dx: Vec<f32>,
    gradient: Vec<f32>,
}

struct Problem<'a> {
    shape: Conv2dShape,
    samples: usize,
    x: &'a [f32],
    dy: &'a [f32],
    parameters: &'a [f32],
}

/// Runs all passes: twice as they are, once from a graph; returns the first results and whether all have the same bits.
fn run(card: &Arc<Card>, conv: &mut Conv2d, problem: &Problem) -> (Found, bool) {
    let (shape, n, values) = (&problem.shape, problem.samples, images::values_of(conv));
    let nan = |count: usize| vec![f32::NAN; count];
    let x = upload(card, values, problem.x);
    let parameters = upload(card, Values::F32, problem.parameters);
    let mut y = upload(card, values, &nan(n * shape.output_values()));
    let mut dx = upload(card, values, &nan(n * shape.input_values()));
    let mut gradient = upload(card, Values::F32, &nan(problem.parameters.len()));
    let mut results = Vec::new();
    for turn in 0..3 {
        for (memory, count) in [(&mut y, n * shape.output_values()), (&mut dx, n * shape.input_values())] {
            memory.write(card, 0, &images::bytes(values, &nan(count))).unwrap();
        }
        gradient.write(card, 0, &images::bytes(Values::F32, &nan(problem.parameters.len()))).unwrap();
        let mut dy = upload(card, values, problem.dy);
        let mut passes = |dy: &mut Memory| {
            conv.set_weights(&parameters, 0).unwrap();
            conv.forward(n, &x, (&parameters, shape.weights()), &mut y).unwrap();
            let at = [0, shape.weights()];
            conv.backward(n, &x, &y, dy, Some(&mut dx), &mut gradient, at).unwrap();
        };
        if turn == 2 {
            let stream = card.stream();
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
            passes(&mut dy);
            let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
            graph.launch().unwrap();
            card.wait().unwrap();
        } else {
            passes(&mut dy);
        }
        results.push(Found {
            y: download(card, &y),
            dx: download(card, &dx),
            gradient: download(card, &gradient),
        });
    }
    let same = results.windows(2).all(|pair| pair[0] == pair[1]);
    (results.swap_remove(0), same)
}

fn convolution(card: &Arc<Card>, shape: &Conv2dShape, samples: usize, seed: u64) -> usize {
    let mut wrong = 0;
    println!("{samples} x {shape:?}");
    for (name, precision) in Precision::ALL {
        let mut random = Random(100 + seed);
        let values = precision.values();
        let x = noise(&mut random, samples * shape.input_values(), values);
        let dy = noise(&mut random, samples * shape.output_values(), values);
        let mut parameters = noise(&mut random, shape.weights(), values);
        parameters.extend(noise(&mut random, shape.filters, values));
        let problem = Problem { shape: *shape, samples, x: &x, dy: &dy, parameters: &parameters };
        let expected = images::forward(shape, samples, &x, &parameters);
        let mut kinds = vec![("any card", Conv2d::portable(card, shape, precision, samples + 1).unwrap())];
        let conv = Conv2d::new(card, shape, precision, samples + 1).unwrap();
        if conv.is_faster() {
            kinds.push(("faster", conv));
        }
        for (kind, mut conv) in kinds {
            let (found, same) = run(card, &mut conv, &problem);
            // Where ReLU cut off is as the card found it.
            let gated: Vec<f32> = if shape.relu {
                dy.iter().zip(&found.y).map(|(g, y)| if *y > 0.0 { *g } else { 0.0 }).collect()
            } else {
                dy.clone()
            };
            let (dx, gradient) = images::backward(shape, samples, &x, &parameters, &gated);
            let errors = [
                error(&found.y, &expected),
                error(&found.dx, &dx),
                error(&found.gradient[..shape.weights()], &gradient[..shape.weights()]),
                error(&found.gradient[shape.weights()..], &gradient[shape.weights()..]),
            ];
            // Outputs in bfloat16 are rounded to 8 bits; the weights' gradient has factors that bfloat16 holds exactly.
            let bounds = match precision {
                Precision::F32 => [5e-6; 4],
                Precision::Tf32 => [1e-3, 1e-3, 1e-3, 5e-6],
                Precision::Bf16 => [3e-3, 3e-3, 5e-5, 5e-6],
            };
            let good = same && errors.iter().zip(bounds).all(|(e, b)| *e < b);
            wrong += usize::from(!good);
            println!(
                "  {name:4} {kind:8} y {:.1e} dx {:.1e} dw {:.1e} db {:.1e}{}{}",
                errors[0],
                errors[1],
                errors[2],
                errors[3],
                if same { "" } else { ", other bits" },
                if good { "" } else { " WRONG" }
            );
        }
    }
    wrong
}

/// The two kinds of kernels on shapes that take too long in f64.
fn both(card: &Arc<Card>, shape: &Conv2dShape, samples: usize) -> usize {
    let mut wrong = 0;
    for (name, precision) in [("tf32", Precision::Tf32), ("bf16", Precision::Bf16)] {
        let mut conv = Conv2d::new(card, shape, precision, samples).unwrap();
        if !conv.is_faster() {
            continue;
        }
        let mut random = Random(5);
        let values = precision.values();
        let x = noise(&mut random, samples * shape.input_values(), values);
        let dy = noise(&mut random, samples * shape.output_values(), values);
        let parameters = noise(&mut random, shape.weights() + shape.filters, values);
        // The same weights' signs and ReLU's cuts: the gradients of one are those of the other.
        let shape = shape.with_relu(false);
        let problem = Problem { shape, samples, x: &x, dy: &dy, parameters: &parameters };
        conv = Conv2d::new(card, &shape, precision, samples).unwrap();
        let (found, same) = run(card, &mut conv, &problem);
        let mut other = Conv2d::portable(card, &shape, precision, samples).unwrap();
        let (expected, _) = run(card, &mut other, &problem);
        let apart = |a: &[f32], b: &[f32]| error(a, &b.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
        let errors = [
            apart(&found.y, &expected.y),
            apart(&found.dx, &expected.dx),
            apart(&found.gradient, &expected.gradient),
        ];
        let good = same && errors.iter().all(|e| *e < 3e-3);
        wrong += usize::from(!good);
        let (c, f, side) = (shape.channels, shape.filters, shape.size[0]);
        println!(
            "{samples} x {c} -> {f} on {side}, {name}: both kinds y {:.1e} dx {:.1e} gradient {:.1e}{}{}",
            errors[0],
            errors[1],
            errors[2],
            if same { "" } else { ", other bits" },
            if good { "" } else { " WRONG" }
        );
    }
    wrong
}

type Windows = ([usize; 2], [usize; 2], bool, [usize; 2], usize);

fn pools() -> Vec<Windows> {
    vec![
        ([2, 2], [2, 2], true, [5, 7], 3),
        ([2, 2], [2, 2], true, [14, 14], 64),
        ([3, 3], [2, 2], false, [11, 12], 16),
        ([3, 2], [1, 3], true, [6, 8], 1),
        ([1, 1], [1, 1], false, [4, 3], 8),
        ([16, 16], [16, 16], true, [20, 33], 5),
        ([2, 3], [4, 4], true, [9, 9], 8),
    ]
}

fn pooling(
    card: &Arc<Card>,
    window: [usize; 2],
    stride: [usize; 2],
    ceil: bool,
    size: [usize; 2],
    channels: usize,
    seed: u64,
) -> usize {
    let samples = 3;
    let pool = Pool2d::new(window, stride, ceil, size, channels).unwrap();
    let (large, small) = (samples * size[0] * size[1] * channels, samples * pool.output_values());
    let mut wrong = 0;
    for values in [Values::F32, Values::Bf16] {
        let mut random = Random(900 + seed);
        // Few different values, so that there are equal ones.
        let mut x: Vec<f32> = (0..large).map(|_| (random.next() % 7) as f32 - 3.0).collect();
        x[large / 2] = f32::NAN;
        let (a, b) = (noise(&mut random, small, values), noise(&mut random, large, values));
        let (y, switches) = images::max_pool(window, stride, size, pool.output(), channels, samples, &x);
        let nan = |count: usize| upload(card, values, &vec![f32::NAN; count]);
        let (x, mut found) = (upload(card, values, &x), nan(small));
        let mut places = Memory::of(card, Values::U8, &vec![255; small], "switches").unwrap();
        pool.forward(card, samples, &x, &mut found, &mut places).unwrap();
        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
        let mut kept = vec![0; small];
        places.read(card, 0, &mut kept).unwrap();
        let mut good = [true; 5];
        good[0] = same(&download(card, &found), &y) && kept == switches;
        let mut wide = nan(large);
        pool.unpool(card, samples, &upload(card, values, &a), &places, &mut wide).unwrap();
        let expected =
            images::unpool(window, stride, size, pool.output(), channels, samples, &a, &switches, values);
        good[1] = same(&download(card, &wide), &expected);
        let mut back = nan(small);
        pool.unpool_backward(card, samples, &upload(card, values, &b), &places, &mut back).unwrap();
        let expected = images::pick(window, stride, size, pool.output(), channels, samples, &b, &switches);
        good[2] = same(&download(card, &back), &expected);
        let repeat = Repeat2d::new(window, pool.output(), size, channels).unwrap();
        let mut wide = nan(large);
        repeat.forward(card, samples, &upload(card, values, &a), &mut wide).unwrap();
        let (expected, sums) = images::repeat(window, size, pool.output(), channels, samples, &a, &b);
        good[3] = same(&download(card, &wide), &expected);
        let mut back = nan(small);
        repeat.backward(card, samples, &upload(card, values, &b), &mut back).unwrap();
        good[4] = error(&download(card, &back), &sums) < if values == Values::F32 { 1e-6 } else { 3e-3 };
        let right = good.iter().all(|g| *g);
        wrong += usize::from(!right);
        println!(
            "windows {window:?} by {stride:?} on {size:?}, {channels} channels, {values:?}: {}",
            if right { "right".into() } else { format!("WRONG {good:?}") }
        );
    }
    wrong
}
