//! Convolution of images.

mod portable;

use super::{
    around::{Gate, Lay, check, lay_weights, sum_parts},
    hopper::Hopper,
    shape::Conv2dShape,
};
use crate::{Card, Precision, Result, Values, memory::Memory};
use std::sync::Arc;

const WHAT: &str = "a convolution of images";

/// A convolution of images of one size on a card, with weights as its kernels read them and room for parts of sums.
///
/// Cost of each pass: [`Conv2dShape::operations`] and, but for what is read again from the card's caches,
/// [`Conv2dShape::bytes`]; [`Self::backward`] also reads and writes the gradient of the output once and reads the output if
/// there is a ReLU. Sums are in float32. Nothing is allocated after [`Self::new`].
///
/// Which kernels run: on Hopper those of its matrix units, at [`Precision::Bf16`] and [`Precision::Tf32`] with stride 1 and
/// at least 16 channels and filters, both multiples of 8; elsewhere and otherwise kernels for any card (float32 arithmetic, or matrix
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
        let arguments = [x.at(0), self.forward.at(0), parameters.at(at), y.at(0)];
        self.points(samples, self.forward_axes(), [shape.channels, shape.filters], arguments, shape.relu)
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
        let (parts, sizes, by) = match hopper {
            Some(hopper) => {
                let parts = hopper.weight_gradient(&self.card, samples, [x, dy, &self.parts], parts)?;
                (parts, [taps, filters, channels], [by_filter, by_channel])
            }
            None => {
                let parts = self.parts_of_points(samples, parts, x, dy)?;
                (parts, [taps, channels, filters], [by_channel, by_filter])
            }
        };
        sum_parts(&self.card, &self.parts, gradient.at(at), parts, sizes, by)
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
