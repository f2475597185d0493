//! Convolution along time.

use super::{Activation, conv1d_cpu};
use burn::{
    module::{Module, Param},
    tensor::{
        Device, Tensor,
        module::conv1d,
        ops::{ConvOptions, PadMode},
    },
};

/// The zeros around a series, and with them the length of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// As long as the input. An even kernel reaches one point further to the right than to the left, as PyTorch's
    /// `padding="same"`.
    #[default]
    Same,
    /// None: `length − kernel + 1` points.
    Valid,
    /// `kernel − 1` on both sides, every overlap: `length + kernel − 1` points.
    Full,
}

impl Padding {
    /// Zeros before and after.
    pub fn zeros(self, kernel: usize) -> (usize, usize) {
        let most = kernel.saturating_sub(1);
        match self {
            Self::Same => (most / 2, kernel / 2),
            Self::Valid => (0, 0),
            Self::Full => (most, most),
        }
    }
}

/// `y[o, t] = b[o] + Σ_c Σ_k w[o, c, k] · x[c, t + k − before]`, zero outside the input (cross-correlation, as every
/// deep-learning library has it).
///
/// Cost: 2·n_channels·n_filters·kernel floating-point operations for every point of the output; twice that for the
/// gradients. On the CPU channels count in steps of 32, unless there is only one.
#[derive(Module, Debug)]
pub struct Conv1d {
    /// `[n_filters, n_channels, length]`.
    pub weight: Param<Tensor<3>>,
    /// `[n_filters]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    padding: Padding,
}

impl Conv1d {
    /// A layer of zeros on `device`, padded to the length of its input; its parameters are filled through
    /// [`crate::parameters`].
    pub fn zeros(channels: usize, filters: usize, length: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([filters, channels, length], device)),
            bias: Param::from_tensor(Tensor::zeros([filters], device)),
            padding: Padding::default(),
        }
    }

    /// The same layer with another padding.
    pub fn with_padding(self, padding: Padding) -> Self {
        Self { padding, ..self }
    }

    /// `[n_samples, n_channels, length]` → `[n_samples, n_filters, output length]`.
    ///
    /// # Panics
    /// With [`Padding::Valid`], if the input is shorter than the kernel.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.forward_with(x, Activation::Linear)
    }

    /// As [`Self::forward`], followed by a nonlinearity; ReLU is part of the same pass on the CPU.
    ///
    /// # Panics
    /// As [`Self::forward`].
    pub fn forward_with(&self, x: Tensor<3>, activation: Activation) -> Tensor<3> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        let (kernel, length) = (weight.dims()[2], x.dims()[2]);
        let (before, after) = self.padding.zeros(kernel);
        assert!(length + before + after >= kernel, "{length} points are fewer than the kernel's {kernel}");
        let relu = activation == Activation::Relu;
        if let Some(y) = conv1d_cpu::conv1d(&x, &weight, &bias, self.padding, relu) {
            return if relu { y } else { activation.forward(y) };
        }
        // burn pads both sides alike; what an even kernel lacks on the right is added before.
        let x = if after > before {
            x.pad([(0, 0), (0, 0), (0, after - before)], PadMode::Constant(0.0))
        } else {
            x
        };
        activation.forward(conv1d(x, weight, Some(bias), ConvOptions::new([1], [before], [1], 1)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::layers::gradient_check::{check, ramp, tensor};

    const ALL: [Padding; 3] = [Padding::Same, Padding::Valid, Padding::Full];

    /// The definition, in plain loops.
    fn direct(x: &[f64], w: &[f64], b: &[f64], [n, c, o, k, t]: [usize; 5], padding: Padding) -> Vec<f64> {
        let (before, after) = padding.zeros(k);
        let points = t + before + after + 1 - k;
        let mut y = vec![0.0; n * o * points];
        for (i, y) in y.iter_mut().enumerate() {
            let (s, f, at) = (i / (o * points), i / points % o, i % points);
            *y = b[f];
            for ch in 0..c {
                for tap in 0..k {
                    let position = (at + tap).checked_sub(before).filter(|p| *p < t);
                    *y += position.map_or(0.0, |p| x[(s * c + ch) * t + p] * w[(f * c + ch) * k + tap]);
                }
            }
        }
        y
    }

    fn layer(w: Tensor<3>, b: Tensor<1>, padding: Padding) -> Conv1d {
        Conv1d {
            weight: Param::initialized(Default::default(), w),
            bias: Param::initialized(Default::default(), b),
            padding,
        }
    }

    #[test]
    fn equals_its_definition_for_every_padding_and_number_of_samples() {
        for (n, kernel, length) in
            [(2, 1, 5), (2, 3, 7), (70, 4, 7), (2, 9, 4), (2, 8, 3), (2, 21, 1), (5, 5, 300), (0, 3, 5)]
        {
            for (padding, [c, o]) in
                ALL.into_iter().flat_map(|p| [[3, 2], [1, 2], [2, 1], [1, 1]].map(|s| (p, s)))
            {
                if padding == Padding::Valid && length < kernel {
                    continue;
                }
                let (x, w, b) = (ramp(n * c * length, 1), ramp(o * c * kernel, 2), ramp(o, 3));
                let layer = layer(tensor(&w, [o, c, kernel]), tensor(&b, [o]), padding);
                let expected = direct(&x, &w, &b, [n, c, o, kernel, length], padding);
                for activation in [Activation::Linear, Activation::Relu, Activation::Tanh] {
                    let y = layer.forward_with(tensor(&x, [n, c, length]), activation);
                    assert_eq!(y.dims(), [n, o, expected.len().checked_div(n * o).unwrap_or(y.dims()[2])]);
                    let y = y.into_data_as::<f64>().try_into_vec::<f64>().unwrap();
                    for (y, expected) in y.iter().zip(&expected) {
                        let expected = match activation {
                            Activation::Relu => expected.max(0.0),
                            Activation::Tanh => expected.tanh(),
                            _ => *expected,
                        };
                        assert!(
                            (y - expected).abs() < 1e-12,
                            "{padding:?}, kernel {kernel}, length {length}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for (kernel, length, padding) in [
            (3, 6, Padding::Same),
            (4, 6, Padding::Same),
            (9, 4, Padding::Same),
            (3, 6, Padding::Valid),
            (4, 5, Padding::Full),
        ] {
            for activation in [Activation::Linear, Activation::Relu] {
                let [n, c, o] = [2, 3, 2];
                let (x, w, b) = (ramp(n * c * length, 1), ramp(o * c * kernel, 2), ramp(o, 3));
                let (wt, bt) = (tensor::<3>(&w, [o, c, kernel]), tensor::<1>(&b, [o]));
                let xt = tensor::<3>(&x, [n, c, length]);
                let layer = |w: Tensor<3>, b: Tensor<1>| layer(w, b, padding);
                check(&x, [n, c, length], |x| layer(wt.clone(), bt.clone()).forward_with(x, activation));
                check(&w, [o, c, kernel], |w| layer(w, bt.clone()).forward_with(xt.clone(), activation));
                check(&b, [o], |b| layer(wt.clone(), b).forward_with(xt.clone(), activation));
            }
        }
    }

    #[test]
    #[should_panic(expected = "5 points are fewer than the kernel's 6")]
    fn a_valid_convolution_of_too_short_a_series_is_refused() {
        layer(tensor(&[0.0; 6], [1, 1, 6]), tensor(&[0.0], [1]), Padding::Valid)
            .forward(tensor(&[0.0; 5], [1, 1, 5]));
    }
}
