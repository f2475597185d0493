//! Convolution of images: forward with bias and ReLU, and both gradients, without im2col.
//!
//! ```text
//!   y[o, i, j]      = b[o] + Σ_c Σ_k Σ_l w[o, c, k, l]·x[c, s·i + k − above, s·j + l − left]
//!   dx[c, s·i + a…] = Σ_o over the taps k ≡ a + above (mod s)        for each of s·s phases (a, b) a correlation of dy
//!   dw[o, c, k, l]  = Σ_n Σ_i Σ_j x[c, s·i + k − above, s·j + l − left]·dy[o, i, j]
//! ```
//! In a padded image ([`Images`]) what a line of an output needs lies at equal distances, so all three are sums of
//! [`tile`]s as in [`super::conv1d`], and no operation is spent on zeros between strides. Work is cut into lines and
//! panels of channels; no sum is cut in a way that depends on the number of threads.
//!
//! Cost: 2·height·width·kh·kw·32⌈channels/32⌉·32⌈filters/32⌉ floating-point operations a sample, with height and width of
//! the output, for each of the three; fewer than 32 input channels cost what they are, forward and for the weights.

use super::{
    images::Images,
    maps::Side,
    planes::Planes,
    real::Real,
    tile::{Block, Depth, PANEL, Strides, tile},
    transpose::Extent,
};
use rayon::prelude::*;
use std::ops::Range;

mod gradient;
pub(crate) mod operation;

pub(crate) use gradient::WeightGradient2d;

/// Points of the output, of some lines or of a part of one, that are summed at once.
const POINTS: usize = 96;
/// Points of a panel that one thread makes at a time.
const PART: usize = 192;
/// Steps of a sum after which the next points take their turn, so that the weights stay in the nearest cache.
const STEPS: usize = 96;
/// Input, filters and output of a convolution of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conv2dShape {
    pub channels: usize,
    pub filters: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Height and width of the input.
    pub size: [usize; 2],
    /// Zeros above it and on its left, below it and on its right.
    pub before: [usize; 2],
    pub after: [usize; 2],
}

/// The points of the input, of one axis, that are `phase` beyond a multiple of the stride.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The last tap that meets them, and how many do, a stride apart.
    last: usize,
    taps: usize,
    /// Where the first of them starts to read the padded gradient.
    start: usize,
}

impl Conv2dShape {
    /// Height and width of the output; zero where the kernel is larger than the padded input.
    pub fn output(&self) -> [usize; 2] {
        std::array::from_fn(|i| {
            let padded = self.size[i] + self.before[i] + self.after[i];
            padded.checked_sub(self.kernel[i]).map_or(0, |room| room / self.stride[i] + 1)
        })
    }

    #[cfg(test)]
    pub fn weights(&self) -> usize {
        self.filters * self.channels * self.taps()
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The input as [`Filters2d`] and [`WeightGradient2d`] read it.
    pub fn x(&self) -> Images {
        Images { side: Side::narrow(self.channels), size: self.size, before: self.before, after: self.after }
    }

    /// The gradient of the output as both gradients read it.
    pub fn dy(&self) -> Images {
        let size = self.output();
        let padding: [[usize; 2]; 2] = std::array::from_fn(|axis| self.padding_of_dy(axis, size[axis]));
        Images {
            side: Side::panels_of(self.filters),
            size,
            before: padding.map(|[before, _]| before),
            after: padding.map(|[_, after]| after),
        }
    }

    /// Of one axis and phase: its first tap, number of taps, and the place in the gradient of the first.
    fn reach(&self, axis: usize, phase: usize) -> (usize, usize, usize) {
        let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
        let first = (phase + self.before[axis]) % stride;
        let taps = kernel.saturating_sub(first).div_ceil(stride);
        (first, taps, (phase + self.before[axis]) / stride)
    }

    fn padding_of_dy(&self, axis: usize, output: usize) -> [usize; 2] {
        let (size, stride) = (self.size[axis], self.stride[axis]);
        let (mut before, mut after) = (0, 0);
        for phase in 0..stride.min(size) {
            let (_, taps, base) = self.reach(axis, phase);
            before = before.max((taps.max(1) - 1).saturating_sub(base));
            let last = base + (size - 1 - phase) / stride;
            after = after.max((last + 1).saturating_sub(output));
        }
        [before, after]
    }

    fn phases(&self, axis: usize, dy: &Images) -> Vec<Phase> {
        let stride = self.stride[axis];
        (0..stride)
            .map(|phase| {
                let (first, taps, base) = self.reach(axis, phase);
                let start = (dy.before[axis] + 1 + base).saturating_sub(taps.max(1));
                Phase { last: first + stride * (taps.max(1) - 1), taps, start }
            })
            .collect()
    }
}

/// Weights of a correlation as tiles read them: `[out panel][tap line][in panel][tap column][in lane][32]`.
#[derive(Clone, Debug)]
struct Taps<E> {
    lines: usize,
    columns: usize,
    input: Side,
    outputs: usize,
    values: Vec<E>,
}

impl<E: Real> Taps<E> {
    fn new([lines, columns]: [usize; 2], input: Side, outputs: usize) -> Self {
        let rows = lines * columns * input.panels() * input.width;
        Self {
            lines,
            columns,
            input,
            outputs,
            values: vec![E::default(); outputs.div_ceil(PANEL) * rows * PANEL],
        }
    }

    /// Steps of a round: what lies side by side in a line of a panel.
    fn steps(&self) -> usize {
        self.columns * self.input.width
    }

    /// `value(o, c, line, column)` for every weight.
    fn fill(&mut self, value: impl Fn(usize, usize, usize, usize) -> E + Sync) {
        let (steps, panels, width) = (self.steps(), self.input.panels(), self.input.width);
        let (channels, outputs, lines) = (self.input.channels, self.outputs, self.lines);
        if self.values.is_empty() {
            return;
        }
        self.values.par_chunks_mut(steps * PANEL).enumerate().for_each(|(round, rows)| {
            let (line, in_panel) = (round / panels % lines, round % panels);
            let first = round / panels / lines * PANEL;
            for (step, row) in rows.chunks_exact_mut(PANEL).enumerate() {
                let (column, c) = (step / width, in_panel * width + step % width);
                if c < channels {
                    row.iter_mut().zip(first..outputs).for_each(|(v, o)| *v = value(o, c, line, column));
                }
            }
        });
    }

    /// Adds, for the points of some output lines, what a panel of outputs gets from `x`, which starts at the first value
    /// that the first point reads; points are `row` values apart, lines `line`.
    fn add(&self, panel: usize, images: &Images, x: &[E], (row, line): (usize, usize), lines: Lines<E>) {
        let (rounds, steps) = (self.lines * self.input.panels(), self.steps());
        let (round, round_of_b) = (images.panel_line(), steps * PANEL);
        let strides = Strides { row, step: 1, round, round_of_b };
        let weights = &self.values[panel * rounds * round_of_b..(panel + 1) * rounds * round_of_b];
        let at_once = (STEPS / steps).max(1);
        for first in (0..rounds).step_by(at_once) {
            let depth = Depth { rounds: at_once.min(rounds - first), steps };
            for (i, block) in lines.block.chunks_mut(lines.points).enumerate() {
                tile(&x[i * line + first * round..], strides, &weights[first * round_of_b..], depth, block);
            }
        }
    }
}

/// Points of output lines, one line after the other.
struct Lines<'a, E> {
    points: usize,
    block: &'a mut Block<E>,
}

/// The filters of a convolution, for its output or for the gradient of its input.
#[derive(Clone, Debug)]
pub(crate) struct Filters2d<E> {
    shape: Conv2dShape,
    bias: Vec<[E; PANEL]>,
    forward: Taps<E>,
    /// `[phase of lines][phase of columns]`.
    backward: Vec<Taps<E>>,
}

/// A part of an output that one thread makes: some lines of a panel of a sample.
struct Part {
    sample: usize,
    panel: usize,
    lines: Range<usize>,
}

/// What a part works in.
struct Room<E> {
    block: [[E; PANEL]; POINTS],
    /// The points of a line, `[32][`[`POINTS`]`]`.
    turned: [E; PANEL * POINTS],
}

impl<E: Real> Filters2d<E> {
    pub fn new(shape: Conv2dShape) -> Self {
        let dy = shape.dy();
        let lines = shape.phases(0, &dy);
        let columns = shape.phases(1, &dy);
        let backward = lines.iter().flat_map(|l| columns.iter().map(move |c| [l.taps, c.taps]));
        Self {
            bias: vec![[E::default(); PANEL]; shape.filters.div_ceil(PANEL)],
            forward: Taps::new(shape.kernel, Side::narrow(shape.channels), shape.filters),
            backward: backward.map(|taps| Taps::new(taps, dy.side, shape.channels)).collect(),
            shape,
        }
    }

    /// Takes over `weight` `[filters, channels, kh, kw]` and `bias` `[filters]` for [`Self::apply`].
    pub fn pack(&mut self, weight: &[E], bias: &[E]) {
        for (panel, bias) in self.bias.iter_mut().zip(bias.chunks(PANEL)) {
            panel[..bias.len()].copy_from_slice(bias);
        }
        let (channels, [kh, kw]) = (self.shape.channels, self.shape.kernel);
        self.forward.fill(|o, c, k, l| weight[((o * channels + c) * kh + k) * kw + l]);
    }

    /// Takes over `weight` for [`Self::apply_backward`].
    pub fn pack_backward(&mut self, weight: &[E]) {
        let (shape, dy) = (self.shape, self.shape.dy());
        let ([kh, kw], [sh, sw]) = (shape.kernel, shape.stride);
        let (lines, columns) = (shape.phases(0, &dy), shape.phases(1, &dy));
        for (taps, (l, c)) in
            self.backward.iter_mut().zip(lines.iter().flat_map(|l| columns.iter().map(move |c| (l, c))))
        {
            taps.fill(|channel, filter, k, l_| {
                let (k, l) = (l.last - sh * k, c.last - sw * l_);
                weight[((filter * shape.channels + channel) * kh + k) * kw + l]
            });
        }
    }

    /// `x`, samples as [`Conv2dShape::x`] lays them out → `y` `[samples, filters, height, width]`, after `max(y, 0)` if
    /// `relu`.
    pub fn apply(&self, x: &[E], relu: bool, y: &mut [E]) {
        let (shape, images, [height, width]) = (self.shape, self.shape.x(), self.shape.output());
        let planes = Planes::new(y, width);
        let row = shape.stride[1] * images.side.width;
        let zero = E::default();
        self.each_part(
            x.len() / images.len(),
            [height, width],
            shape.filters,
            self.forward.values.len(),
            |part, room| {
                let x = &x[part.sample * images.len()..][..images.len()];
                let channels = PANEL.min(shape.filters - part.panel * PANEL);
                let first = (part.sample * shape.filters + part.panel * PANEL) * height;
                let line_of_x = shape.stride[0] * images.line();
                for lines in groups(part.lines, width) {
                    for points in pieces(width) {
                        let mut block = [[zero; PANEL]; POINTS];
                        let block = &mut block[..lines.len() * points.len()];
                        block.fill(self.bias[part.panel]);
                        let from = &x[lines.start * line_of_x + points.start * row..];
                        let these = Lines { points: points.len(), block: &mut *block };
                        self.forward.add(part.panel, &images, from, (row, line_of_x), these);
                        if relu {
                            let values = block.as_flattened_mut().iter_mut();
                            values.for_each(|v| *v = if *v > zero { *v } else { zero });
                        }
                        for (line, block) in lines.clone().zip(block.chunks(points.len())) {
                            give(
                                &planes,
                                first + line,
                                height,
                                channels,
                                points.clone(),
                                block,
                                &mut room.turned,
                            );
                        }
                    }
                }
            },
        );
    }

    /// `dy`, samples as [`Conv2dShape::dy`] lays them out → `dx` `[samples, channels, height, width]`.
    pub fn apply_backward(&self, dy: &[E], dx: &mut [E]) {
        let (shape, images, [height, width]) = (self.shape, self.shape.dy(), self.shape.size);
        let planes = Planes::new(dx, width);
        let (lines_of_dy, columns) = (shape.phases(0, &images), shape.phases(1, &images));
        let weights = self.backward.iter().map(|taps| taps.values.len()).sum();
        let [sh, sw] = shape.stride;
        self.each_part(dy.len() / images.len(), [height, width], shape.channels, weights, |part, room| {
            let dy = &dy[part.sample * images.len()..][..images.len()];
            let channels = PANEL.min(shape.channels - part.panel * PANEL);
            let first = (part.sample * shape.channels + part.panel * PANEL) * height;
            // Lines of different phases have different taps.
            let limit = if sh == 1 { width } else { POINTS };
            for lines in groups(part.lines, limit) {
                let phase_of_lines = &lines_of_dy[lines.start % sh];
                let from = (phase_of_lines.start + lines.start / sh) * images.line();
                for (b, phase) in columns.iter().enumerate().take(width) {
                    let taps = &self.backward[lines.start % sh * sw + b];
                    for points in pieces((width - b).div_ceil(sw)) {
                        let block = &mut room.block[..lines.len() * points.len()];
                        block.fill([E::default(); PANEL]);
                        if taps.lines * taps.columns > 0 {
                            let from = &dy[from + (phase.start + points.start) * PANEL..];
                            let these = Lines { points: points.len(), block: &mut *block };
                            taps.add(part.panel, &images, from, (PANEL, images.line()), these);
                        }
                        for (line, block) in lines.clone().zip(block.chunks(points.len())) {
                            if sw == 1 {
                                give(
                                    &planes,
                                    first + line,
                                    height,
                                    channels,
                                    points.clone(),
                                    block,
                                    &mut room.turned,
                                );
                            } else {
                                scatter(
                                    &planes,
                                    first + line,
                                    height,
                                    channels,
                                    (b + points.start * sw, sw),
                                    block,
                                );
                            }
                        }
                    }
                }
            }
        });
    }

    /// Cuts `samples` outputs of `outputs` channels and `size` into parts of at least about [`PART`] points, and runs them in
    /// parallel. Parts of a panel follow each other if the `weights` of all panels would not stay in a near cache.
    fn each_part(
        &self,
        samples: usize,
        [height, width]: [usize; 2],
        outputs: usize,
        weights: usize,
        run: impl Fn(Part, &mut Room<E>) + Sync + Send,
    ) {
        let panels = outputs.div_ceil(PANEL);
        let cuts = (height * width).div_ceil(PART).clamp(1, height.max(1));
        let lines = height.div_ceil(cuts).max(1);
        let cuts = height.div_ceil(lines);
        let by_panel = weights * size_of::<E>() > 1 << 20;
        (0..samples * panels * cuts).into_par_iter().for_each(|i| {
            let (sample, panel, cut) = if by_panel {
                (i / cuts % samples, i / cuts / samples, i % cuts)
            } else {
                (i / panels / cuts, i % panels, i / panels % cuts)
            };
            let part = Part { sample, panel, lines: cut * lines..height.min((cut + 1) * lines) };
            let mut room =
                Room { block: [[E::default(); PANEL]; POINTS], turned: [E::default(); PANEL * POINTS] };
            run(part, &mut room);
        });
    }
}

/// Lines in groups of at most [`POINTS`] points.
fn groups(lines: Range<usize>, width: usize) -> impl Iterator<Item = Range<usize>> {
    let each = (POINTS / width.max(1)).max(1);
    let groups = lines.len().div_ceil(each).max(1);
    let each = lines.len().div_ceil(groups).max(1);
    lines.clone().step_by(each).map(move |first| first..lines.end.min(first + each))
}

/// `0..n` in pieces of about equal length, at most [`POINTS`].
fn pieces(n: usize) -> impl Iterator<Item = Range<usize>> {
    let each = n.div_ceil(n.div_ceil(POINTS).max(1)).next_multiple_of(8).min(POINTS);
    (0..n).step_by(each).map(move |first| first..n.min(first + each))
}

/// Points of a line of `channels` planes, whose rows are `height` apart.
#[allow(unsafe_code)] // a part writes its own lines of its own planes
fn give<E: Real>(
    planes: &Planes<E>,
    first: usize,
    height: usize,
    channels: usize,
    points: Range<usize>,
    block: &Block<E>,
    turned: &mut [E; PANEL * POINTS],
) {
    let extent = Extent { rows: points.len(), columns: channels };
    E::transpose(block.as_flattened(), PANEL, turned, POINTS, extent);
    for (channel, values) in turned.chunks_exact(POINTS).take(channels).enumerate() {
        // SAFETY: the line of this plane belongs to this part alone.
        let row = unsafe { planes.row(first + channel * height) };
        row[points.clone()].copy_from_slice(&values[..points.len()]);
    }
}

/// As [`give`], of points that are a stride apart.
#[allow(unsafe_code)] // as in `give`
fn scatter<E: Real>(
    planes: &Planes<E>,
    first: usize,
    height: usize,
    channels: usize,
    (start, stride): (usize, usize),
    block: &Block<E>,
) {
    for channel in 0..channels {
        // SAFETY: the line of this plane belongs to this part alone.
        let row = unsafe { planes.row(first + channel * height) };
        let to = row[start..].iter_mut().step_by(stride);
        to.zip(block).for_each(|(to, point)| *to = point[channel]);
    }
}

#[cfg(test)]
mod tests;
