//! The kernels for any card, and the parts of the weights' gradient.

use super::{
    super::shape::{Axis, Conv2dShape},
    Conv2d,
};
use crate::{Operand, Product, Result, launch::Launch, memory::Memory};

/// Points, and channels or filters, of a tile of the kernels for any card.
const ROWS: usize = 128;
const COLUMNS: usize = 64;
const THREADS: usize = 128;
/// Points of a step of a sum.
const DEPTH: usize = 16;
/// Bytes of parts of the weights' gradient at most, unless one part is larger.
const PARTS: usize = 256 << 20;

impl Conv2d {
    /// Parts of the weights' gradient, `wanted` of them or fewer, `[part][tap][channel][filter]`; returns how many.
    pub(super) fn parts_of_points(
        &self,
        samples: usize,
        wanted: usize,
        x: &Memory,
        dy: &Memory,
    ) -> Result<usize> {
        if let Some(pitch) = self.pitch().filter(|_| samples > 0) {
            return self.parts_of_windows(samples, pitch, wanted, x, dy);
        }
        let Conv2dShape { channels, filters, .. } = self.shape;
        let points = self.points_of(samples);
        let share = points.div_ceil(wanted).next_multiple_of(DEPTH).max(DEPTH);
        let parts = points.div_ceil(share).max(1);
        let launch = Launch::of_images(&self.card, self.name("weights", [channels, filters]))
            .pointer(x.at(0))
            .pointer(dy.at(0))
            .pointer(self.parts.at(0))
            .ints(&geometry(samples, self.forward_axes(), [channels, filters], self.shape.kernel[1]))
            .int(share);
        let grid = [(self.shape.taps() * channels).div_ceil(ROWS), filters.div_ceil(COLUMNS), parts];
        // SAFETY: the caller has checked the sizes of all buffers; there is room for the parts.
        unsafe { launch.run(grid, [THREADS, 1], 0)? };
        Ok(parts)
    }

    pub(super) fn forward_axes(&self) -> [Axis; 2] {
        [self.shape.forward_axis(0), self.shape.forward_axis(1)]
    }

    /// Parts of the weights' gradient of an input of few channels: its windows, side by side, are a matrix whose rows are
    /// points, and the parts are products with the gradient of the output over equal numbers of points.
    fn parts_of_windows(
        &self,
        samples: usize,
        pitch: usize,
        parts: usize,
        x: &Memory,
        dy: &Memory,
    ) -> Result<usize> {
        let shape = &self.shape;
        let (rows, filters) = (shape.taps() * shape.channels, shape.filters);
        let launch =
            Launch::of_images(&self.card, format!("image_windows_{}", self.precision.values().suffix()))
                .pointer(x.at(0))
                .pointer(self.windows.at(0))
                .ints(&geometry(samples, self.forward_axes(), [shape.channels, filters], shape.kernel[1]))
                .int(pitch);
        let vectors = self.points_of(samples) * pitch / 8;
        // SAFETY: there is room for the windows of all points; the caller has checked `x`.
        unsafe { launch.run([vectors.div_ceil(256).min(1 << 20), 1, 1], [256, 1], 0)? };
        let inner = self.points_of(samples) / parts;
        let operand = |leading: usize, stride: usize, transposed: bool| Operand {
            offset: 0,
            leading,
            stride,
            transposed,
        };
        let product = Product {
            rows,
            columns: filters,
            inner,
            batches: parts,
            a: operand(pitch, inner * pitch, true),
            b: operand(filters, inner * filters, false),
            c: operand(filters, rows * filters, false),
        };
        product.run(&self.card, self.precision, &self.windows, dy, &self.parts)?;
        Ok(parts)
    }

    /// Values of a window, and zeros to a multiple of 8, if the input has few channels.
    pub(super) fn pitch(&self) -> Option<usize> {
        let values = self.shape.taps() * self.shape.channels;
        (self.shape.channels <= 4 && values <= 160).then_some(values.next_multiple_of(8))
    }

    pub(super) fn points_of(&self, samples: usize) -> usize {
        samples * self.shape.output()[0] * self.shape.output()[1]
    }

    pub(super) fn points(
        &self,
        samples: usize,
        axes: [Axis; 2],
        [from, to]: [usize; 2],
        arguments: [u64; 4],
        relu: bool,
    ) -> Result<()> {
        let mut launch = Launch::of_images(&self.card, self.name("points", [from, to]));
        for pointer in arguments {
            launch = launch.pointer(pointer);
        }
        let launch = launch.ints(&geometry(samples, axes, [from, to], self.shape.kernel[1])).int(relu.into());
        let points = samples * axes[0].to * axes[1].to;
        // SAFETY: the caller has checked the sizes of all buffers.
        unsafe { launch.run([points.div_ceil(ROWS), to.div_ceil(COLUMNS), 1], [THREADS, 1], 0) }
    }

    /// The kernel of any card: how many channels it reads at once of either side follows from their numbers.
    fn name(&self, what: &str, sides: [usize; 2]) -> String {
        let at_once = match sides.map(|n| n.is_multiple_of(8)) {
            [true, true] => "88",
            [false, true] => "18",
            [_, false] => "11",
        };
        format!("image_{what}_{at_once}_{}", self.precision.name())
    }

    /// Parts of the weights' gradient: enough to give all multiprocessors work, and no more than there is room for.
    pub(super) fn parts_of_weights(&self, samples: usize) -> usize {
        let shape = &self.shape;
        let points = self.points_of(samples);
        let most = self.bounded_parts();
        if self.pitch().is_some() {
            // Of equally many points each.
            return (1..=most).rev().find(|parts| points.is_multiple_of(*parts)).unwrap_or(1);
        }
        let (tiles, wanted) = match self.hopper.as_ref().filter(|hopper| hopper.has_weight_gradient()) {
            Some(hopper) => (hopper.weight_tiles(), self.card.multiprocessors()),
            None => {
                let rows = (shape.taps() * shape.channels).div_ceil(ROWS);
                (rows * shape.filters.div_ceil(COLUMNS), 6 * self.card.multiprocessors())
            }
        };
        (wanted / tiles).clamp(1, most).min(points.div_ceil(ROWS).max(1))
    }

    /// Parts that there is room for.
    fn bounded_parts(&self) -> usize {
        let most = if self.pitch().is_some() { 2 * self.card.multiprocessors() } else { 1024 };
        (PARTS / (4 * self.shape.weights())).clamp(1, most)
    }

    /// Parts of as many samples or fewer at most.
    pub(super) fn most_parts(&self, samples: usize) -> usize {
        if self.pitch().is_some() { self.bounded_parts() } else { self.parts_of_weights(samples).max(1) }
    }
}

/// The kernels' `Geometry`.
fn geometry(samples: usize, axes: [Axis; 2], channels: [usize; 2], kernel: usize) -> Vec<i32> {
    let mut ints: Vec<i32> = axes.iter().flat_map(Axis::ints).collect();
    ints.extend([samples, channels[0], channels[1], kernel].map(|n| n as i32));
    ints
}
