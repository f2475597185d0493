//! What the programs about cards share: the paper's shape, data, and a plain autoencoder in f64.

#![allow(dead_code)] // each program uses some of it

use voxelflow_cuda::{Activation, AutoencoderShape};

/// Numbers by SplitMix64 (Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between −1 and 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

pub fn paper(switches: bool) -> AutoencoderShape {
    AutoencoderShape {
        time_points: 284,
        filters: vec![32, 64, 128, 256],
        kernels: vec![21, 9, 9, 9],
        pools: 3,
        window: 2,
        switches,
        hidden: 284,
        activation: Activation::Relu,
        lambda: 0.006,
    }
}

/// z-scored series of the paper's length: a few slow waves and noise.
pub fn series(samples: usize) -> Vec<f32> {
    let mut random = Random(11);
    let mut all = Vec::with_capacity(samples * 284);
    for _ in 0..samples {
        let waves: Vec<[f64; 3]> =
            (0..3).map(|_| [random.uniform(), 0.15 * random.uniform(), 3.0 * random.uniform()]).collect();
        let values: Vec<f64> = (0..284)
            .map(|t| {
                let sum: f64 = waves.iter().map(|[a, w, p]| a * (w * t as f64 + p).sin()).sum();
                sum + 0.6 * (random.uniform() + random.uniform())
            })
            .collect();
        let mean = values.iter().sum::<f64>() / 284.0;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 284.0).sqrt();
        all.extend(values.iter().map(|v| ((v - mean) / deviation) as f32));
    }
    all
}

/// Parameters to start from, in the order of declaration: uniform within ±1/√inputs, as PyTorch does.
pub fn initial(shape: &AutoencoderShape) -> Vec<f32> {
    let mut random = Random(5);
    let mut all = Vec::with_capacity(shape.parameters());
    let channels = shape.channels();
    let mut layer = |inputs: usize, weights: usize, biases: usize| {
        let bound = 1.0 / (inputs as f64).sqrt();
        all.extend((0..weights + biases).map(|_| (bound * random.uniform()) as f32));
    };
    let layers = shape.filters.len();
    for i in 0..layers {
        let (c, o, k) = (channels[i], channels[i + 1], shape.kernels[i]);
        layer(c * k, c * o * k, o);
    }
    let features = shape.features();
    layer(features, features * shape.hidden, shape.hidden);
    layer(shape.hidden, features * shape.hidden, features);
    for i in (0..layers).rev() {
        let (c, o, k) = (channels[i + 1], channels[i], shape.kernels[i]);
        layer(c * k, c * o * k, o);
    }
    all
}

fn activate(kind: Activation, v: f64) -> f64 {
    match kind {
        Activation::Relu => v.max(0.0),
        Activation::LeakyRelu => v.max(0.01 * v),
        Activation::Tanh => v.tanh(),
        Activation::Linear => v,
    }
}

/// Takes so many values from the front.
fn take<'a>(values: &mut &'a [f64], n: usize) -> &'a [f64] {
    let (front, rest) = values.split_at(n);
    *values = rest;
    front
}

/// `x` `[channels][length]` → `[filters][length]`, by definition.
fn convolve(x: &[f64], w: &[f64], b: &[f64], channels: usize, kernel: usize) -> Vec<f64> {
    let length = x.len() / channels;
    let before = (kernel - 1) / 2;
    let mut y = Vec::with_capacity(b.len() * length);
    for (o, bias) in b.iter().enumerate() {
        for t in 0..length {
            let mut sum = *bias;
            for c in 0..channels {
                for k in 0..kernel {
                    if let Some(from) = (t + k).checked_sub(before)
                        && from < length
                    {
                        sum += w[(o * channels + c) * kernel + k] * x[c * length + from];
                    }
                }
            }
            y.push(sum);
        }
    }
    y
}

/// The loss summed over series, as the definition has it.
pub fn plain_loss(shape: &AutoencoderShape, parameters: &[f64], series: &[f64]) -> f64 {
    series.chunks(shape.time_points).map(|x| plain_loss_of_one(shape, parameters, x)).sum()
}

fn plain_loss_of_one(shape: &AutoencoderShape, parameters: &[f64], series: &[f64]) -> f64 {
    let mut rest = parameters;
    let (channels, lengths, layers) = (shape.channels(), shape.lengths(), shape.filters.len());
    let mut z = series.to_vec();
    let mut switches: Vec<Vec<usize>> = Vec::new();
    for i in 0..layers {
        let (c, o, k) = (channels[i], channels[i + 1], shape.kernels[i]);
        let (w, b) = (take(&mut rest, c * o * k), take(&mut rest, o));
        let y: Vec<f64> =
            convolve(&z, w, b, c, k).into_iter().map(|v| activate(shape.activation, v)).collect();
        let window = if i < shape.pools { shape.window } else { 1 };
        let (mut pooled, mut places) = (Vec::new(), Vec::new());
        for map in y.chunks(lengths[i]) {
            for points in map.chunks(window) {
                let mut best = 0;
                for q in 1..points.len() {
                    if points[q] > points[best] {
                        best = q;
                    }
                }
                pooled.push(points[best]);
                places.push(best);
            }
        }
        z = pooled;
        switches.push(places);
    }
    let features = z.len();
    let (w, b) = (take(&mut rest, features * shape.hidden), take(&mut rest, shape.hidden));
    let hidden: Vec<f64> = (0..shape.hidden)
        .map(|h| b[h] + (0..features).map(|f| z[f] * w[f * shape.hidden + h]).sum::<f64>())
        .collect();
    let (w, b) = (take(&mut rest, features * shape.hidden), take(&mut rest, features));
    let top: Vec<f64> = (0..features)
        .map(|f| b[f] + (0..shape.hidden).map(|h| hidden[h] * w[h * features + f]).sum::<f64>())
        .collect();
    let mut y = top.clone();
    for i in (0..layers).rev() {
        let (c, o, k) = (channels[i + 1], channels[i], shape.kernels[i]);
        if i < shape.pools {
            let (from, to) = (lengths[i + 1], lengths[i]);
            let mut wide = vec![0.0; c * to];
            for map in 0..c {
                for p in 0..from {
                    for q in 0..shape.window.min(to - p * shape.window) {
                        if !shape.switches || switches[i][map * from + p] == q {
                            wide[map * to + p * shape.window + q] = y[map * from + p];
                        }
                    }
                }
            }
            y = wide;
        }
        let (w, b) = (take(&mut rest, c * o * k), take(&mut rest, o));
        y = convolve(&y, w, b, c, k);
        if i > 0 {
            y.iter_mut().for_each(|v| *v = activate(shape.activation, *v));
        }
    }
    let squares = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    0.5 * squares(series, &y) + 0.5 * f64::from(shape.lambda) * squares(&z, &top)
}
