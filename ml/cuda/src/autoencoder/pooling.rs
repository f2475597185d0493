//! What comes between convolutions: bias, nonlinearity, max-pooling with switches, un-pooling, and their gradients.
//!
//! All are bound by memory: each reads its inputs once and writes its outputs once, 8 channels at a time where their
//! number allows it. Buffers start at the first row of the first sample: addresses, not offsets, are passed.

use super::shape::Activation;
use crate::{Card, Level, Result, launch::Launch, memory::Values};

/// Series of some channels at one place of the network, and what lies behind them: a pooling from `wide` to `narrow`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooling {
    pub samples: usize,
    pub wide: Level,
    pub narrow: Level,
    pub channels: usize,
    /// 1 without pooling.
    pub window: usize,
    pub activation: Activation,
    pub values: Values,
}

/// Blocks for about 8 a multiprocessor, of 256 threads each.
const BLOCKS: usize = 8;
const THREADS: usize = 256;

impl Pooling {
    fn vector(&self) -> usize {
        if self.channels.is_multiple_of(8) { 8 } else { 1 }
    }

    fn name(&self, kernel: &str) -> String {
        format!("{kernel}{}_{}", self.vector(), self.values.suffix())
    }

    fn blocks(&self, rows: usize) -> usize {
        (rows * self.channels / self.vector()).div_ceil(THREADS).clamp(1, 1 << 20)
    }

    /// Blocks of the kernels that sum over rows, along rows and along channels, and vectors of a block.
    fn summing(&self, card: &Card, rows: usize) -> ([usize; 3], usize) {
        let vectors = self.channels / self.vector();
        let columns = vectors.min(THREADS);
        let lanes = THREADS / columns;
        let most = (BLOCKS * card.multiprocessors()).div_ceil(vectors.div_ceil(columns));
        ([rows.div_ceil(lanes).clamp(1, most), vectors.div_ceil(columns), 1], columns)
    }

    /// Rows of partial sums that [`Self::backward`] and [`Self::unpool_backward`] write.
    pub fn parts(&self, card: &Card) -> usize {
        self.summing(card, self.samples * self.narrow.length).0[0]
    }

    /// `raw` (wide) + bias → nonlinearity → `out` (narrow), and switches if there is a pooling.
    pub unsafe fn forward(&self, card: &Card, [raw, bias, out, switches]: [u64; 4]) -> Result<()> {
        let launch = Launch::of(card, self.name("pool_forward"))
            .pointer(raw)
            .pointer(bias)
            .pointer(out)
            .pointer(if self.window > 1 { switches } else { 0 })
            .int(self.samples)
            .level(self.wide)
            .level(self.narrow)
            .int(self.channels)
            .int(self.window)
            .int(self.activation as usize);
        // SAFETY: the caller's.
        unsafe { launch.run([self.blocks(self.samples * self.narrow.length), 1, 1], [THREADS, 1], 0) }
    }

    /// `raw` (narrow) + bias → nonlinearity → `out` (wide), by the switches or, if these are null, by repetition.
    pub unsafe fn unpool(&self, card: &Card, [raw, bias, switches, out]: [u64; 4]) -> Result<()> {
        let launch = Launch::of(card, self.name("unpool_forward"))
            .pointer(raw)
            .pointer(bias)
            .pointer(if self.window > 1 { switches } else { 0 })
            .pointer(out)
            .int(self.samples)
            .level(self.narrow)
            .level(self.wide)
            .int(self.channels)
            .int(self.window)
            .int(self.activation as usize);
        // SAFETY: the caller's.
        unsafe { launch.run([self.blocks(self.samples * self.narrow.length), 1, 1], [THREADS, 1], 0) }
    }

    /// The gradient of [`Self::forward`]: `gradient` of its output `y`, plus λ(y − mirror) if there is a mirror, → `out`
    /// (wide), and its sums over rows → `partial`.
    pub unsafe fn backward(
        &self,
        card: &Card,
        [gradient, y, mirror, switches, out, partial, control]: [u64; 7],
        lambda: f32,
    ) -> Result<()> {
        let (grid, columns) = self.summing(card, self.samples * self.narrow.length);
        let launch = Launch::of(card, self.name("pool_backward"))
            .pointer(gradient)
            .pointer(y)
            .pointer(mirror)
            .pointer(if self.window > 1 { switches } else { 0 })
            .pointer(out)
            .pointer(partial)
            .pointer(control)
            .float(lambda)
            .int(self.samples)
            .level(self.wide)
            .level(self.narrow)
            .int(self.channels)
            .int(self.window)
            .int(self.activation as usize)
            .int(columns);
        // SAFETY: the caller's.
        unsafe { launch.run(grid, [THREADS, 1], 0) }
    }

    /// The gradient of [`Self::unpool`]: `gradient` of its output `u` (null if no nonlinearity came before it) → `out`
    /// (narrow), and its sums over rows → `partial`, if that is not null.
    pub unsafe fn unpool_backward(
        &self,
        card: &Card,
        [gradient, u, switches, out, partial]: [u64; 5],
    ) -> Result<()> {
        let (grid, columns) = self.summing(card, self.samples * self.narrow.length);
        let launch = Launch::of(card, self.name("unpool_backward"))
            .pointer(gradient)
            .pointer(u)
            .pointer(if self.window > 1 { switches } else { 0 })
            .pointer(out)
            .pointer(partial)
            .int(self.samples)
            .level(self.narrow)
            .level(self.wide)
            .int(self.channels)
            .int(self.window)
            .int(self.activation as usize)
            .int(columns);
        // SAFETY: the caller's.
        unsafe { launch.run(grid, [THREADS, 1], 0) }
    }
}
