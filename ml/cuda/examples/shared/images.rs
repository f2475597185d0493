//! What the programs about images share: buffers, and plain programs in f64.

#![allow(dead_code)] // each program uses some of it
#![allow(clippy::unwrap_used, clippy::too_many_arguments)] // programs of ours

use std::sync::Arc;
use voxelflow_cuda::{
    Card, Memory, Values,
    image::{Conv2d, Conv2dShape},
};

/// A number as a buffer of `values` keeps it.
pub fn kept(v: f32, values: Values) -> f32 {
    match values {
        Values::Bf16 => f32::from_bits(u32::from(half(v)) << 16),
        _ => v,
    }
}

/// bfloat16, to the nearest, ties to even.
fn half(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return 0x7fff;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

pub fn bytes(values: Values, numbers: &[f32]) -> Vec<u8> {
    match values {
        Values::Bf16 => numbers.iter().flat_map(|v| half(*v).to_le_bytes()).collect(),
        _ => numbers.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

pub fn upload(card: &Arc<Card>, values: Values, numbers: &[f32]) -> Memory {
    Memory::of(card, values, &bytes(values, numbers), "numbers").unwrap()
}

pub fn download(card: &Arc<Card>, memory: &Memory) -> Vec<f32> {
    let mut bytes = vec![0; memory.bytes()];
    memory.read(card, 0, &mut bytes).unwrap();
    match memory.kind() {
        Values::Bf16 => {
            let pairs = bytes.as_chunks::<2>().0.iter();
            pairs.map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16)).collect()
        }
        _ => bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
    }
}

pub fn values_of(conv: &Conv2d) -> Values {
    conv.precision().values()
}

/// The input's line or column that tap `k` of point `i` meets.
fn met(shape: &Conv2dShape, axis: usize, i: usize, k: usize) -> Option<usize> {
    let at = (i * shape.stride[axis] + k).checked_sub(shape.before[axis])?;
    (at < shape.size[axis]).then_some(at)
}

/// Calls `work` with each sample's number on threads, and collects what it gives.
fn by_sample<T: Send>(samples: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..samples).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Weights as `[tap][channel][filter]`.
fn turned(shape: &Conv2dShape, parameters: &[f32]) -> Vec<f64> {
    let taps = shape.kernel[0] * shape.kernel[1];
    let mut w = vec![0.0; shape.weights()];
    for o in 0..shape.filters {
        for c in 0..shape.channels {
            for t in 0..taps {
                w[(t * shape.channels + c) * shape.filters + o] =
                    f64::from(parameters[(o * shape.channels + c) * taps + t]);
            }
        }
    }
    w
}

/// Where tap and point meet: (point, place of the input, tap).
fn meetings(shape: &Conv2dShape) -> Vec<(usize, usize, usize)> {
    let [height, width] = shape.output();
    let mut all = Vec::new();
    for i in 0..height {
        for j in 0..width {
            for k in 0..shape.kernel[0] {
                for l in 0..shape.kernel[1] {
                    if let (Some(p), Some(q)) = (met(shape, 0, i, k), met(shape, 1, j, l)) {
                        all.push((i * width + j, p * shape.size[1] + q, k * shape.kernel[1] + l));
                    }
                }
            }
        }
    }
    all
}

pub fn forward(shape: &Conv2dShape, samples: usize, x: &[f32], parameters: &[f32]) -> Vec<f64> {
    let (w, meetings) = (turned(shape, parameters), meetings(shape));
    let (c, f) = (shape.channels, shape.filters);
    let bias: Vec<f64> = parameters[shape.weights()..].iter().map(|v| f64::from(*v)).collect();
    let all = by_sample(samples, |n| {
        let x = &x[n * shape.input_values()..];
        let mut y: Vec<f64> = bias.iter().copied().cycle().take(shape.output_values()).collect();
        for (point, place, tap) in &meetings {
            let y = &mut y[point * f..(point + 1) * f];
            for channel in 0..c {
                let v = f64::from(x[place * c + channel]);
                let w = &w[(tap * c + channel) * f..][..f];
                y.iter_mut().zip(w).for_each(|(y, w)| *y += v * w);
            }
        }
        if shape.relu {
            y.iter_mut().for_each(|y| *y = y.max(0.0));
        }
        y
    });
    all.concat()
}

/// The gradients of the input, and of weights and bias in their order.
pub fn backward(
    shape: &Conv2dShape,
    samples: usize,
    x: &[f32],
    parameters: &[f32],
    dy: &[f32],
) -> (Vec<f64>, Vec<f64>) {
    let (w, meetings) = (turned(shape, parameters), meetings(shape));
    let (c, f, taps) = (shape.channels, shape.filters, shape.kernel[0] * shape.kernel[1]);
    let all = by_sample(samples, |n| {
        let x = &x[n * shape.input_values()..];
        let dy: Vec<f64> =
            dy[n * shape.output_values()..][..shape.output_values()].iter().map(|v| f64::from(*v)).collect();
        let (mut dx, mut dw, mut db) = (vec![0.0; shape.input_values()], vec![0.0; w.len()], vec![0.0; f]);
        for (point, place, tap) in &meetings {
            let g = &dy[point * f..(point + 1) * f];
            for channel in 0..c {
                let (v, at) = (f64::from(x[place * c + channel]), (tap * c + channel) * f);
                let w = &w[at..at + f];
                dx[place * c + channel] += w.iter().zip(g).map(|(w, g)| w * g).sum::<f64>();
                dw[at..at + f].iter_mut().zip(g).for_each(|(dw, g)| *dw += v * g);
            }
        }
        dy.chunks(f).for_each(|g| db.iter_mut().zip(g).for_each(|(db, g)| *db += g));
        (dx, dw, db)
    });
    let mut gradient = vec![0.0; shape.weights() + f];
    let mut dx = Vec::new();
    for (part, dw, db) in all {
        dx.extend(part);
        for o in 0..f {
            for channel in 0..c {
                for t in 0..taps {
                    gradient[(o * c + channel) * taps + t] += dw[(t * c + channel) * f + o];
                }
            }
            gradient[shape.weights() + o] += db[o];
        }
    }
    (dx, gradient)
}

fn place(size: [usize; 2], channels: usize, n: usize, i: usize, j: usize, c: usize) -> usize {
    ((n * size[0] + i) * size[1] + j) * channels + c
}

/// Calls `each` with sample, line, column and channel of images of `size`.
fn every(
    size: [usize; 2],
    channels: usize,
    samples: usize,
    mut each: impl FnMut(usize, usize, usize, usize),
) {
    for n in 0..samples {
        for i in 0..size[0] {
            for j in 0..size[1] {
                (0..channels).for_each(|c| each(n, i, j, c));
            }
        }
    }
}

pub fn max_pool(
    window: [usize; 2],
    stride: [usize; 2],
    size: [usize; 2],
    pooled: [usize; 2],
    channels: usize,
    samples: usize,
    x: &[f32],
) -> (Vec<f32>, Vec<u8>) {
    let (mut y, mut switches) = (Vec::new(), Vec::new());
    every(pooled, channels, samples, |n, i, j, c| {
        let (mut best, mut at) = (f32::NEG_INFINITY, 0);
        let mut first = true;
        for k in 0..window[0].min(size[0] - i * stride[0]) {
            for l in 0..window[1].min(size[1] - j * stride[1]) {
                let v = x[place(size, channels, n, i * stride[0] + k, j * stride[1] + l, c)];
                if first || v > best || v.is_nan() && !best.is_nan() {
                    (best, at, first) = (v, k * window[1] + l, false);
                }
            }
        }
        y.push(best);
        switches.push(at as u8);
    });
    (y, switches)
}

pub fn unpool(
    window: [usize; 2],
    stride: [usize; 2],
    size: [usize; 2],
    pooled: [usize; 2],
    channels: usize,
    samples: usize,
    x: &[f32],
    switches: &[u8],
    values: Values,
) -> Vec<f32> {
    let mut y = vec![0.0; samples * size[0] * size[1] * channels];
    every(pooled, channels, samples, |n, i, j, c| {
        let from = place(pooled, channels, n, i, j, c);
        let at = usize::from(switches[from]);
        let (line, column) = (i * stride[0] + at / window[1], j * stride[1] + at % window[1]);
        y[place(size, channels, n, line, column, c)] += x[from];
    });
    y.iter().map(|v| kept(*v, values)).collect()
}

pub fn pick(
    window: [usize; 2],
    stride: [usize; 2],
    size: [usize; 2],
    pooled: [usize; 2],
    channels: usize,
    samples: usize,
    dy: &[f32],
    switches: &[u8],
) -> Vec<f32> {
    let mut dx = Vec::new();
    every(pooled, channels, samples, |n, i, j, c| {
        let at = usize::from(switches[place(pooled, channels, n, i, j, c)]);
        let (line, column) = (i * stride[0] + at / window[1], j * stride[1] + at % window[1]);
        dx.push(dy[place(size, channels, n, line, column, c)]);
    });
    dx
}

/// Repetition of `x`, and its gradient of `dy`.
pub fn repeat(
    window: [usize; 2],
    size: [usize; 2],
    pooled: [usize; 2],
    channels: usize,
    samples: usize,
    x: &[f32],
    dy: &[f32],
) -> (Vec<f32>, Vec<f64>) {
    let (mut y, mut dx) = (Vec::new(), vec![0.0; x.len()]);
    every(size, channels, samples, |n, i, j, c| {
        let (line, column) = ((i / window[0]).min(pooled[0] - 1), (j / window[1]).min(pooled[1] - 1));
        let from = place(pooled, channels, n, line, column, c);
        y.push(x[from]);
        dx[from] += f64::from(dy[place(size, channels, n, i, j, c)]);
    });
    (y, dx)
}
