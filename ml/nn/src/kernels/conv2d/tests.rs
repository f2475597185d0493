//! Convolutions of images against their definitions, term by term.
#![allow(clippy::unwrap_used)]

use super::{operation::Convolution2d, *};
use crate::layers::gradient_check::ramp;

const SAMPLES: usize = 3;

fn shapes() -> impl Iterator<Item = Conv2dShape> {
    let sides = [[3, 5], [1, 1], [33, 2], [2, 34], [40, 40]];
    let images = [([3, 3], [5, 6]), ([1, 1], [4, 3]), ([2, 3], [7, 4]), ([5, 4], [9, 5]), ([3, 1], [3, 8])];
    let strides = [[1, 1], [2, 2], [3, 1], [1, 4]];
    sides.into_iter().flat_map(move |[channels, filters]| {
        images.into_iter().flat_map(move |(kernel, size)| {
            strides.into_iter().flat_map(move |stride| {
                let most: [usize; 2] = kernel.map(|k| k - 1);
                let same = (most.map(|m| m / 2), kernel.map(|k| k / 2));
                [same, ([0, 0], [0, 0]), (most, most), ([1, 0], [0, 2])].map(|(before, after)| Conv2dShape {
                    channels,
                    filters,
                    kernel,
                    stride,
                    size,
                    before,
                    after,
                })
            })
        })
    })
}

/// Every product that the definition names: places in x, w and y.
fn terms(shape: &Conv2dShape, samples: usize, mut term: impl FnMut(usize, usize, usize)) {
    let ([height, width], [kh, kw]) = (shape.output(), shape.kernel);
    let at = |i: usize, s: usize, k: usize, before: usize, size: usize| {
        (i * s + k).checked_sub(before).filter(|at| *at < size)
    };
    for (n, o) in (0..samples).flat_map(|n| (0..shape.filters).map(move |o| (n, o))) {
        for (i, j) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))) {
            for (k, l) in (0..kh).flat_map(|k| (0..kw).map(move |l| (k, l))) {
                let line = at(i, shape.stride[0], k, shape.before[0], shape.size[0]);
                let column = at(j, shape.stride[1], l, shape.before[1], shape.size[1]);
                let Some((line, column)) = line.zip(column) else { continue };
                for c in 0..shape.channels {
                    let x = ((n * shape.channels + c) * shape.size[0] + line) * shape.size[1] + column;
                    let w = ((o * shape.channels + c) * kh + k) * kw + l;
                    term(x, w, ((n * shape.filters + o) * height + i) * width + j);
                }
            }
        }
    }
}

fn close(what: &str, found: &[f64], expected: &[f64], shape: &Conv2dShape) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() < 1e-11, "{what}[{i}]: {a} != {b}, {shape:?}");
    }
}

#[test]
fn output_and_gradients_equal_their_definitions() {
    let mut seen = 0;
    for (i, shape) in shapes().enumerate() {
        let [height, width] = shape.output();
        let outputs = SAMPLES * shape.filters * height * width;
        let relu = i % 2 == 0;
        let x = ramp(SAMPLES * shape.channels * shape.size[0] * shape.size[1], 1);
        let (w, b, dy) = (ramp(shape.weights(), 2), ramp(shape.filters, 3), ramp(outputs, 4));
        let of = |i: usize| i / (height * width) % shape.filters;
        let mut operation = Convolution2d::new(shape, relu);
        // Twice: nothing of the first time is left.
        for _ in 0..2 {
            let mut y = vec![9.0; outputs];
            operation.forward(&x, &w, &b, &mut y);
            let mut expected: Vec<f64> = (0..outputs).map(|i| b[of(i)]).collect();
            terms(&shape, SAMPLES, |xi, wi, yi| expected[yi] += w[wi] * x[xi]);
            if relu {
                expected.iter_mut().for_each(|y| *y = y.max(0.0));
            }
            close("y", &y, &expected, &shape);

            let (mut dx, mut dw, mut db) = (vec![9.0; x.len()], vec![9.0; w.len()], vec![9.0; b.len()]);
            operation.backward([&x, &w, &y, &dy], Some(&mut dx), &mut dw, &mut db);
            let masked = |i: usize| if relu && y[i] <= 0.0 { 0.0 } else { dy[i] };
            let mut expected = vec![0.0; x.len()];
            terms(&shape, SAMPLES, |xi, wi, yi| expected[xi] += w[wi] * masked(yi));
            close("dx", &dx, &expected, &shape);
            let mut expected = vec![0.0; w.len()];
            terms(&shape, SAMPLES, |xi, wi, yi| expected[wi] += x[xi] * masked(yi));
            close("dw", &dw, &expected, &shape);
            let mut expected = vec![0.0; b.len()];
            (0..outputs).for_each(|i| expected[of(i)] += masked(i));
            close("db", &db, &expected, &shape);
            seen += outputs;
        }
    }
    assert!(seen > 100_000, "{seen} outputs");
}

/// Output and gradients in f32, as bits.
fn bits(shape: Conv2dShape, samples: usize) -> Vec<u32> {
    let [height, width] = shape.output();
    let outputs = samples * shape.filters * height * width;
    let f32s = |n, seed| ramp(n, seed).into_iter().map(|v| v as f32).collect::<Vec<_>>();
    let x = f32s(samples * shape.channels * shape.size[0] * shape.size[1], 1);
    let (w, b, dy) = (f32s(shape.weights(), 2), f32s(shape.filters, 3), f32s(outputs, 4));
    let mut operation = Convolution2d::new(shape, true);
    let (mut y, mut dx) = (vec![9.0; outputs], vec![9.0; x.len()]);
    let (mut dw, mut db) = (vec![9.0; w.len()], vec![9.0; b.len()]);
    operation.forward(&x, &w, &b, &mut y);
    operation.backward([&x, &w, &y, &dy], Some(&mut dx), &mut dw, &mut db);
    [y, dx, dw, db].concat().into_iter().map(f32::to_bits).collect()
}

#[test]
fn equal_bits_whatever_the_number_of_threads() {
    for (channels, filters, size, samples) in
        [(3, 40, [37, 61], 2), (64, 33, [14, 14], 5), (40, 2, [1, 1], 9)]
    {
        let (kernel, stride, one) = ([3, 3], [1, 1], [1, 1]);
        let shape = Conv2dShape { channels, filters, kernel, stride, size, before: one, after: one };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| bits(shape, samples))
        };
        let one = with(1);
        assert!(one.iter().filter(|bits| **bits != 0).count() > one.len() / 4);
        for threads in [2, 3, 7] {
            assert_eq!(one, with(threads), "{threads} threads");
        }
    }
}

#[test]
fn no_samples_give_no_output_and_no_gradient() {
    let (kernel, one) = ([3, 3], [1, 1]);
    let shape =
        Conv2dShape { channels: 2, filters: 3, kernel, stride: one, size: [4, 4], before: one, after: one };
    let mut operation = Convolution2d::new(shape, true);
    let w = ramp(shape.weights(), 1);
    operation.forward(&[], &w, &[1.0; 3], &mut []);
    let (mut dw, mut db) = (vec![9.0; w.len()], vec![9.0; 3]);
    operation.backward([&[], &w, &[], &[]], Some(&mut []), &mut dw, &mut db);
    assert!(dw.iter().chain(&db).all(|g| *g == 0.0));
}
