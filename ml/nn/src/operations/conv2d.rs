//! Convolution of images.

use super::Float;
use crate::{
    kernels::conv2d::{Conv2dShape, operation::Convolution2d},
    layers::Padding,
};

/// What a convolution of images is, but for the size of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dConfig {
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of the filters.
    pub kernel: [usize; 2],
    /// Lines and columns from one point of the output to the next.
    pub stride: [usize; 2],
    /// Zeros around the input, as many along both axes as along a series.
    pub padding: Padding,
    /// `max(y, 0)` as part of the same pass.
    pub relu: bool,
}

impl Conv2dConfig {
    /// Of stride 1, padded to the size of its input, without ReLU.
    pub fn new(channels: usize, filters: usize, kernel: [usize; 2]) -> Self {
        Self { channels, filters, kernel, stride: [1, 1], padding: Padding::Same, relu: false }
    }

    /// The same with another stride.
    pub fn with_stride(self, stride: [usize; 2]) -> Self {
        Self { stride, ..self }
    }

    /// The same with another padding.
    pub fn with_padding(self, padding: Padding) -> Self {
        Self { padding, ..self }
    }

    /// The same, followed by a ReLU or not.
    pub fn with_relu(self, relu: bool) -> Self {
        Self { relu, ..self }
    }

    pub(crate) fn shape(&self, size: [usize; 2]) -> Conv2dShape {
        let [rows, columns] = self.kernel.map(|k| self.padding.zeros(k));
        let Self { channels, filters, kernel, stride, .. } = *self;
        let (before, after) = ([rows.0, columns.0], [rows.1, columns.1]);
        Conv2dShape { channels, filters, kernel, stride, size, before, after }
    }
}

/// A convolution of images of one size, with its buffers: after a first call of each pass nothing as large as an image is
/// allocated. No more than 64 MiB are held, or two images if they are larger.
///
/// `y[n, o, i, j] = b[o] + Σ_c Σ_k Σ_l w[o, c, k, l]·x[n, c, s·i + k − above, s·j + l − left]`, zero outside the image;
/// with ReLU the larger of that and zero.
///
/// Cost, with K = `kernel[0]·kernel[1]`: 2·n·filters·channels·K·h'·w' floating-point operations for the output, and as many
/// for each of the gradients of input and weights; channels and filters count in steps of 32, but for an input of fewer
/// than 32 channels, forward and for the weights. Every tensor is read or written once, and once more as panels.
///
/// ```
/// use voxelflow_nn::operations::{Conv2d, Conv2dConfig};
/// // A sum of 3 x 3 points, on an image of ones: 4 in the corners, 6 along the edges, 9 in the middle.
/// let mut sum = Conv2d::<f32>::new(Conv2dConfig::new(1, 1, [3, 3]), [3, 4]);
/// let mut y = [0.0; 12];
/// sum.forward(&[1.0; 12], &[1.0; 9], &[0.0], &mut y);
/// assert_eq!(y, [4.0, 6.0, 6.0, 4.0, 6.0, 9.0, 9.0, 6.0, 4.0, 6.0, 6.0, 4.0]);
/// let (mut dx, mut dw, mut db) = ([0.0; 12], [0.0; 9], [0.0]);
/// sum.backward([&[1.0; 12], &[1.0; 9], &y, &[1.0; 12]], Some(&mut dx), &mut dw, &mut db);
/// assert_eq!((dx[0], dw[4], db[0]), (4.0, 12.0, 12.0));
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d<E> {
    config: Conv2dConfig,
    size: [usize; 2],
    operation: Convolution2d<E>,
}

impl<E: Float> Conv2d<E> {
    /// For images of `size`, height and width.
    ///
    /// # Panics
    /// If channels, filters, kernel or stride are zero, or the padded image is smaller than the kernel.
    pub fn new(config: Conv2dConfig, size: [usize; 2]) -> Self {
        let numbers = [config.kernel, config.stride, [config.channels, config.filters]];
        assert!(numbers.iter().flatten().all(|n| *n > 0), "a size of zero: {config:?}");
        let shape = config.shape(size);
        let fits = |i: usize| size[i] + shape.before[i] + shape.after[i] >= config.kernel[i];
        assert!(fits(0) && fits(1), "an image of {size:?} is smaller than the kernel {:?}", config.kernel);
        Self { config, size, operation: Convolution2d::new(shape, config.relu) }
    }

    /// Height and width of the output.
    pub fn output_size(&self) -> [usize; 2] {
        self.config.shape(self.size).output()
    }

    /// `x` `[n, channels, h, w]`, `weight` `[filters, channels, kh, kw]`, `bias` `[filters]` → `y` `[n, filters, h', w']`.
    ///
    /// # Panics
    /// If the slices are not of these shapes.
    pub fn forward(&mut self, x: &[E], weight: &[E], bias: &[E], y: &mut [E]) {
        self.check([x.len(), weight.len(), bias.len(), y.len()]);
        self.operation.forward(x, weight, bias, y);
    }

    /// The gradients of input (if wanted), weights and bias, all overwritten, of a loss whose gradient with respect to the
    /// output is `dy`: from `[x, weight, y, dy]`, with `y` what [`Self::forward`] made of `x`. `y` is only read if there is
    /// a ReLU.
    ///
    /// # Panics
    /// If the slices are not of the shapes of [`Self::forward`].
    pub fn backward(&mut self, from: [&[E]; 4], dx: Option<&mut [E]>, dw: &mut [E], db: &mut [E]) {
        let [x, weight, y, dy] = from;
        self.check([x.len(), weight.len(), db.len(), dy.len()]);
        assert_eq!(dw.len(), weight.len(), "the gradient of the weights");
        assert!(!self.config.relu || y.len() == dy.len(), "the output: {} values for {}", y.len(), dy.len());
        assert!(dx.as_ref().is_none_or(|dx| dx.len() == x.len()), "the gradient of the input");
        self.operation.backward(from, dx, dw, db);
    }

    fn check(&self, [x, weight, bias, y]: [usize; 4]) {
        let Conv2dConfig { channels, filters, kernel, .. } = self.config;
        let (one, [height, width]) = (channels * self.size[0] * self.size[1], self.output_size());
        let samples = x.checked_div(one).unwrap_or(0);
        assert_eq!(x, samples * one, "the input is no number of images of {channels} x {:?}", self.size);
        assert_eq!(y, samples * filters * height * width, "the output, for {samples} images");
        assert_eq!(weight, filters * channels * kernel[0] * kernel[1], "the weights");
        assert_eq!(bias, filters, "the bias");
    }
}
