//! How long operations take here: ours of `integration-tests/bench/operations.py`, which asks for one a line.
//!
//! usage: `cargo run -p voxelflow-nn --example operation_speed < LINES`, with lines such as
//! `{"operation": "conv2d", "n": 2, "channels": 64, "filters": 64, "size": [56, 56], "kernel": [3, 3], "pass": "forward",
//! "seconds": 0.5}`; the answer to each is the shortest time of a call, in seconds (with `"processor": true` the mean processor time).

use burn::{
    module::Param,
    tensor::{Device, Tensor, TensorData},
};
use serde::Deserialize;
use std::{error::Error, hint::black_box, io::BufRead, time::Instant};
use voxelflow_nn::{
    layers::{Activation, Conv1d},
    operations::{Conv2d, Conv2dConfig, MaxPool2d, upsample2d, upsample2d_backward},
};
use voxelflow_sync::{Optimizer, OptimizerKind, OptimizerSettings};

/// An operation, its shape, and for how long it is repeated.
#[derive(Deserialize)]
#[serde(default)]
struct Asked {
    operation: String,
    /// `forward`, or `training`: forward and all gradients.
    pass: String,
    n: usize,
    channels: usize,
    filters: usize,
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    /// Whether the gradient of the input is one of them.
    input_gradient: bool,
    seconds: f64,
    /// Count the processor's seconds rather than those that pass, and take the mean: for a machine that has other work.
    processor: bool,
}

impl Default for Asked {
    fn default() -> Self {
        let one = [1, 1];
        let (operation, pass) = (String::new(), "forward".into());
        Self {
            operation,
            pass,
            n: 1,
            channels: 1,
            filters: 1,
            size: one,
            kernel: one,
            stride: one,
            input_gradient: true,
            seconds: 0.5,
            processor: false,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let asked: Asked = serde_json::from_str(&line?)?;
        let seconds = match asked.operation.as_str() {
            "conv1d" => conv1d(&asked),
            "conv2d" => conv2d(&asked),
            "max_pool2d" => max_pool2d(&asked),
            "unpool2d" => unpool2d(&asked),
            "upsample2d" => upsampling(&asked),
            "adagrad" => optimizer(&asked, OptimizerKind::Adagrad),
            "sgd" => optimizer(&asked, OptimizerKind::Sgd),
            "adam" => optimizer(&asked, OptimizerKind::Adam),
            "gemm" => gemm(&asked),
            "triad" => triad(&asked),
            other => return Err(format!("no operation `{other}`").into()),
        };
        println!("{seconds}");
    }
    Ok(())
}

/// The shortest of some calls, after one that is not counted.
fn shortest(asked: &Asked, mut call: impl FnMut()) -> f64 {
    call();
    if asked.processor {
        let (start, mut calls) = (processor_seconds(), 0.0);
        loop {
            call();
            calls += 1.0;
            let seconds = processor_seconds() - start;
            if seconds > asked.seconds {
                return seconds / calls;
            }
        }
    }
    let (all, mut best) = (Instant::now(), f64::INFINITY);
    while all.elapsed().as_secs_f64() < asked.seconds {
        let clock = Instant::now();
        call();
        best = best.min(clock.elapsed().as_secs_f64());
    }
    best
}

/// What all threads of this process have used up so far; zero where the system does not say.
fn processor_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let used = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    used.sum::<f64>() / 1e9
}

/// Values without structure, half of them negative.
fn noise(n: usize) -> Vec<f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

fn conv2d(asked: &Asked) -> f64 {
    let Asked { n, channels, filters, size, kernel, stride, .. } = *asked;
    let config = Conv2dConfig::new(channels, filters, kernel).with_stride(stride).with_relu(true);
    let mut operation = Conv2d::<f32>::new(config, size);
    let [height, width] = operation.output_size();
    let x = noise(n * channels * size[0] * size[1]);
    let (w, b) = (noise(filters * channels * kernel[0] * kernel[1]), noise(filters));
    let dy = noise(n * filters * height * width);
    if asked.pass == "forward" {
        // A new tensor every time, as networks have it.
        return shortest(asked, || {
            let mut y = vec![0.0; dy.len()];
            operation.forward(&x, &w, &b, &mut y);
            black_box(&y);
        });
    }
    let (mut dw, mut db) = (w.clone(), b.clone());
    shortest(asked, || {
        let mut y = vec![0.0; dy.len()];
        operation.forward(&x, &w, &b, &mut y);
        let mut dx = vec![0.0; if asked.input_gradient { x.len() } else { 0 }];
        let wanted = asked.input_gradient.then_some(&mut dx[..]);
        operation.backward([&x, &w, &y, &dy], wanted, &mut dw, &mut db);
        black_box(&dx);
    })
}

fn conv1d(asked: &Asked) -> f64 {
    let Asked { n, channels, filters, size: [_, length], kernel: [_, kernel], .. } = *asked;
    let training = asked.pass != "forward";
    let device = if training { Device::flex().autodiff() } else { Device::flex() };
    let tensor = |values: Vec<f32>, shape: [usize; 3]| -> Tensor<3> {
        Tensor::from_data(TensorData::new(values, shape), &device)
    };
    let x = tensor(noise(n * channels * length), [n, channels, length]);
    let x = if training && asked.input_gradient { x.require_grad() } else { x };
    let mut layer = Conv1d::zeros(channels, filters, kernel, &device);
    layer.weight =
        Param::from_tensor(tensor(noise(filters * channels * kernel), [filters, channels, kernel]));
    let dy = tensor(noise(n * filters * length), [n, filters, length]);
    shortest(asked, || {
        let y = layer.forward_with(x.clone(), Activation::Relu);
        if training {
            black_box((y * dy.clone()).sum().backward());
        } else {
            black_box(y);
        }
    })
}

fn pool(asked: &Asked) -> (MaxPool2d, usize, usize) {
    let Asked { n, channels, size, kernel, stride, .. } = *asked;
    let pool = MaxPool2d::new(kernel, stride, true, size);
    let [height, width] = pool.output_size();
    (pool, n * channels * size[0] * size[1], n * channels * height * width)
}

fn max_pool2d(asked: &Asked) -> f64 {
    let (pool, large, small) = pool(asked);
    let (x, dy) = (noise(large), noise(small));
    shortest(asked, || {
        let (mut y, mut switches) = (vec![0.0; small], vec![0; small]);
        pool.forward(&x, &mut y, &mut switches);
        if asked.pass != "forward" {
            let mut dx = vec![0.0; large];
            pool.unpool(&dy, &switches, &mut dx);
            black_box(&dx);
        }
        black_box(&y);
    })
}

fn unpool2d(asked: &Asked) -> f64 {
    let (pool, large, small) = pool(asked);
    let (x, dy) = (noise(large), noise(large));
    let (mut y, mut switches) = (vec![0.0; small], vec![0; small]);
    pool.forward(&x, &mut y, &mut switches);
    shortest(asked, || {
        let mut up = vec![0.0; large];
        pool.unpool(&y, &switches, &mut up);
        if asked.pass != "forward" {
            let mut dx = vec![0.0; small];
            pool.unpool_backward(&dy, &switches, &mut dx);
            black_box(&dx);
        }
        black_box(&up);
    })
}

fn upsampling(asked: &Asked) -> f64 {
    let Asked { n, channels, size, kernel, .. } = *asked;
    let to = [size[0] * kernel[0], size[1] * kernel[1]];
    let (x, dy) = (noise(n * channels * size[0] * size[1]), noise(n * channels * to[0] * to[1]));
    shortest(asked, || {
        let mut y = vec![0.0; dy.len()];
        upsample2d(kernel, size, to, &x, &mut y);
        if asked.pass != "forward" {
            let mut dx = vec![0.0; x.len()];
            upsample2d_backward(kernel, size, to, &dy, &mut dx);
            black_box(&dx);
        }
        black_box(&y);
    })
}

/// A step on `n` parameters.
fn optimizer(asked: &Asked, kind: OptimizerKind) -> f64 {
    let settings = OptimizerSettings { optimizer: kind, ..OptimizerSettings::default() };
    let mut optimizer = Optimizer::new(settings, asked.n);
    let (mut parameters, gradient) = (noise(asked.n), noise(asked.n));
    shortest(asked, || optimizer.step(&mut parameters, &gradient))
}

/// A product of two matrices of `n` rows and columns, on all threads.
fn gemm(asked: &Asked) -> f64 {
    let n = asked.n;
    let (a, b, mut c) = (noise(n * n), noise(n * n), vec![0.0f32; n * n]);
    shortest(asked, || {
        let stride = n as isize;
        // SAFETY: three matrices of n x n values, row-major.
        #[allow(unsafe_code)] // gemm has no safe interface
        unsafe {
            let (to, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
            let threads = gemm::Parallelism::Rayon(0);
            gemm::gemm(
                n, n, n, to, 1, stride, false, a, 1, stride, b, 1, stride, 0.0, 1.0, false, false, false,
                threads,
            );
        }
        black_box(&c);
    })
}

/// `a = b + 3·c` on `n` values each, on all threads.
fn triad(asked: &Asked) -> f64 {
    use rayon::prelude::*;
    const BLOCK: usize = 1 << 14;
    let (b, c, mut a) = (noise(asked.n), noise(asked.n), vec![0.0f32; asked.n]);
    shortest(asked, || {
        let blocks = a.par_chunks_mut(BLOCK).zip(b.par_chunks(BLOCK)).zip(c.par_chunks(BLOCK));
        blocks.for_each(|((a, b), c)| {
            a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = *b + 3.0 * *c);
        });
        black_box(&a);
    })
}
