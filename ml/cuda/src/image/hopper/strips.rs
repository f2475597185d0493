//! The gradient of the weights: what `image_strips.cu` is told.

use super::{
    BARRIERS, BESIDE, CACHE, Hopper,
    cut::STAGES,
    map::{map, rounded},
};
use crate::{Card, Precision, Result, launch::Launch, memory::Memory};

/// Filters of a block of the weights' gradient.
const STRIP: usize = 64;

impl Hopper {
    /// The kernels of the weights' gradient take 3 × 3 taps at a time.
    pub fn has_weight_gradient(&self) -> bool {
        let taps = self.shape.kernel.map(|k| k.next_multiple_of(3));
        taps[0] * taps[1] <= 3 * self.shape.taps()
    }

    /// Blocks of a part of the weights' gradient: of 64 filters and a chunk of channels each.
    pub fn weight_tiles(&self) -> usize {
        let shape = &self.shape;
        let [lines, columns] = shape.kernel.map(|k| k.div_ceil(3));
        shape.filters.div_ceil(STRIP) * shape.channels.div_ceil(self.chunk()) * lines * columns
    }

    /// Bytes of a tile of the weights' gradient: the gradients of the output, and patches for 3 columns of the filter.
    fn strip_room(&self, lines: usize) -> usize {
        (STRIP / self.chunk() * lines + 3 * (lines + 2)) * 1024
    }

    /// Lines of a tile of the weights' gradient, an even number, and stages.
    pub(super) fn strip(&self) -> (usize, usize) {
        let height = self.shape.output()[0];
        let stages =
            |lines: usize| ((self.most_shared - BESIDE - BARRIERS) / self.strip_room(lines)).min(STAGES);
        // Cycles of a line's products, by rate.
        let line = if self.precision == Precision::Bf16 { 144 } else { 240 };
        let cost = |lines: usize| {
            height.div_ceil(lines) * ((line * lines).max(self.strip_room(lines) / CACHE as usize) + 100)
        };
        let lines = (2..=16).step_by(2).filter(|lines| stages(*lines) >= 2);
        let lines = lines.min_by_key(|lines| (cost(*lines), 16 - lines)).unwrap_or(2);
        (lines, stages(lines))
    }

    /// Parts of the weights' gradient, `wanted` of them or fewer, `[part][tap][filter][channel]`; returns how many.
    pub fn weight_gradient(
        &self,
        card: &Card,
        samples: usize,
        [x, dy, parts]: [&Memory; 3],
        wanted: usize,
    ) -> Result<usize> {
        let (shape, (lines, stages), chunk) = (&self.shape, self.strip(), self.chunk());
        let [height, width] = shape.output();
        let (down, across) = (height.div_ceil(lines), width.div_ceil(8));
        let tiles = samples * down * across;
        let share = tiles.div_ceil(wanted.max(1)).max(1);
        let found = tiles.div_ceil(share);
        let kind = rounded(self.precision);
        let sizes = [shape.channels, shape.size[1], shape.size[0], samples];
        let x = map(x, kind, &sizes, &[chunk, 8, lines + 2, 1])?;
        let dy = map(dy, kind, &[shape.filters, width, height, samples], &[chunk, 8, lines, 1])?;
        let walk = [
            shape.kernel[0],
            shape.kernel[1],
            shape.before[0],
            shape.before[1],
            lines,
            down,
            across,
            tiles,
            share,
            shape.filters.div_ceil(STRIP),
            shape.channels.div_ceil(chunk),
            shape.kernel[0].div_ceil(3),
            stages,
            (lines + 2) * 1024,
            shape.channels,
            shape.filters,
        ]
        .map(|n| n as i32);
        let launch = Launch::of_images(card, format!("image_strips_{}", self.precision.name()))
            .words(&x)
            .words(&dy)
            .pointer(parts.at(0))
            .ints(&walk);
        let shared = stages * self.strip_room(lines) + BESIDE;
        // SAFETY: as in `run`; the caller has room for the parts that it wants.
        unsafe { launch.run([self.weight_tiles(), found, 1], [416, 1], shared)? };
        Ok(found)
    }
}
