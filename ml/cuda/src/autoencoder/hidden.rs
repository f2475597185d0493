//! The two fully connected layers of a step: Z → hidden state → Z′, and back.

use super::{Autoencoder, buffers::TOP_BLOCKS};
use crate::{
    Result,
    launch::Launch,
    product::{Operand, Product},
};

const THREADS: usize = 256;

impl Autoencoder {
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
}
