//! Gradient checks in f64: what burn differentiates against central differences of what it computes.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Tensor, TensorData};

/// A 64-bit tensor on the differentiating CPU device.
pub fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
    let device = Device::flex().autodiff();
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (&device, DType::F64))
}

/// `n` distinct values between −1 and 1, no two closer than 1e-3 for n below 1000, in an order given by `seed`.
pub fn ramp(n: usize, seed: u64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut state = seed;
    for i in (1..n).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order.into_iter().map(|i| (2 * i + 1) as f64 / n as f64 - 1.0).collect()
}

/// Compares the gradient of `Σ c·f(x)`, with fixed odd weights `c`, with central differences at every element.
pub fn check<const D: usize, const E: usize>(
    x: &[f64],
    shape: [usize; D],
    f: impl Fn(Tensor<D>) -> Tensor<E>,
) {
    let weighted = |x: Tensor<D>| {
        let y = f(x);
        let n: usize = y.dims().iter().product();
        let weights = tensor(&ramp(n, 99), y.dims());
        (y * weights).sum()
    };
    let leaf = tensor(x, shape).require_grad();
    let gradients = weighted(leaf.clone()).backward();
    let found = leaf.grad(&gradients).unwrap().into_data_as::<f64>().try_into_vec::<f64>().unwrap();
    let step = 1e-6;
    for i in 0..x.len() {
        let at = |delta: f64| {
            let mut moved = x.to_vec();
            moved[i] += delta;
            weighted(tensor(&moved, shape)).into_scalar::<f64>()
        };
        let expected = (at(step) - at(-step)) / (2.0 * step);
        assert!(
            (found[i] - expected).abs() < 1e-7 * (1.0 + expected.abs()),
            "element {i}: {} != {expected}",
            found[i]
        );
    }
}
