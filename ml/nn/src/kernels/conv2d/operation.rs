//! A convolution of images as an operation of its own: packed weights, scratch, and the three passes.

use super::{Conv2dShape, Filters2d, WeightGradient2d};
use crate::kernels::{images::Images, real::Real};
use rayon::prelude::*;

/// Values of samples in panels that are in memory at once, input and gradient together.
const PIECE: usize = 1 << 24;
/// Most points of a line that several are taken as.
const MERGED: usize = 512;

/// A convolution whose buffers stay: after the first call of a kind nothing as large as an image is allocated.
#[derive(Clone, Debug)]
pub(crate) struct Convolution2d<E> {
    shape: Conv2dShape,
    relu: bool,
    filters: Filters2d<E>,
    sum: Option<WeightGradient2d<E>>,
    scratch: Scratch<E>,
}

/// Samples in panels: inputs, and gradients of outputs. Its values mean nothing between calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<E> {
    x: Vec<E>,
    dy: Vec<E>,
}

impl<E: Real> Convolution2d<E> {
    pub fn new(shape: Conv2dShape, relu: bool) -> Self {
        Self::with_scratch(shape, relu, Scratch::default())
    }

    /// As [`Self::new`], with the buffers of another.
    pub fn with_scratch(shape: Conv2dShape, relu: bool, scratch: Scratch<E>) -> Self {
        let shape = merged(shape);
        Self { shape, relu, filters: Filters2d::new(shape), sum: None, scratch }
    }

    pub fn into_scratch(self) -> Scratch<E> {
        self.scratch
    }

    /// `x` `[n, channels, h, w]` → `y` `[n, filters, h', w']`.
    pub fn forward(&mut self, x: &[E], weight: &[E], bias: &[E], y: &mut [E]) {
        let (images, outputs) = (self.shape.x(), plain_output(&self.shape));
        if images.plain_len() == 0 || outputs == 0 {
            return;
        }
        self.filters.pack(weight, bias);
        let piece = (PIECE / images.len()).max(1);
        for (x, y) in x.chunks(piece * images.plain_len()).zip(y.chunks_mut(piece * outputs)) {
            take(&images, x, None, &mut self.scratch.x);
            self.filters.apply(&self.scratch.x, self.relu, y);
        }
    }

    /// The gradients of `x` if wanted, weights and bias, which are overwritten, from that of the output, `dy`. `y` is the
    /// output of the same input, read if a ReLU is part of the operation.
    pub fn backward(
        &mut self,
        [x, weight, y, dy]: [&[E]; 4],
        mut dx: Option<&mut [E]>,
        dw: &mut [E],
        db: &mut [E],
    ) {
        let (images, gradients, outputs) = (self.shape.x(), self.shape.dy(), plain_output(&self.shape));
        let sum = self.sum.get_or_insert_with(|| WeightGradient2d::zeros(self.shape));
        sum.clear();
        if images.plain_len() == 0 || outputs == 0 {
            if let Some(dx) = dx {
                dx.fill(E::default());
            }
            sum.give(dw, db);
            return;
        }
        if dx.is_some() {
            self.filters.pack_backward(weight);
        }
        let piece = (PIECE / (images.len() + gradients.len())).max(1);
        let (inputs, outputs) = (piece * images.plain_len(), piece * outputs);
        for (i, (x, dy)) in x.chunks(inputs).zip(dy.chunks(outputs)).enumerate() {
            let y = self.relu.then(|| &y[i * outputs..i * outputs + dy.len()]);
            take(&gradients, dy, y, &mut self.scratch.dy);
            if let Some(dx) = &mut dx {
                self.filters.apply_backward(&self.scratch.dy, &mut dx[i * inputs..i * inputs + x.len()]);
            }
            take(&images, x, None, &mut self.scratch.x);
            sum.add(&self.scratch.x, &self.scratch.dy);
        }
        sum.give(dw, db);
    }
}

/// A convolution of single points knows no lines: several are taken as one, which makes longer runs of values.
fn merged(shape: Conv2dShape) -> Conv2dShape {
    let alone = [shape.kernel, shape.stride].iter().flatten().all(|v| *v == 1);
    let padded = [shape.before, shape.after].iter().flatten().any(|v| *v > 0);
    let [height, width] = shape.size;
    if !alone || padded || width == 0 {
        return shape;
    }
    let lines = (1..=height.min(MERGED / width)).rev().find(|lines| height % lines == 0).unwrap_or(1);
    Conv2dShape { size: [height / lines, lines * width], ..shape }
}

/// Values of a sample of the output.
fn plain_output(shape: &Conv2dShape) -> usize {
    let [height, width] = shape.output();
    shape.filters * height * width
}

/// Samples `[n, channels, h, w]`, zero where `mask` is not above zero, as `images` lays them out.
fn take<E: Real>(images: &Images, from: &[E], mask: Option<&[E]>, to: &mut Vec<E>) {
    let each = images.plain_len();
    to.resize(from.len() / each * images.len(), E::default());
    to.par_chunks_mut(images.line()).enumerate().with_min_len(4).for_each(|(i, to)| {
        let (sample, line) = (i / images.lines(), i % images.lines());
        let sample = sample * each..(sample + 1) * each;
        images.take_line(&from[sample.clone()], mask.map(|mask| &mask[sample]), line, to);
    });
}
