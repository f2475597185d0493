//! One step: forward and backward through the convolutions. Everything is asked of the card's stream and nothing waited for, so that a step
//! can be captured in a graph.

use super::{
    Autoencoder,
    buffers::{Buffers, Series, TOP_BLOCKS, pooling},
    edges::Edge,
    pooling::Pooling,
    shape::{Activation, Run},
    spread::Layer,
};
use crate::{
    Conv1d, Result,
    memory::Memory,
    product::{Operand, Product},
};

impl Autoencoder {
    fn edge(&self) -> Edge {
        Edge::of(&self.shape, self.samples, self.precision.values())
    }

    fn pooling(&self, layer: usize) -> Pooling {
        pooling(&self.shape, layer, self.samples, self.precision.values())
    }

    /// Weights as products take them.
    pub(super) fn factors(&self) -> &Memory {
        self.narrow.as_ref().unwrap_or(&self.parameters)
    }

    pub(super) fn bias(&self, run: Run) -> u64 {
        self.parameters.at(run.at)
    }

    fn decoder_switches(&self, layer: usize) -> u64 {
        if self.shape.switches { self.buffers.switches[layer].at(0) } else { 0 }
    }

    pub(super) fn product(&self, product: &Product, a: &Memory, b: &Memory, c: &Memory) -> Result<()> {
        product.run(&self.card, self.precision, a, b, c)
    }

    /// A convolution forward, to the raw buffer.
    fn convolve(&self, conv: &Conv1d, x: &Series, layer: &Layer) -> Result<()> {
        self.product(&layer.forward(conv), &x.memory, &self.spread.weights, &self.buffers.raw)
    }

    /// The input of the decoder's convolution `j`, which is not the last.
    pub(super) fn decoder_input(&self, j: usize) -> &Series {
        let b = &self.buffers;
        match j.checked_sub(1) {
            Some(before) => &b.decoded[before],
            None => b.unpooled_top.as_ref().unwrap_or(&b.decoded_top),
        }
    }

    /// What the decoder's last convolution takes.
    fn values(&self) -> &Series {
        self.buffers.values.as_ref().unwrap_or(&self.buffers.decoded_top)
    }

    /// Rows of Z as one operand: a row a sample.
    pub(super) fn top_rows(&self, margin: usize) -> Operand {
        let channels = self.shape.filters[self.shape.layers() - 1];
        Operand { offset: margin, leading: self.shape.top().stride * channels, stride: 0, transposed: false }
    }

    /// Series and control, at these addresses, → Z, Z′, the decoded series (if asked for), losses and the gradient of
    /// the decoded series.
    pub(super) fn forward(&self, series: u64, control: u64, decoded: u64) -> Result<()> {
        let (b, card, last) = (&self.buffers, &*self.card, self.shape.layers() - 1);
        let edge = self.edge();
        let first = &self.places.encoder[0];
        let [weight, bias] = [self.bias(first.weight), self.bias(first.bias)];
        // SAFETY (all launches): addresses are of buffers made for these shapes.
        unsafe {
            if edge.pools_at_once() {
                let to = [series, weight, bias, b.encoded[0].at(), b.switches[0].at(0)];
                edge.first_forward(card, to, self.shape.activation)?;
            } else {
                edge.first_forward(card, [series, weight, bias, b.raw.at(0), 0], self.shape.activation)?;
                let pooling = Pooling { wide: Buffers::series_level(&self.shape), ..self.pooling(0) };
                pooling.forward(card, [b.raw.at(0), 0, b.encoded[0].at(), b.switches[0].at(0)])?;
            }
        }
        for i in 1..=last {
            let layer = &self.places.encoder[i];
            self.convolve(&self.shape.conv(i, self.samples), &b.encoded[i - 1], &self.spread.encoder[i - 1])?;
            let to = [b.raw.at(0), self.bias(layer.bias), b.encoded[i].at(), b.switches[i].at(0)];
            unsafe { self.pooling(i).forward(card, to)? };
        }
        self.hidden_forward(control)?;
        if last > 0 {
            if let Some(unpooled) = &b.unpooled_top {
                let pooling = Pooling { activation: Activation::Linear, ..self.pooling(last) };
                let to = [b.decoded_top.at(), 0, self.decoder_switches(last), unpooled.at()];
                unsafe { pooling.unpool(card, to)? };
            }
            for j in 0..last {
                let (layer, level) = (&self.places.decoder[j], last - j);
                self.convolve(
                    &self.shape.mirrored(level, self.samples),
                    self.decoder_input(j),
                    &self.spread.decoder[j],
                )?;
                let (raw, bias) = (b.raw.at(0), self.bias(layer.bias));
                let next = self.pooling(level - 1);
                unsafe {
                    if level > 1 {
                        next.unpool(card, [raw, bias, self.decoder_switches(level - 1), b.decoded[j].at()])?;
                    } else {
                        let plain = Pooling { wide: next.narrow, window: 1, ..next };
                        plain.unpool(card, [raw, bias, 0, self.values().at()])?;
                    }
                }
            }
        }
        let layer = &self.places.decoder[last];
        let addresses = [
            self.values().at(),
            self.decoder_switches(0),
            self.bias(layer.weight),
            self.bias(layer.bias),
            series,
            decoded,
            b.series_gradient.at(0),
            b.losses.at(TOP_BLOCKS),
            control,
        ];
        unsafe { edge.last_forward(card, addresses) }
    }

    /// What [`Self::forward`] left → the flat gradient.
    pub(super) fn backward(&self, series: u64, control: u64) -> Result<()> {
        self.backward_to_hidden(control)?;
        self.backward_from_hidden(series, control)
    }

    /// What [`Self::forward`] left → parts of the decoder's gradients, and those of the hidden layers' weights.
    pub(super) fn backward_to_hidden(&self, control: u64) -> Result<()> {
        let (b, card, last, places) = (&self.buffers, &*self.card, self.shape.layers() - 1, &self.places);
        let edge = self.edge();
        let (out, before, activation) = match last.checked_sub(1) {
            Some(j) => (b.decoder_gradients[j].at(), b.decoder_biases[j].memory.at(0), self.shape.activation),
            None => (b.top_gradient.at(), 0, Activation::Linear),
        };
        let addresses = [
            b.series_gradient.at(0),
            self.values().at(),
            self.decoder_switches(0),
            self.bias(places.decoder[last].weight),
            out,
            before,
            b.last.memory.at(0),
        ];
        unsafe { edge.last_backward(card, addresses, activation)? };
        for j in (0..last).rev() {
            let level = last - j;
            let conv = self.shape.mirrored(level, self.samples);
            let dy = &b.decoder_gradients[j];
            let weights = &b.decoder_weights[j];
            self.product(
                &conv.weight_gradient(weights.parts),
                &self.decoder_input(j).memory,
                &dy.memory,
                &weights.memory,
            )?;
            let straight = j == 0 && b.unpooled_top.is_none();
            let to = if straight { &b.top_gradient.memory } else { &b.raw };
            self.input_gradient(&conv, dy, &self.spread.decoder[j], to)?;
            if straight {
                continue;
            }
            let (pooling, switches) = (self.pooling(level), self.decoder_switches(level));
            let addresses = match j.checked_sub(1) {
                Some(p) => {
                    let partial = b.decoder_biases[p].memory.at(0);
                    [b.raw.at(0), self.decoder_input(j).at(), switches, b.decoder_gradients[p].at(), partial]
                }
                None => [b.raw.at(0), 0, switches, b.top_gradient.at(), 0],
            };
            unsafe { pooling.unpool_backward(card, addresses)? };
        }
        self.hidden_backward(control)
    }

    /// What [`Self::backward_to_hidden`] left → the flat gradient.
    pub(super) fn backward_from_hidden(&self, series: u64, control: u64) -> Result<()> {
        let (b, card, last) = (&self.buffers, &*self.card, self.shape.layers() - 1);
        let edge = self.edge();
        for i in (1..=last).rev() {
            let mirror = if i == last { b.decoded_top.at() } else { 0 };
            let dy = &b.encoder_gradients[i - 1];
            let addresses = [
                b.raw.at(0),
                b.encoded[i].at(),
                mirror,
                b.switches[i].at(0),
                dy.at(),
                b.encoder_biases[i - 1].memory.at(0),
                control,
            ];
            unsafe { self.pooling(i).backward(card, addresses, self.shape.lambda)? };
            let conv = self.shape.conv(i, self.samples);
            let weights = &b.encoder_weights[i - 1];
            self.product(
                &conv.weight_gradient(weights.parts),
                &b.encoded[i - 1].memory,
                &dy.memory,
                &weights.memory,
            )?;
            self.input_gradient(&conv, dy, &self.spread.encoder[i - 1], &b.raw)?;
        }
        let mirror = if last == 0 { b.decoded_top.at() } else { 0 };
        let addresses = [
            series,
            b.raw.at(0),
            b.encoded[0].at(),
            mirror,
            b.switches[0].at(0),
            b.first.memory.at(0),
            control,
        ];
        unsafe { edge.first_backward(card, addresses, self.shape.lambda, self.shape.activation)? };
        self.gather()
    }

    fn input_gradient(&self, conv: &Conv1d, dy: &Series, layer: &Layer, to: &Memory) -> Result<()> {
        self.product(&layer.input_gradient(conv), &dy.memory, &self.spread.weights, to)
    }
}
