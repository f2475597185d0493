//! The first and the last convolution, from one channel and to one: kernels that do not need matrix products.

use super::shape::{Activation, AutoencoderShape};
use crate::{Card, Level, Result, launch::Launch, memory::Values};

/// Points that a thread computes at once, as in the kernels.
const RUN: usize = 16;
/// Warps of a block at most.
const WARPS: usize = 12;
/// Taps that a thread of the gradients keeps sums of.
const TAPS: usize = 24;
/// Warps of a block of the gradients.
const GRADIENT_WARPS: usize = 8;

/// The level of the series, which both have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub samples: usize,
    /// Of the series: no rows between samples.
    pub length: usize,
    /// After the first pooling.
    pub narrow: Level,
    /// Filters of the first layer.
    pub channels: usize,
    pub kernel: usize,
    pub window: usize,
    pub values: Values,
}

impl Edge {
    pub fn of(shape: &AutoencoderShape, samples: usize, values: Values) -> Self {
        let narrow = if shape.layers() > 1 { shape.level(1) } else { shape.top() };
        Self {
            samples,
            length: shape.time_points,
            narrow: Level { length: shape.lengths()[1], ..narrow },
            channels: shape.filters[0],
            kernel: shape.kernels[0],
            window: shape.window_of(0),
            values,
        }
    }

    fn before(&self) -> usize {
        (self.kernel - 1) / 2
    }

    /// Blocks a sample, and warps of each.
    fn tiles(&self) -> (usize, usize) {
        let runs = self.length.div_ceil(RUN);
        let tiles = runs.div_ceil(WARPS);
        (tiles, runs.div_ceil(tiles))
    }

    fn taps(&self) -> usize {
        self.kernel.next_multiple_of(8)
    }

    /// The first layer pools in its own kernel; if false, its output is not pooled and has no nonlinearity.
    pub fn pools_at_once(&self) -> bool {
        self.window <= 2
    }

    /// Series → `out` (and switches): pooled if [`Self::pools_at_once`], else as long as the series.
    pub unsafe fn first_forward(
        &self,
        card: &Card,
        [series, weight, bias, out, switches]: [u64; 5],
        activation: Activation,
    ) -> Result<()> {
        let (tiles, warps) = self.tiles();
        let (window, to, activation) = match self.pools_at_once() {
            true => (self.window, self.narrow, activation),
            false => (1, Level { length: self.length, stride: self.length }, Activation::Linear),
        };
        let launch = Launch::of(card, format!("first_forward{window}_{}", self.values.suffix()))
            .pointer(series)
            .pointer(weight)
            .pointer(bias)
            .pointer(out)
            .pointer(switches)
            .int(self.length)
            .level(to)
            .int(self.kernel)
            .int(self.before())
            .int(self.channels)
            .int(tiles)
            .int(activation as usize);
        let shared = 4 * (warps * RUN + self.taps());
        // SAFETY: the caller's.
        unsafe { launch.run([self.samples * tiles, 1, 1], [32, warps], shared) }
    }

    /// Blocks of the gradients' kernels along samples: the parts of their sums.
    pub fn parts(&self, card: &Card) -> usize {
        // Three blocks a multiprocessor, all with as many samples as the others.
        let rounds = self.samples.div_ceil(3 * card.multiprocessors());
        self.samples.div_ceil(rounds)
    }

    /// Values of a part of [`Self::first_backward`]'s sums: the weight's, then the bias's.
    pub fn first_part(&self) -> usize {
        (self.kernel + 1) * self.channels
    }

    /// Values of a part of [`Self::last_backward`]'s sums: the weight's, then the bias's.
    pub fn last_part(&self) -> usize {
        self.kernel * self.channels + 1
    }

    fn gradient_grid(&self, card: &Card) -> ([usize; 3], usize) {
        let shared =
            (self.length + 2 * self.kernel.next_multiple_of(TAPS)).next_multiple_of(4) + (TAPS + 1) * 32;
        ([self.parts(card), self.kernel.div_ceil(TAPS), self.channels.div_ceil(32)], 4 * shared)
    }

    /// The gradient of the pooled output, plus λ(pooled − mirror) if there is a mirror → parts of that of the parameters.
    pub unsafe fn first_backward(
        &self,
        card: &Card,
        [series, gradient, pooled, mirror, switches, partial, control]: [u64; 7],
        lambda: f32,
        activation: Activation,
    ) -> Result<()> {
        let (grid, shared) = self.gradient_grid(card);
        let launch = Launch::of(card, format!("first_backward24_{}", self.values.suffix()))
            .pointer(series)
            .pointer(gradient)
            .pointer(pooled)
            .pointer(mirror)
            .pointer(switches)
            .pointer(partial)
            .pointer(control)
            .float(lambda)
            .int(self.samples)
            .int(self.length)
            .level(self.narrow)
            .int(self.kernel)
            .int(self.before())
            .int(self.channels)
            .int(self.window)
            .int(activation as usize);
        // SAFETY: the caller's.
        unsafe { launch.run(grid, [32, GRADIENT_WARPS], shared) }
    }

    /// Entries of [`Self::last_forward`]'s losses.
    pub fn losses(&self) -> usize {
        self.samples * self.tiles().0
    }

    /// `values` (narrow), un-pooled → the decoded series (if its address is not null), the loss, and its gradient.
    pub unsafe fn last_forward(
        &self,
        card: &Card,
        [values, switches, weight, bias, series, decoded, gradient, losses, control]: [u64; 9],
    ) -> Result<()> {
        let (tiles, warps) = self.tiles();
        let vector = if self.window == 2 && self.channels.is_multiple_of(8) { 8 } else { 1 };
        let launch = Launch::of(card, format!("last_forward{vector}_{}", self.values.suffix()))
            .pointer(values)
            .pointer(if self.window > 1 { switches } else { 0 })
            .pointer(weight)
            .pointer(bias)
            .pointer(series)
            .pointer(decoded)
            .pointer(gradient)
            .pointer(losses)
            .pointer(control)
            .int(self.length)
            .level(self.narrow)
            .int(self.kernel)
            .int(self.before())
            .int(self.channels)
            .int(self.window)
            .int(tiles);
        let shared = 4 * 32 * (warps * RUN + self.taps());
        // SAFETY: the caller's.
        unsafe { launch.run([self.samples * tiles, 1, 1], [32, warps], shared) }
    }

    /// `gradient` of the decoded series → that of what gave `values`, to `out` (narrow); parts of that layer's bias's
    /// gradient (if its address is not null), and of this one's parameters'.
    pub unsafe fn last_backward(
        &self,
        card: &Card,
        [gradient, values, switches, weight, out, partial_before, partial]: [u64; 7],
        activation: Activation,
    ) -> Result<()> {
        let (grid, shared) = self.gradient_grid(card);
        let launch = Launch::of(card, format!("last_backward24_{}", self.values.suffix()))
            .pointer(gradient)
            .pointer(values)
            .pointer(if self.window > 1 { switches } else { 0 })
            .pointer(weight)
            .pointer(out)
            .pointer(partial_before)
            .pointer(partial)
            .int(self.samples)
            .int(self.length)
            .level(self.narrow)
            .int(self.kernel)
            .int(self.before())
            .int(self.channels)
            .int(self.window)
            .int(activation as usize);
        // SAFETY: the caller's.
        unsafe { launch.run(grid, [32, GRADIENT_WARPS], shared) }
    }
}
