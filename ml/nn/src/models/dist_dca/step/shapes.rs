//! The shapes of a step: every convolution and what comes between, as they follow from the architecture.

use crate::models::dist_dca::Architecture;
use crate::{
    kernels::{
        conv1d::Conv1dShape,
        maps::{Maps, Side},
    },
    layers::Activation,
};

#[derive(Clone, Debug)]
pub(in crate::models::dist_dca) struct Shapes {
    /// Of the encoder, from the series to the top.
    pub encoder: Vec<Conv1dShape>,
    /// Of the decoder, from the top to the series.
    pub decoder: Vec<Conv1dShape>,
    pub pools: usize,
    pub window: usize,
    pub switches: bool,
    pub activation: Activation,
    pub lambda: f64,
    pub time_points: usize,
    pub hidden: usize,
    /// Z and Z′.
    pub top: Maps,
}

impl Shapes {
    pub fn new(architecture: &Architecture) -> Self {
        let config = &architecture.config;
        let side = |layer: usize| match layer {
            0 => Side::SERIES,
            _ => Side::panels_of(config.filters[layer - 1]),
        };
        let (lengths, kernels) = (&architecture.lengths, &config.kernels);
        let layers = 0..kernels.len();
        let shape = |from, to, layer: usize| Conv1dShape::same(from, to, kernels[layer], lengths[layer]);
        Self {
            encoder: layers.clone().map(|i| shape(side(i), side(i + 1), i)).collect(),
            decoder: layers.rev().map(|i| shape(side(i + 1), side(i), i)).collect(),
            pools: config.pools,
            window: config.pool_window,
            switches: config.switches,
            activation: config.activation,
            lambda: f64::from(config.lambda),
            time_points: architecture.time_points(),
            hidden: architecture.hidden,
            top: Maps::new(side(kernels.len()), lengths[kernels.len()]),
        }
    }

    pub fn layers(&self) -> usize {
        self.encoder.len()
    }

    /// Values of Z.
    pub fn features(&self) -> usize {
        self.top.side.channels * self.top.length
    }

    /// What the encoder's layer `i` hands on, pooled if it is: the padded input of the next, or Z.
    pub fn encoded(&self, i: usize) -> Maps {
        self.encoder.get(i + 1).map_or(self.top, Conv1dShape::x)
    }

    /// What the decoder's layer `j` takes, before it is unpooled.
    pub fn before_decoder(&self, j: usize) -> Maps {
        j.checked_sub(1).and_then(|j| self.decoder.get(j)).map_or(self.top, Conv1dShape::y)
    }

    /// The encoder's layer that the decoder's layer `j` mirrors.
    pub fn mirrored(&self, j: usize) -> usize {
        self.layers() - 1 - j
    }
}
