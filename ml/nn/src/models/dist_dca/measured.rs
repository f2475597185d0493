//! How long the operations of a training step take, and how far that is from what the machine can do.

use super::{Architecture, step::Shapes};
use crate::kernels::{
    conv1d::{Conv1dShape, Filters, WeightGradient},
    dense::Columns,
    tile::PANEL,
};
use std::time::Instant;

/// Something that was timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What.
    pub name: String,
    /// Floating-point operations that its definition needs; zero if it only moves values.
    pub operations: f64,
    /// How long it took.
    pub seconds: f64,
}

impl Measured {
    /// 10⁹ operations a second.
    pub fn gflops(&self) -> f64 {
        self.operations / self.seconds / 1e9
    }
}

/// Samples that convolutions are measured with, and fully connected layers.
const SAMPLES: [usize; 2] = [4, 2 * PANEL];
/// Repetitions, of which the fastest counts.
const REPETITIONS: usize = 9;

/// Every convolution of a training step, forward and both gradients, and the fully connected layers likewise, one after
/// the other on one thread.
pub fn measure_operations(architecture: &Architecture) -> Vec<Measured> {
    let measure = || {
        let shapes = Shapes::new(architecture);
        let encoder = shapes.encoder.iter().enumerate().map(|(i, s)| (format!("encoder.{i}"), s));
        let decoder = shapes.decoder.iter().enumerate().map(|(i, s)| (format!("decoder.{i}"), s));
        let mut measured: Vec<_> =
            encoder.chain(decoder).flat_map(|(name, s)| convolution(&name, s)).collect();
        measured.extend(dense("to_hidden", shapes.features(), shapes.hidden));
        measured.extend(dense("from_hidden", shapes.hidden, shapes.features()));
        measured
    };
    match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(one) => one.install(measure),
        Err(_) => measure(),
    }
}

fn timed(name: String, operations: f64, mut operation: impl FnMut()) -> Measured {
    let mut seconds = f64::INFINITY;
    for _ in 0..REPETITIONS {
        let clock = Instant::now();
        operation();
        seconds = seconds.min(clock.elapsed().as_secs_f64());
    }
    Measured { name, operations, seconds }
}

fn convolution(name: &str, shape: &Conv1dShape) -> [Measured; 3] {
    let ones = |n: usize| vec![1.0f32; n];
    let [samples, _] = SAMPLES;
    let (x, dy) = (ones(samples * shape.x().len()), ones(samples * shape.dy().len()));
    let (mut y, mut dx) = (ones(samples * shape.y().len()), ones(samples * shape.dx().len()));
    let (mut forward, mut backward) = (Filters::forward(shape), Filters::backward(shape));
    forward.pack(&ones(shape.weights()), &ones(shape.output.channels));
    backward.pack_backward(&ones(shape.weights()));
    let mut sum = WeightGradient::zeros(*shape);
    let operations = 2.0 * (samples * shape.weights() * shape.output_length()) as f64;
    [
        timed(format!("{name} forward"), operations, || {
            forward.apply(&x, &mut y, shape.output_length());
        }),
        timed(format!("{name} input gradient"), operations, || backward.apply(&dy, &mut dx, shape.length)),
        timed(format!("{name} filter gradient"), operations, || {
            sum.add(std::iter::once((&x[..], &dy[..])));
        }),
    ]
}

fn dense(name: &str, inputs: usize, outputs: usize) -> [Measured; 3] {
    let [_, samples] = SAMPLES;
    let ones = |n: usize| vec![1.0f32; n];
    let (weight, mut gradient) = (ones(inputs * outputs), ones(inputs * outputs));
    let (mut x, mut dy, mut rows) = (Columns::default(), Columns::default(), Columns::default());
    let (mut y, mut dx) = (Columns::default(), Columns::default());
    x.pack_transposed(&ones(samples * inputs), inputs);
    dy.pack_transposed(&ones(samples * outputs), outputs);
    rows.pack(&ones(samples * outputs), samples, outputs);
    let operations = 2.0 * (samples * inputs * outputs) as f64;
    [
        timed(format!("{name} forward"), operations, || y.product(&weight, (1, outputs), &[], outputs, &x)),
        timed(format!("{name} input gradient"), operations, || {
            dx.product(&weight, (outputs, 1), &[], inputs, &dy);
        }),
        timed(format!("{name} weight gradient"), operations, || x.outer_product(&rows, &mut gradient, true)),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::models::dist_dca::DistDcaConfig;

    #[test]
    fn every_operation_of_a_step_is_measured() {
        let architecture = DistDcaConfig::default().architecture(64).unwrap();
        let measured = measure_operations(&architecture);
        assert_eq!(measured.len(), 3 * (8 + 2));
        assert!(measured.iter().all(|m| m.seconds > 0.0 && m.gflops() > 0.0), "{measured:?}");
        let two = measured.iter().filter(|m| m.name.starts_with("encoder.1")).collect::<Vec<_>>();
        assert_eq!(two[0].operations, 2.0 * 4.0 * (32 * 64 * 9 * 32) as f64);
    }
}
