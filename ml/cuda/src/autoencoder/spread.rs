//! Filters as the products of convolutions take them, made anew after every update.

use super::shape::{AutoencoderShape, Places};
use crate::{
    Card, Conv1d, Precision, Result,
    memory::{Memory, Values, bytes_of},
    product::Product,
};

/// Filters of a convolution for one of its products.
#[derive(Clone, Copy, Debug)]
struct Filters {
    /// Where they are.
    at: usize,
    /// Points that a row of the product has.
    together: usize,
}

/// A convolution between series of many channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    forward: Filters,
    back: Filters,
}

impl Layer {
    /// The product that takes x to y, with the filters in [`Spread::weights`].
    pub fn forward(&self, conv: &Conv1d) -> Product {
        let mut product = conv.forward(self.forward.together);
        product.b.offset = self.forward.at;
        product
    }

    /// The product that takes dy to dx, likewise.
    pub fn input_gradient(&self, conv: &Conv1d) -> Product {
        let mut product = conv.input_gradient(self.back.together);
        product.b.offset = self.back.at;
        product
    }
}

/// All filters but those of the first and the last convolution.
#[derive(Debug)]
pub(super) struct Spread {
    /// The kernel's `Spread`s.
    pub table: Memory,
    pub count: usize,
    pub weights: Memory,
    pub encoder: Vec<Layer>,
    pub decoder: Vec<Layer>,
}

/// How many neighbouring points a row of a product with `columns` columns has. Measured.
fn together(columns: usize, precision: Precision) -> usize {
    let enough = match precision {
        Precision::F32 => 256,
        Precision::Tf32 | Precision::Bf16 => 128,
    };
    (enough / columns.max(1)).clamp(1, 8)
}

impl Spread {
    pub fn new(card: &Card, shape: &AutoencoderShape, places: &Places, precision: Precision) -> Result<Self> {
        let (mut table, mut total): (Vec<u64>, usize) = (Vec::new(), 0);
        let mut one = |conv: &Conv1d, from: usize, turned: bool| {
            let (at, columns) = (total, if turned { conv.channels } else { conv.filters });
            let together = together(columns, precision);
            total += conv.spread(together).next_multiple_of(64);
            let form = together as u64 | u64::from(turned) << 16;
            table.extend([
                from as u64,
                at as u64,
                conv.kernel as u64 | (conv.channels as u64) << 32,
                conv.filters as u64 | form << 32,
            ]);
            Filters { at, together }
        };
        let mut layer = |conv: Conv1d, from: usize| Layer {
            forward: one(&conv, from, false),
            back: one(&conv, from, true),
        };
        let last = shape.layers() - 1;
        let encoder = (1..=last).map(|i| layer(shape.conv(i, 1), places.encoder[i].weight.at)).collect();
        let decoder =
            (0..last).map(|j| layer(shape.mirrored(last - j, 1), places.decoder[j].weight.at)).collect();
        Ok(Self {
            count: table.len() / 4,
            table: Memory::of(card, Values::U8, bytes_of(&table), "weights")?,
            weights: Memory::zeros(card, precision.values(), total, "weights")?,
            encoder,
            decoder,
        })
    }
}
