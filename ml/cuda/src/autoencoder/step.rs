//! One step: forward, backward, update. Everything is asked of the card's stream and nothing waited for, so that a step
//! can be captured in a graph.

use super::{
    Autoencoder,
    buffers::{Buffers, Series, TOP_BLOCKS, pooling},
    edges::Edge,
    pooling::Pooling,
    shape::{Activation, Run},
};
use crate::{
    Conv1d, Result,
    launch::Launch,
    memory::{Memory, Values},
    product::{Operand, Product},
};

const THREADS: usize = 256;

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

    fn bias(&self, run: Run) -> u64 {
        self.parameters.at(run.at)
    }

    fn decoder_switches(&self, layer: usize) -> u64 {
        if self.shape.switches { self.buffers.switches[layer].at(0) } else { 0 }
    }

    pub(super) fn product(&self, product: &Product, a: &Memory, b: &Memory, c: &Memory) -> Result<()> {
        product.run(&self.card, self.precision, a, b, c)
    }

    /// A convolution forward with the weights at `run`, to the raw buffer.
    fn convolve(&self, conv: &Conv1d, x: &Series, run: Run) -> Result<()> {
        let mut product = conv.forward();
        product.b.offset = run.at;
        self.product(&product, &x.memory, self.factors(), &self.buffers.raw)
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
    fn top_rows(&self, margin: usize) -> Operand {
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
            self.convolve(&self.shape.conv(i, self.samples), &b.encoded[i - 1], layer.weight)?;
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
                    layer.weight,
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

    /// Z → hidden state → Z′, and λ/2·‖Z − Z′‖².
    pub(super) fn hidden_forward(&self, control: u64) -> Result<()> {
        let (b, places) = (&self.buffers, &self.places);
        let (features, hidden, samples) = (self.shape.features(), places.hidden, self.samples);
        let plain = |leading: usize, offset: usize| Operand { offset, leading, stride: 0, transposed: false };
        let top = &b.encoded[self.shape.layers() - 1];
        let to_hidden = Product {
            rows: samples,
            columns: hidden,
            inner: features,
            batches: 1,
            a: self.top_rows(top.margin),
            b: plain(hidden, places.to_hidden.weight.at),
            c: plain(hidden, 0),
        };
        self.product(&to_hidden, &top.memory, self.factors(), &b.hidden_raw)?;
        let name = format!("add_bias1_{}", self.precision.values().suffix());
        let launch = Launch::of(&self.card, name)
            .pointer(b.hidden_raw.at(0))
            .pointer(self.bias(places.to_hidden.bias))
            .pointer(b.hidden.at(0))
            .int(samples)
            .int(hidden);
        unsafe { launch.run([(samples * hidden).div_ceil(THREADS), 1, 1], [THREADS, 1], 0)? };
        let from_hidden = Product {
            rows: samples,
            columns: features,
            inner: hidden,
            batches: 1,
            a: plain(hidden, 0),
            b: plain(features, places.from_hidden.weight.at),
            c: self.top_rows(b.decoded_top.margin),
        };
        self.product(&from_hidden, &b.hidden, self.factors(), &b.decoded_top.memory)?;
        let launch = Launch::of(&self.card, self.top_name("top_forward"))
            .pointer(b.decoded_top.at())
            .pointer(self.bias(places.from_hidden.bias))
            .pointer(top.at())
            .pointer(b.losses.at(0))
            .pointer(control)
            .float(self.shape.lambda)
            .int(samples)
            .int(features)
            .int(self.top_rows(0).leading);
        unsafe { launch.run([TOP_BLOCKS, 1, 1], [THREADS, 1], 0) }
    }

    fn top_vector(&self) -> usize {
        if self.shape.filters[self.shape.layers() - 1].is_multiple_of(8) { 8 } else { 1 }
    }

    fn top_name(&self, kernel: &str) -> String {
        format!("{kernel}{}_{}", self.top_vector(), self.precision.values().suffix())
    }

    /// What [`Self::forward`] left → the flat gradient.
    pub(super) fn backward(&self, series: u64, control: u64) -> Result<()> {
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
            self.input_gradient(&conv, dy, self.turned_decoder[j], to)?;
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
        self.hidden_backward(control)?;
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
            self.input_gradient(&conv, dy, self.turned_encoder[i - 1], &b.raw)?;
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

    fn input_gradient(&self, conv: &Conv1d, dy: &Series, turned: usize, to: &Memory) -> Result<()> {
        let mut product = conv.input_gradient();
        product.b.offset = turned;
        self.product(&product, &dy.memory, &self.turned, to)
    }

    /// The gradient of Z′ as the decoder gave it → gradients of the hidden layers, and of Z, raw.
    pub(super) fn hidden_backward(&self, control: u64) -> Result<()> {
        let (b, places) = (&self.buffers, &self.places);
        let (features, hidden, samples) = (self.shape.features(), places.hidden, self.samples);
        let top = &b.encoded[self.shape.layers() - 1];
        let launch = Launch::of(&self.card, self.top_name("top_backward"))
            .pointer(b.top_gradient.at())
            .pointer(top.at())
            .pointer(b.decoded_top.at())
            .pointer(b.from_hidden_bias.memory.at(0))
            .pointer(control)
            .float(self.shape.lambda)
            .int(samples)
            .int(features)
            .int(self.top_rows(0).leading);
        let columns = (features / self.top_vector()).div_ceil(64);
        unsafe { launch.run([columns, b.from_hidden_bias.parts, 1], [64, 1], 0)? };

        let plain = |leading: usize, offset: usize| Operand { offset, leading, stride: 0, transposed: false };
        let turned = |operand: Operand| Operand { transposed: true, ..operand };
        let product = |sizes: [usize; 3], a, b, c| {
            let [rows, inner, columns] = sizes;
            Product { rows, columns, inner, batches: 1, a, b, c }
        };
        let (first, second) = (places.to_hidden.weight.at, places.from_hidden.weight.at);
        let gradient_of_top = self.top_rows(0);
        // dW₂ = Hᵀ·dZ′ and dH = dZ′·W₂ᵀ, then dW₁ = Zᵀ·dH and dZ = dH·W₁ᵀ.
        self.product(
            &product(
                [hidden, samples, features],
                turned(plain(hidden, 0)),
                gradient_of_top,
                plain(features, second),
            ),
            &b.hidden,
            &b.top_gradient.memory,
            &self.gradient,
        )?;
        self.product(
            &product(
                [samples, features, hidden],
                gradient_of_top,
                turned(plain(features, second)),
                plain(hidden, 0),
            ),
            &b.top_gradient.memory,
            self.factors(),
            &b.hidden_gradient,
        )?;
        let launch = Launch::of(&self.card, format!("column_sums1_{}", self.precision.values().suffix()))
            .pointer(b.hidden_gradient.at(0))
            .pointer(b.to_hidden_bias.memory.at(0))
            .int(samples)
            .int(hidden);
        unsafe { launch.run([hidden.div_ceil(64), b.to_hidden_bias.parts, 1], [64, 1], 0)? };
        self.product(
            &product(
                [features, samples, hidden],
                turned(self.top_rows(top.margin)),
                plain(hidden, 0),
                plain(hidden, first),
            ),
            &top.memory,
            &b.hidden_gradient,
            &self.gradient,
        )?;
        self.product(
            &product(
                [samples, hidden, features],
                plain(hidden, 0),
                turned(plain(hidden, first)),
                self.top_rows(0),
            ),
            &b.hidden_gradient,
            self.factors(),
            &b.raw,
        )
    }

    /// Sums the parts of the gradient.
    pub(super) fn gather(&self) -> Result<()> {
        let launch = Launch::of(&self.card, "gather_gradient")
            .pointer(self.buffers.segments.at(0))
            .pointer(self.gradient.at(0));
        unsafe { launch.run([1024, self.buffers.segment_count, 1], [32, 8], 0) }
    }

    /// Sums the losses of the pass, and adds them to the total `to`.
    pub(super) fn gather_losses(&self, to: usize) -> Result<()> {
        let launch = Launch::of(&self.card, "gather_losses")
            .pointer(self.buffers.losses.at(0))
            .int(self.buffers.losses.len())
            .pointer(self.totals.at(to));
        unsafe { launch.run([1, 1, 1], [256, 1], 0) }
    }

    /// One step of the rule, and the weights as the next products take them.
    pub(super) fn update(&self, control: u64) -> Result<()> {
        let Some(rule) = self.rule else { return Ok(()) };
        let memory = |i: usize| self.remembered.get(i).map_or(0, |m: &Memory| m.at(0));
        let launch = Launch::of(&self.card, "update")
            .int(rule as usize)
            .pointer(self.parameters.at(0))
            .pointer(self.gradient.at(0))
            .pointer(memory(0))
            .pointer(memory(1))
            .pointer(self.narrow.as_ref().map_or(0, |m| m.at(0)))
            .int(self.places.total)
            .pointer(control);
        unsafe { launch.run([self.places.total.div_ceil(4 * THREADS), 1, 1], [THREADS, 1], 0)? };
        self.turn()
    }

    /// bf16 of all weights, after they came from outside.
    pub(super) fn narrow_weights(&self) -> Result<()> {
        if let Some(narrow) = &self.narrow {
            let launch = Launch::of(&self.card, "copy_bf16")
                .pointer(self.parameters.at(0))
                .pointer(narrow.at(0))
                .int(self.places.total);
            unsafe { launch.run([self.places.total.div_ceil(4 * THREADS), 1, 1], [THREADS, 1], 0)? };
        }
        self.turn()
    }

    fn turn(&self) -> Result<()> {
        let launch = Launch::of(&self.card, format!("turn_weights1_{}", self.precision.values().suffix()))
            .pointer(self.turns.at(0))
            .pointer(self.parameters.at(0))
            .pointer(self.turned.at(0));
        unsafe { launch.run([64, self.turn_count, 1], [THREADS, 1], 0) }
    }

    /// Between the order of files and that of the card: `scatter` or `gather`.
    pub(super) fn permute(&self, kernel: &'static str, from: &Memory, to: &Memory) -> Result<()> {
        debug_assert_eq!((from.kind(), to.kind()), (Values::F32, Values::F32));
        let n = self.map.len();
        let launch = Launch::of(&self.card, kernel)
            .pointer(from.at(0))
            .pointer(self.map.at(0))
            .pointer(to.at(0))
            .int(n);
        unsafe { launch.run([n.div_ceil(THREADS), 1, 1], [THREADS, 1], 0) }
    }
}
