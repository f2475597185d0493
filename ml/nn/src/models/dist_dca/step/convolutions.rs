//! The weights of all convolutions as the kernels read them, and the sums of their gradients.

use super::{group::Group, shapes::Shapes};
use crate::{
    kernels::{
        conv1d::{Conv1dShape, Filters, WeightGradient},
        real::Real,
    },
    parameters::ParameterLayout,
};
use rayon::prelude::*;
use std::ops::Range;

/// Where weight and bias of a layer lie in the flat vector.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub weight: Range<usize>,
    pub bias: Range<usize>,
}

/// The places of all layers, in the order of the flat vector: encoder, to and from the hidden state, decoder.
pub(super) fn places(layout: &ParameterLayout) -> Vec<Place> {
    let pairs = layout.entries().as_chunks::<2>().0;
    pairs.iter().map(|[w, b]| Place { weight: w.range.clone(), bias: b.range.clone() }).collect()
}

#[derive(Clone, Debug)]
pub(super) struct Convolutions<E> {
    pub encoder: Vec<Filters<E>>,
    /// None for the first layer: nobody asks for the gradient of the series.
    pub encoder_backward: Vec<Option<Filters<E>>>,
    pub decoder: Vec<Filters<E>>,
    pub decoder_backward: Vec<Filters<E>>,
}

impl<E: Real> Convolutions<E> {
    pub fn new(shapes: &Shapes) -> Self {
        let backward = |(i, shape): (usize, &Conv1dShape)| (i > 0).then(|| Filters::backward(shape));
        Self {
            encoder: shapes.encoder.iter().map(Filters::forward).collect(),
            encoder_backward: shapes.encoder.iter().enumerate().map(backward).collect(),
            decoder: shapes.decoder.iter().map(Filters::forward).collect(),
            decoder_backward: shapes.decoder.iter().map(Filters::backward).collect(),
        }
    }

    /// Takes over the flat vector.
    pub fn pack(&mut self, parameters: &[E], places: &[Place]) {
        let decoder = &places[places.len() - self.decoder.len()..];
        for (filters, place) in
            self.encoder.iter_mut().zip(places).chain(self.decoder.iter_mut().zip(decoder))
        {
            filters.pack(&parameters[place.weight.clone()], &parameters[place.bias.clone()]);
        }
        let encoder = self.encoder_backward.iter_mut().zip(places);
        let encoder = encoder.filter_map(|(filters, place)| Some((filters.as_mut()?, place)));
        for (filters, place) in encoder.chain(self.decoder_backward.iter_mut().zip(decoder)) {
            filters.pack_backward(&parameters[place.weight.clone()]);
        }
    }
}

/// Sums over the samples of a minibatch, encoder and decoder.
#[derive(Clone, Debug)]
pub(super) struct Gradients<E> {
    encoder: Vec<WeightGradient<E>>,
    decoder: Vec<WeightGradient<E>>,
}

impl<E: Real> Gradients<E> {
    pub fn new(shapes: &Shapes) -> Self {
        let zeros = |shapes: &[Conv1dShape]| shapes.iter().map(|s| WeightGradient::zeros(*s)).collect();
        Self { encoder: zeros(&shapes.encoder), decoder: zeros(&shapes.decoder) }
    }

    pub fn clear(&mut self) {
        self.encoder.iter_mut().chain(&mut self.decoder).for_each(WeightGradient::clear);
    }

    /// Adds what the groups keep; biases go to the flat `gradient` at once.
    pub fn add(&mut self, shapes: &Shapes, groups: &[Group<E>], places: &[Place], gradient: &mut [E]) {
        let layers = self.encoder.par_iter_mut().zip(&shapes.encoder).enumerate();
        let decoder = self.decoder.par_iter_mut().zip(&shapes.decoder).enumerate();
        rayon::join(
            || {
                layers.for_each(|(i, (sum, shape))| {
                    sum.add(groups.iter().map(|g| {
                        let kept = &g.encoder[i];
                        (&kept.x[..g.samples * shape.x().len()], &kept.dy[..g.samples * shape.dy().len()])
                    }));
                });
            },
            || {
                decoder.for_each(|(j, (sum, shape))| {
                    sum.add(groups.iter().map(|g| {
                        let kept = &g.decoder[j];
                        (&kept.x[..g.samples * shape.x().len()], &kept.dy[..g.samples * shape.dy().len()])
                    }));
                });
            },
        );
        let decoder = &places[places.len() - self.decoder.len()..];
        for group in groups {
            let kept = group.encoder.iter().zip(places).chain(group.decoder.iter().zip(decoder));
            for (kept, place) in kept {
                let bias = gradient[place.bias.clone()].iter_mut().zip(&kept.bias);
                bias.for_each(|(sum, part)| *sum += *part);
            }
        }
    }

    /// The sums of the weights become those of the flat `gradient`.
    pub fn give(&self, places: &[Place], gradient: &mut [E]) {
        let decoder = &places[places.len() - self.decoder.len()..];
        for (sum, place) in self.encoder.iter().zip(places).chain(self.decoder.iter().zip(decoder)) {
            sum.give(&mut gradient[place.weight.clone()]);
        }
    }
}
