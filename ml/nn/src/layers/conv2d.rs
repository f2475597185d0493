//! Convolution of images.

use super::{Activation, Padding, conv2d_cpu};
use crate::operations::Conv2dConfig;
use burn::{
    module::{Module, Param},
    tensor::{
        Device, Tensor,
        module::conv2d,
        ops::{ConvOptions, PadMode},
    },
};

/// `y[o, i, j] = b[o] + Σ_c Σ_k Σ_l w[o, c, k, l]·x[c, s·i + k − above, s·j + l − left]`, zero outside the image
/// (cross-correlation, as every deep-learning library has it), followed by a nonlinearity if asked.
///
/// Padding is that of [`Padding`] along both axes; `Same` with a stride s gives ⌈height/s⌉ lines.
///
/// Cost: 2·channels·filters·kh·kw floating-point operations for every point of the output; twice that for the gradients.
/// On the CPU channels and filters count in steps of 32 ([`crate::operations::Conv2d`]).
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use voxelflow_nn::layers::{Activation, Conv2d, Padding};
/// let layer = Conv2d::zeros(3, 32, [3, 3], &Device::flex()).with_padding(Padding::Valid);
/// let x: Tensor<4> = Tensor::ones([2, 3, 28, 28], &Device::flex());
/// assert_eq!(layer.forward_with(x, Activation::Relu).dims(), [2, 32, 26, 26]);
/// ```
#[derive(Module, Debug)]
pub struct Conv2d {
    /// `[n_filters, n_channels, kh, kw]`.
    pub weight: Param<Tensor<4>>,
    /// `[n_filters]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    padding: Padding,
    #[module(skip)]
    stride: [usize; 2],
}

impl Conv2d {
    /// A layer of zeros on `device`, of stride 1, padded to the size of its input; its parameters are filled through
    /// [`crate::parameters`].
    pub fn zeros(channels: usize, filters: usize, [kh, kw]: [usize; 2], device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([filters, channels, kh, kw], device)),
            bias: Param::from_tensor(Tensor::zeros([filters], device)),
            padding: Padding::default(),
            stride: [1, 1],
        }
    }

    /// The same layer with another padding.
    pub fn with_padding(self, padding: Padding) -> Self {
        Self { padding, ..self }
    }

    /// The same layer with another stride.
    ///
    /// # Panics
    /// If it is zero.
    pub fn with_stride(self, stride: [usize; 2]) -> Self {
        assert!(stride.iter().all(|s| *s > 0), "a stride of {stride:?}");
        Self { stride, ..self }
    }

    /// `[n_samples, n_channels, height, width]` → `[n_samples, n_filters, height', width']`.
    ///
    /// # Panics
    /// If the padded image is smaller than the kernel.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.forward_with(x, Activation::Linear)
    }

    /// As [`Self::forward`], followed by a nonlinearity; ReLU is part of the same pass on the CPU.
    ///
    /// # Panics
    /// As [`Self::forward`].
    pub fn forward_with(&self, x: Tensor<4>, activation: Activation) -> Tensor<4> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        let ([filters, channels, kh, kw], [_, _, height, width]) = (weight.dims(), x.dims());
        let relu = activation == Activation::Relu;
        let config = Conv2dConfig {
            channels,
            filters,
            kernel: [kh, kw],
            stride: self.stride,
            padding: self.padding,
            relu,
        };
        let [(above, below), (left, right)] = [kh, kw].map(|k| self.padding.zeros(k));
        let fits = height + above + below >= kh && width + left + right >= kw;
        assert!(fits, "an image of {:?} is smaller than the kernel {:?}", [height, width], [kh, kw]);
        if let Some(y) = conv2d_cpu::conv2d(&x, &weight, &bias, config) {
            return if relu { y } else { activation.forward(y) };
        }
        // burn pads both sides alike; what an even kernel lacks below and on the right is added before.
        let more = [below - above, right - left];
        let x = if more == [0, 0] {
            x
        } else {
            x.pad([(0, 0), (0, 0), (0, more[0]), (0, more[1])], PadMode::Constant(0.0))
        };
        let options = ConvOptions::new(self.stride, [above, left], [1, 1], 1);
        activation.forward(conv2d(x, weight, Some(bias), options))
    }
}
