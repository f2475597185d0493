//! How long operations on images take on this machine's card: ours of `integration-tests/bench/operations.py --device cuda`,
//! which asks for one a line.
//!
//! usage: `image_speed < LINES`, with lines such as `{"operation": "conv2d", "n": 32, "channels": 64, "filters": 64, "size":
//! [56, 56], "kernel": [3, 3], "stride": [1, 1], "precision": "bf16", "pass": "forward", "seconds": 0.1}`; the answer to
//! each is the seconds of a call, the least mean of five turns. Passes are `forward`, `training` (forward and all
//! gradients) and, of convolutions, `input gradient` and `weight gradient`; operations `conv2d`, `max_pool2d`, `unpool2d`,
//! `upsample2d`, and `gemm` and `copy`, the card's ceilings. `"portable": true` takes the kernels for any card.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a program of ours

use serde_json::Value;
use std::{io::BufRead, sync::Arc};
use voxelflow_cuda::{
    Card, Memory, Precision, Result, Values,
    image::{Conv2d, Conv2dShape, Pool2d, Repeat2d},
};

#[path = "shared/images.rs"]
mod images;
#[path = "shared/mod.rs"]
mod shared;

fn main() {
    let card = Arc::new(Card::open(0).unwrap());
    for line in std::io::stdin().lock().lines() {
        let asked = Asked::of(&serde_json::from_str(&line.unwrap()).unwrap());
        let seconds = match asked.operation.as_str() {
            "conv2d" => convolution(&card, &asked),
            "max_pool2d" | "unpool2d" => pooling(&card, &asked),
            "upsample2d" => repetition(&card, &asked),
            "gemm" => card.ceilings(asked.precision).unwrap()[0].seconds,
            "copy" => card.ceilings(asked.precision).unwrap()[1].seconds,
            other => panic!("no operation `{other}`"),
        };
        println!("{seconds}");
    }
}

struct Asked {
    operation: String,
    pass: String,
    precision: Precision,
    n: usize,
    channels: usize,
    filters: usize,
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    input_gradient: bool,
    portable: bool,
    seconds: f64,
}

impl Asked {
    fn of(value: &Value) -> Self {
        let number = |v: &Value| v.as_u64().map_or(1, |n| n as usize);
        let pair = |name: &str| [number(&value[name][0]), number(&value[name][1])];
        let word = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let precision = word("precision");
        Self {
            operation: word("operation"),
            pass: word("pass"),
            precision: Precision::ALL.into_iter().find(|(n, _)| *n == precision).expect("a precision").1,
            n: number(&value["n"]),
            channels: number(&value["channels"]),
            filters: number(&value["filters"]),
            size: pair("size"),
            kernel: pair("kernel"),
            stride: pair("stride"),
            input_gradient: value["input_gradient"].as_bool().unwrap_or(true),
            portable: value["portable"].as_bool().unwrap_or(false),
            seconds: value["seconds"].as_f64().unwrap_or(0.1),
        }
    }

    fn training(&self) -> bool {
        self.pass == "training"
    }

    /// Numbers that are not zero, up to the many that a pattern is repeated.
    fn noise(&self, card: &Arc<Card>, count: usize, values: Values) -> Memory {
        let mut random = shared::Random(3);
        let some: Vec<f32> = (0..(1 << 16) + 1).map(|_| random.uniform() as f32).collect();
        let bytes = images::bytes(values, &some);
        let bytes: Vec<u8> = bytes.iter().copied().cycle().take(count * values.size()).collect();
        Memory::of(card, values, &bytes, "noise").unwrap()
    }

    fn time(&self, card: &Card, mut work: impl FnMut() -> Result<()>) -> f64 {
        let once = card.time(1, &mut work).unwrap();
        let count = ((self.seconds / 5.0 / once) as usize).clamp(1, 10_000);
        (0..5).map(|_| card.time(count, &mut work).unwrap()).fold(f64::INFINITY, f64::min)
    }
}

fn convolution(card: &Arc<Card>, asked: &Asked) -> f64 {
    let shape = Conv2dShape::new(asked.channels, asked.filters, asked.kernel, asked.size)
        .with_stride(asked.stride)
        .with_relu(true);
    let new = if asked.portable { Conv2d::portable } else { Conv2d::new };
    let mut conv = new(card, &shape, asked.precision, asked.n).unwrap();
    let (n, values) = (asked.n, asked.precision.values());
    let x = asked.noise(card, n * shape.input_values(), values);
    let mut dy = asked.noise(card, n * shape.output_values(), values);
    let parameters = asked.noise(card, shape.weights() + shape.filters, Values::F32);
    let mut gradient = Memory::zeros(card, Values::F32, parameters.len(), "gradient").unwrap();
    let mut y = Memory::zeros(card, values, n * shape.output_values(), "output").unwrap();
    let mut dx = Memory::zeros(card, values, n * shape.input_values(), "gradient").unwrap();
    conv.set_weights(&parameters, 0).unwrap();
    let bias = shape.weights();
    asked.time(card, || match asked.pass.as_str() {
        "forward" => conv.forward(n, &x, (&parameters, bias), &mut y),
        "input gradient" => conv.input_gradient(n, &dy, &mut dx),
        "weight gradient" => conv.weight_gradient(n, &x, &dy, &mut gradient, 0),
        _ => {
            conv.set_weights(&parameters, 0)?;
            conv.forward(n, &x, (&parameters, bias), &mut y)?;
            let dx = asked.input_gradient.then_some(&mut dx);
            conv.backward(n, &x, &y, &mut dy, dx, &mut gradient, [0, bias])
        }
    })
}

fn pooling(card: &Arc<Card>, asked: &Asked) -> f64 {
    let pool = Pool2d::new(asked.kernel, asked.stride, true, asked.size, asked.channels).unwrap();
    let (n, values) = (asked.n, asked.precision.values());
    let large = n * asked.size[0] * asked.size[1] * asked.channels;
    let mut wide = asked.noise(card, large, values);
    let mut small = asked.noise(card, n * pool.output_values(), values);
    let mut switches = Memory::zeros(card, Values::U8, n * pool.output_values(), "switches").unwrap();
    pool.forward(card, n, &wide, &mut small, &mut switches).unwrap();
    asked.time(card, || {
        if asked.operation == "max_pool2d" {
            pool.forward(card, n, &wide, &mut small, &mut switches)?;
            return if asked.training() {
                pool.unpool(card, n, &small, &switches, &mut wide)
            } else {
                Ok(())
            };
        }
        pool.unpool(card, n, &small, &switches, &mut wide)?;
        if asked.training() { pool.unpool_backward(card, n, &wide, &switches, &mut small) } else { Ok(()) }
    })
}

fn repetition(card: &Arc<Card>, asked: &Asked) -> f64 {
    let to = [asked.size[0] * asked.kernel[0], asked.size[1] * asked.kernel[1]];
    let repeat = Repeat2d::new(asked.kernel, asked.size, to, asked.channels).unwrap();
    let (n, values) = (asked.n, asked.precision.values());
    let small = n * asked.size[0] * asked.size[1] * asked.channels;
    let x = asked.noise(card, small, values);
    let mut dx = Memory::zeros(card, values, small, "gradient").unwrap();
    let mut y = Memory::zeros(card, values, small * asked.kernel[0] * asked.kernel[1], "output").unwrap();
    asked.time(card, || {
        repeat.forward(card, n, &x, &mut y)?;
        if asked.training() { repeat.backward(card, n, &y, &mut dx) } else { Ok(()) }
    })
}
