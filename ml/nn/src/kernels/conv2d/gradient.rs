//! The gradients of weights and bias of a convolution of images.

use super::Conv2dShape;
use crate::kernels::{
    real::Real,
    tile::{Block, Depth, PANEL, Strides, tile},
};
use rayon::prelude::*;

/// Points of the output that are summed into the gradient of the weights before other taps take their turn: with them
/// lines of input and gradient stay in a near cache.
const NEAR: usize = 224;
/// Sums that the gradient of the weights is at least cut into, for as many threads.
const SUMS: usize = 16;

/// The gradients of weights and bias, summed over samples.
///
/// They lie as `[out panel][in panel][slice][kh·kw·lanes + 1][32]`: a slice is the sum over some lines of the samples, the
/// last row of the first input panel that of the bias.
#[derive(Clone, Debug)]
pub(crate) struct WeightGradient2d<E> {
    shape: Conv2dShape,
    slices: usize,
    values: Vec<[E; PANEL]>,
}

impl<E: Real> WeightGradient2d<E> {
    pub fn zeros(shape: Conv2dShape) -> Self {
        let (input, filters) = (shape.x().side, shape.filters.div_ceil(PANEL));
        let blocks = filters * input.panels();
        let slices = SUMS.div_ceil(blocks.max(1));
        let rows = shape.taps() * input.width + 1;
        Self { shape, slices, values: vec![[E::default(); PANEL]; blocks * slices * rows] }
    }

    pub fn clear(&mut self) {
        self.values.fill([E::default(); PANEL]);
    }

    /// Adds samples `x` and `dy`, as [`Conv2dShape::x`] and [`Conv2dShape::dy`] lay them out.
    pub fn add(&mut self, x: &[E], dy: &[E]) {
        let shape = self.shape;
        let (x_images, dy_images, [height, width]) = (shape.x(), shape.dy(), shape.output());
        let samples = x.len() / x_images.len().max(1);
        if height * width == 0 || samples == 0 || self.values.is_empty() {
            return;
        }
        let (input, slices) = (x_images.side, self.slices);
        let rows = shape.taps() * input.width;
        let lines = NEAR.div_ceil(width).min(height);
        let cuts = height.div_ceil(lines);
        let each = (samples * cuts).div_ceil(slices);
        self.values.par_chunks_mut(rows + 1).enumerate().for_each(|(i, block)| {
            let (block, bias) = block.split_at_mut(rows);
            let (slice, from, to) = (i % slices, i / slices % input.panels(), i / slices / input.panels());
            for part in slice * each..(samples * cuts).min((slice + 1) * each) {
                let (sample, first) = (part / cuts, part % cuts * lines);
                let x = &x[sample * x_images.len()..][..x_images.len()];
                let dy = &dy[sample * dy_images.len()..][..dy_images.len()];
                let depth = Depth { rounds: lines.min(height - first), steps: width };
                let strides = Strides {
                    row: 1,
                    step: shape.stride[1] * input.width,
                    round: shape.stride[0] * x_images.line(),
                    round_of_b: dy_images.line(),
                };
                let b = (first + dy_images.before[0]) * dy_images.line() + to * dy_images.panel_line();
                let b = &dy[b + dy_images.before[1] * PANEL..];
                for (k, block) in block.chunks_exact_mut(rows / shape.kernel[0]).enumerate() {
                    let a = (first * shape.stride[0] + k) * x_images.line() + from * x_images.panel_line();
                    tile(&x[a..], strides, b, depth, block);
                }
                if from == 0 {
                    for line in b.chunks(dy_images.line()).take(depth.rounds) {
                        for point in line[..width * PANEL].as_chunks::<PANEL>().0 {
                            bias[0].iter_mut().zip(point).for_each(|(sum, value)| *sum += *value);
                        }
                    }
                }
            }
        });
    }

    /// The sums as `[filters, channels, kh, kw]` and `[filters]`.
    pub fn give(&mut self, weight: &mut [E], bias: &mut [E]) {
        let (shape, slices) = (self.shape, self.slices);
        let (input, taps) = (shape.x().side, shape.taps());
        let rows = taps * input.width + 1;
        if slices > 1 {
            self.values.par_chunks_mut(slices * rows).for_each(|block| add_up(block, rows));
        }
        let sum = &self.values;
        weight.par_chunks_mut((shape.channels * taps).max(1)).enumerate().for_each(|(o, weight)| {
            for (c, weight) in weight.chunks_exact_mut(taps).enumerate() {
                let block = (o / PANEL * input.panels() + c / input.width) * slices * rows;
                for (tap, weight) in weight.iter_mut().enumerate() {
                    *weight = sum[block + tap * input.width + c % input.width][o % PANEL];
                }
            }
        });
        for (o, bias) in bias.iter_mut().enumerate() {
            *bias = sum[o / PANEL * input.panels() * slices * rows + rows - 1][o % PANEL];
        }
    }
}

/// The first slice of `rows` rows becomes the sum of all, in their order.
fn add_up<E: Real>(slices: &mut Block<E>, rows: usize) {
    let (sum, rest) = slices.split_at_mut(rows);
    for slice in rest.chunks_exact(rows) {
        let values = sum.as_flattened_mut().iter_mut().zip(slice.as_flattened());
        values.for_each(|(sum, value)| *sum += *value);
    }
}
