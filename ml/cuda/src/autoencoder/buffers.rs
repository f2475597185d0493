//! All that an autoencoder keeps on the card: parameters, activations, gradients, sums in parts.

use super::{
    edges::Edge,
    pooling::Pooling,
    shape::{AutoencoderShape, Places},
};
use crate::{
    Card, Conv1d, Level, Precision, Result,
    memory::{Memory, Values, bytes_of},
};

/// Series between layers: rows with zeros around them.
#[derive(Debug)]
pub(super) struct Series {
    pub memory: Memory,
    /// Values before the first row of the first sample.
    pub margin: usize,
}

impl Series {
    /// What a convolution takes, or the gradient of what it gives.
    fn padded(card: &Card, conv: &Conv1d, channels: usize, values: Values) -> Result<Self> {
        let memory = Memory::zeros(card, values, conv.padded_rows() * channels, "activations")?;
        Ok(Self { memory, margin: conv.margin() * channels })
    }

    fn plain(card: &Card, rows: usize, channels: usize, values: Values) -> Result<Self> {
        Ok(Self { memory: Memory::zeros(card, values, rows * channels, "activations")?, margin: 0 })
    }

    /// The address of the first row of the first sample.
    pub fn at(&self) -> u64 {
        self.memory.at(self.margin)
    }
}

/// Sums in parts, each of `pitch` values.
#[derive(Debug)]
pub(super) struct Parts {
    pub memory: Memory,
    pub parts: usize,
    pub pitch: usize,
}

impl Parts {
    fn new(card: &Card, parts: usize, pitch: usize) -> Result<Self> {
        Ok(Self {
            memory: Memory::zeros(card, Values::F32, parts * pitch, "parts of gradients")?,
            parts,
            pitch,
        })
    }
}

/// Blocks along samples of the kernels that sum over them: for the hidden state, and for Z.
const HIDDEN_PARTS: usize = 256;
const TOP_PARTS: usize = 64;
/// Blocks of the kernel that compares Z with Z′: one loss each.
pub(super) const TOP_BLOCKS: usize = 1024;

/// Buffers for `samples` series.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Of each encoder layer but the first, its input; then Z.
    pub encoded: Vec<Series>,
    /// Z′.
    pub decoded_top: Series,
    /// The input of the decoder's first convolution, if Z′ is un-pooled for it.
    pub unpooled_top: Option<Series>,
    /// The inputs of the decoder's convolutions but the first and the last.
    pub decoded: Vec<Series>,
    /// What the decoder's last convolution takes, before it is un-pooled; none with one layer, where it is Z′.
    pub values: Option<Series>,
    /// Of each pooling.
    pub switches: Vec<Memory>,
    /// The output of a product, until the next.
    pub raw: Memory,
    pub hidden_raw: Memory,
    pub hidden: Memory,
    pub hidden_gradient: Memory,
    /// The gradient of Z′.
    pub top_gradient: Series,
    /// Of the decoded series, float32.
    pub series_gradient: Memory,
    /// Of the outputs of the encoder's convolutions but the first, before the nonlinearity.
    pub encoder_gradients: Vec<Series>,
    /// Of the decoder's convolutions but the last.
    pub decoder_gradients: Vec<Series>,
    /// Parts of the gradients of weights and biases.
    pub first: Parts,
    pub last: Parts,
    pub encoder_weights: Vec<Parts>,
    pub encoder_biases: Vec<Parts>,
    pub decoder_weights: Vec<Parts>,
    pub decoder_biases: Vec<Parts>,
    pub to_hidden_bias: Parts,
    pub from_hidden_bias: Parts,
    pub losses: Memory,
    /// How partial sums become the flat gradient: kernels' `Segment`s.
    pub segments: Memory,
    pub segment_count: usize,
}

/// The pooling behind encoder layer `layer`, and the un-pooling before the decoder's that mirrors it.
pub(super) fn pooling(shape: &AutoencoderShape, layer: usize, samples: usize, values: Values) -> Pooling {
    let narrow = if layer + 1 < shape.layers() { shape.level(layer + 1) } else { shape.top() };
    Pooling {
        samples,
        wide: shape.level(layer),
        narrow,
        channels: shape.filters[layer],
        window: shape.window_of(layer),
        activation: shape.activation,
        values,
    }
}

/// In how many parts a weight gradient is summed. Measured: one a tap where tiles of 128 × 128 fill the card so, else a
/// third of its multiprocessors.
pub(super) fn weight_parts(conv: &Conv1d, card: &Card) -> usize {
    let tiles = (conv.kernel * conv.channels).div_ceil(128) * conv.filters.div_ceil(128);
    if tiles * conv.kernel >= card.multiprocessors() { conv.kernel } else { card.multiprocessors() / 3 }
}

impl Buffers {
    pub fn new(
        card: &Card,
        shape: &AutoencoderShape,
        places: &Places,
        precision: Precision,
        samples: usize,
    ) -> Result<Self> {
        let kind = precision.values();
        let layers = shape.layers();
        let conv = |i: usize| shape.conv(i, samples);
        let mirrored = |i: usize| shape.mirrored(i, samples);
        let top_channels = shape.filters[layers - 1];
        let edge = Edge::of(shape, samples, kind);
        let top_rows =
            samples * shape.top().stride + 2 * crate::conv1d::MARGIN + 2 * shape.kernels[layers - 1];
        let all = |f: &dyn Fn(usize) -> Result<Series>, range: std::ops::Range<usize>| {
            range.map(f).collect::<Result<Vec<_>>>()
        };

        let mut encoded: Vec<Series> =
            all(&|i| Series::padded(card, &conv(i), conv(i).channels, kind), 1..layers)?;
        encoded.push(Series::plain(card, top_rows, top_channels, kind)?);
        let last = layers - 1;
        let decoded_top = Series::padded(card, &mirrored(last), top_channels, kind)?;
        let top_is_unpooled = layers > 1 && shape.window_of(last) > 1;
        let unpooled_top =
            top_is_unpooled.then(|| Series::padded(card, &mirrored(last), top_channels, kind)).transpose()?;
        let decoded = (1..last)
            .map(|j| Series::padded(card, &mirrored(last - j), mirrored(last - j).channels, kind))
            .collect::<Result<_>>()?;
        let values = (layers > 1)
            .then(|| Series::plain(card, mirrored(1).output_rows(), shape.filters[0], kind))
            .transpose()?;
        let switches = (0..layers)
            .map(|i| {
                let pooled =
                    if shape.window_of(i) > 1 { shape.lengths()[i + 1] * shape.filters[i] } else { 0 };
                Memory::zeros(card, Values::U8, samples * pooled, "switches")
            })
            .collect::<Result<_>>()?;
        let widest = (1..layers)
            .map(|i| conv(i).output_rows() * conv(i).filters.max(conv(i).channels))
            .chain([top_rows * top_channels, samples * shape.time_points * shape.filters[0]])
            .max()
            .unwrap_or(1);
        let float = |len: usize, what: &'static str| Memory::zeros(card, Values::F32, len, what);
        let weights = |conv: &Conv1d| {
            Parts::new(card, conv.weight_gradient(weight_parts(conv, card)).batches, conv.weights())
        };
        let mut buffers = Self {
            encoded,
            decoded_top,
            unpooled_top,
            decoded,
            values,
            switches,
            raw: Memory::zeros(card, kind, widest, "activations")?,
            hidden_raw: float(samples * places.hidden, "hidden states")?,
            hidden: Memory::zeros(card, kind, samples * places.hidden, "hidden states")?,
            hidden_gradient: Memory::zeros(card, kind, samples * places.hidden, "hidden states")?,
            top_gradient: Series::plain(card, top_rows, top_channels, kind)?,
            series_gradient: float(samples * shape.time_points, "the series' gradients")?,
            encoder_gradients: all(&|i| Series::padded(card, &conv(i), conv(i).filters, kind), 1..layers)?,
            decoder_gradients: all(
                &|j| Series::padded(card, &mirrored(last - j), mirrored(last - j).filters, kind),
                0..last,
            )?,
            first: Parts::new(card, edge.parts(card), edge.first_part())?,
            last: Parts::new(card, edge.parts(card), edge.last_part())?,
            encoder_weights: (1..layers).map(|i| weights(&conv(i))).collect::<Result<_>>()?,
            encoder_biases: (1..layers)
                .map(|i| Parts::new(card, pooling(shape, i, samples, kind).parts(card), shape.filters[i]))
                .collect::<Result<_>>()?,
            decoder_weights: (0..last).map(|j| weights(&mirrored(last - j))).collect::<Result<_>>()?,
            // The bias of layer j comes with the un-pooling behind it, or with the last convolution.
            decoder_biases: (0..last)
                .map(|j| {
                    let level = last - j - 1;
                    let parts = match level {
                        0 => edge.parts(card),
                        _ => pooling(shape, level, samples, kind).parts(card),
                    };
                    Parts::new(card, parts, shape.filters[level])
                })
                .collect::<Result<_>>()?,
            to_hidden_bias: Parts::new(card, HIDDEN_PARTS.min(samples), places.hidden)?,
            from_hidden_bias: Parts::new(card, TOP_PARTS.min(samples), shape.features())?,
            losses: float(edge.losses() + TOP_BLOCKS, "losses")?,
            segments: Memory::zeros(card, Values::U8, 1, "segments")?,
            segment_count: 0,
        };
        let table = buffers.table(shape, places);
        buffers.segment_count = table.len() / SEGMENT_WORDS;
        buffers.segments = Memory::of(card, Values::U8, bytes_of(&table), "segments")?;
        Ok(buffers)
    }

    /// All partial sums, and where they go, as the kernel's `Segment` lies: from, to, length and parts in one, pitch.
    fn table(&self, shape: &AutoencoderShape, places: &Places) -> Vec<u64> {
        let mut table = Vec::new();
        let mut add = |parts: &Parts, from: usize, to: usize, len: usize| {
            let both = len as u64 | (parts.parts as u64) << 32;
            table.extend([parts.memory.at(from), to as u64, both, parts.pitch as u64]);
        };
        let last = shape.layers() - 1;
        let thin = shape.kernels[0] * shape.filters[0];
        add(&self.first, 0, places.encoder[0].weight.at, thin);
        add(&self.first, thin, places.encoder[0].bias.at, shape.filters[0]);
        for (i, layer) in places.encoder.iter().enumerate().skip(1) {
            add(&self.encoder_weights[i - 1], 0, layer.weight.at, layer.weight.len);
            add(&self.encoder_biases[i - 1], 0, layer.bias.at, layer.bias.len);
        }
        add(&self.to_hidden_bias, 0, places.to_hidden.bias.at, places.hidden);
        add(&self.from_hidden_bias, 0, places.from_hidden.bias.at, shape.features());
        for (j, layer) in places.decoder.iter().enumerate().take(last) {
            add(&self.decoder_weights[j], 0, layer.weight.at, layer.weight.len);
            add(&self.decoder_biases[j], 0, layer.bias.at, layer.bias.len);
        }
        let thin_layer = &places.decoder[last];
        add(&self.last, 0, thin_layer.weight.at, thin);
        add(&self.last, thin, thin_layer.bias.at, 1);
        table
    }

    /// Level of the values of a series with one channel.
    pub fn series_level(shape: &AutoencoderShape) -> Level {
        Level { length: shape.time_points, stride: shape.time_points }
    }
}

/// 64-bit words of the kernel's `Segment`.
const SEGMENT_WORDS: usize = 4;
