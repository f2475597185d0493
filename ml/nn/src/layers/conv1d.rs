//! Convolution along time, output as long as the input.

use super::conv1d_cpu;
use burn::{
    module::{Module, Param},
    tensor::{
        Device, Tensor,
        module::conv1d,
        ops::{ConvOptions, PadMode},
    },
};

/// `y[o, t] = b[o] + Σ_c Σ_k w[o, c, k] · x[c, t + k − ⌊(K − 1)/2⌋]`, zero outside the input
/// (cross-correlation, as every deep-learning library has it).
///
/// An even kernel reaches one point further to the right than to the left, as PyTorch's `padding="same"`.
#[derive(Module, Debug)]
pub struct Conv1d {
    /// `[n_filters, n_channels, length]`.
    pub weight: Param<Tensor<3>>,
    /// `[n_filters]`.
    pub bias: Param<Tensor<1>>,
}

impl Conv1d {
    /// A layer of zeros on `device`; its parameters are filled through [`crate::parameters`].
    pub fn zeros(channels: usize, filters: usize, length: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([filters, channels, length], device)),
            bias: Param::from_tensor(Tensor::zeros([filters], device)),
        }
    }

    /// `[n_samples, n_channels, length]` → `[n_samples, n_filters, length]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        if let Some(y) = conv1d_cpu::conv1d(&x, &weight, &bias) {
            return y;
        }
        let kernel = weight.dims()[2];
        let (left, right) = ((kernel - 1) / 2, kernel / 2);
        // burn pads both sides alike; what an even kernel lacks on the right is added before.
        let x =
            if right > left { x.pad([(0, 0), (0, 0), (0, right - left)], PadMode::Constant(0.0)) } else { x };
        conv1d(x, weight, Some(bias), ConvOptions::new([1], [left], [1], 1))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{check, ramp, tensor};

    /// The definition, in plain loops.
    fn direct(x: &[f64], w: &[f64], b: &[f64], [n, c, o, k, t]: [usize; 5]) -> Vec<f64> {
        let mut y = vec![0.0; n * o * t];
        for (i, y) in y.iter_mut().enumerate() {
            let (s, f, at) = (i / (o * t), i / t % o, i % t);
            *y = b[f];
            for ch in 0..c {
                for tap in 0..k {
                    let position = (at + tap).checked_sub((k - 1) / 2).filter(|p| *p < t);
                    *y += position.map_or(0.0, |p| x[(s * c + ch) * t + p] * w[(f * c + ch) * k + tap]);
                }
            }
        }
        y
    }

    fn layer(w: Tensor<3>, b: Tensor<1>) -> Conv1d {
        Conv1d {
            weight: Param::initialized(Default::default(), w),
            bias: Param::initialized(Default::default(), b),
        }
    }

    #[test]
    fn equals_its_definition_for_odd_and_even_kernels_and_short_inputs() {
        for (kernel, length) in [(1, 5), (3, 7), (4, 7), (9, 4), (8, 3), (21, 1)] {
            let [n, c, o] = [2, 3, 2];
            let (x, w, b) = (ramp(n * c * length, 1), ramp(o * c * kernel, 2), ramp(o, 3));
            let y = layer(tensor(&w, [o, c, kernel]), tensor(&b, [o])).forward(tensor(&x, [n, c, length]));
            assert_eq!(y.dims(), [n, o, length]);
            let y = y.into_data_as::<f64>().try_into_vec::<f64>().unwrap();
            for (y, expected) in y.iter().zip(direct(&x, &w, &b, [n, c, o, kernel, length])) {
                assert!((y - expected).abs() < 1e-12, "kernel {kernel}, length {length}: {y} != {expected}");
            }
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for (kernel, length) in [(3, 6), (4, 6), (9, 4)] {
            let [n, c, o] = [2, 3, 2];
            let (x, w, b) = (ramp(n * c * length, 1), ramp(o * c * kernel, 2), ramp(o, 3));
            let (wt, bt) = (tensor::<3>(&w, [o, c, kernel]), tensor::<1>(&b, [o]));
            let xt = tensor::<3>(&x, [n, c, length]);
            check(&x, [n, c, length], |x| layer(wt.clone(), bt.clone()).forward(x));
            check(&w, [o, c, kernel], |w| layer(w, bt.clone()).forward(xt.clone()));
            check(&b, [o], |b| layer(wt.clone(), b).forward(xt.clone()));
        }
    }
}
