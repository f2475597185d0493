//! The shapes of an autoencoder, and where its parameters lie.

use crate::{Conv1d, Error, Level, Result};

/// The nonlinearity after a convolution, as kernels number it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    #[default]
    Relu = 0,
    /// `max(x, 0.01·x)`.
    LeakyRelu = 1,
    /// `tanh(x)`.
    Tanh = 2,
    /// `x`.
    Linear = 3,
}

/// A convolutional autoencoder: convolutions with poolings, a fully connected layer to the hidden state, one back, and
/// the same mirrored.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoencoderShape {
    /// Points of a series.
    pub time_points: usize,
    /// Filters of each encoder layer; the decoder mirrors them.
    pub filters: Vec<usize>,
    /// Length of the filters of each encoder layer; the decoder mirrors them.
    pub kernels: Vec<usize>,
    /// Layers followed by a pooling, from the first.
    pub pools: usize,
    /// Window of a pooling; the last may be shorter.
    pub window: usize,
    /// The decoder un-pools by the encoder's switches; if false, by repetition.
    pub switches: bool,
    /// Width of the hidden state.
    pub hidden: usize,
    /// After every convolution but the decoder's last.
    pub activation: Activation,
    /// λ, the weight of `‖Z − Z′‖²`.
    pub lambda: f32,
}

impl AutoencoderShape {
    /// Says what is wrong with it, if anything is.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn check(&self) -> Result<()> {
        let wrong = |reason: &str| Err(Error::Shape { what: "an autoencoder", reason: reason.into() });
        if self.filters.is_empty()
            || self.filters.len() != self.kernels.len()
            || self.pools > self.filters.len()
        {
            return wrong("it needs one kernel and at most one pooling for each of its layers, at least one");
        }
        let sizes =
            self.filters.iter().chain(&self.kernels).chain([&self.time_points, &self.hidden, &self.window]);
        if sizes.into_iter().any(|n| *n == 0) || self.window > 255 {
            return wrong("a size is zero, or a window longer than 255");
        }
        Ok(())
    }

    /// Layers of the encoder.
    pub fn layers(&self) -> usize {
        self.filters.len()
    }

    /// Points before each encoder layer, and of Z.
    pub fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![self.time_points];
        for layer in 0..self.layers() {
            lengths.push(lengths[layer].div_ceil(self.window_of(layer)));
        }
        lengths
    }

    /// Channels before each encoder layer, and of Z.
    pub fn channels(&self) -> Vec<usize> {
        std::iter::once(1).chain(self.filters.iter().copied()).collect()
    }

    /// The window behind encoder layer `layer`; 1 without a pooling.
    pub fn window_of(&self, layer: usize) -> usize {
        if layer < self.pools { self.window } else { 1 }
    }

    /// The encoder's convolution `layer`; the decoder's that mirrors it has channels and filters exchanged.
    pub(crate) fn conv(&self, layer: usize, samples: usize) -> Conv1d {
        let channels = self.channels();
        Conv1d {
            samples,
            length: self.lengths()[layer],
            channels: channels[layer],
            filters: channels[layer + 1],
            kernel: self.kernels[layer],
        }
    }

    /// The decoder's convolution that mirrors encoder layer `layer`.
    pub(crate) fn mirrored(&self, layer: usize, samples: usize) -> Conv1d {
        let conv = self.conv(layer, samples);
        Conv1d { channels: conv.filters, filters: conv.channels, ..conv }
    }

    /// Series before encoder layer `layer`, as rows.
    pub(crate) fn level(&self, layer: usize) -> Level {
        let conv = self.conv(layer, 1);
        Level { length: conv.length, stride: conv.stride() }
    }

    /// Z and Z′: as far from sample to sample as what the decoder's first convolution takes.
    pub(crate) fn top(&self) -> Level {
        let layers = self.layers();
        Level { length: self.lengths()[layers], stride: self.level(layers - 1).stride }
    }

    /// Values of Z.
    pub fn features(&self) -> usize {
        self.top().length * self.filters[self.layers() - 1]
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        let channels = self.channels();
        let convolutions: usize =
            (0..self.layers()).map(|i| 2 * self.conv(i, 1).weights() + channels[i] + channels[i + 1]).sum();
        convolutions + 2 * self.features() * self.hidden + self.features() + self.hidden
    }

    /// Floating-point operations of a training step for each sample: products forward, and those of both gradients.
    pub fn operations(&self) -> f64 {
        let conv = |i: usize| 2.0 * (self.conv(i, 1).weights() * self.lengths()[i]) as f64;
        let convolutions: f64 = (0..self.layers()).map(|i| 6.0 * conv(i)).sum::<f64>() - conv(0);
        convolutions + 12.0 * (self.features() * self.hidden) as f64
    }
}

/// A run of parameters on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub at: usize,
    pub len: usize,
}

/// Weight and bias of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub weight: Run,
    pub bias: Run,
}

/// Where parameters lie on the card: filters as `[tap][channel][filter]`, fully connected layers with features as
/// `[time][channel]` and the hidden state padded, every run aligned for vector access.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Places {
    pub encoder: Vec<Layer>,
    pub to_hidden: Layer,
    pub from_hidden: Layer,
    pub decoder: Vec<Layer>,
    /// Values of all, with padding.
    pub total: usize,
    /// The hidden state's width with padding.
    pub hidden: usize,
}

/// Parameters of a run start at multiples of this.
const ALIGNMENT: usize = 64;

impl Places {
    pub fn of(shape: &AutoencoderShape) -> Self {
        let mut total = 0;
        let mut run = |len: usize| {
            let at = total;
            total += len.next_multiple_of(ALIGNMENT);
            Run { at, len }
        };
        let (layers, channels, features) = (shape.layers(), shape.channels(), shape.features());
        let hidden = shape.hidden.next_multiple_of(16);
        let mut layer = |weight: usize, bias: usize| Layer { weight: run(weight), bias: run(bias) };
        let encoder = (0..layers).map(|i| layer(shape.conv(i, 1).weights(), channels[i + 1])).collect();
        let to_hidden = layer(features * hidden, hidden);
        let from_hidden = layer(features * hidden, features);
        let decoder = (0..layers).rev().map(|i| layer(shape.conv(i, 1).weights(), channels[i])).collect();
        Self { encoder, to_hidden, from_hidden, decoder, total, hidden }
    }

    /// Of every value of the flat vector, in the order of declaration (filters `[filter][channel][tap]`, fully connected
    /// layers `[input][output]` with features as `[channel][time]`), where it lies on the card.
    pub fn map(&self, shape: &AutoencoderShape) -> Vec<u32> {
        let mut map = Vec::with_capacity(shape.parameters());
        let (layers, length) = (shape.layers(), shape.top().length);
        let channels = shape.channels();
        let top = channels[layers];
        let filters = |map: &mut Vec<u32>, layer: &Layer, [channels, filters, kernel]: [usize; 3]| {
            for o in 0..filters {
                for c in 0..channels {
                    map.extend(
                        (0..kernel).map(|k| (layer.weight.at + (k * channels + c) * filters + o) as u32),
                    );
                }
            }
            map.extend((0..filters).map(|o| (layer.bias.at + o) as u32));
        };
        for (i, layer) in self.encoder.iter().enumerate() {
            filters(&mut map, layer, [channels[i], channels[i + 1], shape.kernels[i]]);
        }
        let features = || (0..top).flat_map(|c| (0..length).map(move |t| t * top + c));
        for f in features() {
            map.extend((0..shape.hidden).map(|h| (self.to_hidden.weight.at + f * self.hidden + h) as u32));
        }
        map.extend((0..shape.hidden).map(|h| (self.to_hidden.bias.at + h) as u32));
        for h in 0..shape.hidden {
            let row = self.from_hidden.weight.at + h * top * length;
            map.extend(features().map(|f| (row + f) as u32));
        }
        map.extend(features().map(|f| (self.from_hidden.bias.at + f) as u32));
        for (j, layer) in self.decoder.iter().enumerate() {
            let i = layers - 1 - j;
            filters(&mut map, layer, [channels[i + 1], channels[i], shape.kernels[i]]);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn paper() -> AutoencoderShape {
        AutoencoderShape {
            time_points: 284,
            filters: vec![32, 64, 128, 256],
            kernels: vec![21, 9, 9, 9],
            pools: 3,
            window: 2,
            switches: true,
            hidden: 284,
            activation: Activation::Relu,
            lambda: 0.006,
        }
    }

    #[test]
    fn the_paper_s_sizes() {
        let shape = paper();
        assert_eq!(shape.lengths(), [284, 142, 71, 36, 36]);
        assert_eq!(shape.parameters(), 6_020_381);
        assert_eq!(shape.features(), 9216);
        // About 255 million operations a sample.
        assert!((2.54e8..2.56e8).contains(&shape.operations()), "{}", shape.operations());
    }

    #[test]
    fn every_parameter_has_a_place_of_its_own() {
        let small = AutoencoderShape {
            time_points: 11,
            filters: vec![2, 3],
            kernels: vec![3, 4],
            pools: 2,
            hidden: 3,
            ..paper()
        };
        for shape in [paper(), small] {
            let places = Places::of(&shape);
            let mut map = places.map(&shape);
            assert_eq!(map.len(), shape.parameters());
            map.sort_unstable();
            map.dedup();
            assert_eq!(map.len(), shape.parameters());
            assert!(map.last().is_some_and(|last| (*last as usize) < places.total));
        }
    }

    #[test]
    fn places_follow_the_order_of_declaration() {
        let shape = AutoencoderShape {
            time_points: 4,
            filters: vec![2],
            kernels: vec![3],
            pools: 1,
            hidden: 5,
            ..paper()
        };
        let places = Places::of(&shape);
        let map = places.map(&shape);
        // encoder.0.weight [2, 1, 3]: the second tap of the second filter.
        assert_eq!(map[4] as usize, places.encoder[0].weight.at + 2 + 1);
        // to_hidden.weight [channel · 2 points, 5]: channel 1, point 0 is row 2 there, and row 1 here.
        let to_hidden = 6 + 2;
        assert_eq!(map[to_hidden + 2 * 5 + 3] as usize, places.to_hidden.weight.at + places.hidden + 3);
        // from_hidden.weight [5, channel · 2 points].
        let from_hidden = to_hidden + 4 * 5 + 5;
        assert_eq!(map[from_hidden + 4 + 2] as usize, places.from_hidden.weight.at + 4 + 1);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(paper().check().is_ok());
        assert!(AutoencoderShape { kernels: vec![3], ..paper() }.check().is_err_and(|e| e.is_input()));
        assert!(AutoencoderShape { pools: 5, ..paper() }.check().is_err());
        assert!(AutoencoderShape { hidden: 0, ..paper() }.check().is_err());
    }
}
