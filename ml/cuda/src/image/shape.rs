//! What a convolution of images is, and how the points of what is read and of what is written meet.

use crate::{Error, Precision, Result};

/// A convolution of images:
/// `y[n, i, j, o] = b[o] + Σ_c Σ_k Σ_l w[o, c, k, l]·x[n, s·i + k − above, s·j + l − left, c]`, zero outside the image, and
/// with ReLU the larger of that and zero.
///
/// ```
/// use voxelflow_cuda::image::Conv2dShape;
/// let shape = Conv2dShape::new(64, 128, [3, 3], [56, 56]).with_stride([2, 2]);
/// assert_eq!((shape.output(), shape.weights()), ([28, 28], 73_728));
/// assert_eq!(shape.valid().output(), [27, 27]);
/// assert_eq!(shape.operations(1), 2.0 * 28.0 * 28.0 * 73_728.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dShape {
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of the filters.
    pub kernel: [usize; 2],
    /// Lines and columns from one point of the output to the next.
    pub stride: [usize; 2],
    /// Height and width of the input.
    pub size: [usize; 2],
    /// Zeros above the image and on its left.
    pub before: [usize; 2],
    /// Zeros below the image and on its right.
    pub after: [usize; 2],
    /// `max(y, 0)` as part of the same pass.
    pub relu: bool,
}

impl Conv2dShape {
    /// Of stride 1, padded to the size of its input, without ReLU.
    pub fn new(channels: usize, filters: usize, kernel: [usize; 2], size: [usize; 2]) -> Self {
        let none = [0, 0];
        let stride = [1, 1];
        Self { channels, filters, kernel, stride, size, before: none, after: none, relu: false }.same()
    }

    /// Padded so that stride 1 keeps the size: an even kernel reaches one point further below and to the right.
    pub fn same(self) -> Self {
        let most = self.kernel.map(|k| k.saturating_sub(1));
        Self { before: most.map(|m| m / 2), after: most.map(|m| m.div_ceil(2)), ..self }
    }

    /// Without padding.
    pub fn valid(self) -> Self {
        Self { before: [0, 0], after: [0, 0], ..self }
    }

    /// Padded so that every overlap counts.
    pub fn full(self) -> Self {
        let most = self.kernel.map(|k| k.saturating_sub(1));
        Self { before: most, after: most, ..self }
    }

    /// The same with another stride.
    pub fn with_stride(self, stride: [usize; 2]) -> Self {
        Self { stride, ..self }
    }

    /// The same, followed by a ReLU or not.
    pub fn with_relu(self, relu: bool) -> Self {
        Self { relu, ..self }
    }

    /// Height and width of the output.
    pub fn output(&self) -> [usize; 2] {
        std::array::from_fn(|i| {
            let padded = self.size[i] + self.before[i] + self.after[i];
            padded.checked_sub(self.kernel[i]).map_or(0, |room| room / self.stride[i].max(1) + 1)
        })
    }

    /// Values of the weights.
    pub fn weights(&self) -> usize {
        self.filters * self.channels * self.taps()
    }

    /// Values of an input.
    pub fn input_values(&self) -> usize {
        self.channels * self.size[0] * self.size[1]
    }

    /// Values of an output.
    pub fn output_values(&self) -> usize {
        self.filters * self.output()[0] * self.output()[1]
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Floating-point operations of the output of so many samples, and of each of the gradients of input and weights.
    pub fn operations(&self, samples: usize) -> f64 {
        let points = samples * self.output()[0] * self.output()[1];
        2.0 * points as f64 * self.weights() as f64
    }

    /// Bytes of one pass if input, weights and output are read or written once.
    pub fn bytes(&self, samples: usize, precision: Precision) -> f64 {
        let values = samples * (self.input_values() + self.output_values()) + self.weights();
        (values * precision.values().size()) as f64
    }

    /// # Errors
    /// A size of zero, or an image that is smaller than the kernel.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::Shape { what: "a convolution of images", reason });
        let numbers = [self.kernel, self.stride, self.size, [self.channels, self.filters]];
        if numbers.iter().flatten().any(|n| *n == 0) {
            return wrong(format!("a size of zero: {self:?}"));
        }
        if self.output().contains(&0) {
            let (size, kernel) = (self.size, self.kernel);
            return wrong(format!("an image of {size:?} is smaller than the kernel {kernel:?}; pad it"));
        }
        Ok(())
    }
}

/// One axis of a pass: the kernels' `Axis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub from: usize,
    pub to: usize,
    pub all: usize,
    pub every: usize,
    pub phase: usize,
    pub mul: usize,
    pub off: isize,
    pub step: isize,
    pub taps: usize,
    pub first: usize,
    pub stride: usize,
}

impl Axis {
    pub fn ints(&self) -> [i32; 11] {
        let Self { from, to, all, every, phase, mul, off, step, taps, first, stride } = *self;
        [
            from as i32,
            to as i32,
            all as i32,
            every as i32,
            phase as i32,
            mul as i32,
            off as i32,
            step as i32,
            taps as i32,
            first as i32,
            stride as i32,
        ]
    }
}

impl Conv2dShape {
    /// From input to output.
    pub(super) fn forward_axis(&self, axis: usize) -> Axis {
        let to = self.output()[axis];
        Axis {
            from: self.size[axis],
            to,
            all: to,
            every: 1,
            phase: 0,
            mul: self.stride[axis],
            off: -(self.before[axis] as isize),
            step: 1,
            taps: self.kernel[axis],
            first: 0,
            stride: 1,
        }
    }

    /// From the gradient of the output to that of the input, of the points that are `phase` beyond a multiple of the
    /// stride: these are a correlation with every `stride`-th tap, so that no operation is spent on zeros between.
    pub(super) fn backward_axis(&self, axis: usize, phase: usize) -> Axis {
        let (stride, kernel, all) = (self.stride[axis], self.kernel[axis], self.size[axis]);
        let shifted = phase + self.before[axis];
        let first = shifted % stride;
        Axis {
            from: self.output()[axis],
            to: all.saturating_sub(phase).div_ceil(stride),
            all,
            every: stride,
            phase,
            mul: 1,
            off: (shifted / stride) as isize,
            step: -1,
            taps: kernel.saturating_sub(first).div_ceil(stride),
            first,
            stride,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Which (written, read, tap) meet, by the axes of a pass.
    fn meet(axes: &[Axis]) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        for axis in axes {
            for i in 0..axis.to {
                for t in 0..axis.taps {
                    let read = (i * axis.mul) as isize + axis.off + t as isize * axis.step;
                    if (0..axis.from as isize).contains(&read) {
                        let written = i * axis.every + axis.phase;
                        assert!(written < axis.all, "{axis:?}");
                        found.push((written, read as usize, axis.first + t * axis.stride));
                    }
                }
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn axes_meet_as_the_definition_says_forwards_and_backwards() {
        for (size, kernel, stride) in
            [(7, 3, 1), (8, 4, 2), (9, 1, 1), (5, 5, 3), (6, 2, 3), (1, 3, 1), (11, 7, 4), (4, 1, 2)]
        {
            let plain = Conv2dShape::new(1, 1, [kernel, 1], [size, 1]).with_stride([stride, 1]);
            for shape in [plain, plain.valid(), plain.full()].into_iter().filter(|s| s.check().is_ok()) {
                let mut expected = Vec::new();
                for i in 0..shape.output()[0] {
                    for k in 0..kernel {
                        if let Some(x) = (i * stride + k).checked_sub(shape.before[0]).filter(|x| *x < size) {
                            expected.push((i, x, k));
                        }
                    }
                }
                expected.sort_unstable();
                assert_eq!(meet(&[shape.forward_axis(0)]), expected, "{shape:?}");
                let phases: Vec<Axis> = (0..stride).map(|phase| shape.backward_axis(0, phase)).collect();
                let mut turned: Vec<_> = expected.iter().map(|(y, x, k)| (*x, *y, *k)).collect();
                turned.sort_unstable();
                assert_eq!(meet(&phases), turned, "{shape:?}");
                // Every point of the input is written once.
                let points: usize = phases.iter().map(|axis| axis.to).sum();
                assert_eq!(points, size);
            }
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        assert!(Conv2dShape::new(1, 0, [3, 3], [4, 4]).check().is_err());
        assert!(Conv2dShape::new(1, 1, [3, 3], [4, 4]).with_stride([0, 1]).check().is_err());
        let small = Conv2dShape::new(1, 1, [3, 3], [2, 4]).valid().check().unwrap_err();
        assert!(small.is_input() && small.to_string().contains("smaller than the kernel"), "{small}");
        assert!(Conv2dShape::new(3, 64, [3, 3], [1, 1]).check().is_ok());
    }
}
