//! Convolution of images.

use super::{
    around::{Gate, Lay, check, lay_weights, sum_parts},
    hopper::Hopper,
    shape::{Axis, Conv2dShape},
};
use crate::{Card, Operand, Precision, Product, Result, Values, launch::Launch, memory::Memory};
use std::sync::Arc;

const WHAT: &str = "a convolution of images";
/// Points, and channels or filters, of a tile of the kernels for any card.
const ROWS: usize = 128;
const COLUMNS: usize = 64;
const THREADS: usize = 128;
/// Points of a step of a sum.
const DEPTH: usize = 16;
/// Bytes of parts of the weights' gradient at most, unless one part is larger.
const PARTS: usize = 256 << 20;

/// A convolution of images of one size on a card, with weights as its kernels read them and room for parts of sums.
///
/// Cost of each pass: [`Conv2dShape::operations`] and, but for what is read again from the card's caches,
/// [`Conv2dShape::bytes`]; [`Self::backward`] also reads and writes the gradient of the output once and reads the output if
/// there is a ReLU. Sums are in float32. Nothing is allocated after [`Self::new`].
///
/// Which kernels run: on Hopper those of its matrix units, at [`Precision::Bf16`] and [`Precision::Tf32`] with stride 1 and
/// channels and filters in multiples of 8; elsewhere and otherwise kernels for any card (float32 arithmetic, or matrix
/// units at 10 bits of mantissa, which hold bfloat16 exactly). The weights' gradient of an input of at most 4 channels is a
/// product of cuBLAS with the windows of all points, which are kept: `kernel[0]·kernel[1]·channels` values a point.
#[derive(Debug)]
pub struct Conv2d {
    card: Arc<Card>,
    shape: Conv2dShape,
    precision: Precision,
    samples: usize,
    hopper: Option<Hopper>,
    forward: Memory,
    backward: Memory,
    parts: Memory,
    bias_parts: Memory,
    /// Of an input of few channels: the windows of all points.
    windows: Memory,
}

impl Conv2d {
    /// For at most `samples` images at once. Its weights are zero until [`Self::set_weights`].
    ///
    /// # Errors
    /// A shape that cannot be; a card without room, or that fails; kernels that do not compile.
    pub fn new(card: &Arc<Card>, shape: &Conv2dShape, precision: Precision, samples: usize) -> Result<Self> {
        Self::with(card, shape, precision, samples, Hopper::of(card, shape, precision))
    }

    /// The same with the kernels for any card, also where there are faster ones: to compare them.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn portable(
        card: &Arc<Card>,
        shape: &Conv2dShape,
        precision: Precision,
        samples: usize,
    ) -> Result<Self> {
        Self::with(card, shape, precision, samples, None)
    }

    fn with(
        card: &Arc<Card>,
        shape: &Conv2dShape,
        precision: Precision,
        samples: usize,
        hopper: Option<Hopper>,
    ) -> Result<Self> {
        shape.check()?;
        card.warm_up_images()?;
        let factors = |what| Memory::zeros(card, precision.values(), shape.weights(), what);
        let mut conv = Self {
            card: card.clone(),
            shape: *shape,
            precision,
            samples,
            hopper,
            forward: factors("weights")?,
            backward: factors("weights")?,
            parts: Memory::zeros(card, Values::F32, 0, "parts of gradients")?,
            bias_parts: Memory::zeros(card, Values::F32, 0, "parts of gradients")?,
            windows: Memory::zeros(card, precision.values(), 0, "windows")?,
        };
        if let Some(pitch) = conv.pitch() {
            let values = conv.points_of(samples) * pitch;
            conv.windows = Memory::zeros(card, precision.values(), values, "windows of an input")?;
        }
        let parts = conv.most_parts(samples) * shape.weights();
        conv.parts = Memory::zeros(card, Values::F32, parts, "parts of gradients")?;
        let parts = conv.gate(samples).parts(card) * shape.filters;
        conv.bias_parts = Memory::zeros(card, Values::F32, parts, "parts of gradients")?;
        Ok(conv)
    }

    /// What it computes.
    pub fn shape(&self) -> &Conv2dShape {
        &self.shape
    }

    /// How exact it is.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// True if it has faster kernels than those for any card.
    pub fn is_faster(&self) -> bool {
        self.hopper.is_some()
    }

    /// Bytes on the card.
    pub fn bytes(&self) -> usize {
        let parts = [&self.forward, &self.backward, &self.parts, &self.bias_parts, &self.windows];
        parts.iter().map(|m| m.bytes()).sum()
    }

    /// Takes `parameters` (float32) from value `at` on as weights, `[filter][channel][line][column]`: to be called whenever
    /// they have changed.
    ///
    /// Cost: the weights are read twice and written twice.
    ///
    /// # Errors
    /// A buffer that is too small or of other values; a card that fails.
    pub fn set_weights(&mut self, parameters: &Memory, at: usize) -> Result<()> {
        check(WHAT, "the parameters' buffer", parameters, Values::F32, at + self.shape.weights())?;
        let lays = match self.hopper {
            Some(_) => [
                Lay { filters_first: true, by_columns: true, backwards: false },
                Lay { filters_first: false, by_columns: true, backwards: true },
            ],
            None => {
                [false, true].map(|filters_first| Lay { filters_first, by_columns: false, backwards: false })
            }
        };
        for (lay, out) in lays.into_iter().zip([&self.forward, &self.backward]) {
            lay_weights(&self.card, &self.shape, self.precision, lay, parameters.at(at), out)?;
        }
        Ok(())
    }

    /// `x` `[samples][line][column][channel]`, bias `[filter]` (float32, from value `at` of `parameters` on) → `y`
    /// `[samples][line'][column'][filter]`.
    ///
    /// # Errors
    /// More samples than there is room for, a buffer that is too small or of other values; a card that fails.
    pub fn forward(
        &self,
        samples: usize,
        x: &Memory,
        (parameters, at): (&Memory, usize),
        y: &mut Memory,
    ) -> Result<()> {
        let (shape, values) = (&self.shape, self.precision.values());
        self.check_samples(samples)?;
        check(WHAT, "the input", x, values, samples * shape.input_values())?;
        check(WHAT, "the parameters' buffer", parameters, Values::F32, at + shape.filters)?;
        check(WHAT, "the output", y, values, samples * shape.output_values())?;
        if let Some(hopper) = &self.hopper {
            let bias = parameters.at(at);
            return hopper.forward(&self.card, samples, x, &self.forward, bias, y);
        }
        let axes = [shape.forward_axis(0), shape.forward_axis(1)];
        let arguments = [x.at(0), self.forward.at(0), parameters.at(at), y.at(0)];
        self.points(samples, axes, [shape.channels, shape.filters], arguments, shape.relu)
    }

    /// The gradients of weights and bias, into `gradient` (float32) from the values `at` on, and of the input into `dx` if
    /// there is one; all are overwritten. From the input `x`, the output `y` that [`Self::forward`] made of it (only read
    /// if there is a ReLU) and the gradient `dy` of the output, which becomes zero where ReLU cut the output off.
    ///
    /// # Errors
    /// As [`Self::forward`].
    #[allow(clippy::too_many_arguments)] // what the definition has
    pub fn backward(
        &mut self,
        samples: usize,
        x: &Memory,
        y: &Memory,
        dy: &mut Memory,
        dx: Option<&mut Memory>,
        gradient: &mut Memory,
        at: [usize; 2],
    ) -> Result<()> {
        self.bias_gradient(samples, y, dy, gradient, at[1])?;
        self.weight_gradient(samples, x, dy, gradient, at[0])?;
        dx.map_or(Ok(()), |dx| self.input_gradient(samples, dy, dx))
    }

    /// The first part of [`Self::backward`]: ReLU's gradient, in place, and the bias's.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn bias_gradient(
        &mut self,
        samples: usize,
        y: &Memory,
        dy: &mut Memory,
        gradient: &mut Memory,
        at: usize,
    ) -> Result<()> {
        let (shape, values) = (&self.shape, self.precision.values());
        self.check_samples(samples)?;
        if shape.relu {
            check(WHAT, "the output", y, values, samples * shape.output_values())?;
        }
        check(WHAT, "the output's gradient", dy, values, samples * shape.output_values())?;
        check(WHAT, "the gradient's buffer", gradient, Values::F32, at + shape.filters)?;
        let (gate, y) = (self.gate(samples), if shape.relu { y.at(0) } else { 0 });
        gate.run(&self.card, dy.at(0), y, &self.bias_parts)?;
        let parts = gate.parts(&self.card);
        sum_parts(&self.card, &self.bias_parts, gradient.at(at), parts, [1, 1, shape.filters], [0, 1])
    }

    /// The second part: the gradient of the weights, of a `dy` to which [`Self::bias_gradient`] has been applied.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn weight_gradient(
        &mut self,
        samples: usize,
        x: &Memory,
        dy: &Memory,
        gradient: &mut Memory,
        at: usize,
    ) -> Result<()> {
        let (shape, values) = (self.shape, self.precision.values());
        self.check_samples(samples)?;
        check(WHAT, "the input", x, values, samples * shape.input_values())?;
        check(WHAT, "the output's gradient", dy, values, samples * shape.output_values())?;
        check(WHAT, "the gradient's buffer", gradient, Values::F32, at + shape.weights())?;
        let (taps, channels, filters) = (shape.taps(), shape.channels, shape.filters);
        let parts = self.parts_of_weights(samples);
        let (by_filter, by_channel) = (channels * taps, taps);
        let hopper = self.hopper.as_ref().filter(|hopper| hopper.has_weight_gradient() && samples > 0);
        if let Some(hopper) = hopper {
            let parts = hopper.weight_gradient(&self.card, samples, [x, dy, &self.parts], parts)?;
            let sizes = [taps, filters, channels];
            return sum_parts(
                &self.card,
                &self.parts,
                gradient.at(at),
                parts,
                sizes,
                [by_filter, by_channel],
            );
        }
        let sizes = [taps, channels, filters];
        if let Some(pitch) = self.pitch().filter(|_| samples > 0) {
            self.weights_of_windows(samples, pitch, parts, x, dy)?;
            return sum_parts(
                &self.card,
                &self.parts,
                gradient.at(at),
                parts,
                sizes,
                [by_channel, by_filter],
            );
        }
        let points = self.points_of(samples);
        let share = points.div_ceil(parts).next_multiple_of(DEPTH).max(DEPTH);
        let parts = points.div_ceil(share).max(1);
        let launch = Launch::of_images(&self.card, self.name("weights", [channels, filters]))
            .pointer(x.at(0))
            .pointer(dy.at(0))
            .pointer(self.parts.at(0))
            .ints(&geometry(
                samples,
                [shape.forward_axis(0), shape.forward_axis(1)],
                [channels, filters],
                shape.kernel[1],
            ))
            .int(share);
        let grid = [(taps * channels).div_ceil(ROWS), filters.div_ceil(COLUMNS), parts];
        // SAFETY: the sizes of all buffers are checked.
        unsafe { launch.run(grid, [THREADS, 1], 0)? };
        sum_parts(&self.card, &self.parts, gradient.at(at), parts, sizes, [by_channel, by_filter])
    }

    /// Parts of the weights' gradient of an input of few channels: its windows, side by side, are a matrix whose rows are
    /// points, and the parts are products with the gradient of the output over equal numbers of points.
    fn weights_of_windows(
        &self,
        samples: usize,
        pitch: usize,
        parts: usize,
        x: &Memory,
        dy: &Memory,
    ) -> Result<()> {
        let shape = &self.shape;
        let (rows, filters) = (shape.taps() * shape.channels, shape.filters);
        let axes = [shape.forward_axis(0), shape.forward_axis(1)];
        let launch =
            Launch::of_images(&self.card, format!("image_windows_{}", self.precision.values().suffix()))
                .pointer(x.at(0))
                .pointer(self.windows.at(0))
                .ints(&geometry(samples, axes, [shape.channels, filters], shape.kernel[1]))
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
        product.run(&self.card, self.precision, &self.windows, dy, &self.parts)
    }

    /// Values of a window, and zeros to a multiple of 8, if the input has few channels.
    fn pitch(&self) -> Option<usize> {
        let values = self.shape.taps() * self.shape.channels;
        (self.shape.channels <= 4 && values <= 160).then_some(values.next_multiple_of(8))
    }

    fn points_of(&self, samples: usize) -> usize {
        samples * self.shape.output()[0] * self.shape.output()[1]
    }

    /// The third part: the gradient of the input, of a `dy` to which [`Self::bias_gradient`] has been applied.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn input_gradient(&self, samples: usize, dy: &Memory, dx: &mut Memory) -> Result<()> {
        let (shape, values) = (&self.shape, self.precision.values());
        self.check_samples(samples)?;
        check(WHAT, "the output's gradient", dy, values, samples * shape.output_values())?;
        check(WHAT, "the input's gradient", dx, values, samples * shape.input_values())?;
        if let Some(hopper) = &self.hopper {
            return hopper.input_gradient(&self.card, samples, dy, &self.backward, dx);
        }
        for i in 0..shape.stride[0] {
            for j in 0..shape.stride[1] {
                let axes = [shape.backward_axis(0, i), shape.backward_axis(1, j)];
                let arguments = [dy.at(0), self.backward.at(0), 0, dx.at(0)];
                self.points(samples, axes, [shape.filters, shape.channels], arguments, false)?;
            }
        }
        Ok(())
    }

    fn points(
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
    fn parts_of_weights(&self, samples: usize) -> usize {
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
    fn most_parts(&self, samples: usize) -> usize {
        if self.pitch().is_some() { self.bounded_parts() } else { self.parts_of_weights(samples).max(1) }
    }

    fn gate(&self, samples: usize) -> Gate {
        let (channels, values) = (self.shape.filters, self.precision.values());
        Gate { points: self.points_of(samples), channels, values }
    }

    fn check_samples(&self, samples: usize) -> Result<()> {
        if samples > self.samples {
            let reason = format!("{samples} samples, it was made for {} at most", self.samples);
            return Err(crate::Error::Shape { what: WHAT, reason });
        }
        Ok(())
    }
}

/// The kernels' `Geometry`.
fn geometry(samples: usize, axes: [Axis; 2], channels: [usize; 2], kernel: usize) -> Vec<i32> {
    let mut ints: Vec<i32> = axes.iter().flat_map(Axis::ints).collect();
    ints.extend([samples, channels[0], channels[1], kernel].map(|n| n as i32));
    ints
}
