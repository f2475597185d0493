//! Convolution along time on feature maps in panels: forward, and both gradients, without im2col.
//!
//! ```text
//!   y[o, t]     = b[o] + Σ_c Σ_k w[o, c, k]·x[c, t + k − before]
//!   dx[c, t]    = Σ_o Σ_k w[o, c, K − 1 − k]·dy[o, t + k − (K − 1 − before)]       again a correlation
//!   dw[o, c, k] = Σ_s Σ_t x[c, t + k − before]·dy[o, t]
//! ```
//! In a padded panel the values `x[c, t + k]` for all `(k, c)` lie one after the other, so rows of im2col are read where
//! they are: with a row every 32 values, the maps are their own im2col. All three are sums of [`tile`]s; weights are
//! packed once a step, in the order in which tiles read them.
//!
//! Cost: 2·length·kernel·32⌈channels/32⌉·32⌈filters/32⌉ floating-point operations a sample, for each of the three. A
//! side of a single series costs one channel, not 32.

use super::{
    maps::{Maps, Side},
    real::Real,
    tile::{Depth, PANEL, Strides, tile},
};
use rayon::prelude::*;

/// Input and output of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conv1dShape {
    pub input: Side,
    pub output: Side,
    pub kernel: usize,
    /// Points of the input.
    pub length: usize,
    /// Zeros before and after it; at most `kernel − 1` each.
    pub before: usize,
    pub after: usize,
}

impl Conv1dShape {
    /// Output as long as the input.
    pub fn same(input: Side, output: Side, kernel: usize, length: usize) -> Self {
        Self { input, output, kernel, length, before: (kernel - 1) / 2, after: kernel / 2 }
    }

    pub fn output_length(&self) -> usize {
        (self.length + self.before + self.after + 1).saturating_sub(self.kernel)
    }

    /// The input with the padding that [`Filters::apply`] reads.
    pub fn x(&self) -> Maps {
        Maps::new(self.input, self.length).padded(self.before, self.after)
    }

    pub fn y(&self) -> Maps {
        Maps::new(self.output, self.output_length())
    }

    /// The gradient of the output with the padding that the gradient of the input reads.
    pub fn dy(&self) -> Maps {
        self.y().padded(self.kernel - 1 - self.before, self.kernel - 1 - self.after)
    }

    pub fn dx(&self) -> Maps {
        Maps::new(self.input, self.length)
    }

    /// Number of weights.
    pub fn weights(&self) -> usize {
        self.input.channels * self.output.channels * self.kernel
    }
}

/// Weights as tiles read them: `[out panel][in panel][k][in lane][32]`; for an output of a single series, whose taps
/// take the place of channels, `[panel of taps][in panel][in lane][32]`.
#[derive(Clone, Debug)]
pub(crate) struct Filters<E> {
    input: Side,
    output: Side,
    kernel: usize,
    bias: Vec<[E; PANEL]>,
    values: Vec<E>,
}

impl<E: Real> Filters<E> {
    /// The filters of the convolution.
    pub fn forward(shape: &Conv1dShape) -> Self {
        Self::zeros(shape.input, shape.output, shape.kernel)
    }

    /// The filters that turn the output's gradient into the input's.
    pub fn backward(shape: &Conv1dShape) -> Self {
        Self::zeros(shape.output, shape.input, shape.kernel)
    }

    fn zeros(input: Side, output: Side, kernel: usize) -> Self {
        let columns = if output.is_series() { kernel.div_ceil(PANEL) } else { output.panels() * kernel };
        let values = vec![E::default(); columns * input.panels() * input.width * PANEL];
        Self { input, output, kernel, bias: vec![[E::default(); PANEL]; output.panels()], values }
    }

    /// Takes over `weight` `[filters, channels, kernel]` and `bias` `[filters]` for [`Self::forward`].
    pub fn pack(&mut self, weight: &[E], bias: &[E]) {
        for (panel, bias) in self.bias.iter_mut().zip(bias.chunks(PANEL)) {
            panel[..bias.len()].copy_from_slice(bias);
        }
        let (channels, kernel) = (self.input.channels, self.kernel);
        self.fill(|o, c, k| weight[(o * channels + c) * kernel + k]);
    }

    /// Takes over `weight` `[filters, channels, kernel]` for [`Self::backward`]: turned around, and transposed.
    pub fn pack_backward(&mut self, weight: &[E]) {
        let (channels, kernel) = (self.output.channels, self.kernel);
        self.fill(|c, o, k| weight[(o * channels + c) * kernel + kernel - 1 - k]);
    }

    fn fill(&mut self, value: impl Fn(usize, usize, usize) -> E + Sync) {
        let (input, output, kernel) = (self.input, self.output, self.kernel);
        let taps = if output.is_series() { 1 } else { kernel };
        let panel = taps * input.width * PANEL;
        self.values.par_chunks_mut(panel).enumerate().for_each(|(i, rows)| {
            let (to, from) = (i / input.panels() * PANEL, i % input.panels() * input.width);
            for (row, values) in rows.chunks_exact_mut(PANEL).enumerate() {
                let (k, c) = (row / input.width, from + row % input.width);
                let columns = if output.is_series() { kernel } else { output.channels };
                if c < input.channels {
                    let columns = values.iter_mut().zip(to..columns);
                    columns.for_each(|(v, j)| {
                        *v = if output.is_series() { value(0, c, j) } else { value(j, c, k) }
                    });
                }
            }
        });
    }

    /// `x`, padded maps of some samples one after the other, → `y`, maps of `length` points without padding.
    pub fn apply(&self, x: &[E], y: &mut [E], length: usize) {
        let x_maps = Maps::new(self.input, length + self.kernel - 1);
        let y_maps = Maps::new(self.output, length);
        if self.output.is_series() {
            for (x, y) in x.chunks_exact(x_maps.len()).zip(y.chunks_exact_mut(y_maps.len())) {
                y.fill(self.bias[0][0]);
                self.add_to_series(&x_maps, x, y);
            }
            return;
        }
        let depth = Depth { rounds: self.input.panels(), steps: self.kernel * self.input.width };
        let strides = Strides {
            row: self.input.width,
            step: 1,
            round: x_maps.panel(),
            round_of_b: depth.steps * PANEL,
        };
        let weights = self.values.chunks_exact(depth.rounds * depth.steps * PANEL);
        // The weights of a panel stay in a near cache while all samples go by.
        for (panel, (weights, bias)) in weights.zip(&self.bias).enumerate() {
            for (x, y) in x.chunks_exact(x_maps.len()).zip(y.chunks_exact_mut(y_maps.len())) {
                let (rows, _) = y[panel * y_maps.panel()..][..y_maps.panel()].as_chunks_mut();
                rows.fill(*bias);
                tile(x, strides, weights, depth, rows);
            }
        }
    }

    /// An output of one channel would leave 31 columns of 32 empty: columns are taps instead, each of which adds to
    /// another point of the output.
    fn add_to_series(&self, x_maps: &Maps, x: &[E], y: &mut [E]) {
        let depth = Depth { rounds: self.input.panels(), steps: self.input.width };
        let (row, round) = (self.input.width, x_maps.panel());
        let strides = Strides { row, step: 1, round, round_of_b: depth.steps * PANEL };
        let mut block = [[E::default(); PANEL]; PANEL];
        for (panel, weights) in self.values.chunks_exact(depth.rounds * depth.steps * PANEL).enumerate() {
            let first = panel * PANEL;
            let taps = PANEL.min(self.kernel - first);
            for start in (0..x_maps.rows()).step_by(PANEL) {
                let block = &mut block[..PANEL.min(x_maps.rows() - start)];
                block.fill([E::default(); PANEL]);
                tile(&x[start * row..], strides, weights, depth, block);
                for (i, row) in block.iter().enumerate() {
                    for (k, value) in (first..).zip(&row[..taps]) {
                        if let Some(y) = (start + i).checked_sub(k).and_then(|t| y.get_mut(t)) {
                            *y += *value;
                        }
                    }
                }
            }
        }
    }
}

/// The gradient of the weights, summed over samples: `[out panel][in panel][k][in lane][32]`; for an output of a single
/// series, whose rows and columns change places, `[in panel][k, from the last][32]`.
#[derive(Clone, Debug)]
pub(crate) struct WeightGradient<E> {
    shape: Conv1dShape,
    values: Vec<E>,
}

impl<E: Real> WeightGradient<E> {
    pub fn zeros(shape: Conv1dShape) -> Self {
        assert!(!(shape.input.is_series() && shape.output.is_series()), "one side is in panels");
        let blocks = if shape.output.is_series() { 1 } else { shape.output.panels() } * shape.input.panels();
        Self { shape, values: vec![E::default(); blocks * Self::block_rows(&shape) * PANEL] }
    }

    /// Rows of the blocks that are summed up one after the other: all taps of a panel of the input.
    fn block_rows(shape: &Conv1dShape) -> usize {
        shape.kernel * if shape.output.is_series() { 1 } else { shape.input.width }
    }

    pub fn clear(&mut self) {
        self.values.fill(E::default());
    }

    /// Adds the samples of `groups`, each of them padded maps `(x, dy)` of some samples. Blocks are summed in
    /// parallel, each of them over the samples in their order.
    pub fn add<'a>(&mut self, groups: impl Iterator<Item = (&'a [E], &'a [E])> + Clone + Send + Sync) {
        let shape = self.shape;
        let block = Self::block_rows(&shape) * PANEL;
        self.values.par_chunks_mut(block).enumerate().for_each(|(i, values)| {
            let (block, _) = values.as_chunks_mut();
            for (x, dy) in groups.clone() {
                Self::add_block(&shape, i, block, x, dy);
            }
        });
    }

    fn add_block(shape: &Conv1dShape, i: usize, block: &mut [[E; PANEL]], x: &[E], dy: &[E]) {
        let (x_maps, dy_maps) = (shape.x(), shape.dy());
        let rounds = x.len() / x_maps.len();
        if shape.output.is_series() {
            let strides = Strides { row: 1, step: 1, round: dy_maps.len(), round_of_b: x_maps.len() };
            let b = &x[i * x_maps.panel() + shape.before * PANEL..];
            return tile(dy, strides, b, Depth { rounds, steps: shape.length }, block);
        }
        let (panel, from) = (i / shape.input.panels(), i % shape.input.panels());
        let strides =
            Strides { row: 1, step: shape.input.width, round: x_maps.len(), round_of_b: dy_maps.len() };
        let b = &dy[panel * dy_maps.panel() + dy_maps.before * PANEL..];
        tile(&x[from * x_maps.panel()..], strides, b, Depth { rounds, steps: dy_maps.length }, block);
    }

    /// The sum as `[filters, channels, kernel]`.
    pub fn give(&self, gradient: &mut [E]) {
        let Conv1dShape { input, output, kernel, .. } = self.shape;
        gradient.par_chunks_mut(input.channels * kernel).enumerate().for_each(|(o, gradient)| {
            for (c, taps) in gradient.chunks_exact_mut(kernel).enumerate() {
                let (panel, lane) = (c / input.width, c % input.width);
                for (k, g) in taps.iter_mut().enumerate() {
                    let (row, column) = if output.is_series() {
                        (panel * kernel + kernel - 1 - k, lane)
                    } else {
                        let block = o / PANEL * input.panels() + panel;
                        ((block * kernel + k) * input.width + lane, o % PANEL)
                    };
                    *g = self.values[row * PANEL + column];
                }
            }
        });
    }
}

/// The gradient of the bias: `dy` of some samples, padded maps, summed over samples and points, added to `bias`
/// `[filters]`.
pub(crate) fn add_bias_gradient<E: Real>(maps: &Maps, dy: &[E], bias: &mut [E]) {
    let width = maps.side.width;
    for sample in dy.chunks_exact(maps.len()) {
        for (points, bias) in maps.points(sample).zip(bias.chunks_mut(width)) {
            let mut sums = [E::default(); PANEL];
            for row in points.chunks_exact(width) {
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += *value);
            }
            bias.iter_mut().zip(sums).for_each(|(bias, sum)| *bias += sum);
        }
    }
}

#[cfg(test)]
mod tests;
